"""The log of one partition: segments, and what is known of its producers and epochs."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from uuid import UUID

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.storage.compaction import Compaction, find_dirt, is_due
from krammar.broker.storage.environment import Environment
from krammar.broker.storage.files import (
    LOG,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    stem,
    sync,
    write_atomically,
)
from krammar.broker.storage.headers import header_at
from krammar.broker.storage.index import INT32_MAX, IndexFault
from krammar.broker.storage.loading import aborted_entry, load
from krammar.broker.storage.log_config import LogConfig
from krammar.broker.storage.producers import ProducerEntry, Producers
from krammar.broker.storage.reading import LogReader
from krammar.broker.storage.segment import Damage, Segment
from krammar.broker.storage.validation import check, read_header
from krammar.wire.errors import WireError
from krammar.wire.records import (
    BatchHeader,
    Compression,
    ControlRecord,
    ControlRecordType,
    Record,
    TimestampType,
    encode_batch,
    encode_control_batch,
)

# What is changed in every batch that is stored: base offset, length (as it was), leader epoch.
_PREFIX = Struct(">qii")
_PREFIX_END = 16
_CHUNK = 1 << 20
_REMEMBERED_POSITIONS = 64


@dataclass(slots=True)
class Appended:
    """Where a batch was stored.

    ``append_time``  milliseconds since 1970; -1 with CreateTime
    ``duplicate``    whether it had been stored before, at these offsets
    """

    base_offset: int
    last_offset: int
    append_time: int
    log_start_offset: int
    duplicate: bool = False


class PartitionLog(LogReader):
    """Batches by offset, in a folder of Kafka's form.

    ``end_offset``        the next offset to be given; on one node the high watermark too
    ``log_start_offset``  the first offset that can be read
    ``size``              bytes of all segments
    ``watchers``          called when an offset has moved, and when the log is closed or deleted
    ``recovery_point``    all before this offset is on the disk, or taken to be
    """

    def __init__(
        self,
        path: Path,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        environment: Environment | None = None,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_to: int = 0,
    ) -> None:
        """Open the folder ``path``, which has to be there. Raises OSError."""
        self.path = path
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.environment = environment or Environment()
        self.watchers: set[Callable[[], None]] = set()
        self.deleted = False
        self.closed = False
        loaded = load(
            path,
            config.index_interval_bytes,
            self.environment,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        self.segments = loaded.segments
        self.end_offset = loaded.end_offset
        self.log_start_offset = loaded.log_start_offset
        self.size = sum(segment.size for segment in self.segments)
        self.recovery_point = min(recovery_point, self.end_offset)
        self.producer_states: Producers = loaded.producers
        self._epochs = loaded.epochs
        self._snapshots = loaded.snapshots
        self.cleaned_to = cleaned_to  # compaction goes on from this offset
        self._bases = [segment.base_offset for segment in self.segments]
        self._sync_always = self.environment.fsync == "always"
        self._new_files = True  # since the folder was brought to the disk
        self._positions = {}

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition}, {self.end_offset})"

    @property
    def last_stable_offset(self) -> int:
        """Where the earliest open transaction begins; the log's end without one."""
        first = self.producer_states.first_open_offset()
        return self.end_offset if first is None else max(first, self.log_start_offset)

    def producers(self) -> list[ProducerEntry]:
        return self.producer_states.entries()

    def notify(self) -> None:
        if self.watchers:
            for watcher in tuple(self.watchers):
                watcher()

    # Appending.

    def append(
        self,
        batch: bytes | memoryview,
        *,
        leader_epoch: int = 0,
        transaction_check: Callable[[BatchHeader], None] | None = None,
    ) -> Appended:
        """Store one batch of format v2 as a client has produced it. Raises ApiError, and has changed
        nothing then.

        ``transaction_check`` is called for a batch of a transaction that is not open here yet, and
        raises ApiError if it must not be.
        """
        data = bytes(batch)
        environment = self.environment
        header = read_header(data, self.config)
        states = self.producer_states
        idempotent = header.producer_id >= 0
        if idempotent:
            sent = states.duplicate(header)
            if sent is not None:
                append_time = -1
                if self.config.message_timestamp_type == "LogAppendTime":
                    append_time = sent.timestamp
                first = sent.last_offset - sent.offset_delta
                return Appended(
                    first, sent.last_offset, append_time, self.log_start_offset, duplicate=True
                )
        data = check(data, header, self.config, environment.now_ms(), environment.max_uncompressed)
        if idempotent:
            states.check_batch(header)
            if (
                header.is_transactional
                and transaction_check is not None
                and not states.in_transaction(header.producer_id, header.producer_epoch)
            ):
                transaction_check(header)
        self._write(data, header, leader_epoch)
        if idempotent:
            states.add_batch(header)
        self.notify()
        return Appended(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.max_timestamp if header.attributes & 8 else -1,
            self.log_start_offset,
        )

    def append_records(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        is_transactional: bool = False,
        compression: int = Compression.NONE,
    ) -> Appended:
        """Store records of a coordinator, as one batch. Their offsets are ignored, and the time is put
        in where they have none. Raises ApiError, and has changed nothing then."""
        now = self.environment.now_ms()
        append_time = self.config.message_timestamp_type == "LogAppendTime"
        data = encode_batch(
            [
                Record(
                    timestamp=now if record.timestamp == -1 else record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
                for record in records
            ],
            compression=compression,
            base_offset=self.end_offset,
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
            ),
            max_timestamp=now if append_time else None,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=is_transactional,
        )
        if len(data) > self.config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{len(data)} bytes are more than max.message.bytes,"
                f" {self.config.max_message_bytes}",
            )
        header = header_at(data, 0, 0)
        assert header is not None
        states = self.producer_states
        if producer_id >= 0:
            states.check_batch(header, sequence=False)
        self._write(data, header, max(self.latest_epoch, 0))
        if producer_id >= 0:
            states.add_batch(header)
        self.notify()
        return Appended(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            now if append_time else -1,
            self.log_start_offset,
        )

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> Appended:
        """End a producer's transaction in this partition. Raises ApiError, and has changed nothing
        then."""
        states = self.producer_states
        states.check_marker(producer_id, producer_epoch, coordinator_epoch)
        now = self.environment.now_ms()
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        data = encode_control_batch(
            [ControlRecord(kind, coordinator_epoch, timestamp=now)],
            base_offset=self.end_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        header = header_at(data, 0, 0)
        assert header is not None
        segment = self._write(data, header, max(self.latest_epoch, 0))
        completed = states.add_marker(
            producer_id, producer_epoch, coordinator_epoch, header.base_offset, now, commit=commit
        )
        if completed is not None and completed.aborted:
            segment.transactions.add(aborted_entry(completed))
        self.notify()
        return Appended(header.base_offset, header.base_offset, -1, self.log_start_offset)

    def _write(self, data: bytes, header: BatchHeader, leader_epoch: int) -> Segment:
        """Store a batch behind all others; ``header`` is given its offsets and position. Raises
        ApiError."""
        if self.closed:
            raise self._failure("is closed")
        size = len(data)
        offset = self.end_offset
        header.base_offset = offset
        header.partition_leader_epoch = leader_epoch
        try:
            segment = self.active
            if self._is_full(segment, size, header):
                self._roll()
                segment = self.active
            segment.transactions  # noqa: B018  read before anything is written: nothing fails later
            header.position = segment.size
            segment.append(
                _PREFIX.pack(offset, header.batch_length, leader_epoch),
                memoryview(data)[_PREFIX_END:],
            )
            if self._sync_always:
                try:
                    segment.sync()
                except OSError:
                    segment.size -= size
                    segment.cut_back()
                    raise
        except (OSError, IndexFault) as error:
            raise self._failure(str(error)) from None
        if segment.first_timestamp is None and header.position == 0:
            segment.first_timestamp = header.max_timestamp
        segment.note(header)
        if leader_epoch > self._epochs.latest:
            self._epochs.begin(leader_epoch, offset)
        self.size += size
        self.end_offset = offset + header.last_offset_delta + 1
        return segment

    # Rolling.

    def _is_full(self, segment: Segment, size: int, header: BatchHeader) -> bool:
        """Whether a batch has to begin a new segment."""
        if not segment.size:
            return False
        config = self.config
        if segment.size + size > config.segment_bytes:
            return True
        last = self.end_offset + header.last_offset_delta
        if last - segment.base_offset > INT32_MAX:
            return True
        # Entries take 8 and 12 bytes.
        if (len(segment.indexes[0]) + 1) * 12 > config.segment_index_bytes:
            return True
        return self._is_old(segment, header.max_timestamp)

    def _is_old(self, segment: Segment, timestamp: int) -> bool:
        """Whether a segment has to end because of its first batch's time (with records that have no
        time, that of its making)."""
        if segment.first_timestamp is None:
            first = segment.header(0)
            segment.first_timestamp = -1 if first is None else first.max_timestamp
        first_timestamp = segment.first_timestamp
        if first_timestamp < 0:
            first_timestamp = segment.created_ms
            timestamp = self.environment.now_ms()
        config = self.config
        longest = config.segment_ms
        if config.compacts and config.max_compaction_lag_ms > 0:
            longest = min(longest, config.max_compaction_lag_ms)
        return timestamp - first_timestamp > longest

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty. Raises ApiError."""
        if not self.active.size:
            return
        try:
            self._roll()
        except (OSError, Damage) as error:
            raise self._failure(str(error)) from None

    def _roll(self) -> None:
        old = self.active
        new = Segment.create(
            os.fspath(self.path), self.end_offset, self.config.index_interval_bytes
        )
        new.created_ms = self.environment.now_ms()
        self._new_files = True
        if self._sync_always:
            sync(self.path)
        self.segments.append(new)
        self._bases.append(new.base_offset)
        old.finish_time_index()
        try:
            old.write_indexes()
            self._epochs.write()
            self.take_snapshot()
        except OSError as error:
            self.environment.warn(
                f"{self.path.name}: indexes are only kept in memory for now: {error}"
            )

    def take_snapshot(self) -> None:
        """Write down what is known of the producers. Raises OSError."""
        offset = self.end_offset
        if self._snapshots and self._snapshots[-1] == offset:
            return
        write_atomically(self._snapshot_path(offset), self.producer_states.snapshot())
        self._snapshots.append(offset)
        self._drop_snapshots()

    def _drop_snapshots(self) -> None:
        """Keep the newest, and those at the beginnings of segments, which serve for recovery."""
        for old in self._snapshots[:-1]:
            at = bisect_left(self._bases, old)
            if at == len(self._bases) or self._bases[at] != old:
                self._snapshots.remove(old)
                with contextlib.suppress(OSError):
                    os.unlink(self._snapshot_path(old))

    def _snapshot_path(self, offset: int) -> Path:
        return self.path / f"{stem(offset)}{SNAPSHOT}"

    # Epochs.

    @property
    def latest_epoch(self) -> int:
        """-1 if the log knows none."""
        return self._epochs.latest

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The epoch at or before ``leader_epoch`` and the offset behind its last batch; (-1, -1) if the
        log knows nothing of it."""
        return self._epochs.end_of(leader_epoch, self.end_offset)

    # Upkeep.

    def delete_records(self, before: int) -> int:
        """Let the log begin at ``before``, or at its end with -1. Returns where it begins now. Raises
        ApiError."""
        if self.config.compacts and not self.config.deletes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic}: records are not deleted from a topic whose cleanup.policy is compact",
            )
        if before == -1:
            before = self.end_offset
        if not 0 <= before <= self.end_offset:
            raise self._out_of_range(before)
        if before > self.log_start_offset:
            self._begin_at(before)
            self.environment.log_start_moved()
            self.notify()
        return self.log_start_offset

    def _begin_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._epochs.cut_before(offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments that are too old, too many, or before the log's start. Returns how many.
        Raises ApiError."""
        config = self.config
        count = 0
        excess = self.size - config.retention_bytes
        for number, segment in enumerate(self.segments):
            last = number == len(self.segments) - 1
            behind = self.end_offset if last else self._bases[number + 1]
            due = behind <= self.log_start_offset
            if config.deletes and not due:
                if config.retention_bytes >= 0 and excess >= segment.size:
                    due = True
                elif config.retention_ms >= 0:
                    due = now_ms - self._age_stamp(segment) > config.retention_ms
            if not due or (last and not segment.size):
                break
            excess -= segment.size
            count += 1
        if not count:
            return 0
        if count == len(self.segments):
            self.roll()
        self._delete_segments(count)
        return count

    def compaction(self, now_ms: int) -> Compaction | None:
        """A round of compaction, if there is enough to do. Raises OSError."""
        if not self.config.compacts or self.closed:
            return None
        dirt = find_dirt(self, now_ms)
        return Compaction(self, dirt, now_ms) if is_due(self, dirt) else None

    def compact(self, now_ms: int) -> bool:
        """Compact now, in one go, if there is enough to do. Returns whether. Raises ApiError."""
        try:
            compaction = self.compaction(now_ms)
            if compaction is None:
                return False
            for _ in compaction.run():
                pass
        except (OSError, WireError, Damage, IndexFault) as error:
            raise self._failure(str(error)) from None
        return compaction.done

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """Put ``new``, whose files are ``.cleaned`` and complete, in the place of ``old``, which are in a
        row. A crash at any point leaves one or the other. Raises OSError."""
        new.rename(SWAP)
        if self.environment.fsync != "never":
            sync(self.path)
        first = self.segments.index(old[0])
        paths = [path for segment in old for path in segment.mark_deleted()]
        new.rename("")
        new.close()
        new.created_ms = old[0].created_ms
        self.segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self._positions.clear()
        self.size += new.size - sum(segment.size for segment in old)
        self._new_files = True
        self.environment.remove_later(paths, self.config.file_delete_delay_ms)
        self._drop_snapshots()

    def _age_stamp(self, segment: Segment) -> int:
        latest = segment.latest[0]
        if latest >= 0:
            return latest
        return os.stat(segment.file(LOG)).st_mtime_ns // 1_000_000

    def _delete_segments(self, count: int) -> None:
        """Delete the first ``count``; files are removed a while later."""
        gone = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        self._positions.clear()
        base = self._bases[0]
        for segment in gone:
            self.size -= segment.size
            try:
                paths = segment.mark_deleted()
            except OSError as error:
                self.environment.warn(f"{segment.file('.log')}: cannot be deleted: {error}")
                continue
            self.environment.remove_later(paths, self.config.file_delete_delay_ms)
        self._drop_snapshots()
        if base > self.log_start_offset:
            self._begin_at(base)
        self.notify()

    def update_config(self, config: LogConfig) -> None:
        """From now on these settings hold."""
        self.config = config
        self.active.interval = config.index_interval_bytes

    def release(self) -> None:
        """Give up files and index entries of segments that are not written any more; what is asked for
        again is read again."""
        for segment in self.segments[:-1]:
            segment.release()

    def flush(self) -> None:
        """Bring to the disk what is not there. Raises OSError."""
        end_offset = self.end_offset
        paths = self.begin_flush()
        if paths is not None:
            for path in paths:
                with contextlib.suppress(FileNotFoundError):  # not every file has to be there
                    sync(path)
            self.finish_flush(end_offset)

    def begin_flush(self) -> list[str] | None:
        """Write what is only in memory. Returns the files and folders that have to be brought to the
        disk before ``finish_flush``; None if all is there. Raises OSError."""
        if self.recovery_point >= self.end_offset and not self._epochs.changed:
            return None
        paths = []
        first = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        for segment in self.segments[first:]:
            segment.write_indexes()
            # Of the active segment, what is missing after a power cut is made again.
            if segment is self.active:
                paths.append(segment.file(LOG))
            else:
                paths += [segment.file(ending) for ending in SEGMENT_FILES]
        self._epochs.write()
        if self._new_files:
            self._new_files = False
            paths.append(os.fspath(self.path))
        return [] if self.environment.fsync == "never" else paths

    def finish_flush(self, end_offset: int) -> None:
        """All before ``end_offset`` is on the disk now."""
        if self.environment.fsync == "never":
            # Then the active segment is verified from its beginning after a crash.
            end_offset = min(end_offset, self.active.base_offset)
        self.recovery_point = max(self.recovery_point, end_offset)

    def close(self) -> None:
        """Write all that is needed to open it again without a look at its batches. Raises OSError."""
        if self.closed:
            return
        self.closed = True
        try:
            self.active.finish_time_index()
            for segment in self.segments:
                segment.write_indexes()
            if self.end_offset > (self._snapshots[-1] if self._snapshots else 0):
                self.take_snapshot()
            self.flush()
            self.recovery_point = self.end_offset
        finally:
            for segment in self.segments:
                segment.close()
            self.notify()

    def mark_deleted(self) -> None:
        """Close without writing anything: the folder is going to be removed."""
        self.deleted = True
        self.closed = True
        for segment in self.segments:
            segment.close()
        self.notify()
