"""Forces logs to the disk, and takes those offline for which that fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from krammar.broker.errors import ApiError
from krammar.broker.log.environment import Environment
from krammar.broker.log.files import can_continue, no_descriptors
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.reading import ReadableLog
from krammar.broker.log.segment import LogSegment, segment_of
from krammar.logfiles.damage import DamageError
from krammar.logfiles.names import LEADER_EPOCHS, PARTITION_METADATA
from krammar.util.durable import sync, sync_all


class FlushedLog(ReadableLog):
    """A log that is forced to the disk.

    ``watchers``        called when an offset changes, and when the log is closed, deleted or taken offline
    ``recovery_point``  complete files up to this offset are on the disk, or assumed to be
    ``flushed_ms``      the time of the last flush, in milliseconds since 1970
    """

    def __init__(
        self, path: Path, topic: str, partition: int, config: LogConfig, environment: Environment
    ) -> None:
        super().__init__(path, topic, partition)
        self.config = config
        self.environment = environment
        self.watchers: set[Callable[[], None]] = set()
        self.deleted = False

    def _begin_unflushed(self, recovery_point: int) -> None:
        """Regard all files as new, and the batches from the recovery point on as not on the disk."""
        self.recovery_point = recovery_point
        self.flushed_ms = self.environment.now_ms()
        # Batches before this offset are on the disk. The indexes may not be, unlike before the recovery point.
        self._forced_to = recovery_point
        # How often files were created or renamed: in all, at the last flush, and when the current one began.
        self._renames, self._renames_flushed, self._renames_flushing = 1, 0, 0
        self._refused = False  # whether the last write has failed

    def notify(self) -> None:
        """Call all watchers."""
        for watcher in tuple(self.watchers):
            watcher()

    def mark_deleted(self) -> None:
        """Close without writing anything, because the folder will be removed."""
        self.deleted = True
        self.closed = True
        for segment in self.segments:
            segment.close()
        self.notify()

    def _force(self, segment: LogSegment, size: int, end_offset: int) -> None:
        """Force all batches to the disk, the last one of ``size`` bytes included. Raises ApiError."""
        begin = time.perf_counter()
        first = segment_of(self.segments, self._forced_to)
        try:
            for other in self.segments[first:-1]:
                sync(other.path)
            segment.sync()
            renames = self._renames
            if renames != self._renames_flushed:
                sync_all(self._new_names())
                self._renames_flushed = renames
        except OSError as error:
            segment.size -= size
            segment.cut_back()
            if no_descriptors(error):
                raise self._cannot_write(error) from None
            self.fail_flush(error)
            raise self._failure(self.offline) from None
        self._forced_to = end_offset
        self.flushed_ms = self.environment.now_ms()
        self.environment.flushed(time.perf_counter() - begin)

    def _sync_folder(self) -> None:
        self._renames += 1
        if self.environment.durable:
            sync(self.path)

    def _new_names(self) -> list[str]:
        """Return what to force to the disk after files were created: a new log is lost with its folder's name."""
        path = os.fspath(self.path)
        return [os.path.join(path, PARTITION_METADATA), path, os.path.dirname(path)]

    def _cannot_write(self, error: OSError | DamageError) -> ApiError:
        """Report a failed write that has changed nothing. Returns the error for the client."""
        if isinstance(error, OSError) and not can_continue(error):
            self.take_offline(error)
        elif not self._refused:
            self._refused = True  # one line is enough until a write succeeds
            too_many = isinstance(error, OSError) and no_descriptors(error)
            self.environment.error(
                f"{self.path}: records are refused until they can be written: {error}"
                + (" (raise the limit: ulimit -n)" if too_many else "")
            )
        return self._failure(str(error))

    def fail_flush(self, error: OSError) -> None:
        """Take the log offline, because the kernel may have dropped the data, and the next fsync would succeed without it."""
        self.environment.flush_failed(self)
        self.take_offline(error)

    def take_offline(self, error: OSError) -> None:
        """Refuse all requests until the next start, which verifies the log.

        Kafka takes the whole log directory offline; other partitions are not affected here.
        """
        if self.closed:
            return
        self.offline = str(error)
        self.closed = True
        if no_descriptors(error):
            reason, advice = "no more files can be opened", "Raise the limit (ulimit -n)"
        else:
            reason, advice = "the disk failed", "Check the disk"
        self.environment.error(
            f"{self.path}: {reason}: {error}. The partition is offline, and other partitions continue."
            f" {advice}, then restart the broker: it verifies the log and serves what is intact"
        )
        self.notify()

    # Periodic flushes.

    def flush(self) -> None:
        """Force everything to the disk.

        Raises OSError. The partition is offline then, unless the flush can be repeated.
        """
        end_offset = self.end_offset
        paths = self.begin_flush(complete=True)
        if paths is not None:
            try:
                seconds = sync_all(paths)
            except OSError as error:
                if not no_descriptors(error):
                    self.fail_flush(error)
                raise
            self.environment.flushed(seconds)
            self.finish_flush(end_offset)

    def is_flush_due(self, now_ms: int, *, interval: bool = True) -> bool:
        """Return whether everything must be forced to the disk.

        Args:
            now_ms: milliseconds since 1970, for ``flush.ms``
            interval: whether the interval of ``krammar.fsync`` is over
        """
        if interval and self.environment.fsync in ("always", "interval"):
            return True
        # The clock may have been set back.
        return not 0 <= now_ms - self.flushed_ms < self.config.flush_ms

    def flush_target(self, *, complete: bool = True) -> int:
        """Return the end of what a flush forces to the disk: all batches, or those in complete segments."""
        return self.end_offset if complete else self.active.base_offset

    def begin_flush(self, *, complete: bool = True) -> list[str] | None:
        """Write indexes and epochs to their files. Raises OSError.

        Args:
            complete: include the active segment

        Returns:
            The files and folders to force to the disk before ``finish_flush``; None if nothing has changed.
        """
        if complete:
            self.flushed_ms = self.environment.now_ms()
        target = self.flush_target(complete=complete)
        if self.offline or (
            self.recovery_point >= target
            and not self._epochs.changed
            and self._renames == self._renames_flushed
        ):
            return None
        paths = []
        for segment in self.segments[segment_of(self.segments, self.recovery_point) :]:
            # The indexes of the active segment are rebuilt after a power cut.
            if segment is not self.active:
                segment.write_indexes()
                paths += segment.files
            elif complete:
                segment.write_indexes()
                paths.append(segment.path)
        if self._epochs.changed:
            self._epochs.write()
            paths.append(os.fspath(self.path / LEADER_EPOCHS))
        self._renames_flushing = self._renames
        if self._renames != self._renames_flushed:
            paths += self._new_names()
        return paths if self.environment.durable else []

    def finish_flush(self, end_offset: int) -> None:
        """Advance the recovery point: all batches before ``end_offset`` are on the disk."""
        if not self.environment.durable:
            # After a crash, the active segment is verified from its beginning.
            end_offset = min(end_offset, self.active.base_offset)
        self.recovery_point = max(self.recovery_point, end_offset)
        self._forced_to = max(self._forced_to, self.recovery_point)
        self._renames_flushed = self._renames_flushing
