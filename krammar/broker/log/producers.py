"""The producers of a partition: duplicates, gaps, fencing, open transactions.

The rules are the same as in Kafka's producer state. It remembers the last five batches of each
producer (KIP-98, the maximum that a producer has in flight). A snapshot stores only the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_wire import AbortedTxn, ErrorCode, ProducerSnapshot

from krammar.broker.errors import ApiError
from krammar.logfiles.snapshot import CRC_AT, CRC_COVERS_FROM
from krammar.wire.batches import BatchHeader, ControlRecord, ControlRecordType, crc32c
from krammar.wire.batches.control import END_OF_TRANSACTION

_REMEMBERED = 5
_SEQUENCES = 1 << 31


def _add(sequence: int, distance: int) -> int:
    """Add to a sequence number; 0 follows 2**31 - 1."""
    return (sequence + distance) % _SEQUENCES


class Sent(NamedTuple):
    """A batch that was appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    epoch: int = -1
    batches: deque[Sent] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    timestamp: int = -1
    coordinator_epoch: int = -1


class Producers:
    """The producers of one partition, as of ``end_offset``."""

    __slots__ = ("by_id", "open_transactions", "topic_partition")

    def __init__(self, topic_partition: str) -> None:
        self.topic_partition = topic_partition
        self.by_id: dict[int, Producer] = {}
        # The first offset of each open transaction, by producer id. Transactions begin in the order
        # of offsets, so the first entry is the earliest.
        self.open_transactions: dict[int, int] = {}

    def first_open_offset(self) -> int | None:
        """Return the first offset of the earliest open transaction; None without any."""
        return next(iter(self.open_transactions.values()), None)

    def duplicate(self, header: BatchHeader) -> Sent | None:
        """Return the one of the last five batches that this batch repeats, if any."""
        producer = self.by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        delta = header.last_offset_delta
        last = _add(header.base_sequence, delta)
        for sent in producer.batches:
            if sent.last_sequence == last and sent.offset_delta == delta:
                return sent
        return None

    def recall(self, headers: Iterable[BatchHeader]) -> None:
        """Restore the last five batches from headers that precede the snapshot, which has only the last one."""
        sent: dict[tuple[int, int], deque[Sent]] = {}
        for header in headers:
            if header.producer_id in self.by_id and header.base_sequence >= 0:
                key = header.producer_id, header.producer_epoch
                last = _add(header.base_sequence, header.last_offset_delta)
                sent.setdefault(key, deque(maxlen=_REMEMBERED)).append(
                    Sent(last, header.last_offset, header.last_offset_delta, header.max_timestamp)
                )
        for (producer_id, epoch), batches in sent.items():
            producer = self.by_id[producer_id]
            known = producer.batches
            if producer.epoch == epoch and known and known[-1][:3] == batches[-1][:3]:
                producer.batches = batches

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer with this epoch has an open transaction in the partition."""
        producer = self.by_id.get(producer_id)
        return (
            producer is not None
            and producer.epoch == epoch
            and producer_id in self.open_transactions
        )

    def check_batch(self, header: BatchHeader, *, sequence: bool = True) -> None:
        """Raise ApiError if the producer must not append this batch."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(header.producer_id, producer, header.producer_epoch)
        if sequence:
            self._check_sequence(header, producer)
        if header.producer_id in self.open_transactions and not header.is_transactional:
            raise self._error(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and sent a batch that is not"
                " transactional",
            )

    def _error(self, code: ErrorCode, text: str) -> ApiError:
        return ApiError(code, f"{self.topic_partition}: {text}")

    def _check_epoch(self, producer_id: int, producer: Producer, epoch: int) -> None:
        if epoch < producer.epoch:
            raise self._error(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is older than its last epoch {producer.epoch}",
            )

    def _check_sequence(self, header: BatchHeader, producer: Producer) -> None:
        first = header.base_sequence
        if header.producer_epoch != producer.epoch:
            expected = 0 if producer.epoch != -1 else first
        elif producer.batches:
            expected = _add(producer.batches[-1].last_sequence, 1)
        else:
            expected = 0
        if first != expected:
            raise self._error(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {first},"
                f" but {expected} is expected",
            )

    def add_batch(self, header: BatchHeader) -> None:
        """Add a data batch that is in the log."""
        producer_id = header.producer_id
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer()
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        delta = header.last_offset_delta
        last = -1 if header.base_sequence < 0 else _add(header.base_sequence, delta)
        producer.batches.append(Sent(last, header.base_offset + delta, delta, header.max_timestamp))
        producer.timestamp = header.max_timestamp
        if header.is_transactional:
            self.open_transactions.setdefault(producer_id, header.base_offset)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, ends_epoch: bool
    ) -> None:
        """Raise ApiError if a coordinator must not write this marker.

        ``ends_epoch`` is whether the epoch has to be higher than that of the open transaction.
        """
        producer = self.by_id.get(producer_id)
        if producer is None:
            return
        if ends_epoch and producer_id in self.open_transactions:
            epoch -= 1
        self._check_epoch(producer_id, producer, epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise self._error(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} of a marker for producer {producer_id} is older"
                f" than the last one, {producer.coordinator_epoch}",
            )

    def add_marker(self, header: BatchHeader, marker: ControlRecord) -> AbortedTxn | None:
        """Add a control record that is in the log. Returns the transaction that it aborts, if any."""
        if marker.type not in END_OF_TRANSACTION:
            return None
        producer_id = header.producer_id
        producer = self.by_id.setdefault(producer_id, Producer())
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = marker.timestamp
        first = self.open_transactions.pop(producer_id, None)
        if first is None or marker.type == ControlRecordType.COMMIT:
            return None
        stable = self.first_open_offset()
        return AbortedTxn(
            producer_id=producer_id,
            first_offset=first,
            last_offset=marker.offset,
            last_stable_offset=marker.offset + 1 if stable is None else stable,
        )

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Remove producers that were idle for ``after_ms`` milliseconds. Returns their number."""
        gone = [
            producer_id
            for producer_id, producer in self.by_id.items()
            if producer_id not in self.open_transactions and now_ms - producer.timestamp >= after_ms
        ]
        for producer_id in gone:
            del self.by_id[producer_id]
        return len(gone)

    def last_batches(self) -> dict[int, tuple[int, int]]:
        """Return the offset of the last data record (or -1) and the epoch of each producer, by id."""
        return {entry.producer_id: (entry.last_offset, entry.epoch) for entry in self.entries()}

    def snapshot(self) -> bytes:
        """Encode the state as the content of a ``.snapshot`` file."""
        data = bytearray(ProducerSnapshot(producer_entries=self.entries()).encode(1))
        crc = crc32c(bytes(data[CRC_COVERS_FROM:]))
        data[CRC_AT:CRC_COVERS_FROM] = crc.to_bytes(4, "big")
        return bytes(data)

    def entries(self) -> list[ProducerSnapshot.ProducerEntry]:
        """Return the state of all producers, as in a snapshot. -1 means none."""
        entries = []
        for producer_id, producer in self.by_id.items():
            last = producer.batches[-1] if producer.batches else Sent(-1, -1, 0, -1)
            entry = ProducerSnapshot.ProducerEntry(
                producer_id=producer_id,
                epoch=producer.epoch,
                last_sequence=last.last_sequence,
                last_offset=last.last_offset,
                offset_delta=last.offset_delta,
                timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_first_offset=self.open_transactions.get(producer_id, -1),
            )
            entries.append(entry)
        return entries

    def load(self, snapshot: ProducerSnapshot, expired_ms: int) -> None:
        """Replace the state by a snapshot. Producers that were idle since ``expired_ms`` are left out."""
        self.by_id = {}
        opened = []
        for entry in snapshot.producer_entries:
            first = entry.current_txn_first_offset
            if first < 0 and entry.timestamp <= expired_ms:
                continue
            producer = self.by_id[entry.producer_id] = Producer(
                entry.epoch, timestamp=entry.timestamp, coordinator_epoch=entry.coordinator_epoch
            )
            if entry.last_sequence >= 0 or entry.last_offset >= 0:
                last = entry.last_sequence, entry.last_offset, entry.offset_delta
                producer.batches.append(Sent(*last, entry.timestamp))
            if first >= 0:
                opened.append((first, entry.producer_id))
        self.open_transactions = {producer_id: first for first, producer_id in sorted(opened)}
