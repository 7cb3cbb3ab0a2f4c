"""The log of one partition: opens it, appends to it, and closes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from krammar.broker.log.environment import Environment
from krammar.broker.log.loading import Loaded, UnreadableLog
from krammar.broker.log.log_config import INT64_MAX, LogConfig
from krammar.broker.log.retention import RetainedLog
from krammar.broker.log.segment import LogSegment
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

    ``append_time``  milliseconds since 1970; -1 with CreateTime
    ``duplicate``    whether the batch was already in the log, at these offsets
    """

    base_offset: int
    last_offset: int
    append_time: int
    log_start_offset: int
    duplicate: bool = False


class PartitionLog(RetainedLog):
    """The batches of a partition, in a folder in Kafka's format."""

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
        super().__init__(path, topic, partition, config, environment)
        self.topic_id = topic_id
        self.cleaned_to = cleaned_to
        interval = config.index_interval_bytes
        if failed is None:
            verify_from = None if clean else recovery_point
            self._adopt(
                Loaded(
                    path,
                    interval,
                    environment,
                    verify_from=verify_from,
                    log_start_offset=log_start_offset,
                )
            )
            recovery_point = min(recovery_point, self.end_offset)
        else:
            self._adopt(UnreadableLog(path, interval, log_start_offset))
        self._begin_unflushed(recovery_point)
        self.update_config(config)
        if failed is not None:
            self.take_offline(failed)

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
        now = self.environment.now_ms()
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
        if self.watchers:
            self.notify()
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(header.base_offset, header.last_offset, append_time, self.log_start_offset)

    def _write(self, body: bytes, header: BatchHeader, leader_epoch: int) -> LogSegment:
        """Append a batch, and set offsets and position in ``header``. Raises ApiError."""
        if self.closed:
            self._check_open()
        size = BODY_AT + len(body)
        offset = self.end_offset
        header.base_offset = offset
        header.partition_leader_epoch = leader_epoch
        try:
            segment = self.segments[-1]
            if self._is_full(segment, size, header):
                self.roll()
                segment = self.segments[-1]
            if header.is_control:
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

    def _is_full(self, segment: LogSegment, size: int, header: BatchHeader) -> bool:
        """Return whether a batch must begin a new segment."""
        config = self.config
        return segment.size > 0 and (
            segment.size + size > config.segment_bytes
            or self.end_offset + header.last_offset_delta - segment.base_offset > INT32_MAX
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
            timestamp = self.environment.now_ms()
        config = self.config
        longest = config.segment_ms
        if config.compacts and config.max_compaction_lag_ms > 0:
            longest = min(longest, config.max_compaction_lag_ms)
        return timestamp - first_timestamp > longest

    # Settings, and the end.

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.config = config
        self.active.interval = config.index_interval_bytes
        most = {"always": 1, "off": INT64_MAX}
        self._most_unforced = most.get(self.environment.fsync, config.flush_messages)

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
