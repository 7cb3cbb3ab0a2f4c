"""The broker's clock and its timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakSet

from krammar.util.clock import time_ns
from krammar.util.turns import Budget, Steps, one_by_one

A = TypeVar("A")


def system_ms() -> int:
    """Return the milliseconds since 1970."""
    return time_ns() // 1_000_000


@dataclass(slots=True, weakref_slot=True, eq=False)
class Timer:
    """A call that is due at some time of the event loop.

    Attributes:
        of_member: whether it waits for a member of a group, which cannot hurry when the clock is
            set ahead
    """

    _timers: Timers
    _loop: asyncio.AbstractEventLoop
    _due: float
    _callback: Callable[..., object]
    _args: tuple[object, ...]
    of_member: bool = False
    _handle: asyncio.Handle | None = field(init=False)

    def __post_init__(self) -> None:
        self._handle = self._loop.call_at(self._due, self._run)

    def _run(self) -> None:
        self._handle = None
        if self._timers.budget.has_time():
            self.go_on()
        else:
            self._timers.budget.wait(self)

    def go_on(self) -> None:
        """Make the call, which had to wait for this turn."""
        self._callback(*self._args)

    def cancel(self) -> None:
        """Do not make the call. Does nothing if it was made."""
        if self._handle is None:
            self._timers.budget.forget(self)
        else:
            self._handle.cancel()
            self._handle = None

    def hasten(self, seconds: float) -> None:
        """Make the call earlier."""
        if self._handle is not None:
            self._handle.cancel()
            self._due -= seconds
            self._handle = self._loop.call_at(self._due, self._run)


class Timers:
    """The clock, and timers in one event loop, which all end together.

    Args:
        budget: of all timers that are due in the same turn of the event loop, such as the sessions
            of many members

    Attributes:
        ahead_ms: how far the clock was set ahead
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        budget: Budget | None = None,
    ) -> None:
        self.loop = loop
        self.budget = Budget() if budget is None else budget
        self._now_ms = now_ms
        self.ahead_ms = 0
        # Timers that have run or were cancelled drop out by themselves.
        self._timers: WeakSet[Timer] = WeakSet()
        self._branches: list[Timers] = []

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._now_ms() + self.ahead_ms

    def branch(self) -> Timers:
        """Return timers with a clock of their own, which advances together with this one."""
        own = Timers(self.loop, self.now_ms, self.budget)
        self._branches.append(own)
        return own

    def advance(self, ms: int, *, members: bool = True) -> None:
        """Set the clock ahead. Timers that are due then run in the loop's next turn.

        Args:
            ms: milliseconds.
            members: whether this includes the sessions and rebalances of group members.
        """
        self.ahead_ms += ms
        self._hasten(ms, members)

    def _hasten(self, ms: int, members: bool) -> None:
        for timer in list(self._timers):
            if members or not timer.of_member:
                timer.hasten(ms / 1000)
        for branch in self._branches:
            branch._hasten(ms, members)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call a function in the loop after a while, unless ``cancel_all`` comes first."""
        timer = Timer(self, self.loop, self.loop.time() + seconds, callback, args)
        self._timers.add(timer)
        return timer

    def in_turns(self, function: Callable[[A], object], items: Iterable[A]) -> None:
        """Call a function with each item: some now, and the others in the next turns of the event loop."""
        self._advance(one_by_one(function, list(items)))

    def _advance(self, steps: Steps[object]) -> None:
        if not self.budget.advance(steps).done:
            self.call_later(0, self._advance, steps)

    def cancel_all(self) -> None:
        for timer in list(self._timers):
            timer.cancel()
        for branch in self._branches:
            branch.cancel_all()
