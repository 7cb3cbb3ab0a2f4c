"""Nodes whose clocks differ, and what real clients see of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import MetadataRequest

from krammar.broker import Broker, Cluster
from krammar.testing import KafkaCluster
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

HOUR = 3_600_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start(nodes=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = {"message.timestamp.type": "LogAppendTime"}
        admin.create_topics([NewTopic("orders", 2, 2, config=config)])["orders"].result()
        for partition in (0, 1):
            cluster.move_leader("orders", partition, to=partition + 1)
        yield cluster


def append_times(cluster: Cluster) -> list[int]:
    """When the leader of each partition appends a record, in hours from now."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    found: dict[int, int] = {}

    def note(error: Any, message: Any) -> None:
        found[message.partition()] = message.timestamp()[1]

    for partition in (0, 1):
        producer.produce("orders", b"one", partition=partition, on_delivery=note)
    assert producer.flush(PATIENCE) == 0
    now = time.time() * 1000
    return [round((found[partition] - now) / HOUR) for partition in (0, 1)]


def test_append_times_are_of_the_leader(cluster: Cluster) -> None:
    assert append_times(cluster) == [0, 0]
    cluster.advance_clock(3 * HOUR, node=2)
    assert append_times(cluster) == [0, 3]
    cluster.advance_clock(HOUR)
    assert append_times(cluster) == [1, 4]
    cluster.move_leader("orders", 1, to=1)  # the time goes back
    assert append_times(cluster) == [1, 1]


def test_a_rule_for_one_node(cluster: Cluster) -> None:
    rule = cluster.faults.on("Metadata", node=2).once().advance_clock(2 * HOUR, of="node")
    with RawClient(cluster.nodes[2].addresses["PLAINTEXT"][1]) as client:
        client.call(MetadataRequest(), 9)
    rule.expect(times=1)
    assert append_times(cluster) == [0, 2]
    assert cluster.faults.history[0].action == f"set the clock of node 2 ahead by {2 * HOUR} ms"


def test_members_of_one_coordinator_expire() -> None:
    """The groups of the other coordinator keep their members, whose heartbeats come in real time."""
    with KafkaCluster.start(nodes=2, topics={"orders": 1}) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "session.timeout.ms": 60_000}
        with contextlib.ExitStack() as stack:
            groups = {}
            for number in range(20):
                group = f"g{number}"
                consumer = Consumer({**settings, "group.id": group})
                stack.callback(consumer.close)
                consumer.subscribe(["orders"])
                until = time.monotonic() + PATIENCE
                while not consumer.assignment() and time.monotonic() < until:
                    consumer.poll(0.05)
                groups.setdefault(cluster.coordinator(group), group)
                if len(groups) == 2:
                    break
            assert len(groups) == 2
            cluster.advance_clock(61_000, node=2, members=True)
            assert cluster.wait_until(lambda: not cluster.groups[groups[2]].members)
            assert len(cluster.groups[groups[1]].members) == 1


def test_logins_end_by_the_clock_of_the_node() -> None:
    """A client that logs in to both nodes stays on one of them (KIP-368)."""
    settings = {"connections.max.reauth.ms": "60000"}
    with KafkaCluster.start(settings, nodes=2, topics={"orders": 2}, sasl="plain") as cluster:
        for partition in (0, 1):
            cluster.move_leader("orders", partition, to=partition + 1)
        producer = Producer(cluster.clients.confluent_kafka)

        def produce() -> None:
            for partition in (0, 1):
                producer.produce("orders", b"one", partition=partition)
            assert producer.flush(PATIENCE) == 0

        produce()
        expired = cluster.broker.nodes[2].connections
        other = cluster.broker.nodes[1].connections
        before = set(expired.open), set(other.open)
        cluster.advance_clock(61_000, node=2)
        produce()
        assert before[1] <= set(other.open)
        assert not before[0] <= set(expired.open)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"ms": 1, "node": 3}, "there is no node 3, only 1, 2"),
        ({"ms": -1}, "ms is a number of milliseconds from 0 on, not -1"),
        ({"ms": 1.5}, "not 1.5"),
        ({"ms": True}, "not True"),
    ],
)
def test_clocks_that_cannot_be(cluster: Cluster, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        cluster.advance_clock(**arguments)


def test_a_broker_with_one_node() -> None:
    with Broker.start() as broker:
        before = broker.call(broker.timers.now_ms)
        broker.advance_clock(HOUR)
        broker.advance_clock(HOUR, node=1)
        assert broker.call(broker.timers.now_ms) - before >= 2 * HOUR
