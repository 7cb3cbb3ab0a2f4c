"""Chooses the logs to compact, and compacts them in portions."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from weakref import WeakSet

from krammar.broker.log.compaction import Compaction, Dirt
from krammar.broker.log.environment import Environment
from krammar.broker.log.log import PartitionLog
from krammar.broker.log.log_config import INT64_MAX
from krammar.logfiles.damage import DamageError
from krammar.wire.errors import WireError


def find_dirt(log: PartitionLog, now_ms: int) -> Dirt:
    """Return the part of a log to compact. Raises OSError."""
    config = log.config
    segments = log.segments
    begin = log.cleaned_to
    if not segments[0].base_offset <= begin <= log.active.base_offset:
        begin = segments[0].base_offset
    begin = max(begin, log.log_start_offset)
    end = min(log.last_stable_offset, log.active.base_offset)
    clean = dirty = 0
    oldest = INT64_MAX
    for segment, following in pairwise(segments):
        if following.base_offset <= begin:
            clean += segment.size
            continue
        if segment.base_offset >= end:
            break
        if (
            config.min_compaction_lag_ms
            and segment.size
            and segment.newest_ms() > now_ms - config.min_compaction_lag_ms
        ):
            end = max(begin, segment.base_offset)
            break
        dirty += segment.size
        first = segment.header(0)
        if first is not None:
            oldest = min(oldest, first.max_timestamp)
    end = max(begin, end)
    overdue = dirty > 0 and now_ms - oldest > config.max_compaction_lag_ms
    total = clean + dirty
    return Dirt(begin, end, dirty, dirty / total if total else 0.0, overdue)


def due_round(log: PartitionLog, now_ms: int) -> Compaction | None:
    """Return a round for ``log`` if enough of it is dirty, or has waited too long. Raises OSError."""
    if not log.config.compacts or log.closed:
        return None
    dirt = find_dirt(log, now_ms)
    urgent = dirt.overdue or dirt.ratio > log.config.min_cleanable_dirty_ratio
    due = urgent and dirt.size and dirt.begin < dirt.end
    return Compaction(log, dirt, now_ms) if due else None


@dataclass(eq=False)
class Cleaner:
    """Compacts logs, the dirtiest first.

    Args:
        logs: all logs
        cleaned: called with each log that was compacted, or whose compaction has failed
    """

    _logs: Iterable[PartitionLog]
    _environment: Environment
    _cleaned: Callable[[PartitionLog], None]
    # The current round of compaction, and the remaining steps of all rounds.
    _round: Compaction | None = field(init=False, default=None)
    _steps: Generator[None] | None = field(init=False, default=None)
    _uncleanable: WeakSet[PartitionLog] = field(init=False, default_factory=WeakSet)

    def compact(self, now_ms: int | None = None, *, budget_ms: float = 100) -> bool:
        """Compact logs, the dirtiest first, for ``budget_ms`` milliseconds.

        Returns whether more work is left, so that it should be called again soon.
        """
        until = time.monotonic() + budget_ms / 1000
        if self._steps is None:
            self._steps = self._compacting(self._environment.now_ms() if now_ms is None else now_ms)
        for _ in self._steps:
            if time.monotonic() >= until:
                return True
        self._steps = None
        return False

    def _compacting(self, now_ms: int) -> Generator[None]:
        """Compact logs in steps, until none is due."""
        failed: set[PartitionLog] = set()
        while True:
            due: list[tuple[float, PartitionLog]] = []
            for log in self._logs:
                found = None if log in failed else self._round_of(log, now_ms)
                if found is not None:
                    due.append((found.dirt.ratio, log))
                yield
            if not due:
                return
            for _, log in sorted(due, key=itemgetter(0), reverse=True):
                self._round = self._round_of(log, now_ms)
                if self._round is None:
                    continue
                try:
                    yield from self._round.run()
                except (OSError, WireError) as error:
                    failed.add(log)
                    if not isinstance(error, OSError):
                        self._uncleanable.add(log)
                    if not log.closed:
                        self._environment.warn(f"{log.path.name}: compaction failed: {error}")
                self._round = None
                self._cleaned(log)
                yield

    def _round_of(self, log: PartitionLog, now_ms: int) -> Compaction | None:
        """Return the round that is due for a log. As in Kafka, unreadable logs are not retried."""
        if log not in self._uncleanable:
            with self._environment.warning(
                f"{log.path.name}: compaction failed", (OSError, DamageError)
            ):
                return due_round(log, now_ms)
        return None

    def stop(self, log: PartitionLog | None = None) -> None:
        """Give up the current round, if it is about this log; the next call of ``compact`` begins again."""
        if log is not None and (self._round is None or self._round.log is not log):
            return
        if self._steps is not None:
            self._steps.close()
        self._round = self._steps = None
