"""A program in Go and one in Node that read, change and write records in transactions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from krammar.testing import KafkaBroker
from tests.interop.go import go_program
from tests.interop.processes import Unavailable
from tests.support.waiting import PATIENCE

_HERE = Path(__file__).parent


def _exchange(broker: KafkaBroker, command: list[str], *arguments: str, **environment: str) -> None:
    """Run a program twice, with three records each time."""
    broker.create_topic("in", 1)
    broker.create_topic("out", 1)
    producer = Producer(broker.clients.confluent_kafka)
    for _ in range(2):
        for value in (b"a", b"b", b"c"):
            producer.produce("in", value)
        assert producer.flush(PATIENCE) == 0
        done = subprocess.run(
            [*command, broker.bootstrap_servers, *arguments, "3"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    assert [record.value for record in broker.records("out")] == [b"A", b"B", b"C"] * 2
    assert broker.groups["g"].offsets == {("in", 0): 6}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_franz_go(kafka_broker: KafkaBroker, protocol: str) -> None:
    try:
        program = go_program(_HERE / "franz")
    except Unavailable as missing:
        pytest.skip(str(missing))
    _exchange(kafka_broker, [str(program)], protocol)
    admin = AdminClient(kafka_broker.clients.confluent_kafka)
    groups = admin.list_consumer_groups().result().valid
    assert {group.group_id: group.type.name for group in groups}["g"] == protocol.upper()


def test_kafkajs(kafka_broker: KafkaBroker, kafkajs_modules: Path) -> None:
    command = ["node", str(_HERE / "kafkajs" / "main.mjs")]
    _exchange(kafka_broker, command, KRAMMAR_NODE_MODULES=str(kafkajs_modules))
