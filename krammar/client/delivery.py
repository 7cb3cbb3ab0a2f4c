"""Records that are being sent: batches, the deliveries of their records, and each partition's queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from krammar.client.deadline import Backoff
from krammar.client.errors import ClientError
from krammar.client.metadata import TopicPartition
from krammar.wire.batches import Record
from krammar.wire.batches.header import HEADER_SIZE

# The size of a batch's header, and the most bytes that a record needs besides key, value and headers, for its length,
# time, offset and the lengths of its parts.
BATCH_OVERHEAD = HEADER_SIZE
RECORD_OVERHEAD = 21


class Identity:
    """A producer's id and epoch (KIP-98)."""

    __slots__ = ("epoch", "producer_id")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch

    def __repr__(self) -> str:
        return f"{self.producer_id}/{self.epoch}"


NO_IDENTITY = Identity(-1, -1)


class Waiter(Protocol):
    """The producer that sends the batches."""

    def wait_for(self, delivery: Delivery, timeout_ms: float | None = None) -> Delivery:
        """Send until a record is done; see ``Delivery.result``."""


class Delivery:
    """The result of sending one record; ``done`` says whether it is known."""

    __slots__ = ("_producer", "batch", "index")

    def __init__(self, producer: Waiter, batch: ProducerBatch, index: int) -> None:
        self._producer = producer
        self.batch = batch
        self.index = index

    @property
    def done(self) -> bool:
        """Whether the record was written or has failed."""
        return self.batch.done

    @property
    def error(self) -> ClientError | None:
        """Why the record was not written; before it is done, the error of the last attempt."""
        return self.batch.error

    @property
    def topic(self) -> str:
        return self.batch.at.topic

    @property
    def partition(self) -> int:
        return self.batch.at.partition

    @property
    def offset(self) -> int:
        """The record's offset; -1 if the broker does not report it (``acks=0``, or some retries)."""
        base = self.batch.base_offset
        return base if base < 0 else base + self.index

    @property
    def timestamp(self) -> int:
        """The record's timestamp, or the broker's with LogAppendTime, in milliseconds since 1970."""
        appended = self.batch.log_append_time
        return self.batch.records[self.index].timestamp if appended < 0 else appended

    def result(self, timeout_ms: float | None = None) -> Delivery:
        """Wait until the record is done, and return this delivery. The producer sends in the meantime.

        Args:
            timeout_ms: the default is ``delivery.timeout.ms``.

        Raises:
            ClientError: the record was not written; DeadlineError if the time is over.
        """
        return self._producer.wait_for(self, timeout_ms)


Callback = Callable[[Delivery], object]


class ProducerBatch:
    """Records of one partition that are written together.

    Attributes:
        at: the partition
        encoded: the encoded batch, once it was sent
        sequence: the producer's sequence number of the first record, -1 if it has none yet
        uncertain: whether the log may have the batch: an attempt got no response, or an error after the append
    """

    __slots__ = (
        "at",
        "attempts",
        "base_offset",
        "callbacks",
        "created",
        "deliveries",
        "done",
        "encoded",
        "error",
        "expires",
        "identity",
        "log_append_time",
        "records",
        "sequence",
        "size",
        "uncertain",
    )

    def __init__(self, at: TopicPartition, created: float, expires: float) -> None:
        self.at = at
        self.created = created
        self.expires = expires
        self.records: list[Record] = []
        self.deliveries: list[Delivery] = []
        self.callbacks: dict[int, Callback] = {}
        self.size = BATCH_OVERHEAD
        self.attempts = 0
        self.identity = NO_IDENTITY
        self.sequence = -1
        self.encoded: bytes | None = None
        self.uncertain = False
        self.done = False
        self.error: ClientError | None = None
        self.base_offset = -1
        self.log_append_time = -1

    def has_room(self, size: int, most: int, *, with_delivery: bool) -> bool:
        """Return whether a record can be added.

        All records of a batch have deliveries, or none, because deliveries are found by their index.

        Args:
            size: the record's size, in bytes.
            most: the largest size of a batch, in bytes.
            with_delivery: whether the record needs a delivery.
        """
        return (
            self.encoded is None
            and self.sequence < 0
            and self.size + size <= most
            and with_delivery is bool(self.deliveries)
        )

    def add(self, producer: Waiter, record: Record, size: int) -> Delivery:
        """Add a record of ``size`` bytes, and return its delivery."""
        delivery = Delivery(producer, self, len(self.records))
        self.records.append(record)
        self.deliveries.append(delivery)
        self.size += size
        return delivery

    def split(self) -> list[ProducerBatch]:
        """Split into two batches with half of the records each; sequence numbers and deliveries stay the same."""
        half = len(self.records) // 2
        parts = []
        for begin, end in ((0, half), (half, len(self.records))):
            part = ProducerBatch(self.at, self.created, self.expires)
            part.records = self.records[begin:end]
            part.deliveries = self.deliveries[begin:end]
            part.callbacks = {i - begin: c for i, c in self.callbacks.items() if begin <= i < end}
            first = (self.size - BATCH_OVERHEAD) * half // len(self.records)
            part.size = BATCH_OVERHEAD + first if begin == 0 else self.size - first
            part.attempts = self.attempts
            part.identity = self.identity
            if self.sequence >= 0:
                part.sequence = self.sequence + begin & 0x7FFFFFFF
            for index, delivery in enumerate(part.deliveries):
                delivery.batch, delivery.index = part, index
            parts.append(part)
        return parts


class Queue:
    """The batches of a partition, in order.

    Attributes:
        waiting: batches to be sent, or sent again; the last one may still grow
        in_flight: batches without a response yet, oldest first
        returned: batches to be sent again as soon as nothing is in flight, so that the order is preserved
        identity, sequence: used for the next new batch
        bump: whether the sequence has a gap: the queue continues with a new epoch once it is known
            which batches were written
    """

    __slots__ = (
        "at",
        "backoff",
        "bump",
        "identity",
        "in_flight",
        "retry_at",
        "returned",
        "sequence",
        "waiting",
    )

    def __init__(self, at: TopicPartition, backoff: Backoff) -> None:
        self.at = at
        self.backoff = backoff
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: deque[ProducerBatch] = deque()
        self.returned: list[ProducerBatch] = []
        self.identity = NO_IDENTITY
        self.sequence = 0
        self.bump = False
        self.retry_at = 0.0

    @property
    def empty(self) -> bool:
        """Whether all batches are done."""
        return not (self.waiting or self.in_flight or self.returned)

    def settle(self) -> None:
        """Move returned batches to the front of the queue, once nothing is in flight."""
        if self.returned and not self.in_flight:
            # Not sorted by sequence number, which wraps around to 0.
            self.returned.sort(key=lambda batch: batch.created)
            self.waiting.extendleft(reversed(self.returned))
            self.returned.clear()

    def start_over(self, identity: Identity) -> None:
        """Continue with another identity, from sequence number 0."""
        self.identity = identity
        self.sequence = 0
        self.bump = False
        for batch in self.waiting:
            batch.sequence = -1
            batch.identity = NO_IDENTITY
            batch.encoded = None
            batch.uncertain = False
