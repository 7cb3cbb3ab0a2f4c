"""A broker and a raw client for each test that asks for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from krammar.broker import Broker
from tests.broker.support import RawClient


@pytest.fixture(autouse=True)
def _loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers in the test process run on asyncio's loop, and brokers in other processes on uvloop's, so that
    the tests cover both."""
    monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    """The admin client of librdkafka."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})
