"""A mapping of bounded size, which forgets the entries that were not stored or used for the longest time."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(OrderedDict[K, V]):
    """The newest entries of a mapping, such as the names of topics by their ids.

    Peers decide how many entries there are, so the memory needs a limit.

    ```python
    names: Remembered[UUID, str] = Remembered(100_000)
    names[topic_id] = "orders"
    names.use(topic_id)
    ```
    """

    def __init__(self, limit: int) -> None:
        """Create an empty mapping of at most ``limit`` entries."""
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        """Store a value as the newest entry."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)

    def use(self, key: K) -> V | None:
        """Return a value, which is the newest entry from now on; None if there is none."""
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found
