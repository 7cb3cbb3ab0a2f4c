"""Lists of journals that are refreshed periodically."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from krammar.journal.mapping import Partitions
from krammar.journal.specs import JournalSpec


def refreshing(find: Callable[[], Sequence[JournalSpec]], refresh_ms: float) -> Partitions:
    """Return a function that caches the result of ``find`` for ``refresh_ms``.

    It returns the same object until the result changes, as mappings expect.
    """
    last: Sequence[JournalSpec] = ()
    due = float("-inf")

    def partitions() -> Sequence[JournalSpec]:
        nonlocal last, due
        now = time.monotonic()
        if now >= due:
            if last:  # if this fails, the last list is used for a while
                due = now + refresh_ms / 1000
            new = find()
            due = now + refresh_ms / 1000
            if new != last:
                last = new
        return last

    return partitions
