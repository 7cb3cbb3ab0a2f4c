"""Clients whose TLS handshake fails are logged, at most once a second."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from krammar.auth.server_tls import Context
from krammar.broker import Broker
from krammar.testing.certificates import TlsFiles, make_certificates
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[Broker, TlsFiles]]:
    """A broker with TLS, and its certificates."""
    files, properties = make_certificates(tmp_path)
    with Broker.start(properties={**properties, "listeners": "SSL://127.0.0.1:0"}) as broker:
        yield broker, files


def fail(broker: Broker) -> None:
    """Begin a handshake that the client breaks off, because it does not trust the certificate."""
    context = ssl.create_default_context()
    with (
        socket.create_connection((broker.host, broker.port), PATIENCE) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    until(lambda: not broker.call(lambda: broker.connections.admission.count))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records]
    return [each for each in found if "handshake" in each]


def test_failures_are_logged_once_a_second(
    tls: tuple[Broker, TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = tls
    seconds = [1000.0]
    context = broker.nodes[broker.config.node_id]._tls["SSL"]
    assert isinstance(context, Context)
    context.failed._clock = lambda: seconds[0]
    with caplog.at_level(logging.WARNING, "krammar.broker"):
        for _ in range(4):
            fail(broker)
        (first,) = lines(caplog)
        assert first.startswith("listener SSL: TLS handshake failed: ")
        seconds[0] += 1
        # A client that does not speak TLS.
        with socket.create_connection((broker.host, broker.port), PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while plain.recv(1000):
                pass
        until(lambda: len(lines(caplog)) == 2)
    assert lines(caplog)[1].endswith("(3 more since the last line)")


def test_clients_that_say_nothing_are_not_logged(
    tls: tuple[Broker, TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """Checks of ports connect and leave."""
    broker, files = tls
    with caplog.at_level(logging.WARNING, "krammar.broker"):
        socket.create_connection((broker.host, broker.port), PATIENCE).close()
        context = ssl.create_default_context(cafile=files.ca)
        with (
            socket.create_connection((broker.host, broker.port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            assert secure.version()
    assert not lines(caplog)
