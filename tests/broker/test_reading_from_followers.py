"""Consumers that read from the nearest replica (KIP-392)."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka_wire import ErrorCode, FetchRequest, FetchResponse

from krammar.broker import Cluster
from krammar.client import Client
from krammar.proxy.interface import Exchange, Filter, on
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Fetches(Filter):
    """Counts the records that each node serves, by client and node."""

    def __init__(self) -> None:
        self.bytes: Counter[tuple[str | None, int | None]] = Counter()

    @on(FetchResponse)
    def count(self, response: FetchResponse, exchange: Exchange) -> None:
        for topic in response.responses:
            for partition in topic.partitions:
                key = exchange.client_id, exchange.connection.node
                self.bytes[key] += len(partition.records or b"")


@pytest.fixture
def fetches() -> Fetches:
    return Fetches()


@pytest.fixture
def cluster(fetches: Fetches) -> Iterator[Cluster]:
    properties = {"krammar.racks": "a,b,c", "replica.selector.class": RACK_AWARE}
    with Cluster.start(nodes=3, properties=properties, filters=[fetches]) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result()
        cluster.move_leader("orders", 0, to=1)
        yield cluster


def fill(cluster: Cluster, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "producer"})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(PATIENCE) == 0


@contextlib.contextmanager
def confluent(cluster: Cluster, rack: str) -> Iterator[Callable[[int], list[bytes | None]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "client.id": "reader",
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe(["orders"])

    def read(count: int) -> list[bytes | None]:
        found = []
        until = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                found.append(message.value())
        return found

    with contextlib.closing(consumer):
        yield read


@contextlib.contextmanager
def kafka_python(cluster: Cluster, rack: str) -> Iterator[Callable[[int], list[bytes | None]]]:
    reader = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        client_id="reader",
        client_rack=rack,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1000,
    )

    def read(count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        until = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < until:
            for records in reader.poll(timeout_ms=100).values():
                found += [record.value for record in records]
        return found

    with contextlib.closing(reader):
        yield read


@pytest.mark.parametrize("client", [confluent, kafka_python])
@pytest.mark.parametrize(
    ("rack", "node"), [("a", 1), ("b", 2), ("c", 3), ("elsewhere", 1), ("", 1)]
)
def test_the_nearest_replica_serves(
    cluster: Cluster, fetches: Fetches, client: Any, rack: str, node: int
) -> None:
    fill(cluster, b"one", b"two")
    with client(cluster, rack) as read:
        assert read(2) == [b"one", b"two"]
        fill(cluster, b"three")
        assert read(1) == [b"three"]
    assert [key for key, size in fetches.bytes.items() if size] == [("reader", node)]


@pytest.mark.parametrize("client", [confluent, kafka_python])
def test_the_leader_serves_when_the_replica_stops(
    cluster: Cluster, fetches: Fetches, client: Any
) -> None:
    fill(cluster, b"one")
    with client(cluster, "b") as read:
        assert read(1) == [b"one"]
        cluster.stop_node(2)
        fill(cluster, b"two")
        assert read(1) == [b"two"]
    assert {key for key, size in fetches.bytes.items() if size} == {("reader", 2), ("reader", 1)}


def test_the_client_of_krammar(cluster: Cluster, fetches: Fetches) -> None:
    fill(cluster, b"one", b"two")
    settings = {"client.rack": "c", "client.id": "reader"}
    with Client(cluster.bootstrap_servers, settings) as client:
        assert [record.value for _, record in client.records("orders")] == [b"one", b"two"]
    assert [key for key, size in fetches.bytes.items() if size] == [("reader", 3)]


def fetched(
    cluster: Cluster, node: int, version: int, rack: str = "", *, min_bytes: int = 1
) -> Any:
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    topic = FetchRequest.FetchTopic(topic="orders", partitions=[partition])
    request = FetchRequest(session_epoch=-1, max_bytes=1000, topics=[topic])
    request.max_wait_ms, request.min_bytes = int(PATIENCE * 2000), min_bytes
    if rack:
        request.rack_id = rack
    with RawClient(cluster.nodes[node].addresses["PLAINTEXT"][1]) as client:
        return client.call(request, version).responses[0].partitions[0]


def test_answers_of_leader_and_replica(cluster: Cluster) -> None:
    fill(cluster, b"one")
    # At once, although it has less than min_bytes.
    named = fetched(cluster, 1, 12, "b", min_bytes=1000)
    assert (named.error_code, named.preferred_read_replica, named.records) == (0, 2, b"")
    assert named.high_watermark == 1
    replica = fetched(cluster, 2, 12)
    assert (replica.error_code, replica.preferred_read_replica) == (0, -1)
    assert replica.records
    # Kafka's replicas serve consumers that could name a rack, with or without one.
    assert fetched(cluster, 2, 10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.partition_from("nodes", 2)
    assert fetched(cluster, 2, 12).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(cluster, 1, 12, "b").preferred_read_replica == -1


def test_without_a_selector_the_leader_serves() -> None:
    with Cluster.start(nodes=2, properties={"krammar.racks": "a, b"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 2)])["orders"].result()
        cluster.move_leader("orders", 0, to=1)
        fill(cluster, b"one")
        assert fetched(cluster, 1, 12, "b").records
        with Client(cluster.bootstrap_servers) as client:
            assert {key: node.rack for key, node in client.nodes().items()} == {1: "a", 2: "b"}


def test_racks_repeat() -> None:
    with Cluster.start(nodes=3, properties={"krammar.racks": "a,a,b"}) as cluster:
        assert [node.config.broker_rack for node in cluster.nodes.values()] == ["a", "a", "b"]
    with Cluster.start(nodes=3, properties={"broker.rack": "z"}) as cluster:
        assert [node.addresses.rack for node in cluster.nodes.values()] == ["z", "z", "z"]
