"""The log of one partition: opens it, appends to it, and closes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from krammar.broker.log.durability import Durability
from krammar.broker.log.environment import Environment
from krammar.broker.log.loading import Loaded, UnreadableLog
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.producers import Producers
from krammar.broker.log.reading import PartitionReader
from krammar.broker.log.retention import Retention
from krammar.broker.log.segment import LogSegment
from krammar.broker.log.state import LogState
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
from krammar.wire.batches import (
    BatchHeader,
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

    Attributes:
        append_time: milliseconds since 1970; -1 with CreateTime
        duplicate: whether the batch was already in the log, at these offsets
    """

    base_offset: int
    last_offset: int
    append_time: int
    log_start_offset: int
    duplicate: bool = False


class PartitionLog:
    """The batches of a partition, in a folder in Kafka's format.

    It appends to the log, and has a part for everything else.

    Attributes:
        state: the segments and offsets, which the parts share
        reader: reads batches and offsets
        durability: forces the log to the disk
        retention: rolls, deletes, truncates and replaces segments
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

        ``failed`` is the error of an earlier attempt: the log is offline then, and its files stay
        as they are.

        Raises OSError.
        """
        self.path = path
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self._environment = environment
        self.state = state = LogState(path, topic, partition, config, environment)
        interval = config.index_interval_bytes
        if failed is None:
            verify_from = None if clean else recovery_point
            state.adopt(
                Loaded(
                    path,
                    interval,
                    environment,
                    verify_from=verify_from,
                    log_start_offset=log_start_offset,
                )
            )
            recovery_point = min(recovery_point, state.end_offset)
        else:
            state.adopt(UnreadableLog(path, interval, log_start_offset))
        self.reader = PartitionReader(state)
        self.durability = Durability(state, environment)
        self.durability.begin(recovery_point)
        self.retention = Retention(state, self.reader, self.durability, environment, cleaned_to)
        self.update_config(config)
        if failed is not None:
            state.take_offline(failed)

    # The state, as others see it.

    @property
    def config(self) -> LogConfig:
        return self.state.config

    @property
    def segments(self) -> list[LogSegment]:
        return self.state.segments

    @property
    def active(self) -> LogSegment:
        """The segment to which batches are appended."""
        return self.state.active

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return self.state.size

    @property
    def end_offset(self) -> int:
        """The next offset; with a single node also the high watermark."""
        return self.state.end_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.state.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction; the end offset without one."""
        return self.state.last_stable_offset

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch; -1 if there is none."""
        return self.state.epochs.latest

    @property
    def producers(self) -> Producers:
        """The producers, and their open transactions."""
        return self.state.producers

    @property
    def closed(self) -> bool:
        """Whether nothing can be written."""
        return self.state.closed

    @property
    def deleted(self) -> bool:
        """Whether the partition was deleted."""
        return self.state.deleted

    @property
    def offline(self) -> str:
        """Why all requests are refused until the next start; empty while the log is online."""
        return self.state.offline

    @property
    def watchers(self) -> set[Callable[[], None]]:
        """Called when an offset changes, and when the log is closed, deleted or taken offline."""
        return self.state.watchers

    def check_online(self) -> None:
        """Raise ApiError if the partition is offline."""
        self.state.check_online()

    def lead(self, leader_epoch: int) -> None:
        """Begin a leader epoch at the end of the log, even if nothing is written in it (KIP-320).

        An offline log stays as it is.
        """
        if not self.state.offline:
            self.state.epochs.begin(leader_epoch, self.state.end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset; -1 if it is unknown, as for message sets of format v0 and v1."""
        return self.state.epochs.at(offset)

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``leader_epoch`` and its end offset; (-1, -1) if it is unknown."""
        return self.state.epochs.end_of(leader_epoch, self.state.end_offset)

    def file_of(self, offset: int) -> str:
        """Return the path of the segment that contains an offset, for errors."""
        return self.state.from_offset(offset)[0].path

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
            now_ms: the time of the node that appends, in milliseconds since 1970; None for that of
            the logs
            transaction_check: called for a batch of a transaction that is not open in this
                partition; raises ApiError if the batch is not allowed

        Raises:
            ApiError: the batch is refused, or cannot be written; the log is unchanged.
            LongCheck: the check takes long; only if it is to be ``quick``.
        """
        state = self.state
        if state.offline:  # before duplicates are acknowledged again
            state.check_online()
        environment, config = self._environment, state.config
        now = environment.now_ms() if now_ms is None else now_ms
        if checked is None and quick and len(batch) > QUICKLY_READ:
            raise LongCheck(partial(read_and_check, batch, config, now, environment.bounds))
        header, body = checked or read_batch(batch, config)
        producers = state.producers
        idempotent = header.producer_id >= 0
        if idempotent:
            sent = producers.duplicate(header)
            if sent is not None:
                assigned = config.message_timestamp_type == "LogAppendTime"
                append_time = sent.timestamp if assigned else -1
                first = sent.last_offset - sent.offset_delta
                return Appended(
                    first, sent.last_offset, append_time, state.log_start_offset, duplicate=True
                )
        if checked is None:
            body = check(body, header, config, now, environment.bounds, quick=quick)
        if idempotent:
            producers.check_batch(header)
            if (
                header.is_transactional
                and transaction_check is not None
                and not producers.in_transaction(header.producer_id, header.producer_epoch)
            ):
                transaction_check(header)
        self._write(body, header, leader_epoch)
        if idempotent:
            producers.add_batch(header)
        return self._appended(header)

    def append_records(self, records: Sequence[Record]) -> Appended:
        """Append records of a coordinator as one batch, as ``encode_records`` and ``append_encoded`` do."""
        return self.append_encoded(self.encode_records(records))

    def encode_records(
        self,
        records: Sequence[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        is_transactional: bool = False,
    ) -> bytes:
        """Build a batch of records of a coordinator. Another thread may call this.

        Offsets of the records are ignored. Records without a timestamp get the current time.
        """
        now = self._environment.now_ms()
        append_time = self.config.message_timestamp_type == "LogAppendTime"
        return encode_batch(
            [
                Record(-1, r.timestamp if r.timestamp != -1 else now, r.key, r.value, r.headers)
                for r in records
            ],
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
        producers = self.state.producers
        if header.producer_id >= 0:
            producers.check_batch(header, sequence=False)
        self._write(data[BODY_AT:], header, max(self.state.epochs.latest, 0))
        if header.producer_id >= 0:
            producers.add_batch(header)
        return self._appended(header)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        timestamp: int | None = None,
        ends_epoch: bool = False,
    ) -> Appended:
        """End a producer's transaction in this partition.

        Raises ApiError; the log is unchanged then.

        Args:
            timestamp: in milliseconds since 1970; None is the current time
            ends_epoch: whether the epoch has to be higher than that of the transaction (KIP-890)
        """
        producers = self.state.producers
        producers.check_marker(producer_id, producer_epoch, coordinator_epoch, ends_epoch)
        marker = ControlRecord(
            ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
            coordinator_epoch,
            offset=self.state.end_offset,
            timestamp=self._environment.now_ms() if timestamp is None else timestamp,
        )
        data = encode_control_batch(
            [marker], producer_id=producer_id, producer_epoch=producer_epoch
        )
        header = header_at(data, 0, 0)
        assert header is not None
        segment = self._write(data[BODY_AT:], header, max(self.state.epochs.latest, 0))
        aborted = producers.add_marker(header, marker)
        if aborted is not None:
            segment.transactions.entries.append(aborted)
        return self._appended(header)

    def _appended(self, header: BatchHeader) -> Appended:
        state = self.state
        if state.watchers:
            state.notify()
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(header.base_offset, header.last_offset, append_time, state.log_start_offset)

    def _write(self, body: bytes, header: BatchHeader, leader_epoch: int) -> LogSegment:
        """Append a batch, and set offsets and position in ``header``. Raises ApiError."""
        state = self.state
        if state.closed:
            state.check_open()
        size = BODY_AT + len(body)
        offset = state.end_offset
        header.base_offset = offset
        header.partition_leader_epoch = leader_epoch
        try:
            segment = state.segments[-1]
            if self._is_full(segment, size, header):
                self.retention.roll()
                segment = state.segments[-1]
            if header.is_control:
                segment.transactions  # noqa: B018  reads them: after the write, nothing may fail
            header.position = segment.size
            start = pack_before_crc(
                offset, header.batch_length, leader_epoch, header.magic, header.crc
            )
            segment.append(start, memoryview(body))
        except (OSError, DamageError) as error:
            raise state.cannot_write(error) from None
        end_offset = offset + header.last_offset_delta + 1
        durability = self.durability
        if end_offset - durability.forced_to >= durability.flush_messages:
            durability.force(segment, size, end_offset)
        state.refused = False
        segment.note(header)
        if leader_epoch > state.epochs.latest:
            state.epochs.begin(leader_epoch, offset)
        state.size += size
        state.end_offset = end_offset
        return segment

    def _is_full(self, segment: LogSegment, size: int, header: BatchHeader) -> bool:
        """Return whether a batch must begin a new segment."""
        state = self.state
        config = state.config
        return segment.size > 0 and (
            segment.size + size > config.segment_bytes
            or state.end_offset + header.last_offset_delta - segment.base_offset > INT32_MAX
            # An entry of the larger index, the time index, has 12 bytes.
            or (len(segment.indexes[0].keys) + 1) * 12 > config.segment_index_bytes
            or self._is_old(segment, header.max_timestamp)
        )

    def _is_old(self, segment: LogSegment, timestamp: int) -> bool:
        """Return whether a segment is too old for a batch with this timestamp.

        The age counts from the timestamp of the first batch, or from the creation if it has none.
        """
        if segment.first_timestamp is None:
            first = segment.header(0)
            segment.first_timestamp = -1 if first is None else first.max_timestamp
        first_timestamp = segment.first_timestamp
        if first_timestamp < 0:
            first_timestamp = segment.created_ms
            timestamp = self._environment.now_ms()
        config = self.state.config
        longest = config.segment_ms
        if config.compacts and config.max_compaction_lag_ms > 0:
            longest = min(longest, config.max_compaction_lag_ms)
        return timestamp - first_timestamp > longest

    # Settings, and the end.

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.state.config = config
        self.state.active.interval = config.index_interval_bytes
        self.durability.update_config()

    def take_offline(self, error: OSError) -> None:
        """Refuse all requests until the next start, which verifies the log."""
        self.state.take_offline(error)

    def release(self) -> None:
        """Release files and indexes of all segments but the active one; they are read again on demand."""
        for segment in self.state.segments[:-1]:
            segment.release()

    def mark_deleted(self) -> None:
        """Close without writing anything, because the folder will be removed."""
        state = self.state
        state.deleted = True
        state.closed = True
        for segment in state.segments:
            segment.close()
        state.notify()

    def close(self) -> None:
        """Close the log, so that it can be opened without verification. Raises OSError.

        A log that is offline stays as it is.
        """
        state = self.state
        if state.offline:
            for segment in state.segments:
                segment.close()
        if state.closed:
            return
        state.closed = True
        try:
            state.active.finish_time_index()
            for segment in state.segments:
                segment.write_indexes()
            if state.end_offset:
                self.retention.take_snapshot()
            self.durability.flush()
            self.durability.recovery_point = state.end_offset
        finally:
            for segment in state.segments:
                segment.close()
            state.notify()
