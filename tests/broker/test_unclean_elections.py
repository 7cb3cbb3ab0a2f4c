"""Leaders that were behind: acknowledged records are gone, and clients notice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import (
    ErrorCode,
    FetchRequest,
    OffsetForLeaderEpochRequest,
)

from krammar.broker import Cluster
from krammar.client import Client
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start(nodes=3) as cluster:
        yield cluster


def create(cluster: Cluster, factor: int = 3, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic("orders", 1, factor, config=config)])["orders"].result()


def fill(cluster: Cluster, *values: bytes) -> None:
    """Produce each record in a batch of its own."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 1})
    for value in values:
        producer.produce("orders", value)
        assert producer.flush(PATIENCE) == 0


def stored(cluster: Cluster) -> list[bytes]:
    with Client(cluster.bootstrap_servers) as client:
        return [record.value or b"" for _, record in client.records("orders")]


def call(cluster: Cluster, node: int, request: Any, version: int) -> Any:
    with RawClient(cluster.nodes[node].addresses["PLAINTEXT"][1]) as client:
        return client.call(request, version)


def fetched(cluster: Cluster, offset: int, epoch: int) -> int:
    """The error code of a fetch from the leader."""
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1000
    )
    topic = FetchRequest.FetchTopic(topic="orders", partitions=[partition])
    request = FetchRequest(session_epoch=-1, max_bytes=1000, topics=[topic])
    answer = call(cluster, cluster.leader("orders", 0), request, 12)
    return int(answer.responses[0].partitions[0].error_code)


def end_of_epoch(cluster: Cluster, epoch: int, current: int) -> tuple[int, int]:
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, leader_epoch=epoch, current_leader_epoch=current
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="orders", partitions=[partition])
    request = OffsetForLeaderEpochRequest(topics=[topic])
    answer = call(cluster, cluster.leader("orders", 0), request, 4)
    found = answer.topics[0].partitions[0]
    return found.leader_epoch, found.end_offset


def test_what_a_new_leader_answers(cluster: Cluster) -> None:
    create(cluster)
    fill(cluster, *(b"%d" % n for n in range(10)))
    before = cluster.partition("orders", 0)
    assert cluster.unclean_election("orders", 0, lose=3) == 7
    after = cluster.partition("orders", 0)
    assert after.leader != before.leader
    assert after.leader_epoch == before.leader_epoch + 1
    old, new = before.leader_epoch, after.leader_epoch
    assert fetched(cluster, 10, old) == ErrorCode.FENCED_LEADER_EPOCH
    assert fetched(cluster, 10, new) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert end_of_epoch(cluster, old, new) == (old, 7)
    fill(cluster, b"new")
    assert stored(cluster) == [b"%d" % n for n in range(7)] + [b"new"]
    assert end_of_epoch(cluster, old, new) == (old, 7)
    assert end_of_epoch(cluster, new, new) == (new, 8)


def test_whole_batches_are_lost(cluster: Cluster) -> None:
    create(cluster)
    fill(cluster, b"first")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 500})
    for n in range(5):
        producer.produce("orders", b"%d" % n)
    assert producer.flush(PATIENCE) == 0
    assert cluster.unclean_election("orders", 0, lose=2) == 1
    assert cluster.unclean_election("orders", 0, lose=99) == 0
    assert stored(cluster) == []


def test_a_node_that_chooses(cluster: Cluster) -> None:
    create(cluster)
    fill(cluster, b"one")
    to = cluster.partition("orders", 0).replicas[2]
    cluster.unclean_election("orders", 0, lose=1, to=to)
    assert cluster.leader("orders", 0) == to


def test_a_waiting_consumer_hears_of_it(cluster: Cluster) -> None:
    """It would wait for its fetch.max.wait.ms, here longer than the test."""
    create(cluster)
    fill(cluster, b"one", b"two")
    with contextlib.closing(reader(cluster, **{"fetch.wait.max.ms": 60_000})) as consumer:
        assert read(consumer, 2) == [b"one", b"two"]
        cluster.unclean_election("orders", 0, lose=1)
        fill(cluster, b"three")
        assert read(consumer, 1) == [b"three"]


def reader(cluster: Cluster, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "socket.timeout.ms": 70_000,
            "retry.backoff.ms": 20,
            **settings,
        }
    )
    consumer.subscribe(["orders"])
    return consumer


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        found.append(message.value())
    return found


def test_librdkafka_reports_the_truncation(cluster: Cluster) -> None:
    """With auto.offset.reset=error, as a program that must not lose records sets it."""
    create(cluster)
    fill(cluster, *(b"%d" % n for n in range(10)))
    with contextlib.closing(reader(cluster, **{"auto.offset.reset": "error"})) as consumer:
        consumer.unsubscribe()
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert len(read(consumer, 10)) == 10
        cluster.unclean_election("orders", 0, lose=3)
        with pytest.raises(KafkaException, match="truncation detected at offset 10") as caught:
            read(consumer, 1)
        assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_a_replica_that_was_stopped_lacks_what_came_since(cluster: Cluster) -> None:
    create(cluster, factor=2)
    first, second = cluster.partition("orders", 0).replicas
    fill(cluster, b"both")
    cluster.stop_node(second)
    fill(cluster, b"one of them")
    cluster.stop_node(first)
    cluster.start_node(second)
    assert cluster.leader("orders", 0) == -1
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("orders", 0)]).result()
    assert cluster.leader("orders", 0) == second
    assert stored(cluster) == [b"both"]
    cluster.start_node(first)
    assert cluster.partition("orders", 0).isr == [second, first]
    fill(cluster, b"new")
    cluster.move_leader("orders", 0, to=first)
    assert stored(cluster) == [b"both", b"new"]


def test_the_setting_of_a_topic(cluster: Cluster) -> None:
    create(cluster, factor=2, unclean_leader_election_enable="true")
    first, second = cluster.partition("orders", 0).replicas
    fill(cluster, b"both")
    cluster.stop_node(second)
    fill(cluster, b"one of them")
    cluster.stop_node(first)
    cluster.start_node(second)
    partition = cluster.partition("orders", 0)
    assert (partition.leader, partition.isr) == (second, [second])
    assert stored(cluster) == [b"both"]


def test_a_clean_election_loses_nothing(cluster: Cluster) -> None:
    create(cluster, factor=2, unclean_leader_election_enable="true")
    first, second = cluster.partition("orders", 0).replicas
    cluster.stop_node(second)
    fill(cluster, b"one")
    cluster.start_node(second)
    cluster.stop_node(first)
    assert cluster.leader("orders", 0) == second
    assert stored(cluster) == [b"one"]


@pytest.mark.parametrize(
    ("topic", "arguments", "text"),
    [
        ("nothing", {"lose": 1}, "No such topic as nothing"),
        ("orders", {"lose": 0}, "lose is a number of records from 1 on, not 0"),
        ("orders", {"lose": True}, "lose is a number of records from 1 on, not True"),
        ("orders", {"lose": "1"}, "lose is a number of records from 1 on, not '1'"),
        ("orders", {"lose": 1, "to": 9}, "the cluster has no node 9, only 1, 2, 3"),
        ("orders", {"lose": 1, "to": 1}, "node 1 has no replica of orders-0 that can take over"),
        ("__consumer_offsets", {"lose": 1}, "__consumer_offsets-0 is internal and cannot lose"),
    ],
)
def test_elections_that_cannot_be(
    cluster: Cluster, topic: str, arguments: dict[str, Any], text: str
) -> None:
    create(cluster)
    cluster.call(cluster.topics.ensure_internal, "__consumer_offsets")
    cluster.move_leader("orders", 0, to=1)
    with pytest.raises(ValueError, match=text):
        cluster.unclean_election(topic, 0, **arguments)


def test_a_partition_with_one_replica(cluster: Cluster) -> None:
    create(cluster, factor=1)
    with pytest.raises(ValueError, match="orders-0 has no other replica on a running node"):
        cluster.unclean_election("orders", 0, lose=1)
