"""A broker that is restarted in a test: what stays, and what clients see."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from krammar.broker import BrokerError
from krammar.broker.node import Node
from krammar.testing import KafkaBroker, KafkaCluster
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def process(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def broker(process: bool) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics={"orders": 2}, process=process) as broker:
        yield broker


def test_records_and_groups_stay(broker: KafkaBroker) -> None:
    settings = broker.clients.confluent_kafka
    producer = Producer({**settings, "client.id": "shop"})
    producer.produce("orders", b"one", partition=0)
    assert producer.flush(PATIENCE) == 0
    group = {"group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE)
    assert message.value() == b"one"
    consumer.commit(message, asynchronous=False)
    consumer.close()
    before = broker.records("orders"), broker.produced_by("shop"), broker.groups["billing"].offsets

    broker.restart()
    after = broker.records("orders"), broker.produced_by("shop"), broker.groups["billing"].offsets
    assert after == before
    assert broker.clients.confluent_kafka == settings
    producer.produce("orders", b"two", partition=0)  # the client connects again
    assert producer.flush(PATIENCE) == 0
    assert [record.value for record in broker.produced_by("shop")] == [b"one", b"two"]


def test_rules_and_the_clock_stay(broker: KafkaBroker) -> None:
    rule = broker.faults.on("Produce").drop("after").once()
    broker.advance_clock(3_600_000)
    (before,) = broker.produce("orders", [b"one"])
    broker.restart()
    (after,) = broker.produce("orders", [b"two"])
    assert after.timestamp >= before.timestamp
    producer = Producer({**broker.clients.confluent_kafka, "enable.idempotence": True})
    producer.produce("orders", b"three", partition=0)
    assert producer.flush(PATIENCE) == 0
    rule.expect(times=1)
    metrics = broker.broker.metrics
    assert metrics.value("kafka_log_log_logendoffset", topic="orders") == 3


def test_transactions_stay_open(broker: KafkaBroker) -> None:
    broker.produce("orders", [b"open"], transaction="open")
    broker.restart()
    assert broker.records("orders") == []
    assert len(broker.records("orders", isolation_level="read_uncommitted")) == 1
    broker.advance_clock(61_000)
    broker.produce("orders", [b"one", b"two"])
    assert len(broker.wait_for_records("orders", 2)) == 2


def test_a_cluster(process: bool) -> None:
    with KafkaCluster.start(nodes=2, topics={"orders": 2}, process=process) as cluster:
        cluster.produce("orders", [b"one", b"two"])
        servers = cluster.bootstrap_servers
        cluster.stop_node(2)
        cluster.refuse_connections(1)
        cluster.advance_clock(3_600_000, node=1)
        cluster.restart()
        assert cluster.bootstrap_servers == servers
        assert len(cluster.records("orders")) == 2
        for address in servers.split(","):
            with RawClient(int(address.rpartition(":")[2])):
                pass
        assert cluster.partition("orders", 0).isr == [1, 2]


def test_users_stay() -> None:
    with KafkaBroker.start(sasl="scram", acls=[{"allow": "alice", "topic": "*"}]) as broker:
        broker.restart()
        producer = Producer(
            {**broker.clients.confluent_kafka, "message.timeout.ms": int(PATIENCE * 1000)}
        )
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0


def test_a_port_that_is_taken() -> None:
    with KafkaBroker.start() as broker, socket.socket() as other:
        address = broker.host, broker.port

        def take(_: Node) -> None:
            broker.broker.equipped.clear()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(address)
            other.listen()

        broker.broker.equipped.append(take)
        with pytest.raises(BrokerError, match="cannot listen on"):
            broker.restart()
