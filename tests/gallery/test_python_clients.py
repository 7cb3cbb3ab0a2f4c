"""Bugs of aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CorruptRecordException
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import CommitFailedError
from kafka_wire import ErrorCode

from krammar.testing import KafkaBroker
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def sender(kafka_broker: KafkaBroker) -> Iterator[KafkaProducer]:
    """kafka-python's producer."""
    producer = KafkaProducer(**kafka_broker.clients.kafka_python)
    yield producer
    producer.close()


def _consumer(broker: KafkaBroker) -> KafkaConsumer:
    return KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=10_000,
    )


def _connections(broker: KafkaBroker, api: str) -> list[int]:
    """The connections on which requests of an API came."""
    return [event.connection for event in broker.faults.history if event.api == api]


@pytest.mark.kafka_broker(sasl="plain", connections_max_reauth_ms=60_000)
def test_a_session_ends_with_its_connection(kafka_broker: KafkaBroker) -> None:
    """aiokafka PR 1105, open: the login is not renewed (KIP-368), so the broker closes the connection."""
    kafka_broker.faults.on("Produce", "SaslAuthenticate", name="seen").delay(0)
    late = kafka_broker.faults.on("Produce", name="late").advance_clock(60_001).once()

    async def send() -> None:
        async with AIOKafkaProducer(**kafka_broker.clients.aiokafka) as producer:
            await producer.send_and_wait("orders", b"one")
            await producer.send_and_wait("orders", b"two")

    asyncio.run(send())
    late.expect()
    first, *_, last = _connections(kafka_broker, "Produce")
    # Open: aiokafka 0.14.0 logs in on a new connection. No record is lost, but each session costs one.
    assert first != last
    logins = _connections(kafka_broker, "SaslAuthenticate")
    assert len(logins) == len(set(logins))


@pytest.mark.kafka_broker(sasl="plain", connections_max_reauth_ms=1500)
def test_a_session_is_renewed(kafka_broker: KafkaBroker, sender: KafkaProducer) -> None:
    """kafka-python PR 3029: logins are renewed on the same connection (KIP-368)."""
    kafka_broker.faults.on("SaslAuthenticate", "Produce").delay(0)
    sender.send("orders", b"one").get(PATIENCE)
    [first] = _connections(kafka_broker, "Produce")
    until(
        lambda: _connections(kafka_broker, "SaslAuthenticate").count(first) >= 2,
        after=lambda: time.sleep(0.01),
    )
    sender.send("orders", b"two").get(PATIENCE)
    assert _connections(kafka_broker, "Produce") == [first, first]


def test_a_corrupt_batch_stops_a_consumer(kafka_broker: KafkaBroker, sender: KafkaProducer) -> None:
    """aiokafka 321, open: a corrupt batch is raised at each call, until the program seeks past it."""
    kafka_broker.create_topic("orders", 1)
    sender.send("orders", b"one").get(PATIENCE)
    fetch = kafka_broker.faults.on("Fetch", where="topics[*].partitions[*].fetch_offset == 0")
    fetch.corrupt("crc")

    async def read() -> bytes | None:
        servers = kafka_broker.bootstrap_servers
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            for _ in range(3):
                with pytest.raises(CorruptRecordException):
                    await consumer.getone()
            consumer.seek(TopicPartition("orders", 0), 1)
            sender.send("orders", b"two").get(PATIENCE)
            record = await consumer.getone()
            value: bytes | None = record.value
            return value

    assert asyncio.run(asyncio.wait_for(read(), PATIENCE)) == b"two"


def test_a_fetch_session_is_opened_again(kafka_broker: KafkaBroker, sender: KafkaProducer) -> None:
    """logstash-input-kafka 323: a consumer left its group after INVALID_FETCH_SESSION_EPOCH."""
    kafka_broker.create_topic("orders", 1)
    lost = kafka_broker.faults.on("Fetch", versions="7-", where="session_epoch > 0").once()
    lost.answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    left = kafka_broker.faults.on("LeaveGroup").delay(0)
    consumer = _consumer(kafka_broker)
    for value in (b"one", b"two", b"three"):
        sender.send("orders", value).get(PATIENCE)
        assert next(consumer).value == value
    lost.expect()
    assert left.fired == 0
    consumer.close()


def test_a_commit_during_a_rebalance_keeps_the_generation(
    kafka_broker: KafkaBroker, sender: KafkaProducer
) -> None:
    """kafka-python PR 2614: REBALANCE_IN_PROGRESS for a commit made the member forget its generation."""
    kafka_broker.create_topic("orders", 1)
    consumer = _consumer(kafka_broker)
    sender.send("orders", b"one").get(PATIENCE)
    assert next(consumer).value == b"one"
    kafka_broker.faults.on("OffsetCommit").answer(ErrorCode.REBALANCE_IN_PROGRESS).once()
    (member,) = kafka_broker.groups["g"].members
    with pytest.raises(CommitFailedError):
        consumer.commit()
    consumer.commit()
    group = kafka_broker.groups["g"]
    assert [each.member_id for each in group.members] == [member.member_id]
    assert group.offsets == {("orders", 0): 1}
    consumer.close()
