"""Kafka Streams with exactly_once_v2, and transactions of franz-go and kafkajs, through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from krammar.client import Client
from krammar.proxy.filters.topics import INTERNAL_TOPICS
from tests.interop import content
from tests.interop.applications.test_kafka_streams import (
    program,
    test_words_are_counted_once_over_a_restart,
)
from tests.interop.applications.test_programs import test_franz_go, test_kafkajs
from tests.interop.proxy.conftest import Through
from tests.support.waiting import PATIENCE

__all__ = [
    "program",
    "test_franz_go",
    "test_kafkajs",
    "test_words_are_counted_once_over_a_restart",
]


class _Groups:
    """The offsets of a group, by its name."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __getitem__(self, group: str) -> SimpleNamespace:
        asked = ConsumerGroupTopicPartitions(group)
        admin = content.admin(self._bootstrap)
        found = admin.list_consumer_group_offsets([asked])[group].result(PATIENCE)
        offsets = {(each.topic, each.partition): each.offset for each in found.topic_partitions}
        return SimpleNamespace(offsets=offsets)


class _Observed:
    """What the tests use of ``KafkaBroker``, asked through the proxy."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap_servers = bootstrap
        self.clients = SimpleNamespace(confluent_kafka={"bootstrap.servers": bootstrap})
        self.groups = _Groups(bootstrap)

    def create_topic(self, name: str, partitions: int) -> None:
        content.create(content.admin(self.bootstrap_servers), name, partitions)

    @property
    def topics(self) -> set[str]:
        with Client(self.bootstrap_servers) as client:
            return set(client.topics()) - INTERNAL_TOPICS

    def records(self, topic: str) -> list[Any]:
        with Client(self.bootstrap_servers) as client:
            return [record for _, record in client.records(topic)]


@pytest.fixture
def kafka_broker(broker: Through) -> Iterator[_Observed]:
    observed = _Observed(broker.bootstrap)
    yield observed
    # The next test has the same topics, and starts at their beginning.
    with Client(broker.bootstrap) as client:
        for name in observed.topics:
            client.admin.delete_topic(name)
