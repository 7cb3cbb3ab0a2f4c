"""The broker's clock and its timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakSet


class Timer:
    """A call that is due at some time of the event loop."""

    __slots__ = ("__weakref__", "_args", "_callback", "_due", "_handle", "_loop", "of_member")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        due: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
    ) -> None:
        self._loop = loop
        self._due = due
        self._callback = callback
        self._args = args
        # Whether it waits for a member of a group, which cannot hurry when the clock is set ahead.
        self.of_member = False
        self._handle: asyncio.TimerHandle | None = loop.call_at(due, self._run)

    def _run(self) -> None:
        self._handle = None
        self._callback(*self._args)

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
    """The clock, and timers in one event loop, which all end together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self.loop = loop
        self._now_ms = now_ms
        self._ahead_ms = 0
        # Timers that have run or were cancelled drop out by themselves.
        self._timers: WeakSet[Timer] = WeakSet()

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._now_ms() + self._ahead_ms

    def advance(self, ms: int, *, members: bool = True) -> None:
        """Set the clock ahead. Timers that are due then run in the loop's next turn.

        Args:
            ms: milliseconds.
            members: whether this includes the sessions and rebalances of group members.
        """
        self._ahead_ms += ms
        for timer in list(self._timers):
            if members or not timer.of_member:
                timer.hasten(ms / 1000)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call a function in the loop after a while, unless ``cancel_all`` comes first."""
        timer = Timer(self.loop, self.loop.time() + seconds, callback, args)
        self._timers.add(timer)
        return timer

    def cancel_all(self) -> None:
        for timer in list(self._timers):
            timer.cancel()
