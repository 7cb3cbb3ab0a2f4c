"""ShareFetch and ShareAcknowledge: our broker says what Apache Kafka says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.conftest import ours_and_theirs
from tests.interop.processes import Server
from tests.interop.share_cases import CASES, ShareTalk


@pytest.fixture(scope="module")
def brokers(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Ours and Apache Kafka."""
    folder = tmp_path_factory.mktemp("share-alike")
    settings = {
        "group.share.assignment.interval.ms": "0",
        "group.share.assignor.offload.enable": "false",
        "group.share.min.record.lock.duration.ms": "1000",
        "log.cleaner.backoff.ms": "100",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with ours_and_theirs(folder, settings) as servers:
        yield servers


def _heard(server: Server, name: str) -> list[tuple[str, Any]]:
    topic = re.sub(r"\W", "-", name)
    talk = ShareTalk(server.port, topic, partitions=2)
    try:
        CASES[name](talk)
    finally:
        talk.close()
    return talk.heard


@pytest.mark.parametrize("name", CASES)
def test_the_same_answers(brokers: list[Server], name: str) -> None:
    ours, theirs = (_heard(server, name) for server in brokers)
    different = [
        (mine, kafkas) for mine, kafkas in zip(ours, theirs, strict=False) if mine != kafkas
    ]
    assert not different
    assert len(ours) == len(theirs) > 0
