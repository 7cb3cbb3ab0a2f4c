"""Limits of connections: refused at once, and logged."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    ErrorCode,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.auth.guesses import Guesses
from krammar.broker import Broker
from krammar.broker.config import BrokerConfig, ConfigError
from krammar.broker.config.definitions import connections_by_ip
from krammar.broker.log.segment import LogSegment
from krammar.testing.certificates import make_certificates
from tests.broker.requests import batch, create_topic, produce
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


def connected(port: int) -> socket.socket:
    """A plain connection to a port."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def is_closed(client: socket.socket) -> bool:
    """Return whether the broker has closed a connection. Waits for it."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def served(client: RawClient) -> bool:
    return bool(client.call(ApiVersionsRequest(), 0).api_keys)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"max.connections": "2"}, "2 connections are open, and max.connections is 2"),
        ({"max.connections.per.ip": "2"}, "2 connections of this address are open, and max.conn"),
        (
            {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:2"},
            "of this address are open, and max.connections.per.ip is 2",
        ),
        (
            {"listener.name.plaintext.max.connections": "2"},
            "2 connections of listener PLAINTEXT are open, and its max.connections is 2",
        ),
    ],
)
def test_more_connections_are_closed(
    properties: dict[str, str], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker.start(properties=properties) as broker:
        with RawClient(broker.port) as first, RawClient(broker.port) as second:
            assert served(first) and served(second)
            with connected(broker.port) as third, connected(broker.port) as fourth:
                assert is_closed(third) and is_closed(fourth)
        while broker.call(lambda: broker.connections.admission.count):
            pass
        with RawClient(broker.port) as again:
            assert served(again)
        assert broker.connections.admission.refused == 2
    # The second refusal is not logged by itself.
    [line] = caplog.messages
    assert line.startswith("a connection from 127.0.0.1 is closed: ") and text in line


def test_overrides_are_checked() -> None:
    assert connections_by_ip(" 127.0.0.1:2, ::1:30,") == {"127.0.0.1": 2, "::1": 30}
    for text in ("127.0.0.1", ":5", "a:b", "a:-1"):
        with pytest.raises(ConfigError, match=r"is not an address and a number, such as"):
            BrokerConfig.defaults(**{"max.connections.per.ip.overrides": text})


def test_files_in_reserve(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with RawClient(broker.port) as client:
        assert served(client)
        broker.connections.admission.open_files = lambda: 8
        with connected(broker.port) as refused:
            assert is_closed(refused)
        assert served(client)
    [line] = caplog.messages
    assert "the process may open 8 files, and the last 1 are for logs; raise the limit" in line


@contextmanager
def tls_broker(tmp_path: Path, **properties: str) -> Iterator[Broker]:
    _, tls = make_certificates(tmp_path)
    listeners = {"listeners": "SSL://127.0.0.1:0"}
    with Broker.start(properties={**listeners, **tls, **properties}) as broker:
        yield broker


def test_silent_clients_of_tls_are_counted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(tls_broker(tmp_path, **{"max.connections": "3"}))
        clients = [stack.enter_context(connected(broker.port)) for _ in range(3)]
        while broker.call(lambda: broker.connections.admission.count) < 3:
            pass
        assert is_closed(stack.enter_context(connected(broker.port)))
        # They have no protocol, and no buffers of TLS.
        assert not broker.call(lambda: broker.connections.open)
        # One that leaves, and one that does not speak TLS, make room.
        clients[0].close()
        clients[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        while broker.call(lambda: broker.connections.admission.count) > 1:
            pass


def test_a_stop_with_silent_clients(tmp_path: Path) -> None:
    with tls_broker(tmp_path) as broker:
        client = connected(broker.port)
        while not broker.call(lambda: broker.connections.admission.count):
            pass
    assert is_closed(client)
    client.close()


def test_storage_errors_are_logged(
    broker: Broker,
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(client, "t")

    def full(*args: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(LogSegment, "append", full)
    for _ in range(3):
        assert produce(client, "t", batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    [line] = [line for line in caplog.messages if "Produce failed" in line]
    assert "t-0" in line and "Too many open files" in line


def test_failed_logins_are_slowed_down() -> None:
    now = 0.0
    guesses = Guesses(lambda: now)
    assert [guesses.failed("a", 0.1) for _ in range(Guesses.FREE)] == [0.1] * Guesses.FREE
    assert [guesses.failed("a", 0.1) for _ in range(9)] == pytest.approx(
        [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    )
    assert guesses.failed("b", 0.1) == 0.1
    # The setting turns the delay off, or makes it longer than the limit.
    assert guesses.failed("a", 0) == 0 and guesses.failed("a", 60) == 60
    now = 61.0
    assert guesses.failed("a", 0.1) == 0.1


def test_old_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guesses, "MOST_HOSTS", 3)
    guesses = Guesses()
    for host in "abcd":
        for _ in range(Guesses.FREE):
            guesses.failed(host, 0.1)
    assert guesses.failed("d", 0.1) == 0.2 and guesses.failed("a", 0.1) == 0.1


@pytest.mark.parametrize("version", [0, 1])
def test_every_login_that_fails_has_a_delay(version: int) -> None:
    """The same with SaslHandshake v0, whose tokens have no response."""
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        ),
        "connection.failed.authentication.delay.ms": "600000",
    }
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        token = b"\0alice\0wrong"
        if version:
            client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        else:
            client.socket.sendall(struct.pack(">i", len(token)) + token)
        guesses: Any = broker.connections.guesses
        while not broker.call(lambda: guesses._hosts):
            pass
        client.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        broker.call(broker.timers.advance, 600_000)
        client.socket.settimeout(PATIENCE)
        received = client.socket.recv(4096)
        assert bool(received) == bool(version)
        assert not received or is_closed(client.socket)
