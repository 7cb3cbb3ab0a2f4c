"""The clocks of servers and waits: real time, while tools such as freezegun and time-machine stop or move the test's.

Otherwise the deadlines and timers of a broker in the process of such a test would never end, and records of clients,
whose clocks are real, would come from the future.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from typing import Any


def _private_copy_of_time() -> Any:
    """Return a copy of the module ``time`` that only this module has.

    freezegun replaces the functions of ``time``, and what modules have imported from it, by the identity of functions.
    This also works if krammar is imported while the time is frozen.
    """
    spec = find_spec("time")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_time = _private_copy_of_time()

# As the functions of ``time``. time-machine does not change them.
monotonic: Callable[[], float] = _time.monotonic
monotonic_ns: Callable[[], int] = _time.monotonic_ns
perf_counter: Callable[[], float] = _time.perf_counter
_time_ns: Callable[[], int] = _time.time_ns


def time_ns() -> int:
    """Return the nanoseconds since 1970."""
    # time-machine changes the C functions themselves, and offers the real ones.
    if "time_machine" in sys.modules:
        real = sys.modules["time_machine"].escape_hatch
        if real.is_travelling():
            return int(real.time.time_ns())
    return _time_ns()


def time_seconds() -> float:
    """Return the seconds since 1970."""
    return time_ns() / 1e9
