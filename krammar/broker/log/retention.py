"""Which segments one log has: it rolls, deletes, truncates and replaces them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.log.durability import Durability
from krammar.broker.log.environment import Environment
from krammar.broker.log.loading import Loaded
from krammar.broker.log.reading import PartitionReader
from krammar.broker.log.segment import LogSegment, segment_of
from krammar.broker.log.state import LogState
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


class Retention:
    """Begins segments, and removes those that are too old, deleted, truncated or compacted.

    Attributes:
        cleaned_to: the offset from which compaction continues
    """

    __slots__ = ("_durability", "_environment", "_reader", "_state", "cleaned_to")

    def __init__(
        self,
        state: LogState,
        reader: PartitionReader,
        durability: Durability,
        environment: Environment,
        cleaned_to: int,
    ) -> None:
        self._state = state
        self._reader = reader
        self._durability = durability
        self._environment = environment
        self.cleaned_to = cleaned_to

    def roll(self) -> None:
        """Begin a new segment unless the active one is empty. Raises ApiError."""
        state = self._state
        old = state.active
        if not old.size:
            return
        try:
            new = LogSegment.create(
                os.fspath(state.path), state.end_offset, state.config.index_interval_bytes
            )
            new.created_ms = self._environment.now_ms()
            self._durability.note_new_files()
            state.segments.append(new)
            old.finish_time_index()
        except (OSError, DamageError) as error:
            raise state.cannot_write(error) from None
        name = state.path.name
        with self._environment.warning(f"{name}: indexes cannot be written, and remain in memory"):
            old.write_indexes()
            state.epochs.write()
            self.take_snapshot()

    def take_snapshot(self) -> None:
        """Write the producers' state to a snapshot file, if it does not exist. Raises OSError."""
        path = self._snapshot_path(self._state.end_offset)
        if not path.exists():
            # Without force: a snapshot has a checksum, and the log replaces it.
            write_atomically(path, self._state.producers.snapshot(), durable=False)
            self._drop_snapshots()

    def _drop_snapshots(self) -> None:
        """Remove all snapshots but the newest, and those at the start of a segment, used for recovery."""
        starts = {segment.base_offset for segment in self._state.segments}
        with contextlib.suppress(OSError):
            for old in snapshot_offsets(os.listdir(self._state.path))[:-1]:
                if old not in starts:
                    self._snapshot_path(old).unlink()

    def _snapshot_path(self, offset: int) -> Path:
        return self._state.path / f"{stem(offset)}{SNAPSHOT}"

    # Deleting.

    def delete_records(self, before: int) -> int:
        """Delete the records before an offset; -1 deletes all records. Returns the new log start offset.

        Raises:
            ApiError: the topic is compacted, or the offset is out of range.
        """
        state = self._state
        if state.config.compacts and not state.config.deletes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{state.topic}: records cannot be deleted, because cleanup.policy is compact",
            )
        if before == -1:
            before = state.end_offset
        if not 0 <= before <= state.end_offset:
            raise state.out_of_range(before)
        state.check_open()
        if before > state.log_start_offset:
            previous, state.log_start_offset = state.log_start_offset, before
            try:
                self._environment.log_start_moved(state.topic, state.partition)
            except OSError as error:
                # After a crash, the records would be there again.
                state.log_start_offset = previous
                self._environment.warn(f"{state.path}: records are not deleted: {error}")
                raise state.failure(f"the new start offset cannot be stored: {error}") from None
            state.begin_at(before)
            state.notify()
        return state.log_start_offset

    def apply(self, now_ms: int) -> None:
        """Delete segments that are too old, exceed the size limit, or precede the log start offset.

        Raises ApiError and OSError.
        """
        state = self._state
        config = state.config
        count = 0
        excess = state.size - config.retention_bytes
        ends = [segment.base_offset for segment in state.segments[1:]]
        for segment, end in zip(state.segments, [*ends, state.end_offset], strict=True):
            due = end <= state.log_start_offset
            if config.deletes and not due:
                if config.retention_bytes >= 0 and excess >= segment.size:
                    due = True
                elif config.retention_ms >= 0:
                    due = now_ms - segment.newest_ms() > config.retention_ms
            if not due or (segment is state.active and not segment.size):
                break
            excess -= segment.size
            count += 1
        if count == len(state.segments):
            self.roll()
        if count:
            self._delete_segments(count)

    def _delete_segments(self, count: int) -> None:
        """Delete the first ``count`` segments; their files are removed after a delay."""
        state = self._state
        gone = state.segments[:count]
        del state.segments[:count]
        self._reader.forget_positions()
        base = state.segments[0].base_offset
        for segment in gone:
            state.size -= segment.size
            with self._environment.warning(f"{segment.path}: cannot be deleted"):
                paths = segment.mark_deleted()
                self._environment.remove_later(paths, state.config.file_delete_delay_ms)
        self._drop_snapshots()
        if base > state.log_start_offset:
            state.begin_at(base)
        state.notify()

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that have records from ``offset`` on, as a replica of a new leader does (KIP-101).

        Producers and their transactions are as of the new end, which is returned. Raises ApiError;
        if the disk has failed, the partition is offline then.
        """
        state = self._state
        state.check_open()
        if not state.log_start_offset <= offset <= state.end_offset:
            raise state.out_of_range(offset)
        if offset == state.end_offset:
            return offset
        number = segment_of(state.segments, offset)
        last = state.segments[number]
        try:
            position = last.locate(offset)
            header = None if position is None else last.header(position)
            end = offset if header is None else min(offset, header.base_offset)
            for segment in state.segments[number + 1 :]:
                segment.remove()
            if header is not None:
                last.truncate(header.position)
            # They are built again from the batches, and so is the state of producers.
            for ending in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(last.file(ending))
            for old in snapshot_offsets(os.listdir(state.path)):
                if old > last.base_offset:
                    self._snapshot_path(old).unlink()
            state.epochs.cut(end)
            state.epochs.write()
            for segment in state.segments:
                segment.close()
            loaded = Loaded(
                state.path,
                state.config.index_interval_bytes,
                self._environment,
                verify_from=last.base_offset,
                log_start_offset=state.log_start_offset,
            )
        except (OSError, DamageError) as error:
            state.take_offline(error if isinstance(error, OSError) else OSError(str(error)))
            raise state.failure(state.offline) from None
        state.adopt(loaded)
        self._reader.forget_positions()
        self.cleaned_to = min(self.cleaned_to, state.end_offset)
        self._durability.begin(min(self._durability.recovery_point, state.end_offset))
        state.notify()
        return state.end_offset

    # Compaction.

    def prepare_replacement(self, new: LogSegment) -> None:
        """Force a complete new segment, whose files are ``.cleaned``, to the disk. Raises OSError."""
        if self._environment.durable:
            sync_all([*new.files, self._state.path])

    def replace_segments(self, old: list[LogSegment], new: LogSegment) -> None:
        """Replace consecutive segments by a prepared one.

        A crash at any point, and also a power cut, leaves either the old segments or the new one.
        Raises OSError; the partition is offline then.
        """
        state = self._state
        first = state.segments.index(old[0])
        try:
            new.rename(SWAP)
            self._durability.sync_folder()
            paths = [path for segment in old for path in segment.mark_deleted()]
            new.rename("")
            # Before the next replacement, or a power cut could leave this one with files of the
            # next one.
            self._durability.sync_folder()
        except OSError as error:
            state.take_offline(error)
            raise
        new.close()
        new.created_ms = old[0].created_ms
        state.segments[first : first + len(old)] = [new]
        self._reader.forget_positions()
        state.size += new.size - sum(segment.size for segment in old)
        self._environment.remove_later(paths, state.config.file_delete_delay_ms)
        self._drop_snapshots()
