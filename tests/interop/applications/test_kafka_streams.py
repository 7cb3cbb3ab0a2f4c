"""Kafka Streams with exactly_once_v2: a restart without its state, and an interactive query."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krammar.testing import KafkaBroker
from tests.interop.apache import java
from tests.interop.conftest import java_program
from tests.support.waiting import PATIENCE

_SOURCE = Path(__file__).parent / "Words.java"


@pytest.fixture(scope="module")
def program() -> Path:
    """The folder with the compiled program. Skips without Java, Maven, or the jars."""
    return java_program("streams", _SOURCE)


def test_words_are_counted_once_over_a_restart(
    kafka_broker: KafkaBroker, program: Path, tmp_path: Path
) -> None:
    kafka_broker.create_topic("words", 1)
    kafka_broker.create_topic("counts", 1)
    producer = Producer(kafka_broker.clients.confluent_kafka)
    for run in (1, 2):
        for word in ("a", "b", "a"):
            producer.produce("words", b"", key=word)
        assert producer.flush(PATIENCE) == 0
        # Without its files, the second run reads the store from its changelog topic.
        arguments = (kafka_broker.bootstrap_servers, str(tmp_path / str(run)), "a", str(2 * run))
        command = java("streams", "Words", *arguments, level="error", classes=program)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout.strip()) == (0, str(2 * run)), done.stderr[-3000:]
    last = {r.key: int.from_bytes(r.value or b"", "big") for r in kafka_broker.records("counts")}
    assert last == {b"a": 4, b"b": 2}
    assert kafka_broker.groups["words"].offsets[("words", 0)] == 6
    assert "words-store-changelog" in kafka_broker.topics


def test_the_streams_protocol_is_refused(
    kafka_broker: KafkaBroker, program: Path, tmp_path: Path
) -> None:
    """KIP-1071. docs/applications.md shows the message."""
    kafka_broker.create_topic("words", 1)
    arguments = (kafka_broker.bootstrap_servers, str(tmp_path / "state"), "a", "1", "streams")
    command = java("streams", "Words", *arguments, level="error", classes=program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    text = "UnsupportedVersionException: The cluster does not support the STREAMS group protocol"
    assert text in done.stderr
