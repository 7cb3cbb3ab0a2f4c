"""Writes records: in batches, in order, without duplicates, and in transactions.

```python
with client.producer(compression_type="lz4") as producer:
    producer.send("orders", b"value", key=b"key")
    print(producer.send("orders", b"value").result().offset)
```

The producer has no thread: ``send``, ``poll``, ``flush`` and ``Delivery.result`` do the work. A batch is sent when it
is full, otherwise by the first of these calls after ``linger.ms``.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, repeat
from types import TracebackType
from typing import Self

from kafka_wire import ErrorCode

from krammar.client.accumulator import Accumulator
from krammar.client.cluster import Cluster
from krammar.client.committed import Committed, GroupMember
from krammar.client.deadline import Deadline
from krammar.client.delivery import RECORD_OVERHEAD, Callback, Delivery, Waiter
from krammar.client.errors import ClientError, StateError, kafka_error
from krammar.client.identities import Identities
from krammar.client.metadata import Topic, TopicPartition
from krammar.client.partitioner import Partitioner, partition_of_key
from krammar.client.sender import Sender
from krammar.client.settings import Settings
from krammar.client.transactions import TransactionalState, Transactions
from krammar.wire.batches import Record

# Records, single and in columns: their sizes, and the partitions to which they are written.

Headers = Sequence[tuple[str, bytes | None]]


def record_size(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Return an upper bound for the size of a record, in bytes. Raises TypeError."""
    size = RECORD_OVERHEAD
    if value is not None:
        if not isinstance(value, bytes):
            raise TypeError(f"the value must be bytes, not {type(value).__name__}")
        size += len(value)
    if key is not None:
        if not isinstance(key, bytes):
            raise TypeError(f"the key must be bytes, not {type(key).__name__}")
        size += len(key)
    return size + _headers_size(headers) if headers else size


def check_size(topic: str, size: int, most: int) -> None:
    """Raise MessageTooLarge if a record has more than ``max.request.size`` bytes."""
    if size > most:
        detail = f"{topic}: a record of {size} bytes exceeds max.request.size={most}"
        raise kafka_error(ErrorCode.MESSAGE_TOO_LARGE, detail)


def record_sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> list[int]:
    """Return upper bounds for the sizes of records, in bytes."""
    sizes = [RECORD_OVERHEAD if v is None else RECORD_OVERHEAD + len(v) for v in values]
    if keys is not None:
        sizes = [n if k is None else n + len(k) for n, k in zip(sizes, keys, strict=True)]
    if headers is not None:
        sizes = [n + _headers_size(h) if h else n for n, h in zip(sizes, headers, strict=True)]
    return sizes


def _headers_size(headers: Headers) -> int:
    """Return an upper bound for the size of headers, in bytes. Raises TypeError."""
    size = 0
    for name, value in headers:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError("a header must be a pair of str, and bytes or None")
        size += 4 * len(name) + len(value or b"") + 10
    return size


def records_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
    timestamp: int,
) -> list[Record]:
    """Return records without offsets."""
    return list(
        map(
            Record,
            repeat(-1),
            repeat(timestamp),
            repeat(None) if keys is None else keys,
            values,
            (
                repeat(None)
                if headers is None
                else (list(each) if each else None for each in headers)
            ),
        )
    )


def by_partition(
    topic: Topic,
    partitioner: Partitioner,
    keys: Sequence[bytes | None] | None,
    records: list[Record],
    sizes: list[int],
) -> Iterator[tuple[int, list[Record], list[int]]]:
    """Yield partitions with their records and the sizes of these, as ``send`` would choose them."""
    without_key: list[int] = []
    if keys is not None:
        count = len(topic.partitions)
        groups: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            if key is None:
                without_key.append(index)
            else:
                groups.setdefault(partition_of_key(key, count), []).append(index)
        for chosen, indexes in groups.items():
            yield chosen, [records[i] for i in indexes], [sizes[i] for i in indexes]
        records = [records[index] for index in without_key]
        sizes = [sizes[index] for index in without_key]
    begin = 0
    while begin < len(records):
        chosen, end = partitioner.choose_run(topic, sizes, begin)
        yield chosen, records[begin:end], sizes[begin:end]
        begin = end


class Outbox:
    """Where a producer puts records: batches that are sent when they are full, as far as ``buffer.memory`` has room."""

    def __init__(self, settings: Settings, accumulator: Accumulator, sender: Sender) -> None:
        self._settings = settings
        self._accumulator = accumulator
        self._sender = sender

    def append(
        self,
        producer: Waiter,
        at: TopicPartition,
        record: Record,
        size: int,
        on_delivery: Callback | None,
    ) -> Delivery:
        """Append a record of ``size`` bytes."""
        now = time.monotonic()
        if self._accumulator.is_full(size):
            self._make_room(size)
        queue = self._accumulator.queue(at)
        batch = queue.waiting[-1] if queue.waiting else None
        full = False
        if batch is None or not batch.has_room(size, self._settings.batch_size, with_delivery=True):
            full = batch is not None
            batch = self._accumulator.new_batch(queue, now)
        delivery = batch.add(producer, record, size)
        if on_delivery is not None:
            batch.callbacks[delivery.index] = on_delivery
        self._accumulator.buffered += size
        if full or now >= self._accumulator.due or batch.size >= self._settings.batch_size:
            self._sender.work()
        return delivery

    def append_all(self, at: TopicPartition, records: list[Record], sizes: list[int]) -> None:
        """Append records without deliveries, and send batches as they get full."""
        queue = self._accumulator.queue(at)
        most = self._settings.batch_size
        ends = list(accumulate(sizes))
        begin = done = 0
        while begin < len(records):
            # This comes first, because making room may send the open batch.
            need = max(sizes[begin], min(most, ends[-1] - done))
            if self._accumulator.is_full(need):
                self._make_room(need)
            now = time.monotonic()
            batch = queue.waiting[-1] if queue.waiting else None
            full = batch is not None and not batch.has_room(sizes[begin], most, with_delivery=False)
            if batch is None or full:
                batch = self._accumulator.new_batch(queue, now)
            # At least one record: it may be larger than ``batch.size``.
            end = max(bisect_right(ends, done + most - batch.size, begin), begin + 1)
            size = ends[end - 1] - done
            batch.records += records[begin:end]
            batch.size += size
            self._accumulator.buffered += size
            begin, done = end, ends[end - 1]
            if full or begin < len(records) or now >= self._accumulator.due:
                self._sender.work()

    def _make_room(self, size: int) -> None:
        """Send until ``buffer.memory`` has room for a record of ``size`` bytes."""
        deadline = Deadline(self._settings.max_block_ms, "waiting for buffer.memory")
        while self._accumulator.is_full(size):
            self._sender.work(force=True, within=deadline)
            if self._accumulator.is_full(size):
                deadline.check(self._accumulator.unreported)
                self._sender.wait(deadline.left)


log = logging.getLogger("krammar.client")


# The producer.


class Producer:
    """Writes records; the settings are those of Kafka's producers.

    With ``enable.idempotence`` (the default), records that are sent again after a lost response are written once, and
    the records of a partition stay in order. With ``transactional.id``, readers with ``read_committed`` see records
    when their transaction is committed: call ``init_transactions`` once, then use ``with producer.transaction():``,
    or ``begin`` and ``commit`` or ``abort``.

    A producer has its own connections. It is not thread-safe.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cluster = Cluster(settings)
        self._partitioner = Partitioner(settings.batch_size)
        self._transactions = (
            Transactions(self.cluster, settings.transactional_id, settings.transaction_timeout_ms)
            if settings.transactional_id
            else None
        )
        identities = Identities(self.cluster, self._transactions)
        self._accumulator = Accumulator(self.cluster, identities, self._transactions)
        self._sender = Sender(self.cluster, self._accumulator, identities, self._transactions)
        self._outbox = Outbox(settings, self._accumulator, self._sender)
        self._closed = False

    # Records.

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: Callback | None = None,
    ) -> Delivery:
        """Queue a record.

        Waits for the topic's metadata, and while ``buffer.memory`` is full, for at most ``max.block.ms``.

        Args:
            partition: by default, the key chooses the partition as in Java's producer.
            timestamp: in milliseconds since 1970; the default is the current time.
            on_delivery: called with the record's Delivery when it is done.

        Raises:
            DeadlineError: ``max.block.ms`` is over.
            UnknownTopicOrPartition: the topic or partition does not exist.
            MessageTooLarge: the record is larger than ``max.request.size``.
            StateError: the producer is closed, or no transaction is open.
            TypeError: key, value or a header is not bytes.
        """
        self._check_open()
        size = record_size(value, key, headers)
        check_size(topic, size, self.settings.max_request_size)
        known = self._sender.topic(topic, partition)
        if partition is None:
            partition = self._partitioner.choose(known, key, size)
        at = TopicPartition(topic, partition)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        record = Record(-1, timestamp, key, value, list(headers) if headers else None)
        return self._outbox.append(self, at, record, size, on_delivery)

    def send_columns(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Queue many records of a topic, in order. The arguments are columns of those of ``send``.

        Records have no deliveries: the next call of this method or of ``flush`` raises the error of a record. This is
        faster than ``send``: with batches of 256 KiB for one partition, queueing takes 0.2 µs per record of
        100 bytes instead of 1.6 µs.

        Raises the same errors as ``send``. If one record is too large, none is queued.
        """
        self._check_open()
        self._accumulator.report()
        if not values:
            return
        sizes = record_sizes(values, keys, headers)
        check_size(topic, max(sizes), self.settings.max_request_size)
        known = self._sender.topic(topic, partition)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        records = records_of(values, keys, headers, timestamp)
        if partition is not None:
            self._outbox.append_all(TopicPartition(topic, partition), records, sizes)
            return
        for chosen, group, group_sizes in by_partition(
            known, self._partitioner, keys, records, sizes
        ):
            self._outbox.append_all(TopicPartition(topic, chosen), group, group_sizes)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has, as far as the client knows.

        The first call asks the brokers, which may create the topic. It waits for at most ``max.block.ms``.
        Raises the same errors as ``send``.
        """
        self._check_open()
        return len(self._sender.topic(topic, None).partitions)

    def poll(self, timeout_ms: float = 0) -> None:
        """Send batches that are due and process responses.

        Args:
            timeout_ms: wait for at most this time until some records are done.
        """
        until = time.monotonic() + timeout_ms / 1000
        self._sender.work()
        while not self._accumulator.idle and (left := until - time.monotonic()) > 0:
            before = self._accumulator.buffered
            self._sender.wait(left)
            self._sender.work()
            if self._accumulator.buffered < before:
                return

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send all queued records, and wait until they are done.

        Args:
            timeout_ms: the default is ``delivery.timeout.ms``.

        Raises:
            DeadlineError: the time is over.
            ClientError: the first error of a record without ``on_delivery`` since the last flush.
        """
        self._sender.drain(lambda: False, self._limit("flushing", timeout_ms))
        self._accumulator.report()

    def wait_for(self, delivery: Delivery, timeout_ms: float | None = None) -> Delivery:
        """Send until a record is done; see ``Delivery.result``."""
        self._sender.drain(lambda: delivery.done, self._limit("sending", timeout_ms))
        self._accumulator.report_of(delivery)
        return delivery

    def close(self, timeout_ms: float | None = None) -> None:
        """Flush, or abort an open transaction, and close all connections.

        Raises the same errors as ``flush`` and ``abort``.
        """
        if self._closed:
            return
        try:
            if self._transactions is not None and self._transactions.can_abort:
                self.abort(timeout_ms)
            else:
                self.flush(timeout_ms)
        finally:
            self._closed = True
            self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except ClientError as another:
            log.warning("closing a producer after an error has failed: %s", another)

    # Transactions.

    def init_transactions(self, timeout_ms: float | None = None) -> None:
        """Get id and epoch for the transactional id; call this once, before the first transaction.

        Another producer with the same transactional id is fenced, and its open transaction is aborted.
        """
        self._transactional().init(self.cluster.deadline("initialising transactions", timeout_ms))

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            StateError: the producer is not ready for a transaction.
            KafkaError: an earlier fatal error, such as ProducerFenced.
        """
        self._transactional().begin()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, Committed | int],
        group: GroupMember | str,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets of a group with the transaction.

        Args:
            offsets: for each partition, the next offset that the group will read.
            group: the group's id, or the member that commits.
        """
        self._transactional().send_offsets(
            offsets,
            group,
            self.cluster.deadline("sending offsets", timeout_ms),
        )

    def commit(self, timeout_ms: float | None = None) -> None:
        """Send the remaining records and commit the transaction.

        Raises:
            DeadlineError: the time is over. It is unknown whether the transaction is committed; call
                ``commit`` again.
            ClientError: the first error of a record. The transaction can only be aborted then.
        """
        transactions = self._transactional()
        transactions.require(TransactionalState.OPEN, TransactionalState.COMMITTING)
        deadline = self.cluster.deadline("committing", timeout_ms)
        if transactions.state is TransactionalState.OPEN:
            self._sender.drain(lambda: transactions.state is not TransactionalState.OPEN, deadline)
            transactions.require(TransactionalState.OPEN)
            transactions.state = TransactionalState.COMMITTING
        transactions.end(True, deadline)

    def abort(self, timeout_ms: float | None = None) -> None:
        """Abort the transaction, so that readers with ``read_committed`` do not see its records.

        It can be called again after DeadlineError.
        """
        transactions = self._transactional()
        transactions.require(
            TransactionalState.OPEN, TransactionalState.ABORTABLE, TransactionalState.ABORTING
        )
        deadline = self.cluster.deadline("aborting", timeout_ms)
        transactions.state = TransactionalState.ABORTING
        aborted = StateError("the transaction was aborted")
        self._accumulator.drop_waiting(aborted)
        # Wait for requests in flight: their records must not be written after the marker.
        while self._sender.requests and not deadline.over:
            self._sender.wait(deadline.left)
            self._sender.take_answers()
        self._accumulator.drop_all(aborted)
        self._sender.requests.clear()
        transactions.end(False, deadline)
        self._accumulator.unreported = None

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context with a transaction: commit at its end, abort if it raises."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            state = self._transactional().state
            if state in (TransactionalState.OPEN, TransactionalState.ABORTABLE):
                try:
                    self.abort()
                except ClientError as error:
                    log.warning("aborting a transaction has failed: %s", error)
            raise

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise StateError("the producer has no transactional.id")
        if self._closed:
            raise StateError("the producer is closed")
        return self._transactions

    # Queues.

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the producer is closed")
        if self._transactions is not None:
            self._transactions.require(TransactionalState.OPEN)

    def _limit(self, doing: str, timeout_ms: float | None) -> Deadline:
        limit = self.settings.delivery_timeout_ms + 1000 if timeout_ms is None else timeout_ms
        return Deadline(limit, doing)
