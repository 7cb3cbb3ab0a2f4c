"""Share consumers under load while leaders move, nodes stop and locks end: nothing finished comes again, nothing is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer, TopicPartition
from kafka_wire import ConfigResourceType

from krammar.testing import KafkaCluster
from tests.broker.share.load import MOST
from tests.support.waiting import PATIENCE, until

GROUP = "movers"
PARTITIONS = 4
BATCH = 20
Place = tuple[int, int]


class Members:
    """Share consumers in threads, and what they know of each record, by partition and offset.

    Attributes:
        finished: accepted or rejected, or released for the last time, and confirmed by a broker
        uncertain: the same, without an answer
    """

    def __init__(self, servers: str, seed: int, count: int) -> None:
        self.servers = servers
        self.finished: set[Place] = set()
        self.uncertain: set[Place] = set()
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}-{at}"),), daemon=True)
            for at in range(count)
        ]
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self.stopping.set()
        for each in self._threads:
            each.join(PATIENCE)
            assert not each.is_alive(), "a share consumer does not come to an end"

    def _run(self, source: random.Random) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 200,
                "log_level": 0,
            }
        )
        consumer.subscribe(["orders"])
        try:
            while not self.stopping.is_set() and not self.failures:
                self._step(consumer, source)
        except BaseException as error:
            self.failures.append(f"{type(error).__name__}: {error}")
        finally:
            consumer.close()

    def _step(self, consumer: ShareConsumer, source: random.Random) -> None:
        done: set[Place] = set()
        for message in consumer.poll(0.1):
            assert message.error() is None, message.error()
            place = (message.partition() or 0, message.offset() or 0)
            count = message.delivery_count()
            assert count is not None and 1 <= count <= MOST, (place, count)
            with self._lock:
                assert place not in self.finished, f"{place} is delivered again"
                if count == MOST:
                    self.uncertain.add(place)  # if the connection breaks, the broker archives it
            kind = source.choices(
                (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT),
                (90, 5, 5),
            )[0]
            if kind != AcknowledgeType.RELEASE or count == MOST:
                done.add(place)
            consumer.acknowledge(message, kind)
        with self._lock:
            self.uncertain |= done
        results: dict[TopicPartition, object] = consumer.commit_sync(PATIENCE)
        confirmed = {each.partition for each, error in results.items() if error is None}
        with self._lock:
            self.finished.update(each for each in done if each[0] in confirmed)


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster.start(
        nodes=3,
        topics={"orders": PARTITIONS},
        share_coordinator_snapshot_update_records_per_snapshot=10,
        share_coordinator_state_topic_prune_interval_ms=50,
    ) as started:
        started.broker.call(
            started.broker.cluster.set_configs,
            ConfigResourceType.GROUP,
            GROUP,
            {"share.auto.offset.reset": "earliest"},
        )
        yield started


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(at, marks=pytest.mark.sweep) for at in (2, 3, 4))]
)
def test_nothing_is_lost_or_repeated(cluster: KafkaCluster, seed: int) -> None:
    source = random.Random(seed)
    members = Members(cluster.bootstrap_servers, seed, count=3)
    produced = 0

    def any_node() -> int:
        return source.choice(sorted(cluster.broker.cluster.running))

    def move_leader() -> None:
        cluster.move_leader("orders", source.randrange(PARTITIONS), to=any_node())

    def move_states() -> None:
        topic = cluster.broker.cluster.topics.get("__share_group_state")
        if topic is not None:
            number = source.choice(sorted(topic.partitions))
            cluster.move_leader("__share_group_state", number, to=any_node())

    def move_group() -> None:
        cluster.move_coordinator(GROUP, to=any_node())

    def restart_node() -> None:
        node = source.choice((2, 3))
        if source.random() < 0.5:
            cluster.kill_node(node)
        cluster.stop_node(node)
        cluster.start_node(node)

    def end_locks() -> None:
        cluster.advance_clock(30_000)

    changes: list[Callable[[], None]] = [
        *(move_leader, move_leader, move_states, move_group, end_locks),
    ]
    try:
        for step in range(12):
            cluster.produce(
                "orders",
                [
                    {"value": b"%d" % (produced + at), "partition": number}
                    for number in range(PARTITIONS)
                    for at in range(BATCH)
                ],
            )
            produced += BATCH
            aim = len(members.finished) + BATCH
            until(lambda aim=aim: len(members.finished) >= aim or members.failures)
            assert not members.failures, members.failures
            (restart_node if step % 4 == 3 else source.choice(changes))()
        everything = {(number, at) for number in range(PARTITIONS) for at in range(produced)}
        until(lambda: everything <= members.finished | members.uncertain or members.failures)
    finally:
        members.end()
    assert not members.failures, members.failures
    # What was uncertain is either finished, or available to another member.
    left = Members(cluster.bootstrap_servers, seed, count=1)
    left.finished = members.finished
    group = cluster.share_groups[GROUP]
    try:
        until(
            lambda: left.failures
            or all(
                each.start_offset == produced
                for each in cluster.share_groups[GROUP].partitions.values()
            )
        )
    finally:
        left.end()
    assert not left.failures, left.failures
    assert len(group.partitions) == PARTITIONS
