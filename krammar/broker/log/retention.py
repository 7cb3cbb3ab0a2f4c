"""When segments of a log begin, and when they go: rolling, retention, deleted records, truncation, compaction."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.log.flushing import FlushedLog
from krammar.broker.log.loading import Loaded
from krammar.broker.log.segment import LogSegment, segment_of
from krammar.logfiles.damage import DamageError
from krammar.logfiles.names import (
    INDEX,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    snapshot_offsets,
    stem,
)
from krammar.util.durable import sync_all, write_atomically


class RetainedLog(FlushedLog):
    """A log whose segments are rolled, deleted, truncated and replaced.

    ``cleaned_to``  the offset from which compaction continues
    """

    cleaned_to: int

    def roll(self) -> None:
        """Begin a new segment unless the active one is empty. Raises ApiError."""
        old = self.active
        if not old.size:
            return
        try:
            new = LogSegment.create(
                os.fspath(self.path), self.end_offset, self.config.index_interval_bytes
            )
            new.created_ms = self.environment.now_ms()
            self._renames += 1
            self.segments.append(new)
            old.finish_time_index()
        except (OSError, DamageError) as error:
            raise self._cannot_write(error) from None
        name = self.path.name
        with self.environment.warning(f"{name}: indexes cannot be written, and remain in memory"):
            old.write_indexes()
            self._epochs.write()
            self.take_snapshot()

    def take_snapshot(self) -> None:
        """Write the producers' state to a snapshot file, if it does not exist. Raises OSError."""
        path = self._snapshot_path(self.end_offset)
        if not path.exists():
            # Without force: a snapshot has a checksum, and the log replaces it.
            write_atomically(path, self.producer_states.snapshot(), durable=False)
            self._drop_snapshots()

    def _drop_snapshots(self) -> None:
        """Remove all snapshots but the newest, and those at the start of a segment, used for recovery."""
        starts = {segment.base_offset for segment in self.segments}
        with contextlib.suppress(OSError):
            for old in snapshot_offsets(os.listdir(self.path))[:-1]:
                if old not in starts:
                    self._snapshot_path(old).unlink()

    def _snapshot_path(self, offset: int) -> Path:
        return self.path / f"{stem(offset)}{SNAPSHOT}"

    # Deleting.

    def _check_open(self) -> None:
        """Raise ApiError if nothing can be written."""
        if self.closed:
            raise self._failure(self.offline or "the log is closed")

    def delete_records(self, before: int) -> int:
        """Delete the records before an offset; -1 deletes all records. Returns the new log start offset.

        Raises:
            ApiError: the topic is compacted, or the offset is out of range.
        """
        if self.config.compacts and not self.config.deletes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic}: records cannot be deleted, because cleanup.policy is compact",
            )
        if before == -1:
            before = self.end_offset
        if not 0 <= before <= self.end_offset:
            raise self._out_of_range(before)
        self._check_open()
        if before > self.log_start_offset:
            previous, self.log_start_offset = self.log_start_offset, before
            try:
                self.environment.log_start_moved(self)
            except OSError as error:
                # After a crash, the records would be there again.
                self.log_start_offset = previous
                self.environment.warn(f"{self.path}: records are not deleted: {error}")
                raise self._failure(f"the new start offset cannot be stored: {error}") from None
            self._begin_at(before)
            self.notify()
        return self.log_start_offset

    def _begin_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._epochs.cut_before(offset)

    def apply_retention(self, now_ms: int) -> None:
        """Delete segments that are too old, exceed the size limit, or precede the log start offset.

        Raises ApiError and OSError.
        """
        config = self.config
        count = 0
        excess = self.size - config.retention_bytes
        ends = [segment.base_offset for segment in self.segments[1:]]
        for segment, end in zip(self.segments, [*ends, self.end_offset], strict=True):
            due = end <= self.log_start_offset
            if config.deletes and not due:
                if config.retention_bytes >= 0 and excess >= segment.size:
                    due = True
                elif config.retention_ms >= 0:
                    due = now_ms - segment.newest_ms() > config.retention_ms
            if not due or (segment is self.active and not segment.size):
                break
            excess -= segment.size
            count += 1
        if count == len(self.segments):
            self.roll()
        if count:
            self._delete_segments(count)

    def _delete_segments(self, count: int) -> None:
        """Delete the first ``count`` segments; their files are removed after a delay."""
        gone = self.segments[:count]
        del self.segments[:count]
        self._positions.clear()
        base = self.segments[0].base_offset
        for segment in gone:
            self.size -= segment.size
            with self.environment.warning(f"{segment.path}: cannot be deleted"):
                paths = segment.mark_deleted()
                self.environment.remove_later(paths, self.config.file_delete_delay_ms)
        self._drop_snapshots()
        if base > self.log_start_offset:
            self._begin_at(base)
        self.notify()

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that have records from ``offset`` on, as a replica of a new leader does (KIP-101).

        Producers and their transactions are as of the new end, which is returned. Raises ApiError; if the disk has
        failed, the partition is offline then.
        """
        self._check_open()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise self._out_of_range(offset)
        if offset == self.end_offset:
            return offset
        number = segment_of(self.segments, offset)
        last = self.segments[number]
        try:
            position = last.locate(offset)
            header = None if position is None else last.header(position)
            end = offset if header is None else min(offset, header.base_offset)
            for segment in self.segments[number + 1 :]:
                segment.remove()
            if header is not None:
                last.truncate(header.position)
            # They are built again from the batches, and so is the state of producers.
            for ending in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(last.file(ending))
            for old in snapshot_offsets(os.listdir(self.path)):
                if old > last.base_offset:
                    self._snapshot_path(old).unlink()
            self._epochs.cut(end)
            self._epochs.write()
            for segment in self.segments:
                segment.close()
            loaded = Loaded(
                self.path,
                self.config.index_interval_bytes,
                self.environment,
                verify_from=last.base_offset,
                log_start_offset=self.log_start_offset,
            )
        except (OSError, DamageError) as error:
            self.take_offline(error if isinstance(error, OSError) else OSError(str(error)))
            raise self._failure(self.offline) from None
        self._adopt(loaded)
        self.cleaned_to = min(self.cleaned_to, self.end_offset)
        self._begin_unflushed(min(self.recovery_point, self.end_offset))
        self.notify()
        return self.end_offset

    # Compaction.

    def prepare_replacement(self, new: LogSegment) -> None:
        """Force a complete new segment, whose files are ``.cleaned``, to the disk. Raises OSError."""
        if self.environment.durable:
            sync_all([*new.files, self.path])

    def replace_segments(self, old: list[LogSegment], new: LogSegment) -> None:
        """Replace consecutive segments by a prepared one.

        A crash at any point, and also a power cut, leaves either the old segments or the new one. Raises OSError; the
        partition is offline then.
        """
        first = self.segments.index(old[0])
        try:
            new.rename(SWAP)
            self._sync_folder()
            paths = [path for segment in old for path in segment.mark_deleted()]
            new.rename("")
            # Before the next replacement, or a power cut could leave this one with files of the next one.
            self._sync_folder()
        except OSError as error:
            self.take_offline(error)
            raise
        new.close()
        new.created_ms = old[0].created_ms
        self.segments[first : first + len(old)] = [new]
        self._positions.clear()
        self.size += new.size - sum(segment.size for segment in old)
        self.environment.remove_later(paths, self.config.file_delete_delay_ms)
        self._drop_snapshots()
