"""Records on their way: batches, what is known of each record in them, and each partition's queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from krammar.client.deadline import Backoff
from krammar.client.errors import ClientError
from krammar.client.metadata import TopicPartition
from krammar.wire.record_format import Record

if TYPE_CHECKING:
    from krammar.client.produce import Producer

# A batch's header; and of a record what its key, value and headers come with at most: numbers of its
# length, time, offset and lengths.
BATCH_OVERHEAD = 61
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


class Delivery:
    """What becomes of one record that was sent.

    When ``done``, either ``error`` says why it was not written, or ``offset`` where it is: -1 where the
    broker does not tell (``acks=0``, or a retry of what had been written before). ``timestamp`` is the
    record's, in milliseconds since 1970, or the broker's on topics that use its clock.
    """

    __slots__ = ("_producer", "batch", "index")

    def __init__(self, producer: Producer, batch: Batch, index: int) -> None:
        self._producer = producer
        self.batch = batch
        self.index = index

    @property
    def done(self) -> bool:
        return self.batch.done

    @property
    def error(self) -> ClientError | None:
        return self.batch.error

    @property
    def topic(self) -> str:
        return self.batch.at.topic

    @property
    def partition(self) -> int:
        return self.batch.at.partition

    @property
    def offset(self) -> int:
        base = self.batch.base_offset
        return base if base < 0 else base + self.index

    @property
    def timestamp(self) -> int:
        appended = self.batch.log_append_time
        return self.batch.records[self.index].timestamp if appended < 0 else appended

    def result(self, timeout_ms: float | None = None) -> Delivery:
        """Wait, with the producer at work, until it is done; returns itself.

        ``timeout_ms`` is ``delivery.timeout.ms`` unless given. Raises ``error``, and DeadlineError.
        """
        return self._producer.wait_for(self, timeout_ms)


Callback = Callable[[Delivery], object]


class Batch:
    """Records for one partition that are written together."""

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
        # An attempt was not answered, so that the log may have it.
        self.uncertain = False
        self.done = False
        self.error: ClientError | None = None
        self.base_offset = -1
        self.log_append_time = -1

    def has_room(self, size: int, most: int, *, told: bool) -> bool:
        """Whether a record of ``size`` bytes can be added; ``told`` if it is to have a delivery. A batch
        has deliveries for all of its records or for none, or they could not be told apart."""
        return (
            self.encoded is None
            and self.sequence < 0
            and self.size + size <= most
            and told is bool(self.deliveries)
        )

    def add(self, producer: Producer, record: Record, size: int) -> Delivery:
        delivery = Delivery(producer, self, len(self.records))
        self.records.append(record)
        self.deliveries.append(delivery)
        self.size += size
        return delivery

    def split(self) -> list[Batch]:
        """Two of half as many records each; deliveries go with their records. The sequence numbers are
        those that the records have had."""
        half = len(self.records) // 2
        parts = []
        for begin, end in ((0, half), (half, len(self.records))):
            part = Batch(self.at, self.created, self.expires)
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

    ``waiting``     not sent, or to be sent again; the last may still grow
    ``in_flight``   sent and not answered, oldest first
    ``returned``    to be sent again when nothing is in flight any more, so that the order stays
    ``identity``, ``sequence``  what the next new batch gets
    ``bump``        a gap in the sequence is left: go on with a new epoch, once all is resolved
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
        self.waiting: deque[Batch] = deque()
        self.in_flight: deque[Batch] = deque()
        self.returned: list[Batch] = []
        self.identity = NO_IDENTITY
        self.sequence = 0
        self.bump = False
        self.retry_at = 0.0

    @property
    def empty(self) -> bool:
        return not (self.waiting or self.in_flight or self.returned)

    def settle(self) -> None:
        """Line up again what came back, as soon as nothing is in flight."""
        if self.returned and not self.in_flight:
            # Sequence numbers begin again at 0 behind the greatest, but batches in flight are few.
            self.returned.sort(key=lambda batch: batch.created)
            self.waiting.extendleft(reversed(self.returned))
            self.returned.clear()

    def start_over(self, identity: Identity) -> None:
        """Go on as another identity, from sequence number 0."""
        self.identity = identity
        self.sequence = 0
        self.bump = False
        for batch in self.waiting:
            batch.sequence = -1
            batch.identity = NO_IDENTITY
            batch.encoded = None
            batch.uncertain = False
