"""The records that a producer has queued: batches by partition, and what happens to them."""

from __future__ import annotations

import logging
import time

from kafka_wire import ErrorCode

from krammar.client.cluster import Cluster
from krammar.client.delivery import BATCH_OVERHEAD, NO_IDENTITY, Delivery, ProducerBatch, Queue
from krammar.client.errors import ClientError, DeadlineError, KafkaError
from krammar.client.identities import Identities
from krammar.client.metadata import TopicPartition
from krammar.client.transactions import Transactions

log = logging.getLogger("krammar.client")

# Errors that can come after the leader's append.
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class Accumulator:
    """The queues of a producer.

    Attributes:
        buffered: the bytes of all records that are not done
        due: when ``linger.ms`` ends for the oldest open batch, by ``time.monotonic``
        unreported: the first error of a record without ``on_delivery`` that was not raised yet
    """

    def __init__(
        self, cluster: Cluster, identities: Identities, transactions: Transactions | None
    ) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._identities = identities
        self._transactions = transactions
        self._linger = self._settings.linger_ms / 1000
        self.queues: dict[TopicPartition, Queue] = {}
        self.buffered = 0
        self.due = float("inf")
        self.unreported: ClientError | None = None

    def queue(self, at: TopicPartition) -> Queue:
        """Return the queue of a partition."""
        queue = self.queues.get(at)
        if queue is None:
            queue = self.queues[at] = Queue(at, self._cluster.backoff())
        return queue

    def new_batch(self, queue: Queue, now: float) -> ProducerBatch:
        """Append a batch to a queue."""
        batch = ProducerBatch(queue.at, now, now + self._settings.delivery_timeout_ms / 1000)
        queue.waiting.append(batch)
        self.due = min(self.due, now + self._linger)
        return batch

    @property
    def idle(self) -> bool:
        """Whether all records are done."""
        return all(queue.empty for queue in self.queues.values())

    def is_full(self, size: int) -> bool:
        """Return whether ``buffer.memory`` lacks room for ``size`` bytes; a single record always has room."""
        return self.buffered > 0 and self.buffered + size > self._settings.buffer_memory

    def report(self) -> None:
        """Raise the first error of a record without ``on_delivery`` since the last call."""
        error, self.unreported = self.unreported, None
        if error is not None:
            raise error

    def report_of(self, delivery: Delivery) -> None:
        """Raise the error of a record, which is reported then."""
        if delivery.error is not None:
            if delivery.error is self.unreported:
                self.unreported = None
            raise delivery.error

    def expire(self) -> None:
        """Drop the batches whose time is over."""
        now = time.monotonic()
        for queue in self.queues.values():
            while queue.waiting and queue.waiting[0].expires <= now:
                batch = queue.waiting[0]
                doing = f"sending {len(batch.records)} records to {batch.at}"
                error = DeadlineError(doing, self._settings.delivery_timeout_ms, batch.error)
                self.drop(queue, batch, error)

    def ready(self, force: bool) -> dict[TopicPartition, Queue]:
        """Return the queues with batches to send now, and set ``due`` for the others.

        Args:
            force: send all batches, without ``linger.ms``.
        """
        now = time.monotonic()
        self.due = float("inf")
        ready: dict[TopicPartition, Queue] = {}
        for at, queue in self.queues.items():
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
                or batch.size >= self._settings.batch_size
            ):
                self.due = min(self.due, lingered)
                continue
            ready[at] = queue
        return ready

    def next_time(self, now: float) -> float:
        """Return when a batch is due, expires, or is retried."""
        times = [self.due]
        for queue in self.queues.values():
            if queue.waiting:
                times.append(queue.waiting[0].expires)
                if queue.retry_at > now:
                    times.append(queue.retry_at)
        return min(times)

    # Outcomes.

    def written(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """Handle a batch that was written."""
        queue = self.queues[batch.at]
        queue.in_flight.remove(batch)
        queue.backoff.reset()
        queue.retry_at = 0.0
        batch.base_offset = base_offset
        batch.log_append_time = log_append_time
        self._done(batch, None)

    def refused(self, batch: ProducerBatch, error: ClientError) -> None:
        """Handle a batch that was sent, but not written as far as is known."""
        queue = self.queues[batch.at]
        code = error.code if isinstance(error, KafkaError) else None
        first = queue.in_flight[0] is batch and not queue.returned
        queue.in_flight.remove(batch)
        idempotent = self._settings.enable_idempotence
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
            if (
                code == ErrorCode.INVALID_PRODUCER_EPOCH
                and batch.identity is self._identities.current
            ):
                batch.uncertain = False
                self._identities.current = NO_IDENTITY
                queue.bump = True
                self._again(queue, batch, error, pause=False)
                return
        if error.retriable and batch.attempts <= self._settings.retries:
            batch.uncertain = batch.uncertain or code in _MAYBE_WRITTEN
            self._again(queue, batch, error, pause=True)
            return
        queue.in_flight.appendleft(batch)
        self.drop(queue, batch, error)

    def _again(
        self, queue: Queue, batch: ProducerBatch, error: ClientError, *, pause: bool
    ) -> None:
        batch.error = error
        queue.returned.append(batch)
        if pause:
            self._cluster.metadata.outdate([batch.at.topic])
            queue.retry_at = time.monotonic() + queue.backoff.next()

    def failed(self, queue: Queue, error: ClientError) -> None:
        """Handle an error that prevents sending: retry later, or drop all waiting batches."""
        if error.retriable and queue.waiting:
            queue.waiting[0].error = error
            self._cluster.metadata.outdate([queue.at.topic])
            queue.retry_at = time.monotonic() + queue.backoff.next()
            return
        for batch in list(queue.waiting):
            self.drop(queue, batch, error)

    def drop(self, queue: Queue, batch: ProducerBatch, error: ClientError) -> None:
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

    def drop_waiting(self, error: ClientError) -> None:
        """End the batches that were not sent, or are to be sent again."""
        for queue in self.queues.values():
            for batch in list(queue.waiting):
                self.drop(queue, batch, error)

    def drop_all(self, error: ClientError) -> None:
        """End all batches."""
        for queue in self.queues.values():
            for batch in [*queue.returned, *queue.waiting, *queue.in_flight]:
                self.drop(queue, batch, error)

    def _done(self, batch: ProducerBatch, error: ClientError | None) -> None:
        batch.done = True
        batch.error = error
        batch.encoded = None
        self.buffered -= batch.size - BATCH_OVERHEAD
        if error is not None and len(batch.callbacks) < len(batch.records):
            self.unreported = self.unreported or error
        for index, callback in batch.callbacks.items():
            try:
                callback(batch.deliveries[index])
            except Exception:
                log.exception("a delivery callback failed")
        batch.callbacks.clear()
        batch.deliveries.clear()
