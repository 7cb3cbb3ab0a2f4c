"""Waits for what tests ask a broker about, with errors that say what was found instead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from krammar.testing.groups import Group
from krammar.testing.probe import Probe
from krammar.testing.records import Record
from krammar.util.clock import monotonic
from krammar.util.diagnostics import did_you_mean

T = TypeVar("T")

# The shortest pause between two looks at a condition, in seconds.
PAUSE = 0.002
# How many topics an error message names.
_NAMED = 20


class NotInTime(AssertionError):
    """A condition did not become true in time."""


def is_committed(isolation_level: str) -> bool:
    """Return whether records of open and aborted transactions are left out. Raises ValueError."""
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise ValueError(
            f"isolation_level: {isolation_level!r} is neither 'read_committed' nor 'read_uncommitted'"
        )
    return isolation_level == "read_committed"


def wait_until(condition: Callable[[], T], timeout: float) -> T:
    """Wait until a function returns something true, and return that. Raises NotInTime after ``timeout`` seconds."""
    deadline = monotonic() + timeout
    while True:
        begin = monotonic()
        found = condition()
        if found:
            return found
        now = monotonic()
        if now > deadline:
            raise NotInTime(
                f"the condition is still false after {timeout:g} s; it returned {found!r}"
                + _loop_hint()
            )
        # A condition that reads many records leaves half of the time to others.
        time.sleep(min(max(PAUSE, now - begin), max(deadline - now, 0)))


def wait_for_records(
    probe: Probe, topic: str, count: int, partition: int | None, committed: bool, timeout: float
) -> list[Record]:
    """Wait until a topic has at least ``count`` records, and return all of them.

    Args:
        partition: count and return only the records of this partition
        committed: leave out records of open and aborted transactions
        timeout: in seconds

    Raises:
        NotInTime: there are fewer.
        ValueError: ``count`` is less than 1.
    """

    def enough() -> list[Record] | None:
        found = probe.records(topic, partition, committed)
        return found if len(found) >= count else None

    if count < 1:
        raise ValueError(f"count: {count} records are there at once; wait for 1 or more")
    try:
        return wait_until(enough, timeout) or []
    except NotInTime:
        problem = _too_few(probe, topic, count, partition, committed, timeout)
        raise NotInTime(problem + _loop_hint()) from None


def wait_for_consumer(probe: Probe, group: str, timeout: float) -> Group:
    """Wait until a group is stable, and each partition of its members was fetched since then. Raises NotInTime."""
    problem = ""

    def reads() -> bool:
        nonlocal problem
        problem = probe.unread(group)
        return not problem

    _wait(reads, timeout, lambda: f"group {group!r} {problem} after {timeout:g} s")
    return probe.groups()[group]


def wait_for_lag(probe: Probe, group: str, most: int, timeout: float) -> Group:
    """Wait until a group has committed offsets, and all records but ``most`` of these partitions. Raises NotInTime."""
    found: Group | None = None

    def committed() -> bool:
        nonlocal found
        found = probe.groups().get(group)
        return found is not None and bool(found.lag) and sum(found.lag.values()) <= most

    def problem() -> str:
        if found is None:
            return f"group {group!r} does not exist after {timeout:g} s"
        if not found.lag:
            return f"group {group!r} has committed no offset after {timeout:g} s"
        lag = ", ".join(f"{topic}-{at}: {n}" for (topic, at), n in found.lag.items() if n)
        return f"group {group!r} has a lag of {sum(found.lag.values())} after {timeout:g} s ({lag})"

    _wait(committed, timeout, problem)
    assert found is not None
    return found


def _wait(condition: Callable[[], bool], timeout: float, problem: Callable[[], str]) -> None:
    """Wait until a condition is true. Raises NotInTime with ``problem``."""
    try:
        wait_until(condition, timeout)
    except NotInTime:
        raise NotInTime(problem() + _loop_hint()) from None


def _too_few(
    probe: Probe, topic: str, count: int, partition: int | None, committed: bool, timeout: float
) -> str:
    topics = probe.topics()
    waited = f"after {timeout:g} s"
    if topic not in topics:
        names = sorted(topics)
        others = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        near = did_you_mean(topic, names)
        hint = near or (f"the topics are {others}" if names else "there are no topics")
        return f"topic {topic!r} does not exist {waited}; {hint}"
    stored = probe.records(topic, partition, False)
    found = probe.records(topic, partition, committed)
    where = f"topic {topic!r}" if partition is None else f"partition {partition} of {topic!r}"
    hidden = len(stored) - len(found)
    more = f"; {hidden} more belong to open or aborted transactions, or follow an open one"
    return f"{where} has {len(found)} of {count} records {waited}" + (more if hidden else "")


def _loop_hint() -> str:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return (
        "; the wait blocked the event loop of this thread, and clients that run in it: "
        "use `await asyncio.to_thread(…)`"
    )
