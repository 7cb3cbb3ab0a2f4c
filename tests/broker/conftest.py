"""A broker and a raw client for each test that asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from krammar.broker import Broker
from tests.broker.support import RawClient


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client
