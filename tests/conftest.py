"""What holds for all tests."""

from __future__ import annotations

import re
import signal

import pytest


def pytest_configure() -> None:
    """Let Ctrl-C end the processes that tests start.

    A shell without job control has its background jobs ignore it, and processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run the tests that share a module's fixture: each worker would set it up."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(definitions[-1].scope == "module" for definitions in fixtures):
            module = item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(re.sub(r"\W", "_", module)))
