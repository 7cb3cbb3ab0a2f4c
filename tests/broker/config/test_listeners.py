"""Listeners in server.properties."""

from __future__ import annotations

import pytest

from krammar.broker.config import (
    BrokerConfig,
    Listener,
)
from tests.broker.config.support import refusal


def listeners(text: str) -> list[Listener]:
    return BrokerConfig.from_properties(text).listeners


def test_named_listeners_with_their_protocols() -> None:
    found = listeners(
        "listeners=internal://127.0.0.1:9092, EXTERNAL://[::1]:0\n"
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,external:sasl_ssl\n"
        "advertised.listeners=EXTERNAL://kafka.example:19092\n"
        "inter.broker.listener.name=INTERNAL"
    )
    assert found == [
        Listener("INTERNAL", "PLAINTEXT", "127.0.0.1", 9092, "", 0),
        Listener("EXTERNAL", "SASL_SSL", "::1", 0, "kafka.example", 19092),
    ]
    assert [(listener.tls, listener.sasl) for listener in found] == [(False, False), (True, True)]


def test_same_port_for_both_families_of_addresses() -> None:
    found = listeners("listeners=PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092")
    assert [listener.host for listener in found] == ["127.0.0.1", "::1"]
    assert len(listeners("listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0")) == 2


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_all_interfaces_without_an_address_for_clients(host: str) -> None:
    config = BrokerConfig.from_properties(f"listeners=PLAINTEXT://{host}:9092")
    assert config.listeners[0].advertised_host == ""
    assert len(config.warnings) == 1
    assert "set advertised.listeners" in config.warnings[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listeners=", "must not be empty"),
        ("listeners=localhost:9092", "is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://localhost", "is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://my host:1", "is not of the form NAME://host:port"),
        ("listeners=://localhost:1", "is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://a:99999", "has a port that is not between 0 and 65535"),
        ("listeners=PLAINTEXT://a:1,PLAINTEXT://a:2", "names PLAINTEXT twice"),
        ("listeners=PLAINTEXT://a:1,plaintext://a:2", "names PLAINTEXT twice"),
        ("listeners=PLAINTEXT://:1,SSL://:1", "has port 1 twice"),
        ("listeners=PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1", "has port 1 twice"),
        ("listeners=PLAINTEXT://[::1]:1,SSL://[::2]:1", "has port 1 twice"),
        ("listeners=PLAINTEXT://localhost:1,SSL://[::1]:1", "has port 1 twice"),
        ("listeners=A://:1", "has A, whose security protocol is unknown"),
        ("listener.security.protocol.map=A:B", "has none of the protocols PLAINTEXT, SSL"),
        ("listener.security.protocol.map=A", "is not of the form NAME:PROTOCOL"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "is not an address that a client can"),
        ("advertised.listeners=PLAINTEXT://[::]:1", "is not an address that a client can"),
        ("advertised.listeners=SSL://a:1", "is not one of the listeners PLAINTEXT"),
        ("inter.broker.listener.name=B", "'B' is not one of the listeners PLAINTEXT"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=SSL",
            "cannot be combined with security.inter.broker.protocol",
        ),
        (
            "controller.listener.names=C\nlisteners=C://:1\nlistener.security.protocol.map=C:SSL",
            "has only controller listeners",
        ),
    ],
)
def test_listeners_that_cannot_be(text: str, reason: str) -> None:
    message = refusal(text)
    assert reason in message
    assert "of the properties)" in message
