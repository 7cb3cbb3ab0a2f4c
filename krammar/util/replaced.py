"""Tools that replace parts of Python, with which a server cannot run in the process of the test."""

from __future__ import annotations

import os
import sys


def replaced_by() -> str:
    """Describe the tool that replaces threads or files now, with the consequence; empty if none does."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return (
            "gevent.monkey has replaced threads, so the event loop of a broker in this process would run in a greenlet "
            "of this thread and never let others run"
        )
    # pyfakefs replaces the names of modules that other modules have imported.
    if type(os).__module__.startswith("pyfakefs."):
        return "pyfakefs has replaced the files of this process, also for a broker in it"
    return ""
