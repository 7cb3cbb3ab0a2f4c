"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import re
import signal

import pytest
from hypothesis import HealthCheck, settings


def pytest_configure() -> None:
    """Let Ctrl-C end the processes that tests start, and let a busy machine be slow.

    A shell without job control has its background jobs ignore Ctrl-C, and processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile(
        "krammar", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("krammar")


def pytest_xdist_auto_num_workers() -> int | None:
    """Return 1.5 workers per processor, because tests of clients wait for timers and other processes."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # pytest-xdist reads it
    return (os.cpu_count() or 1) * 3 // 2


def pytest_collection_finish() -> None:
    """Let the garbage collector ignore what lives until the end: all modules and thousands of tests."""
    gc.collect()
    gc.freeze()


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
