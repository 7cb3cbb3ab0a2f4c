"""Brokers and clients for each test that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from krammar.broker import Broker
from krammar.client import Client
from tests.client.proxy import Proxy


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as proxy:
        yield proxy


@contextmanager
def broker_behind(proxy: Proxy, **more: Any) -> Iterator[Broker]:
    """A broker that clients reach through the proxy alone."""
    properties = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    with Broker.start(properties=properties, **more) as broker:
        proxy.target = broker.addresses["PLAINTEXT"]
        yield broker


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[Broker]:
    with broker_behind(proxy) as broker:
        yield broker
