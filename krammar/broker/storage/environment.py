"""What the logs of a broker share."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from krammar.wire.compression import DEFAULT_MAX_UNCOMPRESSED


def system_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Environment:
    """``fsync`` is ``always`` (before an append returns), ``interval`` (when flushed), or ``never``.

    ``later``             files to remove, and when, in milliseconds since 1970
    ``log_start_moved``   called when records were deleted on request: a promise that outlasts a crash
    ``max_uncompressed``  bytes that one batch may expand to while it is checked
    """

    now_ms: Callable[[], int] = system_ms
    warn: Callable[[str], None] = logging.getLogger("krammar.broker.storage").warning
    fsync: str = "interval"
    producer_expiry_ms: int = 86_400_000
    max_uncompressed: int = DEFAULT_MAX_UNCOMPRESSED
    log_start_moved: Callable[[], None] = lambda: None
    later: list[tuple[int, str]] = field(default_factory=list)

    def remove_later(self, paths: Iterable[str], delay_ms: int) -> None:
        due = self.now_ms() + delay_ms
        self.later.extend((due, path) for path in paths if os.path.exists(path))
