"""The clients for Python through a proxy: confluent-kafka, kafka-python, aiokafka and krammar's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from krammar.client import Client
from tests.interop import content
from tests.interop.proxy.conftest import Through
from tests.proxy.test_clients import (
    test_aiokafka,
    test_confluent_kafka,
    test_kafka_python,
    test_krammar,
)
from tests.support.waiting import PATIENCE

__all__ = ["test_aiokafka", "test_confluent_kafka", "test_kafka_python", "test_krammar"]


@dataclass(frozen=True)
class _Address:
    """What the tests use of ``Proxy``."""

    bootstrap_servers: str


@pytest.fixture
def proxy(broker: Through) -> Iterator[_Address]:
    admin = content.admin(broker.bootstrap)
    content.create(admin, "orders", 3)
    yield _Address(broker.bootstrap)
    # The next test reads the same topic from its beginning, with the same group.
    with Client(broker.bootstrap) as client:
        client.admin.delete_topic("orders")
    error = admin.delete_consumer_groups(["g"])["g"].exception(PATIENCE)
    assert error is None or "GROUP_ID_NOT_FOUND" in str(error)  # krammar's client has no group
