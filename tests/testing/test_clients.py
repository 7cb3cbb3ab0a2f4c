"""Ready-made settings: four clients log in and produce, with every login and with TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from krammar.client import Client
from krammar.client.errors import ClientError
from krammar.testing import ClientSettings, KafkaBroker
from krammar.util import extras
from tests.support.waiting import PATIENCE


def produce_with_all(clients: ClientSettings) -> None:
    confluent = Producer(clients.confluent_kafka)
    confluent.produce("orders", b"confluent-kafka")
    assert confluent.flush(PATIENCE) == 0

    python = KafkaProducer(**clients.kafka_python)
    python.send("orders", b"kafka-python").get(PATIENCE)
    python.close()

    async def send() -> None:
        async with AIOKafkaProducer(**clients.aiokafka) as producer:
            await producer.send_and_wait("orders", b"aiokafka")

    asyncio.run(send())
    with Client(**clients.krammar) as client, client.producer() as own:
        own.send("orders", b"krammar")
        own.flush()


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"sasl": "plain", "users": {"alice": 'a "quoted" \\ secret'}},
        {"sasl": "scram-sha-256", "tls": True},
        {"sasl": "scram"},
        {"tls": True, "ssl_client_auth": "required"},
    ],
    ids=["plain text", "PLAIN", "SCRAM and TLS", "SCRAM", "client certificates"],
)
def test_clients_log_in(keywords: dict[str, Any]) -> None:
    with KafkaBroker.start(topics=["orders"], **keywords) as broker:
        produce_with_all(broker.clients)
        wanted = [b"confluent-kafka", b"kafka-python", b"aiokafka", b"krammar"]
        assert [record.value for record in broker.records("orders")] == wanted


def test_users() -> None:
    with KafkaBroker.start(sasl="scram", users=["bob", "carol"], topics=["orders"]) as broker:
        assert broker.clients.user == "bob"
        carol = broker.clients_as("carol")
        assert (carol.user, carol.password) == ("carol", broker.users["carol"])
        assert broker.users["carol"] not in repr(carol)
        refused = broker.faults.on("Metadata", principal="User:carol").delay(0)
        with Client(**carol.krammar) as client:
            assert client.partitions("orders")
        refused.expect()
        wrong = {**carol.krammar, "sasl_password": "wrong"}
        with Client(**wrong) as client, pytest.raises(ClientError, match="invalid credentials"):
            client.partitions("orders")
        with pytest.raises(ValueError, match="user 'carl' does not exist; did you mean \"carol\""):
            broker.clients_as("carl")
        with pytest.raises(ValueError, match="user 'zoe' does not exist; the users are bob, carol"):
            broker.clients_as("zoe")
    with KafkaBroker.start() as broker, pytest.raises(ValueError, match="sasl is off"):
        broker.clients_as("bob")


def test_certificates_exist_as_long_as_the_broker() -> None:
    with KafkaBroker.start(tls=True) as broker:
        assert broker.tls is not None
        files = [Path(broker.tls.ca), Path(broker.tls.certificate), Path(broker.tls.key)]
        assert all(file.read_text().startswith("-----BEGIN") for file in files)
    assert not any(file.exists() for file in files)


def test_without_trustme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "testing", ("no_such_module",))
    with pytest.raises(extras.MissingExtra, match=r"pip install 'krammar\[testing\]'"):
        KafkaBroker.start(tls=True)
