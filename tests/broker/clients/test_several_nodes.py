"""Clients of several nodes lose and duplicate nothing while leaders move and nodes stop and start."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from krammar.broker import Cluster
from krammar.client import Client, Producer, Settings
from tests.support.waiting import PATIENCE

PARTITIONS = 3
ROUND = 100


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # Small responses, so that the storm meets consumers.
    with Cluster.start(nodes=3, properties={"fetch.max.bytes": "1024"}) as cluster:
        replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        cluster.call(lambda: cluster.topics.create("orders", PARTITIONS, replicas=replicas))
        yield cluster


def move_all(cluster: Cluster) -> None:
    for index in range(PARTITIONS):
        leader = cluster.leader("orders", index)
        running = sorted(cluster.cluster.running - {leader})
        cluster.move_leader("orders", index, to=running[index % len(running)])


def cut_off(cluster: Cluster) -> None:
    cluster.heal()
    cluster.partition_from("nodes", cluster.leader("orders", 0))


# What happens while a client works: each partition loses its leader several times.
STORM: tuple[Callable[[Cluster], None], ...] = (
    move_all,
    lambda cluster: cluster.stop_node(2),
    move_all,
    lambda cluster: cluster.start_node(2),
    lambda cluster: cluster.stop_node(1),
    lambda cluster: cluster.start_node(1),
    cut_off,
    lambda cluster: cluster.heal(),
    lambda cluster: cluster.stop_node(3),
    lambda cluster: cluster.start_node(3),
)
TOTAL = ROUND * len(STORM)


def produce(
    cluster: Cluster, send: Callable[[int], Any], wait: Callable[[Any], object]
) -> list[Any]:
    """Send all numbers. After each round's first records arrived, a part of the storm happens."""
    sent = []
    for step, happens in enumerate(STORM):
        sent += [send(number) for number in range(step * ROUND, (step + 1) * ROUND)]
        for first in sent[-ROUND : PARTITIONS - ROUND]:
            wait(first)
        happens(cluster)
    return sent


def check(cluster: Cluster) -> None:
    """Each number is stored once, in order within its partition, under leader epochs that increase."""
    found: list[int] = []

    def read() -> None:
        for index in range(PARTITIONS):
            log = cluster.logs.get("orders", index)
            assert log is not None
            batches = list(log.reader.batches())
            epochs = [batch.partition_leader_epoch for batch in batches]
            assert epochs == sorted(epochs)
            assert len(set(epochs)) > 3, "the storm passed before the records came"
            numbers = [int(record.value or b"") for batch in batches for record in batch]
            assert numbers == sorted(numbers)
            found.extend(numbers)

    cluster.call(read)
    assert [each for each, times in Counter(found).items() if times > 1] == []
    assert sorted(found) == list(range(TOTAL))


def fill(cluster: Cluster) -> None:
    """Store all numbers, without a storm."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 300}
    with Producer(Settings.of(settings)) as producer:
        for number in range(TOTAL):
            producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
        producer.flush()


def test_confluent_kafka_produces(cluster: Cluster) -> None:
    arrived: dict[int, Any] = {}
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "log_level": 0,
        }
    )

    def send(number: int) -> int:
        producer.produce(
            "orders",
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: arrived.update({number: error}),
        )
        return number

    def wait(number: int) -> None:
        until = time.monotonic() + PATIENCE
        while number not in arrived and time.monotonic() < until:
            producer.poll(0.1)

    produce(cluster, send, wait)
    assert producer.flush(PATIENCE) == 0
    assert arrived == dict.fromkeys(range(TOTAL))
    check(cluster)


def test_krammar_produces(cluster: Cluster) -> None:
    settings = Settings.of({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    with Producer(settings) as producer:
        sent = produce(
            cluster,
            lambda number: producer.send("orders", b"%d" % number, partition=number % PARTITIONS),
            lambda delivery: delivery.result(),
        )
        producer.flush()
        for delivery in sent:
            delivery.result()
    check(cluster)


def test_kafka_python_produces(cluster: Cluster) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        enable_idempotence=True,
        retry_backoff_ms=20,
    )
    try:
        sent = produce(
            cluster,
            lambda number: producer.send("orders", b"%d" % number, partition=number % PARTITIONS),
            lambda future: future.get(PATIENCE),
        )
        for future in sent:
            future.get(PATIENCE)
    finally:
        producer.close(PATIENCE)
    check(cluster)


def test_aiokafka_produces(cluster: Cluster) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            enable_idempotence=True,
            retry_backoff_ms=20,
        )
        await producer.start()
        try:
            sent = []
            for step, happens in enumerate(STORM):
                for number in range(step * ROUND, (step + 1) * ROUND):
                    sent.append(
                        await producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
                    )
                await asyncio.wait(sent[-ROUND : PARTITIONS - ROUND], timeout=PATIENCE)
                await asyncio.to_thread(happens, cluster)
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE)
        finally:
            await producer.stop()

    asyncio.run(run())
    check(cluster)


class Storm:
    """The storm, in parts as a consumer gets on."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.left = list(STORM)
        self.found: list[int] = []
        self.until = time.monotonic() + PATIENCE

    def saw(self, *numbers: int) -> bool:
        """Record numbers; return whether the consumer continues."""
        self.found.extend(numbers)
        happened = len(STORM) - len(self.left)
        if self.left and self.found and len(self.found) >= happened * ROUND:
            self.left.pop(0)(self.cluster)
        assert time.monotonic() < self.until, f"{len(self.found)} records, {len(self.left)} left"
        return len(self.found) < TOTAL

    def check(self) -> None:
        assert sorted(self.found) == list(range(TOTAL))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_kafka_consumes_in_a_group(cluster: Cluster, protocol: str) -> None:
    fill(cluster)
    storm = Storm(cluster)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders"])
    try:
        going = True
        while going:
            messages = [each for each in consumer.consume(ROUND // 2, 0.1) if each.error() is None]
            going = storm.saw(*(int(each.value() or b"") for each in messages))
    finally:
        consumer.close()
    storm.check()


def test_kafka_python_consumes_in_a_group(cluster: Cluster) -> None:
    fill(cluster)
    storm = Storm(cluster)
    consumer = kafka.KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=ROUND // 2,
        retry_backoff_ms=20,
        reconnect_backoff_max_ms=100,
    )
    try:
        going = True
        while going:
            # A poll that ends before the response to SyncGroup loses the assignment for good (kafka-python 3.0.12).
            polled = consumer.poll(timeout_ms=10_000)
            going = storm.saw(*(int(each.value) for part in polled.values() for each in part))
    finally:
        consumer.close()
    storm.check()


def test_aiokafka_consumes_in_a_group(cluster: Cluster) -> None:
    fill(cluster)
    storm = Storm(cluster)

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=ROUND // 2,
            retry_backoff_ms=20,
        )
        await consumer.start()
        try:
            going = True
            while going:
                polled = await consumer.getmany(timeout_ms=100)
                numbers = [int(each.value) for part in polled.values() for each in part]
                going = await asyncio.to_thread(storm.saw, *numbers)
        finally:
            # aiokafka raises the error of its own task, if a fetch waits for a retry when it cancels that.
            with contextlib.suppress(asyncio.CancelledError):
                await consumer.stop()

    asyncio.run(run())
    storm.check()


def test_krammar_reads(cluster: Cluster) -> None:
    fill(cluster)
    storm = Storm(cluster)
    with Client(cluster.bootstrap_servers) as client:
        for _, record in client.records("orders"):
            if not storm.saw(int(record.value or b"")):
                break
    storm.check()


def test_transactions_of_confluent_kafka(cluster: Cluster) -> None:
    """Coordinator and leaders change within transactions; each is committed once."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "t",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE)
    for step, happens in enumerate(STORM):
        producer.begin_transaction()
        for number in range(step * ROUND, (step + 1) * ROUND):
            producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
        happens(cluster)
        producer.commit_transaction(PATIENCE)
    found = []
    with Client(cluster.bootstrap_servers, {"isolation.level": "read_committed"}) as client:
        for _, record in client.records("orders"):
            found.append(int(record.value or b""))
            if len(found) == TOTAL:
                break
    assert sorted(found) == list(range(TOTAL))
