"""The log of one partition: segments, producers and leader epochs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from kafka_wire import ErrorCode, ProducerSnapshot

from krammar.broker.errors import ApiError
from krammar.broker.log.environment import Environment
from krammar.broker.log.flushing import FlushedLog
from krammar.broker.log.loading import Loaded, UnreadableLog
from krammar.broker.log.log_config import INT64_MAX, LogConfig
from krammar.broker.log.segment import Segment, segment_of
from krammar.broker.log.validation import (
    QUICKLY_READ,
    LongCheck,
    check,
    read_and_check,
    read_batch,
    too_large,
)
from krammar.logfiles.damage import DamageError
from krammar.logfiles.index import INT32_MAX
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
from krammar.wire.batches import (
    BatchHeader,
    Compression,
    ControlRecord,
    ControlRecordType,
    Record,
    TimestampType,
    encode_batch,
    encode_control_batch,
)
from krammar.wire.batches.header import BODY_AT, LOG_APPEND_TIME, header_at, pack_before_crc


@dataclass(slots=True)
class Appended:
    """The offsets of an appended batch.

    ``append_time``  milliseconds since 1970; -1 with CreateTime
    ``duplicate``    whether the batch was already in the log, at these offsets
    """

    base_offset: int
    last_offset: int
    append_time: int
    log_start_offset: int
    duplicate: bool = False


class PartitionLog(FlushedLog):
    """The batches of a partition, in a folder in Kafka's format.

    ``end_offset``        the next offset; with a single node also the high watermark
    ``log_start_offset``  the first offset that can be read
    ``size``              the size of all segments in bytes
    ``cleaned_to``        the offset from which compaction continues
    """

    def __init__(
        self,
        path: Path,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        environment: Environment,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_to: int = 0,
        failed: OSError | None = None,
    ) -> None:
        """Open the existing folder ``path``.

        ``failed`` is the error of an earlier attempt: the log is offline then, and its files stay as they are.

        Raises OSError.
        """
        self.path = path
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.environment = environment
        self.watchers = set()
        self.deleted = False
        self.closed = False
        self.offline = ""
        interval = config.index_interval_bytes
        if failed is None:
            verify_from = None if clean else recovery_point
            loaded = Loaded(
                path,
                interval,
                self.environment,
                verify_from=verify_from,
                log_start_offset=log_start_offset,
            )
        else:
            loaded = UnreadableLog(path, interval, log_start_offset)
        self.recovery_point = recovery_point
        self.cleaned_to = cleaned_to
        self._adopt(loaded)
        if failed is not None:
            self.recovery_point = recovery_point
        self._begin_unflushed()
        self.update_config(config)
        if failed is not None:
            self.take_offline(failed)

    def _adopt(self, loaded: Loaded) -> None:
        """Take over the content of the folder."""
        self.segments = loaded.segments
        self.end_offset = loaded.end_offset
        self.log_start_offset = loaded.log_start_offset
        self.size = sum(segment.size for segment in self.segments)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self.producer_states = loaded.producers
        self._epochs = loaded.epochs
        self._positions = {}

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction; the end offset without one."""
        first = self.producer_states.first_open_offset()
        return self.end_offset if first is None else max(first, self.log_start_offset)

    def producers(self) -> list[ProducerSnapshot.ProducerEntry]:
        """Return the known producers, for DescribeProducers."""
        return self.producer_states.entries()

    # Appending.

    def append(
        self,
        batch: bytes | memoryview,
        *,
        leader_epoch: int = 0,
        transaction_check: Callable[[BatchHeader], None] | None = None,
        quick: bool = False,
        checked: tuple[BatchHeader, bytes] | None = None,
        now_ms: int | None = None,
    ) -> Appended:
        """Append a record batch v2 from a client.

        Args:
            quick: as for ``check``
            checked: the result of a LongCheck of this batch
            now_ms: the time of the node that appends, in milliseconds since 1970; None for that of the logs
            transaction_check: called for a batch of a transaction that is not open in this partition; raises
                ApiError if the batch is not allowed

        Raises:
            ApiError: the batch is refused, or cannot be written; the log is unchanged.
            LongCheck: the check takes long; only if it is to be ``quick``.
        """
        if self.offline:  # before duplicates are acknowledged again
            self.check_online()
        environment = self.environment
        now = environment.now_ms() if now_ms is None else now_ms
        if checked is None and quick and len(batch) > QUICKLY_READ:
            raise LongCheck(partial(read_and_check, batch, self.config, now, environment.bounds))
        header, body = checked or read_batch(batch, self.config)
        states = self.producer_states
        idempotent = header.producer_id >= 0
        if idempotent:
            sent = states.duplicate(header)
            if sent is not None:
                assigned = self.config.message_timestamp_type == "LogAppendTime"
                append_time = sent.timestamp if assigned else -1
                first = sent.last_offset - sent.offset_delta
                return Appended(
                    first, sent.last_offset, append_time, self.log_start_offset, duplicate=True
                )
        if checked is None:
            body = check(body, header, self.config, now, environment.bounds, quick=quick)
        if idempotent:
            states.check_batch(header)
            if (
                header.is_transactional
                and transaction_check is not None
                and not states.in_transaction(header.producer_id, header.producer_epoch)
            ):
                transaction_check(header)
        self._write(body, header, leader_epoch)
        if idempotent:
            states.add_batch(header)
        return self._appended(header)

    def append_records(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        is_transactional: bool = False,
        compression: int = Compression.NONE,
    ) -> Appended:
        """Append records of a coordinator as one batch.

        Offsets of the records are ignored. Records without a timestamp get the current time. Raises ApiError if the
        batch cannot be written; the log is unchanged then.
        """
        return self.append_encoded(
            self.encode_records(
                records,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=is_transactional,
                compression=compression,
            )
        )

    def encode_records(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        is_transactional: bool = False,
        compression: int = Compression.NONE,
    ) -> bytes:
        """Build the batch that ``append_records`` appends. Another thread may call this."""
        now = self.environment.now_ms()
        append_time = self.config.message_timestamp_type == "LogAppendTime"
        times = [now if record.timestamp == -1 else record.timestamp for record in records]
        return encode_batch(
            [
                Record(-1, timestamp, record.key, record.value, record.headers)
                for timestamp, record in zip(times, records, strict=True)
            ],
            compression=compression,
            base_offset=0,
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
            ),
            max_timestamp=now if append_time else None,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=is_transactional,
        )

    def append_encoded(self, data: bytes) -> Appended:
        """Append a batch of ``encode_records``. Raises ApiError; the log is unchanged then."""
        if len(data) > self.config.max_message_bytes:
            raise too_large(len(data), self.config)
        header = header_at(data, 0, 0)
        assert header is not None
        states = self.producer_states
        if header.producer_id >= 0:
            states.check_batch(header, sequence=False)
        self._write(data[BODY_AT:], header, max(self.latest_epoch, 0))
        if header.producer_id >= 0:
            states.add_batch(header)
        return self._appended(header)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        timestamp: int | None = None,
    ) -> Appended:
        """End a producer's transaction in this partition.

        ``timestamp`` is in milliseconds since 1970; None is the current time. Raises ApiError; the log is unchanged then.
        """
        states = self.producer_states
        states.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = ControlRecord(
            ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
            coordinator_epoch,
            offset=self.end_offset,
            timestamp=self.environment.now_ms() if timestamp is None else timestamp,
        )
        data = encode_control_batch(
            [marker], producer_id=producer_id, producer_epoch=producer_epoch
        )
        header = header_at(data, 0, 0)
        assert header is not None
        segment = self._write(data[BODY_AT:], header, max(self.latest_epoch, 0))
        aborted = states.add_marker(header, marker)
        if aborted is not None:
            segment.transactions.entries.append(aborted)
        return self._appended(header)

    def _appended(self, header: BatchHeader) -> Appended:
        self.notify()
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(header.base_offset, header.last_offset, append_time, self.log_start_offset)

    def _write(self, body: bytes, header: BatchHeader, leader_epoch: int) -> Segment:
        """Append a batch, and set offsets and position in ``header``. Raises ApiError."""
        if self.closed:
            raise self._failure(self.offline or "the log is closed")
        size = BODY_AT + len(body)
        offset = self.end_offset
        header.base_offset = offset
        header.partition_leader_epoch = leader_epoch
        try:
            segment = self.active
            if self._is_full(segment, size, header):
                self.roll()
                segment = self.active
            segment.transactions  # noqa: B018  reads them: after the write, nothing may fail
            header.position = segment.size
            start = pack_before_crc(
                offset, header.batch_length, leader_epoch, header.magic, header.crc
            )
            segment.append(start, memoryview(body))
        except (OSError, DamageError) as error:
            raise self._cannot_write(error) from None
        if offset + header.last_offset_delta + 1 - self._forced_to >= self._most_unforced:
            self._force(segment, size, offset + header.last_offset_delta + 1)
        self._refused = False
        segment.note(header)
        if leader_epoch > self._epochs.latest:
            self._epochs.begin(leader_epoch, offset)
        self.size += size
        self.end_offset = offset + header.last_offset_delta + 1
        return segment

    # Rolling.

    def _is_full(self, segment: Segment, size: int, header: BatchHeader) -> bool:
        """Return whether a batch must begin a new segment."""
        config = self.config
        return segment.size > 0 and (
            segment.size + size > config.segment_bytes
            or self.end_offset + header.last_offset_delta - segment.base_offset > INT32_MAX
            # An entry of the larger index, the time index, has 12 bytes.
            or (len(segment.indexes[0]) + 1) * 12 > config.segment_index_bytes
            or self._is_old(segment, header.max_timestamp)
        )

    def _is_old(self, segment: Segment, timestamp: int) -> bool:
        """Return whether a segment is too old for a batch with this timestamp.

        The age counts from the timestamp of the first batch, or from the creation if it has none.
        """
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
        """Begin a new segment unless the active one is empty. Raises ApiError."""
        old = self.active
        if not old.size:
            return
        try:
            new = Segment.create(
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

    # Epochs.

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch; -1 if there is none."""
        return self._epochs.latest

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``leader_epoch`` and its end offset; (-1, -1) if it is unknown."""
        return self._epochs.end_of(leader_epoch, self.end_offset)

    # Upkeep.

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
        if self.closed:
            raise self._failure(self.offline or "the log is closed")
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

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that have records from ``offset`` on, as a replica of a new leader does (KIP-101).

        Producers and their transactions are as of the new end, which is returned. Raises ApiError; if the disk has
        failed, the partition is offline then.
        """
        if self.closed:
            raise self._failure(self.offline or "the log is closed")
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
        self._begin_unflushed()
        self.notify()
        return self.end_offset

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

    def prepare_replacement(self, new: Segment) -> None:
        """Force a complete new segment, whose files are ``.cleaned``, to the disk. Raises OSError."""
        if self.environment.durable:
            sync_all([*new.files, self.path])

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
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

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.config = config
        self.active.interval = config.index_interval_bytes
        most = {"always": 1, "off": INT64_MAX}
        self._most_unforced = most.get(self.environment.fsync, config.flush_messages)

    def release(self) -> None:
        """Release files and indexes of all segments but the active one; they are read again on demand."""
        for segment in self.segments[:-1]:
            segment.release()

    def close(self) -> None:
        """Close the log, so that it can be opened without verification. Raises OSError.

        A log that is offline stays as it is.
        """
        if self.offline:
            for segment in self.segments:
                segment.close()
        if self.closed:
            return
        self.closed = True
        try:
            self.active.finish_time_index()
            for segment in self.segments:
                segment.write_indexes()
            if self.end_offset:
                self.take_snapshot()
            self.flush()
            self.recovery_point = self.end_offset
        finally:
            for segment in self.segments:
                segment.close()
            self.notify()

    def mark_deleted(self) -> None:
        """Close without writing anything, because the folder will be removed."""
        self.deleted = True
        self.closed = True
        for segment in self.segments:
            segment.close()
        self.notify()
