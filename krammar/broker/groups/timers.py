"""The timers of groups, each known by its group and a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from krammar.broker.groups.group import Group
    from krammar.broker.groups.protocol import Key


class CallLater(Protocol):
    def __call__(
        self, seconds: float, callback: Callable[[], object], /
    ) -> asyncio.TimerHandle: ...


class GroupTimers:
    """A group has one timer a key at most; scheduling another takes the place of the first."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._timers: dict[Group, dict[Key, asyncio.TimerHandle]] = {}

    def schedule(self, group: Group, key: Key, delay: int, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay`` milliseconds."""

        def elapsed() -> None:
            self.cancel(group, key)
            action()

        timers = self._timers.setdefault(group, {})
        if (old := timers.get(key)) is not None:
            old.cancel()
        timers[key] = self._call_later(max(delay, 0) / 1000, elapsed)

    def cancel(self, group: Group, key: Key) -> None:
        timers = self._timers.get(group)
        if timers is None:
            return
        if (timer := timers.pop(key, None)) is not None:
            timer.cancel()
        if not timers:
            del self._timers[group]

    def cancel_all(self, group: Group) -> None:
        for timer in self._timers.pop(group, {}).values():
            timer.cancel()
