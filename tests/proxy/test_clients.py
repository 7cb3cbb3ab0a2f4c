"""Real clients through a proxy, in front of krammar's broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka_wire import FetchResponse, MetadataRequest, ProduceRequest

from krammar.client import At, Client
from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.proxy.filters.encrypt import Encrypt
from krammar.proxy.filters.envelope import is_sealed
from krammar.testing import KafkaBroker, KafkaCluster
from tests.proxy.filters.encrypted import line
from tests.support.waiting import PATIENCE

COUNT = 200


class Watching(Filter):
    """Reads the messages of all clients, and changes none."""

    def __init__(self) -> None:
        self.apis: set[int] = set()

    @on(ProduceRequest, MetadataRequest, FetchResponse)
    def watch(self, message: Any, exchange: Exchange) -> None:
        self.apis.add(exchange.api_key)


@pytest.fixture(params=["pass", "read", "encrypt"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxy]:
    watching = Watching()
    filters: list[Filter] = [watching] if request.param != "pass" else []
    if request.param == "encrypt":
        (tmp_path / "keys.txt").write_text(line("key"))
        filters.append(Encrypt(keys=tmp_path / "keys.txt", headers=True))
    with (
        KafkaBroker.start(topics={"orders": 3}) as broker,
        Proxy.start(broker.bootstrap_servers, filters) as proxy,
    ):
        yield proxy
        if filters:
            assert watching.apis == {0, 1, 3}
        if request.param == "encrypt":
            assert all(is_sealed(record.value or b"") for record in broker.records("orders"))


def values() -> list[bytes]:
    return [b"order %d" % number for number in range(COUNT)]


def test_confluent_kafka(proxy: Proxy) -> None:
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "enable.idempotence": True})
    for value in values():
        producer.produce("orders", value)
    assert producer.flush(PATIENCE) == 0
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers})
    brokers = admin.list_topics(timeout=PATIENCE).brokers.values()
    assert proxy.bootstrap_servers in {f"{each.host}:{each.port}" for each in brokers}
    consumer = Consumer(
        {
            "bootstrap.servers": proxy.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    found: list[bytes] = []
    while len(found) < COUNT:
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == sorted(values())


def test_kafka_python(proxy: Proxy) -> None:
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap_servers)
    for value in values():
        producer.send("orders", value)
    producer.flush(PATIENCE)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=proxy.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE * 1000,
    )
    found = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    assert sorted(found) == sorted(values())


def test_aiokafka(proxy: Proxy) -> None:
    async def talk() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=proxy.bootstrap_servers) as producer:
            for value in values():
                await producer.send("orders", value)
            await producer.flush()
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=proxy.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        )
        async with consumer, asyncio.timeout(PATIENCE):
            return [(await consumer.getone()).value for _ in range(COUNT)]

    assert sorted(asyncio.run(talk())) == sorted(values())


def test_krammar(proxy: Proxy) -> None:
    with Client(proxy.bootstrap_servers) as client:
        with client.producer() as producer:
            for value in values():
                producer.send("orders", value)
        records = client.records("orders", begin=At.EARLIEST, end=At.LATEST)
        found = [record.value or b"" for _, record in records]
    assert sorted(found) == sorted(values())


def test_every_broker_of_a_cluster_is_reached_through_the_proxy() -> None:
    with (
        KafkaCluster.start(nodes=3, topics={"orders": 6}) as cluster,
        Proxy.start(cluster.bootstrap_servers.split(",")[0]) as proxy,
    ):
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers})
        told = admin.list_topics(timeout=PATIENCE).brokers.values()
        ports = {each.port for each in told}
        assert len(ports) == 3
        theirs = {int(each.rpartition(":")[2]) for each in cluster.bootstrap_servers.split(",")}
        assert not ports & theirs
        admin.create_topics([NewTopic("more", 6)])["more"].result(PATIENCE)
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        for number in range(60):
            producer.produce("orders", b"x", partition=number % 6)
        assert producer.flush(PATIENCE) == 0
        assert len(cluster.records("orders")) == 60


@pytest.mark.parametrize("mechanism", ["plain", "scram"])
def test_logins_pass(mechanism: str) -> None:
    with (
        KafkaBroker.start(topics=["orders"], sasl=mechanism, users={"alice": "secret"}) as broker,
        Proxy.start(broker.bootstrap_servers, [Watching()]) as proxy,
    ):
        settings = broker.clients.confluent_kafka | {"bootstrap.servers": proxy.bootstrap_servers}
        producer = Producer(settings)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0
        assert [record.value for record in broker.records("orders")] == [b"one"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(acks: str) -> None:
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(broker.bootstrap_servers) as proxy,
    ):
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "acks": acks})
        for value in values():
            producer.produce("orders", value)
        assert producer.flush(PATIENCE) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        polled = [consumer.poll(PATIENCE) for _ in range(COUNT)]
        found = [message and message.value() for message in polled]
        consumer.close()
        assert found == values()
