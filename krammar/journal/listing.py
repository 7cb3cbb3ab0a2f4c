"""Lists of journals that are looked up now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from krammar.journal.mapping import Partitions
from krammar.journal.specs import JournalSpec


def listing(found: Callable[[], Sequence[JournalSpec]], refresh_ms: float) -> Partitions:
    """``found``, called again after that time, and another object only if its result is another."""
    last: Sequence[JournalSpec] = ()
    due = float("-inf")

    def partitions() -> Sequence[JournalSpec]:
        nonlocal last, due
        now = time.monotonic()
        if now >= due:
            due = now + refresh_ms / 1000
            new = found()
            if new != last:
                last = new
        return last

    return partitions
