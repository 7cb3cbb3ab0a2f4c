"""Sends the batches of a producer to the leaders, and takes their responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kafka_wire import ErrorCode, ProduceRequest

from krammar.client.accumulator import Accumulator
from krammar.client.cluster import Cluster
from krammar.client.connection import Connection
from krammar.client.deadline import Deadline
from krammar.client.delivery import ProducerBatch, Queue
from krammar.client.errors import ClientError, StateError, describe, kafka_error
from krammar.client.identities import Identities
from krammar.client.in_flight import RequestInFlight
from krammar.client.metadata import NO_ID, Topic, TopicPartition
from krammar.client.settings import Settings
from krammar.client.transactions import PRODUCE_ADDS, Transactions
from krammar.wire.batches import encode_batch
from krammar.wire.batches.compression import Compression
from krammar.wire.errors import EncodeError

# From this version on, Produce names topics by their ids (KIP-516).
_BY_ID = 13
# The second code means that the log already had the batch.
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Sender:
    """Sends what is queued. ``requests`` are those in flight, each with its batches."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        identities: Identities,
        transactions: Transactions | None,
    ) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._settings = settings
        self._accumulator = accumulator
        self._identities = identities
        self._transactions = transactions
        self._codec = Compression[settings.compression_type.upper()]
        self._level = _level(settings, self._codec)
        self._per_partition = (
            settings.max_in_flight_requests_per_connection if settings.enable_idempotence else 1
        )
        self._topics = cluster.metadata.topics
        self.requests: list[tuple[RequestInFlight, list[ProducerBatch]]] = []

    def topic(self, name: str, partition: int | None) -> Topic:
        """Return the metadata of a topic, which contains ``partition`` unless it is None."""
        known = self._topics.get(name)
        if known is None or (partition is not None and partition not in known.partitions):
            known = self._find(name, partition)
        return known

    def _find(self, name: str, partition: int | None) -> Topic:
        deadline = Deadline(self._settings.max_block_ms, f"finding topic {name}")
        topic = self._cluster.topic(name, deadline, auto_create=True)
        self._topics = self._cluster.metadata.topics
        if partition is not None and partition not in topic.partitions:
            # Partitions may have been added.
            self._cluster.metadata.outdate([name])
            topic = self._cluster.topic(name, deadline, auto_create=True)
            if partition not in topic.partitions:
                raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition}")
        return topic

    # Waiting.

    def drain(self, enough: Callable[[], bool], deadline: Deadline) -> None:
        """Send until all records are done, or ``enough`` returns true."""
        while True:
            self.work(force=True, within=deadline)
            if enough() or self._accumulator.idle:
                return
            deadline.check(self._accumulator.unreported)
            self.wait(deadline.left)

    def wait(self, seconds: float) -> None:
        """Wait for a response, but not longer than until another batch is due."""
        now = time.monotonic()
        pause = max(0.0, min(now + seconds, self._accumulator.next_time(now)) - now)
        if self.requests:
            self._cluster.wait(pause)
        elif pause:
            time.sleep(pause)

    # Sending.

    def work(self, *, force: bool = False, within: Deadline | None = None) -> None:
        """Do everything that is possible without waiting for responses to records.

        Waits for metadata, connections and producer ids.

        Args:
            force: send all batches, without ``linger.ms``.
            within: a deadline for waiting.
        """
        for connection in self._cluster.connections:
            connection.pump()
            connection.check_time()
        self.take_answers()
        transactions = self._transactions
        if transactions is not None and transactions.error is not None:
            # The transaction cannot be committed, so don't send more of it.
            for queue in self._accumulator.queues.values():
                for batch in [*queue.waiting, *queue.returned]:
                    self._accumulator.drop(queue, batch, transactions.error)
        self._accumulator.expire()
        limit = min(self._settings.request_timeout_ms, self._settings.max_block_ms)
        if within is not None:
            limit = min(limit, max(1, within.left_ms))
        self._send_ready(force, limit)

    def _send_ready(self, force: bool, limit_ms: int) -> None:
        now = time.monotonic()
        most = self._per_partition
        found = self._accumulator.ready(force)
        ready = {at: queue for at, queue in found.items() if len(queue.in_flight) < most}
        while ready:
            if not self._send_round(ready, limit_ms):
                return
            # Continue with partitions that have more full batches, and fewer requests in flight than allowed.
            ready = {
                at: queue
                for at, queue in ready.items()
                if (len(queue.waiting) > 1 or (force and queue.waiting))
                and len(queue.in_flight) < most
                and queue.retry_at <= now
                and not queue.bump
            }

    def _send_round(self, ready: dict[TopicPartition, Queue], limit_ms: int) -> bool:
        """Send one request to each leader, with one batch per partition; return whether any was sent."""
        deadline = self._cluster.deadline("producing", limit_ms)
        try:
            self._cluster.update_topics({at.topic for at in ready}, deadline, auto_create=True)
            self._topics = self._cluster.metadata.topics
            if self._settings.enable_idempotence and not self._identities.identify(ready, deadline):
                return False
        except ClientError as error:
            for queue in ready.values():
                self._accumulator.failed(queue, error)
            return False
        leaders: dict[int, list[Queue]] = {}
        for at, queue in ready.items():
            try:
                leaders.setdefault(self._cluster.partition(at).leader, []).append(queue)
            except ClientError as error:
                self._accumulator.failed(queue, error)
        sent = False
        for leader, queues in leaders.items():
            try:
                connection = self._cluster.node(leader, deadline)
            except ClientError as error:
                for queue in queues:
                    self._accumulator.failed(queue, error)
                continue
            if self._in_flight(connection) < self._settings.max_in_flight_requests_per_connection:
                sent |= self._send_to(connection, queues, deadline)
        return sent

    def _in_flight(self, connection: Connection) -> int:
        return sum(pending.connection is connection for pending, _ in self.requests)

    def _send_to(self, connection: Connection, queues: list[Queue], deadline: Deadline) -> bool:
        batches: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            batch = self._next(queue)
            if batch is None:
                continue
            if batches and size + batch.size > self._settings.max_request_size:
                break
            try:
                self._encode(queue, batch)
            except EncodeError as error:
                self._accumulator.drop(queue, batch, StateError(f"{batch.at}: {error}"))
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
            pending = self._cluster.send(
                connection,
                self._request(batches),
                Deadline(self._settings.request_timeout_ms, "producing"),
                low=max(low, 3),
                high=high,
                expect_response=self._settings.acks != 0,
            )
        except ClientError as error:
            for batch in batches:
                self._accumulator.failed(self._accumulator.queues[batch.at], error)
            return False
        for batch in batches:
            queue = self._accumulator.queues[batch.at]
            queue.waiting.remove(batch)
            queue.in_flight.append(batch)
            batch.attempts += 1
        self.requests.append((pending, batches))
        return True

    def _next(self, queue: Queue) -> ProducerBatch | None:
        """Return the batch to send next.

        Before the epoch is raised, only batches that may have been written are sent again.
        """
        if not queue.bump:
            return queue.waiting[0]
        return next((batch for batch in queue.waiting if batch.uncertain), None)

    def _encode(self, queue: Queue, batch: ProducerBatch) -> None:
        if batch.sequence < 0 and self._settings.enable_idempotence:
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

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, list[ProducerBatch]] = {}
        for batch in batches:
            topics.setdefault(batch.at.topic, []).append(batch)
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
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

    # Answers.

    def take_answers(self) -> None:
        """Process the responses that have arrived."""
        done = [entry for entry in self.requests if entry[0].done]
        if not done:
            return
        self.requests = [entry for entry in self.requests if not entry[0].done]
        for pending, batches in done:
            try:
                response = pending.result()
            except ClientError as error:
                for batch in batches:
                    batch.uncertain = True
                    self._accumulator.refused(batch, error)
                continue
            if response is None:  # acks=0
                for batch in batches:
                    self._accumulator.written(batch, -1, -1)
                continue
            # A topic may have been forgotten, or created again, since the request was sent.
            names = {topic.topic_id: topic.name for topic in pending.request.topic_data}
            self._take(response, pending.version, names, batches)

    def _take(
        self, response: Any, version: int, names: Mapping[UUID, str], batches: list[ProducerBatch]
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
                    self._accumulator.written(batch, answer.base_offset, answer.log_append_time_ms)
                    continue
                current = answer.current_leader
                self._cluster.metadata.learn_leader(
                    *batch.at, current.leader_id, current.leader_epoch, response.node_endpoints
                )
                why = answer.error_message or ""
                for record in answer.record_errors:
                    if record.batch_index_error_message:
                        why = f"record {record.batch_index}: {record.batch_index_error_message}"
                        break
                self._accumulator.refused(batch, kafka_error(code, describe(str(batch.at), why)))
        for batch in left.values():
            batch.uncertain = True
            self._accumulator.refused(
                batch, kafka_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(batch.at))
            )


def _level(settings: Settings, codec: Compression) -> int | None:
    own = {
        Compression.GZIP: settings.compression_gzip_level,
        Compression.LZ4: settings.compression_lz4_level,
        Compression.ZSTD: settings.compression_zstd_level,
    }
    level = own.get(codec)
    return settings.compression_level if level is None and codec in own else level
