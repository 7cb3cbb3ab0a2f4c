"""Bugs of Apache Kafka's client in Java."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import ErrorCode

from krammar.testing import KafkaBroker, KafkaCluster
from tests.interop.apache import java
from tests.interop.conftest import java_program
from tests.support.waiting import PATIENCE

_SOURCE = Path(__file__).parent / "Bugs.java"

Step = Callable[[str], str]


@pytest.fixture(scope="module")
def program(kafka_jars: str) -> Path:
    """The folder with the compiled program."""
    return java_program("broker", _SOURCE)


@contextlib.contextmanager
def _running(program: Path, scenario: str, servers: str) -> Iterator[Step]:
    """Run a scenario. ``step`` lets it begin or continue, and returns the line that it prints."""
    command = java("broker", "Bugs", scenario, servers, "orders", level="off", classes=program)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        begun = []

        def step(text: str = "") -> str:
            if begun:
                print(text, file=process.stdin, flush=True)
            begun.append(text)
            return process.stdout.readline().strip()

        try:
            yield step
        finally:
            process.kill()


def test_a_topic_created_again_on_another_node(kafka_cluster: KafkaCluster, program: Path) -> None:
    """KAFKA-13488: a producer kept the epoch of the deleted topic, and never found the new leader."""
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    topic = NewTopic("orders", 1, replica_assignment=[[1, 2]])
    admin.create_topics([topic])["orders"].result()
    kafka_cluster.move_leader("orders", 0, to=2)  # leader epoch 1
    with _running(program, "send", kafka_cluster.bootstrap_servers) as step:
        assert step() == "sent one"
        admin.delete_topics(["orders"])["orders"].result()
        admin.create_topics([topic])["orders"].result()
        assert kafka_cluster.leader("orders", 0) == 1
        assert step() == "sent two"
    assert [record.value for record in kafka_cluster.records("orders")] == [b"two"]


def test_a_coordinator_is_found_again_with_assign(
    kafka_cluster: KafkaCluster, program: Path
) -> None:
    """KAFKA-13563: commitAsync of a consumer with assign() never looked for a new coordinator."""
    kafka_cluster.create_topic("orders", 1)
    with _running(program, "commit", kafka_cluster.bootstrap_servers) as step:
        assert step() == "committed 1"
        admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
        described = admin.describe_consumer_groups(["g"])["g"].result()
        kafka_cluster.stop_node(described.coordinator.id)
        assert step() == "committed 2"
    assert kafka_cluster.groups["g"].offsets == {("orders", 0): 2}


def test_a_fetch_session_is_opened_again(kafka_broker: KafkaBroker, program: Path) -> None:
    """logstash-input-kafka 323: a consumer left its group after INVALID_FETCH_SESSION_EPOCH."""
    kafka_broker.create_topic("orders", 1)
    lost = kafka_broker.faults.on("Fetch", versions="7-", where="session_epoch > 0").once()
    lost.answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    left = kafka_broker.faults.on("LeaveGroup").delay(0)
    producer = Producer(kafka_broker.clients.confluent_kafka)
    with _running(program, "read", kafka_broker.bootstrap_servers) as step:
        for value in ("one", "two", "three"):
            producer.produce("orders", value)
            assert producer.flush(PATIENCE) == 0
            assert step() == f"read {value}"
        lost.expect()
        assert left.fired == 0
