"""Waiting for events, in all tests with the same patience."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

# Seconds, far more than any operation of a test needs: it keeps a broken test from hanging. A busy machine can be
# twenty times slower than an idle one, so this is no place to be tight.
PATIENCE = 180
# Seconds between two attempts: without it, waiting would take the processor, and Python's lock, from what it waits for.
PAUSE = 0.001

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    *,
    after: Callable[[], object] = lambda: None,
    state: Callable[[], object] | None = None,
) -> T:
    """Call a function until it returns something true, and return that.

    Args:
        condition: the function. Its source is part of the error message.
        after: called after each attempt that failed, to poll or for a longer pause.
        state: what to show in the error message too.

    Raises:
        AssertionError: after ``PATIENCE`` seconds; it says what was waited for.
    """
    ends = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < ends, _timed_out(condition, state)
        after()
        time.sleep(PAUSE)
    return found


def _timed_out(condition: Callable[[], object], state: Callable[[], object] | None) -> str:
    try:
        source = inspect.getsource(condition).strip()
    except (OSError, TypeError):  # a callable without Python source
        source = repr(condition)
    text = f"still false after {PATIENCE} s: {source}"
    return text if state is None else f"{text}\nlast seen: {state()!r}"
