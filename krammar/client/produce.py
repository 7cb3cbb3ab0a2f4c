"""Writes records: in batches, in order, without duplicates, and in transactions.

```python
with client.producer(compression_type="lz4") as producer:
    producer.send("orders", b"value", key=b"key")
    print(producer.send("orders", b"value").result().offset)
```

The producer has no thread: ``send``, ``poll``, ``flush`` and ``Delivery.result`` do the work. A batch is sent when it is
full, otherwise by the first of these calls after ``linger.ms``.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, repeat
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from kafka_wire import ErrorCode, InitProducerIdRequest, ProduceRequest

from krammar.client.cluster import Cluster
from krammar.client.connection import Connection
from krammar.client.deadline import Deadline
from krammar.client.delivery import (
    BATCH_OVERHEAD,
    NO_IDENTITY,
    RECORD_OVERHEAD,
    Batch,
    Callback,
    Delivery,
    Identity,
    Queue,
)
from krammar.client.errors import (
    ClientError,
    DeadlineError,
    KafkaError,
    StateError,
    describe,
    kafka_error,
)
from krammar.client.in_flight import RequestInFlight
from krammar.client.metadata import NO_ID, Topic, TopicPartition
from krammar.client.partitioner import Partitioner, partition_of_key
from krammar.client.settings import Settings
from krammar.client.transactions import (
    PRODUCE_ADDS,
    Committed,
    GroupMember,
    State,
    Transactions,
)
from krammar.wire.batches import Record, encode_batch
from krammar.wire.batches.compression import Compression
from krammar.wire.errors import EncodeError

log = logging.getLogger("krammar.client")

Headers = Sequence[tuple[str, bytes | None]]

_BY_ID = 13
_MOST_EPOCH = 32767
# The second code means that the log already had the batch.
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
# Errors that can come after the leader's append.
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class Producer:
    """Writes records; the settings are those of Kafka's producers.

    With ``enable.idempotence`` (the default), records that are sent again after a lost response are written once, and
    the records of a partition stay in order. With ``transactional.id``, readers with ``read_committed`` see records when
    their transaction is committed: call ``init_transactions`` once, then use ``with producer.transaction():``, or
    ``begin`` and ``commit`` or ``abort``.

    A producer has its own connections. It is not thread-safe.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cluster = Cluster(settings)
        self._topics = self.cluster.metadata.topics
        self._queues: dict[TopicPartition, Queue] = {}
        self._partitioner = Partitioner(settings.batch_size)
        self._requests: list[tuple[RequestInFlight, list[Batch]]] = []
        self._identity = NO_IDENTITY
        self._transactions = (
            Transactions(self.cluster, settings.transactional_id, settings.transaction_timeout_ms)
            if settings.transactional_id
            else None
        )
        self._codec = Compression[settings.compression_type.upper()]
        self._level = _level(settings, self._codec)
        self._per_partition = (
            settings.max_in_flight_requests_per_connection if settings.enable_idempotence else 1
        )
        self._linger = settings.linger_ms / 1000
        self._due = float("inf")  # when ``linger.ms`` ends for the oldest open batch
        self._buffered = 0
        self._unreported: ClientError | None = None
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
        size = RECORD_OVERHEAD
        if value is not None:
            if not isinstance(value, bytes):
                raise TypeError(f"the value must be bytes, not {type(value).__name__}")
            size += len(value)
        if key is not None:
            if not isinstance(key, bytes):
                raise TypeError(f"the key must be bytes, not {type(key).__name__}")
            size += len(key)
        if headers:
            size += _size_of(headers)
        if size > self.settings.max_request_size:
            raise self._too_large(topic, size)
        known = self._known(topic, partition)
        if partition is None:
            partition = self._partitioner.choose(known, key, size)
        at = TopicPartition(topic, partition)
        now = time.monotonic()
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        if self._buffered + size > self.settings.buffer_memory and self._buffered:
            self._make_room(size)
        queue = self._queue(at)
        batch = queue.waiting[-1] if queue.waiting else None
        full = False
        if batch is None or not batch.has_room(size, self.settings.batch_size, with_delivery=True):
            full = batch is not None
            batch = self._new_batch(queue, now)
        record = Record(-1, timestamp, key, value, list(headers) if headers else None)
        delivery = batch.add(self, record, size)
        if on_delivery is not None:
            batch.callbacks[delivery.index] = on_delivery
        self._buffered += size
        if full or now >= self._due or batch.size >= self.settings.batch_size:
            self._work()
        return delivery

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
        self._report()
        if not values:
            return
        sizes = _sizes(values, keys, headers)
        largest = max(sizes)
        if largest > self.settings.max_request_size:
            raise self._too_large(topic, largest)
        known = self._known(topic, partition)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        records = list(
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
        if partition is not None:
            self._queue_all(TopicPartition(topic, partition), records, sizes)
            return
        without_key: list[int] = []
        if keys is not None:
            count = len(known.partitions)
            groups: dict[int, list[int]] = {}
            for index, key in enumerate(keys):
                if key is None:
                    without_key.append(index)
                else:
                    groups.setdefault(partition_of_key(key, count), []).append(index)
            for chosen, indexes in groups.items():
                self._queue_all(
                    TopicPartition(topic, chosen),
                    [records[index] for index in indexes],
                    [sizes[index] for index in indexes],
                )
            records = [records[index] for index in without_key]
            sizes = [sizes[index] for index in without_key]
        begin = 0
        while begin < len(records):
            chosen, end = self._partitioner.choose_run(known, sizes, begin)
            self._queue_all(TopicPartition(topic, chosen), records[begin:end], sizes[begin:end])
            begin = end

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has, as far as the client knows.

        The first call asks the brokers, which may create the topic. It waits for at most ``max.block.ms``.
        Raises the same errors as ``send``.
        """
        self._check_open()
        return len(self._known(topic, None).partitions)

    def poll(self, timeout_ms: float = 0) -> None:
        """Send batches that are due and process responses.

        Args:
            timeout_ms: wait for at most this time until some records are done.
        """
        until = time.monotonic() + timeout_ms / 1000
        self._work()
        while not self._idle and (left := until - time.monotonic()) > 0:
            before = self._buffered
            self._wait(left)
            self._work()
            if self._buffered < before:
                return

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send all queued records, and wait until they are done.

        Args:
            timeout_ms: the default is ``delivery.timeout.ms``.

        Raises:
            DeadlineError: the time is over.
            ClientError: the first error of a record without ``on_delivery`` since the last flush.
        """
        self._drain(lambda: False, self._limit("flushing", timeout_ms))
        self._report()

    def wait_for(self, delivery: Delivery, timeout_ms: float | None = None) -> Delivery:
        """Send until a record is done; see ``Delivery.result``."""
        self._drain(lambda: delivery.done, self._limit("sending", timeout_ms))
        error = delivery.error
        if error is not None:
            if error is self._unreported:
                self._unreported = None
            raise error
        return delivery

    def close(self, timeout_ms: float | None = None) -> None:
        """Flush, or abort an open transaction, and close all connections.

        Raises the same errors as ``flush`` and ``abort``.
        """
        if self._closed:
            return
        try:
            transactions = self._transactions
            if transactions is not None and transactions.state in (
                State.OPEN,
                State.ABORTABLE,
                State.ABORTING,
            ):
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
            {
                TopicPartition(*at): Committed(value) if isinstance(value, int) else value
                for at, value in offsets.items()
            },
            GroupMember(group) if isinstance(group, str) else group,
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
        transactions.require(State.OPEN, State.COMMITTING)
        deadline = self.cluster.deadline("committing", timeout_ms)
        if transactions.state is State.OPEN:
            self._drain(lambda: transactions.state is not State.OPEN, deadline)
            transactions.require(State.OPEN)
            transactions.state = State.COMMITTING
        transactions.end(True, deadline)

    def abort(self, timeout_ms: float | None = None) -> None:
        """Abort the transaction, so that readers with ``read_committed`` do not see its records.

        It can be called again after DeadlineError.
        """
        transactions = self._transactional()
        transactions.require(State.OPEN, State.ABORTABLE, State.ABORTING)
        deadline = self.cluster.deadline("aborting", timeout_ms)
        transactions.state = State.ABORTING
        aborted = StateError("the transaction was aborted")
        for queue in self._queues.values():
            for batch in list(queue.waiting):
                self._drop(queue, batch, aborted)
        # Wait for requests in flight: their records must not be written after the marker.
        while self._requests and not deadline.over:
            self._wait(deadline.left)
            self._take_answers()
        for queue in self._queues.values():
            for batch in [*queue.returned, *queue.waiting, *queue.in_flight]:
                self._drop(queue, batch, aborted)
            queue.returned.clear()
        self._requests.clear()
        transactions.end(False, deadline)
        self._unreported = None

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context with a transaction: commit at its end, abort if it raises."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            state = self._transactional().state
            if state in (State.OPEN, State.ABORTABLE):
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
            self._transactions.require(State.OPEN)

    def _too_large(self, topic: str, size: int) -> KafkaError:
        return kafka_error(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{topic}: a record of {size} bytes exceeds max.request.size={self.settings.max_request_size}",
        )

    def _known(self, name: str, partition: int | None) -> Topic:
        """Return the metadata of a topic, which contains ``partition`` unless it is None."""
        known = self._topics.get(name)
        if known is None or (partition is not None and partition not in known.partitions):
            known = self._find(name, partition)
        return known

    def _queue(self, at: TopicPartition) -> Queue:
        queue = self._queues.get(at)
        if queue is None:
            queue = self._queues[at] = Queue(at, self.cluster.backoff())
        return queue

    def _new_batch(self, queue: Queue, now: float) -> Batch:
        batch = Batch(queue.at, now, now + self.settings.delivery_timeout_ms / 1000)
        queue.waiting.append(batch)
        self._due = min(self._due, now + self._linger)
        return batch

    def _queue_all(self, at: TopicPartition, records: list[Record], sizes: list[int]) -> None:
        """Append records without deliveries, and send batches as they get full."""
        queue = self._queue(at)
        most = self.settings.batch_size
        ends = list(accumulate(sizes))
        begin = done = 0
        while begin < len(records):
            # This comes first, because making room may send the open batch.
            need = max(sizes[begin], min(most, ends[-1] - done))
            if self._buffered + need > self.settings.buffer_memory and self._buffered:
                self._make_room(need)
            now = time.monotonic()
            batch = queue.waiting[-1] if queue.waiting else None
            full = batch is not None and not batch.has_room(sizes[begin], most, with_delivery=False)
            if batch is None or full:
                batch = self._new_batch(queue, now)
            # At least one record: it may be larger than ``batch.size``.
            end = max(bisect_right(ends, done + most - batch.size, begin), begin + 1)
            size = ends[end - 1] - done
            batch.records += records[begin:end]
            batch.size += size
            self._buffered += size
            begin, done = end, ends[end - 1]
            if full or begin < len(records) or now >= self._due:
                self._work()

    # Waiting.

    @property
    def _idle(self) -> bool:
        """Whether all records are done."""
        return all(queue.empty for queue in self._queues.values())

    def _limit(self, doing: str, timeout_ms: float | None) -> Deadline:
        limit = self.settings.delivery_timeout_ms + 1000 if timeout_ms is None else timeout_ms
        return Deadline(limit, doing)

    def _report(self) -> None:
        error, self._unreported = self._unreported, None
        if error is not None:
            raise error

    def _drain(self, enough: Callable[[], bool], deadline: Deadline) -> None:
        """Send until all records are done, or ``enough`` returns true."""
        while True:
            self._work(force=True, within=deadline)
            if enough() or self._idle:
                return
            deadline.check(self._unreported)
            self._wait(deadline.left)

    def _wait(self, seconds: float) -> None:
        """Wait for a response, but not longer than until another batch is due."""
        now = time.monotonic()
        times = [now + seconds, self._due]
        for queue in self._queues.values():
            if queue.waiting:
                times.append(queue.waiting[0].expires)
                if queue.retry_at > now:
                    times.append(queue.retry_at)
        pause = max(0.0, min(times) - now)
        if self._requests:
            self.cluster.wait(pause)
        elif pause:
            time.sleep(pause)

    def _make_room(self, size: int) -> None:
        deadline = Deadline(self.settings.max_block_ms, "waiting for buffer.memory")
        while self._buffered and self._buffered + size > self.settings.buffer_memory:
            self._work(force=True, within=deadline)
            if self._buffered + size > self.settings.buffer_memory:
                deadline.check(self._unreported)
                self._wait(deadline.left)

    def _find(self, name: str, partition: int | None) -> Topic:
        deadline = Deadline(self.settings.max_block_ms, f"finding topic {name}")
        topic = self.cluster.topic(name, deadline, auto_create=True)
        self._topics = self.cluster.metadata.topics
        if partition is not None and partition not in topic.partitions:
            # Partitions may have been added.
            self.cluster.metadata.outdate([name])
            topic = self.cluster.topic(name, deadline, auto_create=True)
            if partition not in topic.partitions:
                raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition}")
        return topic

    # Work.

    def _work(self, *, force: bool = False, within: Deadline | None = None) -> None:
        """Do everything that is possible without waiting for responses to records.

        Waits for metadata, connections and producer ids.

        Args:
            force: send all batches, without ``linger.ms``.
            within: a deadline for waiting.
        """
        for connection in self.cluster.connections:
            connection.pump()
            connection.check_time()
        self._take_answers()
        transactions = self._transactions
        if transactions is not None and transactions.error is not None:
            # The transaction cannot be committed, so don't send more of it.
            for queue in self._queues.values():
                for batch in [*queue.waiting, *queue.returned]:
                    self._drop(queue, batch, transactions.error)
        self._expire()
        limit = min(self.settings.request_timeout_ms, self.settings.max_block_ms)
        if within is not None:
            limit = min(limit, max(1, within.left_ms))
        self._send_ready(force, limit)

    def _expire(self) -> None:
        now = time.monotonic()
        for queue in self._queues.values():
            while queue.waiting and queue.waiting[0].expires <= now:
                batch = queue.waiting[0]
                doing = f"sending {len(batch.records)} records to {batch.at}"
                error = DeadlineError(doing, self.settings.delivery_timeout_ms, batch.error)
                self._drop(queue, batch, error)

    def _send_ready(self, force: bool, limit_ms: int) -> None:
        now = time.monotonic()
        self._due = float("inf")
        ready: dict[TopicPartition, Queue] = {}
        for at, queue in self._queues.items():
            queue.settle()
            if not queue.waiting or queue.returned or queue.retry_at > now:
                continue
            batch = queue.waiting[0]
            lingered = batch.created + self._linger
            if not (
                force
                or len(queue.waiting) > 1
                or batch.attempts
                or lingered <= now
                or batch.size >= self.settings.batch_size
            ):
                self._due = min(self._due, lingered)
                continue
            if len(queue.in_flight) < self._per_partition:
                ready[at] = queue
        while ready:
            if not self._send_round(ready, limit_ms):
                return
            # Continue with partitions that have more full batches, and fewer requests in flight than allowed.
            ready = {
                at: queue
                for at, queue in ready.items()
                if (len(queue.waiting) > 1 or (force and queue.waiting))
                and len(queue.in_flight) < self._per_partition
                and queue.retry_at <= now
                and not queue.bump
            }

    def _send_round(self, ready: dict[TopicPartition, Queue], limit_ms: int) -> bool:
        """Send one request to each leader, with one batch per partition; return whether any was sent."""
        deadline = self.cluster.deadline("producing", limit_ms)
        try:
            self.cluster.update_topics({at.topic for at in ready}, deadline, auto_create=True)
            self._topics = self.cluster.metadata.topics
            if self.settings.enable_idempotence and not self._identify(ready, deadline):
                return False
        except ClientError as error:
            for queue in ready.values():
                self._failed(queue, error)
            return False
        leaders: dict[int, list[Queue]] = {}
        for at, queue in ready.items():
            try:
                leaders.setdefault(self.cluster.partition(at).leader, []).append(queue)
            except ClientError as error:
                self._failed(queue, error)
        sent = False
        for leader, queues in leaders.items():
            try:
                connection = self.cluster.node(leader, deadline)
            except ClientError as error:
                for queue in queues:
                    self._failed(queue, error)
                continue
            if self._in_flight(connection) < self.settings.max_in_flight_requests_per_connection:
                sent |= self._send_to(connection, queues, deadline)
        return sent

    def _in_flight(self, connection: Connection) -> int:
        return sum(pending.connection is connection for pending, _ in self._requests)

    def _send_to(self, connection: Connection, queues: list[Queue], deadline: Deadline) -> bool:
        batches: list[Batch] = []
        size = 0
        for queue in queues:
            batch = self._next(queue)
            if batch is None:
                continue
            if batches and size + batch.size > self.settings.max_request_size:
                break
            try:
                self._encode(queue, batch)
            except EncodeError as error:
                self._drop(queue, batch, StateError(f"{batch.at}: {error}"))
                continue
            size += batch.size
            batches.append(batch)
        if not batches:
            return False
        transactions = self._transactions
        low, high = 0 if self._codec != Compression.ZSTD else 7, 32767
        if transactions is not None:
            low, high = (PRODUCE_ADDS, high) if transactions.version >= 2 else (3, PRODUCE_ADDS - 1)
        if any(self._topics[batch.at.topic].topic_id == NO_ID for batch in batches):
            high = min(high, _BY_ID - 1)
        try:
            if transactions is not None:
                transactions.add_partitions([batch.at for batch in batches], deadline)
            # The response may arrive after the caller's deadline.
            pending = self.cluster.send(
                connection,
                self._request(batches),
                Deadline(self.settings.request_timeout_ms, "producing"),
                low=max(low, 3),
                high=high,
                expect_response=self.settings.acks != 0,
            )
        except ClientError as error:
            for batch in batches:
                self._failed(self._queues[batch.at], error)
            return False
        for batch in batches:
            queue = self._queues[batch.at]
            queue.waiting.remove(batch)
            queue.in_flight.append(batch)
            batch.attempts += 1
        self._requests.append((pending, batches))
        return True

    def _next(self, queue: Queue) -> Batch | None:
        """Return the batch to send next.

        Before the epoch is raised, only batches that may have been written are sent again.
        """
        if not queue.bump:
            return queue.waiting[0]
        return next((batch for batch in queue.waiting if batch.uncertain), None)

    def _encode(self, queue: Queue, batch: Batch) -> None:
        if batch.sequence < 0 and self.settings.enable_idempotence:
            batch.identity = queue.identity
            batch.sequence = queue.sequence
            queue.sequence = queue.sequence + len(batch.records) & 0x7FFFFFFF
        if batch.encoded is None:
            batch.encoded = encode_batch(
                batch.records,
                compression=self._codec,
                compression_level=self._level,
                producer_id=batch.identity.producer_id,
                producer_epoch=batch.identity.epoch,
                base_sequence=batch.sequence,
                is_transactional=self._transactions is not None,
            )

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        topics: dict[str, list[Batch]] = {}
        for batch in batches:
            topics.setdefault(batch.at.topic, []).append(batch)
        return ProduceRequest(
            transactional_id=self.settings.transactional_id,
            acks=self.settings.acks,
            timeout_ms=self.settings.request_timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=name,
                    topic_id=self._topics[name].topic_id,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(
                            index=batch.at.partition, records=batch.encoded
                        )
                        for batch in group
                    ],
                )
                for name, group in topics.items()
            ],
        )

    # Identity.

    def _identify(self, ready: dict[TopicPartition, Queue], deadline: Deadline) -> bool:
        """Give each queue the identity with which it writes; return False if that must wait."""
        if self._transactions is not None:
            if self._transactions.state is not State.OPEN:
                return False
            self._identity = self._transactions.identity
        elif self._identity is NO_IDENTITY:
            self._identity = self._new_identity(deadline)
        for queue in ready.values():
            if queue.in_flight:
                continue
            if self._transactions is not None:
                if queue.identity is not self._identity:
                    queue.start_over(self._identity)
            elif queue.identity is NO_IDENTITY:
                queue.start_over(self._identity)
            elif queue.bump and not any(batch.uncertain for batch in queue.waiting):
                if queue.identity is self._identity:
                    self._identity = self._next_epoch(deadline)
                queue.start_over(self._identity)
        return True

    def _next_epoch(self, deadline: Deadline) -> Identity:
        """Raise the epoch; without a transactional id, the producer does so by itself (KIP-360)."""
        mine = self._identity
        if mine.epoch >= _MOST_EPOCH:
            return self._new_identity(deadline)
        return Identity(mine.producer_id, mine.epoch + 1)

    def _new_identity(self, deadline: Deadline) -> Identity:
        def check(response: Any) -> None:
            if response.error_code:
                raise kafka_error(response.error_code, "InitProducerId")

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = self.cluster.call(request, deadline, high=5, check=check)
        return Identity(response.producer_id, response.producer_epoch)

    # Answers.

    def _take_answers(self) -> None:
        done = [entry for entry in self._requests if entry[0].done]
        if not done:
            return
        self._requests = [entry for entry in self._requests if not entry[0].done]
        for pending, batches in done:
            try:
                response = pending.result()
            except ClientError as error:
                for batch in batches:
                    batch.uncertain = True
                    self._refused(batch, error)
                continue
            if response is None:  # acks=0
                for batch in batches:
                    self._written(batch, -1, -1)
                continue
            # A topic may have been forgotten, or created again, since the request was sent.
            names = {topic.topic_id: topic.name for topic in pending.request.topic_data}
            self._take(response, pending.version, names, batches)

    def _take(
        self, response: Any, version: int, names: Mapping[UUID, str], batches: list[Batch]
    ) -> None:
        left = {batch.at: batch for batch in batches}
        for topic in response.responses:
            name = topic.name if version < _BY_ID else names.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                batch = left.pop(TopicPartition(name, answer.index), None)
                if batch is None:
                    continue
                code = answer.error_code
                if code in _WRITTEN:
                    self._written(batch, answer.base_offset, answer.log_append_time_ms)
                    continue
                current = answer.current_leader
                self.cluster.metadata.learn_leader(
                    *batch.at, current.leader_id, current.leader_epoch, response.node_endpoints
                )
                why = answer.error_message or ""
                for record in answer.record_errors:
                    if record.batch_index_error_message:
                        why = f"record {record.batch_index}: {record.batch_index_error_message}"
                        break
                self._refused(batch, kafka_error(code, describe(str(batch.at), why)))
        for batch in left.values():
            batch.uncertain = True
            self._refused(batch, kafka_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(batch.at)))

    def _written(self, batch: Batch, base_offset: int, log_append_time: int) -> None:
        queue = self._queues[batch.at]
        queue.in_flight.remove(batch)
        queue.backoff.reset()
        queue.retry_at = 0.0
        batch.base_offset = base_offset
        batch.log_append_time = log_append_time
        self._done(batch, None)

    def _refused(self, batch: Batch, error: ClientError) -> None:
        """Handle a batch that was sent, but not written as far as is known."""
        queue = self._queues[batch.at]
        code = error.code if isinstance(error, KafkaError) else None
        first = queue.in_flight[0] is batch and not queue.returned
        queue.in_flight.remove(batch)
        idempotent = self.settings.enable_idempotence
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            batch.uncertain = False  # the log does not have it: otherwise it would be a duplicate
            if not first or queue.bump:
                self._again(queue, batch, error, pause=False)
                return
        elif code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            queue.returned.extend(batch.split())
            return
        elif self._transactions is None and idempotent:
            if code == ErrorCode.UNKNOWN_PRODUCER_ID:
                # All records of this producer in the partition are already deleted.
                batch.uncertain = False
                queue.bump = True
                self._again(queue, batch, error, pause=False)
                return
            if code == ErrorCode.INVALID_PRODUCER_EPOCH and batch.identity is self._identity:
                batch.uncertain = False
                self._identity = NO_IDENTITY
                queue.bump = True
                self._again(queue, batch, error, pause=False)
                return
        if error.retriable and batch.attempts <= self.settings.retries:
            batch.uncertain = batch.uncertain or code in _MAYBE_WRITTEN
            self._again(queue, batch, error, pause=True)
            return
        queue.in_flight.appendleft(batch)
        self._drop(queue, batch, error)

    def _again(self, queue: Queue, batch: Batch, error: ClientError, *, pause: bool) -> None:
        batch.error = error
        queue.returned.append(batch)
        if pause:
            self.cluster.metadata.outdate([batch.at.topic])
            queue.retry_at = time.monotonic() + queue.backoff.next()

    def _failed(self, queue: Queue, error: ClientError) -> None:
        """Handle an error that prevents sending: retry later, or drop all waiting batches."""
        if error.retriable and queue.waiting:
            queue.waiting[0].error = error
            self.cluster.metadata.outdate([queue.at.topic])
            queue.retry_at = time.monotonic() + queue.backoff.next()
            return
        for batch in list(queue.waiting):
            self._drop(queue, batch, error)

    def _drop(self, queue: Queue, batch: Batch, error: ClientError) -> None:
        """End a batch with an error."""
        for batches in (queue.waiting, queue.in_flight, queue.returned):
            if batch in batches:
                batches.remove(batch)
        if batch.sequence >= 0:
            if self._transactions is None:
                queue.bump = True
            else:
                self._transactions.gap = True
        if self._transactions is not None:
            self._transactions.fail_produce(error)
        self._done(batch, error)

    def _done(self, batch: Batch, error: ClientError | None) -> None:
        batch.done = True
        batch.error = error
        batch.encoded = None
        self._buffered -= batch.size - BATCH_OVERHEAD
        if error is not None and len(batch.callbacks) < len(batch.records):
            self._unreported = self._unreported or error
        for index, callback in batch.callbacks.items():
            try:
                callback(batch.deliveries[index])
            except Exception:
                log.exception("a delivery callback failed")
        batch.callbacks.clear()
        batch.deliveries.clear()


def _sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers | None] | None,
) -> list[int]:
    """Return upper bounds for the sizes of records, in bytes."""
    sizes = [RECORD_OVERHEAD if v is None else RECORD_OVERHEAD + len(v) for v in values]
    if keys is not None:
        sizes = [n if k is None else n + len(k) for n, k in zip(sizes, keys, strict=True)]
    if headers is not None:
        sizes = [n + _size_of(h) if h else n for n, h in zip(sizes, headers, strict=True)]
    return sizes


def _size_of(headers: Headers) -> int:
    size = 0
    for name, value in headers:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError("a header must be a pair of str, and bytes or None")
        size += 4 * len(name) + len(value or b"") + 10
    return size


def _level(settings: Settings, codec: Compression) -> int | None:
    own = {
        Compression.GZIP: settings.compression_gzip_level,
        Compression.LZ4: settings.compression_lz4_level,
        Compression.ZSTD: settings.compression_zstd_level,
    }
    level = own.get(codec)
    return settings.compression_level if level is None and codec in own else level
