"""Group coordination, offsets and their errors: our broker says what Apache Kafka says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.broker.support import RawClient
from tests.interop.conftest import ours_and_theirs
from tests.interop.consumer_group_cases import CONSUMER_CASES
from tests.interop.group_cases import CASES, Talk, make_topic
from tests.interop.processes import Server


@pytest.fixture(scope="module")
def brokers(
    kafka_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[tuple[Server, UUID]]]:
    """Ours and Apache Kafka, each with the topic ``t``."""
    folder = tmp_path_factory.mktemp("alike")
    settings = {
        # Kafka would compute assignments in the background, some time later.
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.assignor.offload.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "1",
    }
    with ours_and_theirs(folder, settings) as servers:
        found = []
        for server in servers:
            with RawClient(server.port) as client:
                found.append((server, make_topic(client, "t", 2)))
        yield found


@pytest.mark.parametrize("name", [*CASES, *CONSUMER_CASES])
def test_the_same_answers(brokers: list[tuple[Server, UUID]], name: str) -> None:
    heard: list[list[tuple[str, Any]]] = []
    for server, topic_id in brokers:
        talk = Talk(server.port)
        try:
            (CASES | CONSUMER_CASES)[name](talk, topic_id)
        finally:
            talk.close()
        heard.append(talk.heard)
    ours, theirs = heard
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert not different
