"""Rules for clients of Wafka's listeners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from wafka_wire import ErrorCode, ProduceRequest

from krammar.broker import Broker
from krammar.client import Client
from krammar.client.errors import TransportError
from krammar.client.wafka import WafkaClient, WafkaError
from tests.broker.support import PATIENCE, BrokerProcess

_LISTENERS = "WAFKA://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start(properties={"listeners": _LISTENERS}) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[WafkaClient]:
    """A client that has sent a request before rules are made."""
    with WafkaClient(*broker.addresses["WAFKA"]) as client:
        client.partition_count("lines")
        yield client


def _written(broker: Broker) -> list[bytes | None]:
    with Client(broker.bootstrap_servers) as client:
        return [record.value for _, record in client.records("lines")]


def test_a_topic_is_refused_once(broker: Broker, client: WafkaClient) -> None:
    """Kafka's clients do not meet the rule, and Kafka's rules are not met by Wafka's."""
    rule = broker.wafka_faults.on("Produce", topic="lines")
    rule.answer(ErrorCode.UNKNOWN_SERVER_ERROR).once()
    other = broker.faults.on("Produce").answer("NOT_LEADER_OR_FOLLOWER").once()
    with pytest.raises(WafkaError, match="UNKNOWN_SERVER_ERROR"):
        client.produce("lines", ["refused"], partition=0)
    client.produce("lines", ["one"], partition=0)
    assert (rule.fired, other.matched) == (1, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("lines", b"two")
    assert producer.flush(PATIENCE) == 0
    assert (rule.matched, other.fired) == (2, 1)
    assert _written(broker) == [b"one", b"two"]


@pytest.mark.parametrize(("when", "written"), [("before", []), ("after", [b"one"])])
def test_connections_are_dropped(
    broker: Broker, client: WafkaClient, when: str, written: list[bytes]
) -> None:
    broker.wafka_faults.on("Produce").drop(when)
    with pytest.raises(TransportError):
        client.produce("lines", ["one"], partition=0)
    assert _written(broker) == written


def test_requests_and_the_clock_are_changed(broker: Broker, client: WafkaClient) -> None:
    def shout(request: ProduceRequest, exchange: object) -> None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                partition.records = [text.upper() for text in partition.records]

    broker.wafka_faults.on("Produce").call(shout).advance_clock(3_600_000)
    before = broker.call(broker.timers.now_ms)
    client.produce("lines", ["one"], partition=0)
    assert _written(broker) == [b"ONE"]
    assert broker.call(broker.timers.now_ms) >= before + 3_600_000


def test_requests_without_acknowledgement_are_dropped(broker: Broker, client: WafkaClient) -> None:
    """The next request is handled: the client expects no answer to the first one."""
    broker.wafka_faults.on("Produce", where="acks == 0").answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    client.produce("lines", ["lost"], partition=0, acks=0)
    client.produce("lines", ["one"], partition=0)
    assert _written(broker) == [b"one"]


@pytest.mark.parametrize(("expected", "code"), [(1, 0), (2, 1)])
def test_the_command_applies_a_file(tmp_path: Path, expected: int, code: int) -> None:
    (tmp_path / "faults.toml").write_text(
        f"[[fault]]\nname = 'lost'\napi = 'Produce'\ndrop = 'after'\ntimes = 1\nexpect = {expected}\n"
    )
    arguments = ["--data-dir", tmp_path / "data", "--override", f"listeners={_LISTENERS}"]
    with BrokerProcess([*arguments, "--wafka-faults", tmp_path / "faults.toml"]) as process:
        found = re.search(r"WAFKA listening on \S+:(\d+)", "\n".join(process.lines))
        assert found
        with WafkaClient("127.0.0.1", int(found[1])) as client, pytest.raises(TransportError):
            client.produce("lines", ["one"], partition=0)
        ended, output = process.stop()
    assert ended == code
    assert 'fault "lost": matched 1, fired 1' in output
