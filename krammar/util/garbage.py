"""Keeps Python's garbage collector out of the way of servers."""

from __future__ import annotations

import gc


def exempt_all() -> None:
    """Exempt all current objects from garbage collection. A server's process calls this when it is ready.

    Modules, classes and definitions stay for good. Each full collection would look at all of them, which takes 20 ms of
    the event loop. Collecting them before takes as long, so garbage of the start stays, too.
    """
    gc.freeze()
