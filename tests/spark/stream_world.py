"""The brokers of the search over streams: three nodes, the records that they have, and faults in their answers.

A step of a plan is a line of words; ``World.step`` does those that change brokers. A step that is impossible in the
state of the brokers does nothing, so any part of a plan is a plan too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka_wire as kw
from confluent_kafka import Producer
from kafka_wire import ErrorCode

from krammar.broker import Cluster
from krammar.wire.batches import Record, encode_batch
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

# The client id of the query under test; only its requests meet faults.
CLIENT_ID = "stream"
NODES = (1, 2, 3)
MOST_PARTITIONS = 4

Partition = tuple[str, int]

_LEADER_ERRORS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
# The errors that a broker may return, per topic or partition.
ERRORS = {
    "Metadata": [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
    "ListOffsets": _LEADER_ERRORS,
    "OffsetForLeaderEpoch": _LEADER_ERRORS,
    "Fetch": [
        *_LEADER_ERRORS,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ],
}


# Answers that report less than there is.


def _no_topics(response: Any, _: Any) -> None:
    response.topics = []


def _fewer_partitions(response: Any, _: Any) -> None:
    for topic in response.topics:
        topic.partitions = topic.partitions[:1]


def _no_leaders(response: Any, _: Any) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.leader_id = -1
            partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE


def _stale_leaders(response: Any, _: Any) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.leader_id = partition.leader_id % len(NODES) + 1
            partition.leader_epoch = max(partition.leader_epoch - 1, 0)


def _lower_ends(response: Any, exchange: Any) -> None:
    asked = {
        (topic.name, partition.partition_index): partition.timestamp
        for topic in exchange.request.topics
        for partition in topic.partitions
    }
    for topic in response.topics:
        for partition in topic.partitions:
            if asked[topic.name, partition.partition_index] == -1:
                partition.offset = 2 * partition.offset // 3


def _lower_epochs(response: Any, _: Any) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.end_offset //= 2


def _no_records(response: Any, _: Any) -> None:
    for topic in response.responses:
        for partition in topic.partitions:
            partition.records = b""
            partition.high_watermark = partition.last_stable_offset = 0


LESS: dict[str, tuple[str, Callable[[Any, Any], None]]] = {
    "no-topics": ("Metadata", _no_topics),
    "fewer-partitions": ("Metadata", _fewer_partitions),
    "no-leaders": ("Metadata", _no_leaders),
    "stale-leaders": ("Metadata", _stale_leaders),
    "lower-ends": ("ListOffsets", _lower_ends),
    "lower-epochs": ("OffsetForLeaderEpoch", _lower_epochs),
    "no-records": ("Fetch", _no_records),
}


class World:
    """The brokers, and what a consumer may find there.

    Attributes:
        topics: the number of partitions of each topic that exists
        logs: the records by topic and partition: values by offset
        places: where each value was written
        unsettled: the values of the open transaction
        aborted: the values of aborted transactions
        lossy: topics of which records were deleted, or that were deleted
        transactional: partitions with records of transactions
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.logs: dict[Partition, dict[int, bytes]] = {}
        self.places: dict[bytes, tuple[str, int, int]] = {}
        self.unsettled: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.lossy: set[str] = set()
        self.transactional: set[Partition] = set()
        self._read_to: dict[Partition, int] = {}  # see ``_is_short``
        self.topics: dict[str, int] = {}
        self._producer: Producer | None = None
        self._begun = False
        self._dead: set[int] = set()
        self._rules: list[Any] = []
        self._count = 0

    def step(self, verb: str, *words: str) -> None:
        """Do a step, if it is possible."""
        getattr(self, "_" + verb.replace("-", "_"))(*words)

    # Records.

    def _produce(self, topic: str, partition: str, count: str) -> None:
        """Append a batch."""
        at = topic, int(partition)
        if self._is_led(at) and not self._is_short(at):
            values = self._values(int(count))
            data = encode_batch([Record(value=value) for value in values])
            part = kw.ProduceRequest.PartitionProduceData(index=at[1], records=data)
            wanted = kw.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
            request = kw.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted])
            (answer,) = self._leader(at, request, 9).responses[0].partition_responses
            assert answer.error_code == ErrorCode.NONE, answer
            for number, value in enumerate(values):
                self._place(at, answer.base_offset + number, value)

    def _begin(self, topic: str, partition: str, count: str) -> None:
        """Write records of a transaction, and begin it if none is open."""
        at = topic, int(partition)
        if not self._is_led(at) or self._dead or self._is_short(at):
            return
        if self._producer is None:
            servers = {"bootstrap.servers": self.cluster.bootstrap_servers}
            self._producer = Producer({**servers, "transactional.id": "search", "linger.ms": 0})
            self._producer.init_transactions(PATIENCE)
        if not self._begun:
            self._producer.begin_transaction()
            self._begun = True
        written: list[tuple[int, bytes]] = []

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            written.append((message.offset(), message.value()))

        for value in self._values(int(count)):
            self._producer.produce(topic, value, partition=at[1], on_delivery=delivered)
        assert self._producer.flush(PATIENCE) == 0
        self.transactional.add(at)
        for offset, value in written:
            self._place(at, offset, value)
            self.unsettled.add(value)

    def _commit(self) -> None:
        if self._begun and not self._dead and self._producer is not None:
            self._producer.commit_transaction(PATIENCE)
            self._begun = False
            self.unsettled.clear()

    def _abort(self) -> None:
        if self._begun and not self._dead and self._producer is not None:
            self._producer.abort_transaction(PATIENCE)
            self._begun = False
            self.aborted |= self.unsettled
            self.unsettled.clear()

    def note_read(self, ends: Mapping[Partition, int]) -> None:
        """Note where the query has read to."""
        for at, offset in ends.items():
            if at in self.logs and offset <= self.end(at):
                self._read_to[at] = offset

    def _is_short(self, at: Partition) -> bool:
        """Return whether a log was truncated before the offset that the query has read.

        It must not grow beyond that before the query has looked at it: offsets cannot show the loss then.
        """
        return self.end(at) < self._read_to.get(at, 0)

    def _values(self, count: int) -> list[bytes]:
        self._count += count
        return [b"%d" % number for number in range(self._count - count, self._count)]

    def _place(self, at: Partition, offset: int, value: bytes) -> None:
        self.logs[at][offset] = value
        self.places[value] = (*at, offset)

    def _delete(self, topic: str, partition: str, count: str) -> None:
        """Delete the first records of a partition."""
        at = topic, int(partition)
        if not self._is_led(at):
            return
        begin = self._log(at).log_start_offset
        before = min(begin + int(count), self.end(at))
        if before == begin:
            return
        part = kw.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=at[1], offset=before)
        wanted = kw.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])
        request = kw.DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000)
        (answer,) = self._leader(at, request).topics[0].partitions
        assert answer.error_code == ErrorCode.NONE, answer
        self._keep(at, lambda offset: offset >= before)

    def _truncate(self, topic: str, partition: str, count: str) -> None:
        """Lose the last records of a partition to an unclean leader election."""
        at = topic, int(partition)
        if not self._is_led(at) or self._dead or at in self.transactional or not self.logs[at]:
            return
        end = self.cluster.unclean_election(*at, lose=int(count))
        self._keep(at, lambda offset: offset < end)

    def _keep(self, at: Partition, is_kept: Callable[[int], bool]) -> None:
        self.logs[at] = {offset: v for offset, v in self.logs[at].items() if is_kept(offset)}
        self.lossy.add(at[0])

    # Topics.

    def _create(self, topic: str, partitions: str) -> None:
        if topic in self.topics:
            return
        wanted = kw.CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=int(partitions), replication_factor=3
        )
        (answer,) = self._any(kw.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)).topics
        if answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
            return  # a node is not there
        assert answer.error_code == ErrorCode.NONE, answer
        self.topics[topic] = int(partitions)
        for number in range(int(partitions)):
            self.logs[topic, number] = {}

    def _drop(self, topic: str) -> None:
        if topic not in self.topics or any(at[0] == topic for at in self._open_at()):
            return
        wanted = kw.DeleteTopicsRequest.DeleteTopicState(name=topic)
        (answer,) = self._any(kw.DeleteTopicsRequest(topics=[wanted], timeout_ms=10_000)).responses
        assert answer.error_code == ErrorCode.NONE, answer
        for number in range(self.topics.pop(topic)):
            del self.logs[topic, number]
            self.transactional.discard((topic, number))
            self._read_to.pop((topic, number), None)
        self.lossy.add(topic)

    def _open_at(self) -> set[Partition]:
        return {self.places[value][:2] for value in self.unsettled}

    def _recreate(self, topic: str, partitions: str) -> None:
        self._drop(topic)
        self._create(topic, partitions)

    def _grow(self, topic: str) -> None:
        """Add a partition."""
        count = self.topics.get(topic, MOST_PARTITIONS)
        if count >= MOST_PARTITIONS or self._dead:
            return
        wanted = kw.CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic, count=count + 1, assignments=None
        )
        request = kw.CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
        (answer,) = self._any(request).results
        assert answer.error_code == ErrorCode.NONE, answer
        self.topics[topic] += 1
        self.logs[topic, count] = {}

    # Nodes.

    def _lead(self, topic: str, partition: str, node: str) -> None:
        at = topic, int(partition)
        if self._is_led(at) and int(node) in self._running():
            self.cluster.move_leader(*at, to=int(node))

    def _kill(self, node: str) -> None:
        if self._may_leave(int(node)):
            self.cluster.kill_node(int(node))
            self._dead.add(int(node))

    def _stop(self, node: str) -> None:
        if int(node) in self._dead or self._may_leave(int(node)):
            self.cluster.stop_node(int(node))
            self._dead.add(int(node))

    def _isolate(self, node: str) -> None:
        """Cut a node off from the others; it goes on answering with what it knows."""
        if self._may_leave(int(node)):
            self.cluster.partition_from("nodes", int(node))

    def _silence(self, node: str) -> None:
        """Let a node answer no client, other than those of the search."""
        rule = self.cluster.faults.on(client_id=CLIENT_ID, node=int(node)).black_hole()
        self._rules.append(rule)

    def _start(self, node: str) -> None:
        if int(node) in self._dead:
            self.cluster.start_node(int(node))
            self._dead.discard(int(node))

    def _heal(self) -> None:
        self.cluster.heal()

    def _may_leave(self, node: int) -> bool:
        running = self._running()
        return node in running and len(running) > 1

    def _running(self) -> set[int]:
        running = self.cluster.call(lambda: set(self.cluster.cluster.running))
        return running - self._dead

    def _is_led(self, at: Partition) -> bool:
        return at in self.logs and self.cluster.leader(*at) in self._running()

    # Answers.

    def _less(self, kind: str, times: str) -> None:
        """Let the brokers report less than there is."""
        api, change = LESS[kind]
        rule = self.cluster.faults.on(api, client_id=CLIENT_ID)
        self._arm(rule, times).call(change, of="response")

    def _error(self, api: str, code: str, topic: str, times: str) -> None:
        """Let the brokers refuse a topic, or its partitions."""
        rule = self.cluster.faults.on(api, client_id=CLIENT_ID, topic=topic)
        self._arm(rule, times).answer(ErrorCode[code])

    def _hang_up(self, api: str, times: str) -> None:
        """Let the brokers close connections instead of answering."""
        self._arm(self.cluster.faults.on(api, client_id=CLIENT_ID), times).drop()

    def _arm(self, rule: Any, times: str) -> Any:
        self._rules.append(rule)
        return rule if times == "all" else rule.times(int(times))

    def calm(self) -> None:
        """End all faults in answers."""
        for rule in self._rules:
            self.cluster.faults.remove(rule)
        self._rules = []

    def _calm(self) -> None:
        self.calm()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Suspend the faults in answers."""
        rules = self.cluster.faults.rules
        self.cluster.faults.rules = ()
        try:
            yield
        finally:
            self.cluster.faults.rules = rules

    def repair(self) -> None:
        """End all faults: all nodes run, and the transaction ends."""
        self.calm()
        self.cluster.heal()
        for node in sorted(self._dead):
            self._start(str(node))
        self._commit()

    # Requests of the search itself.

    def end(self, at: Partition) -> int:
        """Return where a log ends."""
        return self._log(at).end_offset

    def _log(self, at: Partition) -> Any:
        return self.cluster.call(lambda: self.cluster.logs.get(*at))

    def _leader(self, at: Partition, request: Any, version: int | None = None) -> Any:
        return self._ask(self.cluster.leader(*at), request, version)

    def _any(self, request: Any) -> Any:
        return self._ask(min(self._running()), request, None)

    def _ask(self, node: int, request: Any, version: int | None) -> Any:
        with RawClient(self.cluster.nodes[node].addresses["PLAINTEXT"][1]) as client:
            return client.call(request, version)
