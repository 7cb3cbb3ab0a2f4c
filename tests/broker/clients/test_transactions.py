"""Transactions by unmodified clients: confluent-kafka (librdkafka), aiokafka, kafka-python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaException, TopicPartition

from krammar.broker import Broker
from tests.broker.requests import create_topic
from tests.broker.support import RawClient
from tests.broker.transactions.support import Clock, Producer, committed_offset
from tests.support.waiting import PATIENCE


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(clock: Clock) -> Iterator[Broker]:
    with Broker.start(clock=clock) as broker:
        yield broker


@pytest.fixture(autouse=True)
def topics(client: RawClient) -> None:
    create_topic(client, "in")
    create_topic(client, "out", 2)


def lost(error: confluent_kafka.KafkaError) -> None:
    """Errors that librdkafka only reports; its calls raise the relevant ones."""


ConfluentProducer = Callable[..., confluent_kafka.Producer]


@pytest.fixture
def producer(broker: Broker) -> Iterator[ConfluentProducer]:
    made: list[confluent_kafka.Producer] = []

    def make(transactional_id: str = "id", **settings: Any) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": transactional_id,
                "error_cb": lost,
                "log_level": 0,
                **settings,
            }
        )
        made.append(producer)
        producer.init_transactions(PATIENCE)
        return producer

    yield make
    for producer in made:
        producer.purge()


def consume(broker: Broker, topic: str, partition: int, isolation: str) -> list[bytes]:
    """All records of a partition, as librdkafka shows them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(PATIENCE)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()


def test_confluent_commits_and_aborts(broker: Broker, producer: ConfluentProducer) -> None:
    transactions = producer()
    for number in range(6):
        transactions.begin_transaction()
        for partition in range(2):
            for part in b"ab":
                transactions.produce("out", b"%d%c" % (number, part), partition=partition)
        if number % 3 == 1:
            transactions.flush(PATIENCE)
            transactions.abort_transaction(PATIENCE)
        else:
            transactions.commit_transaction(PATIENCE)
    kept = [b"%d%c" % (number, part) for number in (0, 2, 3, 5) for part in b"ab"]
    for partition in range(2):
        assert consume(broker, "out", partition, "read_committed") == kept
        assert len(consume(broker, "out", partition, "read_uncommitted")) == 12


def test_confluent_moves_records_with_their_offsets(
    broker: Broker, client: RawClient, producer: ConfluentProducer
) -> None:
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        plain.produce("in", b"%d" % number)
    assert plain.flush(PATIENCE) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "movers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    transactions = producer()
    try:
        consumer.subscribe(["in"])
        for number in range(20):
            message = consumer.poll(PATIENCE)
            assert message is not None and message.error() is None
            transactions.begin_transaction()
            transactions.produce("out", message.value(), partition=0)
            transactions.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                PATIENCE,
            )
            if number % 4 == 3:
                transactions.abort_transaction(PATIENCE)
                # Like an application after an abort: seek to the committed offsets.
                [committed] = consumer.committed(consumer.assignment(), PATIENCE)
                assert committed.offset == number
                consumer.seek(TopicPartition("in", 0, number + 1))
            else:
                transactions.commit_transaction(PATIENCE)
                assert committed_offset(client, "movers", "in") == number + 1
    finally:
        consumer.close()
    kept = [b"%d" % number for number in range(20) if number % 4 != 3]
    assert consume(broker, "out", 0, "read_committed") == kept
    assert committed_offset(client, "movers", "in") == 19


def test_confluent_fences_the_first_producer(broker: Broker, producer: ConfluentProducer) -> None:
    first = producer()
    first.begin_transaction()
    first.produce("out", b"first", partition=0)
    first.flush(PATIENCE)
    second = producer()
    second.begin_transaction()
    second.produce("out", b"second", partition=0)
    second.commit_transaction(PATIENCE)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE)
    error = caught.value.args[0]
    assert error.fatal()
    assert error.code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    assert consume(broker, "out", 0, "read_committed") == [b"second"]


def test_confluent_learns_that_its_transaction_has_timed_out(
    broker: Broker, clock: Clock, client: RawClient, producer: ConfluentProducer
) -> None:
    transactions = producer(**{"transaction.timeout.ms": 30000})
    transactions.begin_transaction()
    transactions.produce("out", b"late", partition=0)
    transactions.flush(PATIENCE)
    clock.ahead_ms += 30001
    broker.call(broker.transactions.abort_timed_out)
    assert Producer(client).state == "CompleteAbort"
    with pytest.raises(KafkaException):
        transactions.commit_transaction(PATIENCE)
    fresh = producer()
    fresh.begin_transaction()
    fresh.produce("out", b"again", partition=0)
    fresh.commit_transaction(PATIENCE)
    assert consume(broker, "out", 0, "read_committed") == [b"again"]


def test_aiokafka_transactions(broker: Broker, client: RawClient) -> None:
    async def run() -> None:
        servers = broker.bootstrap_servers
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="id")
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait("out", b"one", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"two", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("out", b"three", partition=0)
                offsets = {aiokafka.TopicPartition("in", 0): 7}
                await producer.send_offsets_to_transaction(offsets, "movers")
        finally:
            await producer.stop()
        values: dict[str, list[bytes]] = {}
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=servers, isolation_level=isolation, auto_offset_reset="earliest"
            )
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition("out", 0)
                consumer.assign([partition])
                found = values[isolation] = []
                while found[-1:] != [b"three"]:
                    found.append((await consumer.getone()).value)
            finally:
                await consumer.stop()
        assert values["read_committed"] == [b"one", b"three"]
        assert values["read_uncommitted"] == [b"one", b"two", b"three"]

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert committed_offset(client, "movers", "in") == 7


def test_aiokafka_is_fenced(broker: Broker) -> None:
    async def run() -> None:
        servers = broker.bootstrap_servers
        first = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="id")
        second = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="id")
        await first.start()
        try:
            await first.begin_transaction()
            await first.send_and_wait("out", b"first", partition=0)
            await second.start()
            try:
                async with second.transaction():
                    await second.send_and_wait("out", b"second", partition=0)
                with pytest.raises(aiokafka.errors.ProducerFenced):
                    await first.commit_transaction()
            finally:
                await second.stop()
        finally:
            await first.stop()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert consume(broker, "out", 0, "read_committed") == [b"second"]


def test_kafka_python_transactions(broker: Broker, client: RawClient) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="id"
    )
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for partition in range(2):
                producer.send("out", b"%d" % number, partition=partition)
            if number == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                offsets = {
                    kafka.TopicPartition("in", 0): kafka.OffsetAndMetadata(number + 1, "", -1)
                }
                producer.send_offsets_to_transaction(offsets, "movers")
                producer.commit_transaction()
    finally:
        producer.close()
    assert committed_offset(client, "movers", "in") == 4
    assert consume(broker, "out", 1, "read_committed") == [b"0", b"2", b"3"]
    assert consume(broker, "out", 1, "read_uncommitted") == [b"0", b"1", b"2", b"3"]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        consumer.assign([kafka.TopicPartition("out", 0)])
        assert [next(consumer).value for _ in range(3)] == [b"0", b"2", b"3"]
    finally:
        consumer.close()


def test_kafka_python_is_fenced(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    first = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="id")
    second = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="id")
    try:
        first.init_transactions()
        first.begin_transaction()
        first.send("out", b"first", partition=0).get(PATIENCE)
        second.init_transactions()
        second.begin_transaction()
        second.send("out", b"second", partition=0)
        second.commit_transaction()
        with pytest.raises(kafka.errors.KafkaError):
            first.commit_transaction()
    finally:
        first.close(timeout=5)
        second.close(timeout=5)
    assert consume(broker, "out", 0, "read_committed") == [b"second"]
