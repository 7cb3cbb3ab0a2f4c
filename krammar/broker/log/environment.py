"""The state that all logs of a broker share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path

from krammar.broker.timers import system_ms
from krammar.wire.batches.bounds import Bounds, default_bounds


@dataclass(slots=True)
class Environment:
    """Settings, callbacks and pending removals.

    Attributes:
        fsync: when records are forced to the disk: ``always`` (before an append
            returns), ``interval`` (at flushes), ``never`` (as Kafka by default:
            complete segments only), or ``off`` (nothing is)
        later: a heap of paths to remove and their times, in milliseconds since 1970
        removal_planned: called when a path is added to ``later``
        flush_planned: called when a log gets a ``flush.ms``
        delete_delay_ms: how long the folders of deleted partitions stay on the disk
        log_start_moved: called with topic and partition when records were deleted on request,
            which must survive a crash
        flushed: called after each flush of a log to the disk, with its seconds
        flush_failed: called with the folder of a log for which a flush has failed, so that
            acknowledged records can be lost
        bounds: the limits of a batch
    """

    now_ms: Callable[[], int] = system_ms
    warn: Callable[[str], None] = logging.getLogger("krammar.broker.log").warning
    error: Callable[[str], None] = logging.getLogger("krammar.broker.log").error
    fsync: str = "interval"
    producer_expiry_ms: int = 86_400_000
    bounds: Bounds = field(default_factory=default_bounds)
    log_start_moved: Callable[[str, int], None] = lambda topic, partition: None
    removal_planned: Callable[[], None] = lambda: None
    flush_planned: Callable[[], None] = lambda: None
    flushed: Callable[[float], object] = lambda seconds: None
    flush_failed: Callable[[Path], None] = lambda path: None
    delete_delay_ms: int = 60_000
    later: list[tuple[int, str]] = field(default_factory=list)

    @property
    def durable(self) -> bool:
        """Whether replaced files, new names and complete segments are forced to the disk."""
        return self.fsync != "off"

    @contextmanager
    def warning(
        self, text: str, errors: tuple[type[Exception], ...] = (OSError,)
    ) -> Iterator[None]:
        """Turn errors into a warning that begins with ``text``."""
        try:
            yield
        except errors as error:
            self.warn(f"{text}: {error}")

    def remove_later(
        self, paths: Iterable[str], delay_ms: int, deleted_ms: int | None = None
    ) -> None:
        """Schedule the removal of paths that exist, ``delay_ms`` after their deletion, by default now."""
        due_ms = (self.now_ms() if deleted_ms is None else deleted_ms) + delay_ms
        for path in paths:
            if os.path.exists(path):
                heappush(self.later, (due_ms, path))
        self.removal_planned()

    def take_due(self, now_ms: int) -> list[str]:
        """Return the files and folders that are due; the caller must remove them."""
        due = []
        while self.later and self.later[0][0] <= now_ms:
            due.append(heappop(self.later)[1])
        return due
