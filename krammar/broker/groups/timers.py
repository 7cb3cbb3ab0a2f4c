"""The timers of groups, identified by group and key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from krammar.broker.timers import Timer, Timers

if TYPE_CHECKING:
    from krammar.broker.groups.group import Group
    from krammar.broker.groups.protocol import Key


class GroupTimers:
    """A group has at most one timer per key; a second one replaces the first."""

    def __init__(self, timers: Timers) -> None:
        self._all = timers
        self._timers: dict[Group, dict[Key, Timer]] = {}

    def schedule(self, group: Group, key: Key, delay: int, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay`` milliseconds."""

        def elapsed() -> None:
            self.cancel(group, key)
            action()

        timers = self._timers.setdefault(group, {})
        if (old := timers.get(key)) is not None:
            old.cancel()
        timers[key] = self._all.call_later(max(delay, 0) / 1000, elapsed)

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
