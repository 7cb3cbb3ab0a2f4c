"""The topics that the members of a group subscribe to."""

from __future__ import annotations

from collections.abc import Iterable, KeysView


class SubscribedTopics:
    """How many members and patterns of a group name each topic, existing or not.

    They are counted with each change, because hundreds of members can name thousands of topics
    each.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def names(self) -> KeysView[str]:
        """The names of the topics, now and later."""
        return self._counts.keys()

    def add(self, topics: Iterable[str]) -> None:
        for name in topics:
            self._counts[name] = self._counts.get(name, 0) + 1

    def remove(self, topics: Iterable[str]) -> None:
        """Remove topics that were added before."""
        for name in topics:
            if self._counts[name] == 1:
                del self._counts[name]
            else:
                self._counts[name] -= 1
