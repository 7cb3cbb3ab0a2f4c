"""Memory of TLS connections: small buffers, few handshakes, and responses that clients do not read."""

from __future__ import annotations

import gc
import socket
import ssl
import weakref
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from krammar.auth.tls_acceptor import BUFFER, TlsAcceptor
from krammar.broker import Broker
from krammar.broker.connection import TLS_PIECE
from krammar.testing.certificates import make_certificates
from krammar.wire.batches import read_batches
from tests.broker.requests import batch, create_topic, fetch_request, produce
from tests.broker.support import RawClient
from tests.broker.test_admission import is_closed
from tests.support.waiting import PATIENCE

MEGABYTE = 1 << 20
# The beginning of a TLS handshake.
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture(params=["asyncio", "uvloop"])
def tls(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Broker, ssl.SSLContext]]:
    if request.param == "uvloop":
        monkeypatch.undo()  # of the fixture for all tests
        pytest.importorskip("uvloop")
    files, properties = make_certificates(tmp_path)
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    with Broker.start(properties=properties | listeners) as broker:
        yield broker, ssl.create_default_context(cafile=files.ca)


def test_buffers_are_small(tls: tuple[Broker, ssl.SSLContext]) -> None:
    assert sslproto.SSLProtocol.max_size <= BUFFER


def test_the_oldest_handshake_makes_room(
    tls: tuple[Broker, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TlsAcceptor, "most_handshakes", 2)
    broker, context = tls
    address = broker.addresses["SSL"]
    slow = [socket.create_connection(address, PATIENCE) for _ in range(3)]
    for client in slow:
        client.sendall(HELLO)
    assert is_closed(slow[0])
    # A client that finishes its handshake is served.
    with RawClient(
        address[1], wrap=lambda plain: context.wrap_socket(plain, server_hostname="localhost")
    ) as client:
        create_topic(client, "t")
    for each in slow:
        each.close()
    while broker.call(lambda: broker.connections.admission.count):
        pass


def test_a_closed_connection_is_freed_without_garbage_collection(
    tls: tuple[Broker, ssl.SSLContext],
) -> None:
    """Thousands of closed connections would stay in memory until the next collection."""
    broker, context = tls
    gc.collect()
    gc.disable()
    try:
        wrap = partial(context.wrap_socket, server_hostname="localhost")
        with RawClient(broker.addresses["SSL"][1], wrap=wrap) as client:
            create_topic(client, "t")
            [connection] = broker.call(
                lambda: [weakref.ref(each) for each in broker.connections.open]
            )
        while broker.call(lambda: broker.connections.open):
            pass
        assert any(broker.call(connection) is None for _ in range(100))
    finally:
        gc.enable()


LARGE_FETCH = fetch_request([("t", 0, 0)], max_bytes=1 << 30, partition_max_bytes=1 << 30)


@contextmanager
def unread_response(tls: tuple[Broker, ssl.SSLContext]) -> Iterator[RawClient]:
    """A client over TLS that has not read a response of 9 MB, for which the broker waits."""
    broker, context = tls
    with RawClient(broker.port) as admin:
        create_topic(admin, "t")
        for _ in range(10):
            assert produce(admin, "t", batch(bytes(900_000))).error_code == 0

    def wrap(plain: socket.socket) -> socket.socket:
        return context.wrap_socket(plain, server_hostname="localhost")

    with RawClient(broker.addresses["SSL"][1], wrap=wrap) as client:
        client.send(LARGE_FETCH, 12)
        while not broker.call(lambda: broker.connections.blocked):
            pass
        yield client


def test_unread_responses_count_completely(tls: tuple[Broker, ssl.SSLContext]) -> None:
    broker, _ = tls
    with unread_response(tls) as client:
        # At most one piece, and the system's buffers, have left for the socket.
        [unread] = broker.call(lambda: [each.unread for each in broker.connections.blocked])
        assert unread > 8 * MEGABYTE - 4 * TLS_PIECE - 6 * MEGABYTE
        records = client.receive().responses[0].partitions[0].records
        assert len(list(read_batches(records))) == 9
        client.send(LARGE_FETCH, 12)
        assert client.receive().responses[0].partitions[0].records == records
    while broker.call(lambda: broker.connections.open):
        pass


def test_an_unread_response_is_sent_before_the_end(tls: tuple[Broker, ssl.SSLContext]) -> None:
    """A request that closes the connection follows the response."""
    broker, _ = tls
    with unread_response(tls) as client:
        broker.call(lambda: [each.close() for each in list(broker.connections.open)])
        assert len(client.receive().responses[0].partitions[0].records) > 7_000_000
