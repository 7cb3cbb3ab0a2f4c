"""The broker's clock and its timers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakSet

# The budget in seconds of all timers that are due in the same turn of the event loop, such as the
# sessions of many members. The last one can exceed it; the others run in the next turns.
TURN_SECONDS = 0.02
# How long ``in_turns`` works in one turn.
PORTION_SECONDS = 0.02

A = TypeVar("A")


def system_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


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
        if not self._timers.may_run():
            self._handle = self._loop.call_soon(self._run)
            return
        self._handle = None
        began = time.monotonic()
        self._callback(*self._args)
        self._timers.spent += time.monotonic() - began

    def cancel(self) -> None:
        """Do not make the call. Does nothing if it was made."""
        if self._handle is not None:
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

    Attributes:
        spent: seconds that timers have run since the budget of a turn was last used up
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self.loop = loop
        self._now_ms = now_ms
        self._ahead_ms = 0
        # Timers that have run or were cancelled drop out by themselves.
        self._timers: WeakSet[Timer] = WeakSet()
        self._branches: list[Timers] = []
        self.spent = 0.0
        self._is_over = False  # whether the budget of this turn is used up

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._now_ms() + self._ahead_ms

    def branch(self) -> Timers:
        """Return timers with a clock of their own, which advances together with this one."""
        own = Timers(self.loop, self.now_ms)
        self._branches.append(own)
        return own

    def advance(self, ms: int, *, members: bool = True) -> None:
        """Set the clock ahead. Timers that are due then run in the loop's next turn.

        Args:
            ms: milliseconds.
            members: whether this includes the sessions and rebalances of group members.
        """
        self._ahead_ms += ms
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
        self._in_turns(function, iter(list(items)))

    def _in_turns(self, function: Callable[[A], object], items: Iterator[A]) -> None:
        until = time.monotonic() + PORTION_SECONDS
        for item in items:
            function(item)
            if time.monotonic() >= until:
                self.call_later(0, self._in_turns, function, items)
                return

    def may_run(self) -> bool:
        """Return whether a timer that is due may run in this turn."""
        if self.spent < TURN_SECONDS:
            return True
        if not self._is_over:
            self._is_over = True
            self.loop.call_soon(self._begin_turn)
        return False

    def _begin_turn(self) -> None:
        self.spent = 0.0
        self._is_over = False

    def cancel_all(self) -> None:
        for timer in list(self._timers):
            timer.cancel()
        for branch in self._branches:
            branch.cancel_all()
