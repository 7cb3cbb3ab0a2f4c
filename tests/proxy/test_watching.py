"""Filters that watch connections, frames that cannot be read, and messages that pass in their own bytes."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

import kafka_wire
import pytest
from kafka_wire import HeartbeatRequest, MetadataRequest, MetadataResponse

from krammar.faults import Faults
from krammar.proxy import Close, Connection, Exchange, Filter, Proxy, on
from krammar.proxy.interface import Relay, Watch
from krammar.proxy.relay import Resources
from tests.proxy.support import Client, address, answering, framed, read_frame
from tests.tap.support import PATIENCE, upstream
from tests.tap.test_inspector import request


class Watching(Filter, Watch):
    """Collects what it sees of the only connection."""

    def __init__(self) -> None:
        self.seen = {True: b"", False: b""}
        self.notes: list[tuple[bool, int, list[str]]] = []
        self.relay: Relay | None = None
        self.connection: Connection | None = None
        self.is_closed = threading.Event()

    def watch_connection(self, connection: Connection, relay: Relay) -> Watch:
        self.relay, self.connection = relay, connection
        return self

    def arrived(self, is_request: bool, data: memoryview) -> None:
        self.seen[is_request] += data

    def noted(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        self.notes.append((is_request, correlation_id, notes))

    def closed(self, connection: Connection | None = None) -> None:  # type: ignore[override]
        self.is_closed.set()


class Noting(Filter):
    @on(MetadataRequest)
    def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
        exchange.notes.append("asked")

    @on(MetadataResponse)
    async def told(self, response: MetadataResponse, exchange: Exchange) -> None:
        exchange.notes.append("told")


@pytest.mark.parametrize("one_turn", [1 << 20, 0])
def test_bytes_and_notes_of_filters(one_turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resources, "loop_bytes", one_turn)
    watching = Watching()
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [watching, Noting()]) as proxy,
        Client(address(proxy)) as client,
    ):
        sent = client.connection.send_request(MetadataRequest(topics=[]), 9)
        sent += client.connection.send_request(HeartbeatRequest(group_id="g"), 4)
        client.socket.sendall(sent)
        client.next()
        client.next()
        client.socket.close()
        assert watching.is_closed.wait(PATIENCE)
    assert watching.seen[True] == sent
    assert watching.notes == [(True, 0, ["asked"]), (False, 0, ["told"])]
    told = watching.seen[False]
    size = 4 + int.from_bytes(told[:4], "big")
    assert (told[4:8], told[size + 4 : size + 8]) == (b"\0\0\0\0", b"\0\0\0\1")
    assert watching.connection is not None
    assert watching.connection.ended == "by the client"


def test_one_who_watches_can_pause_a_connection() -> None:
    class Pausing(Watching):
        paused = threading.Event()

        def arrived(self, is_request: bool, data: memoryview) -> None:
            super().arrived(is_request, data)
            assert self.relay is not None
            if not self.paused.is_set():
                self.loop = asyncio.get_running_loop()
                self.relay.pause(True)
                self.paused.set()

    watching = Pausing()
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [watching]) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 9))
        assert watching.paused.wait(PATIENCE)
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.next()
        client.socket.settimeout(PATIENCE)
        assert watching.relay is not None
        watching.loop.call_soon_threadsafe(watching.relay.pause, False)
        client.next()


@pytest.mark.parametrize(
    ("act", "ended"),
    [
        (lambda proxy, client, server: client.socket.close(), "by the client"),
        (lambda proxy, client, server: server.close(), "by the broker"),
        (lambda proxy, client, server: proxy.close(), "by the proxy"),
        (
            lambda proxy, client, server: client.socket.sendall(
                client.connection.send_request(HeartbeatRequest(), 4)
            ),
            "by the proxy: no heartbeats",
        ),
    ],
)
def test_how_a_connection_ends(act: Callable[[Any, Any, Any], None], ended: str) -> None:
    class Refusing(Filter):
        @on(HeartbeatRequest)
        def refuse(self, request: HeartbeatRequest, exchange: Exchange) -> None:
            raise Close("no heartbeats")

    watching = Watching()
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [watching, Refusing()]) as proxy,
        Client(address(proxy)) as client,
    ):
        client.ask(MetadataRequest(topics=[]), 9)
        act(proxy, client, server)
        assert watching.is_closed.wait(PATIENCE)
        assert watching.connection is not None
        assert watching.connection.ended == ended


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


class Reading(Filter):
    """Reads Metadata."""

    def __init__(self) -> None:
        self.read = 0

    @on(MetadataRequest, MetadataResponse)
    def see(self, message: Any, exchange: Exchange) -> None:
        self.read += 1


@pytest.mark.parametrize("one_turn", [1 << 20, 0])
@pytest.mark.parametrize(
    "sent",
    [
        framed(b""),
        framed(b"\0\3\0"),
        framed(request(MetadataRequest(topics=[]), 12)[:-2]),  # incomplete
        framed(request(MetadataRequest(topics=[]), 12) + bytes(200_000)),  # too large
        b"\xff\xff\xff\xff" + random.Random(1).randbytes(300_000),
        b"\0\0\0\x20" + request(MetadataRequest(topics=[]), 12),  # cut off
    ],
)
def test_frames_that_cannot_be_read_pass(
    sent: bytes, one_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Resources, "loop_bytes", one_turn)
    reading = Reading()
    with (
        upstream(echo) as server,
        Proxy.start(
            str(server.address), [reading], pass_unreadable=True, max_frame=100_000
        ) as proxy,
        Client(address(proxy)) as client,
    ):

        def send() -> None:
            client.socket.sendall(sent)
            client.socket.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert client.read_to_end() == sent
        sender.join(PATIENCE)
    assert reading.read == 0


def test_a_message_that_no_filter_changes_passes_in_its_own_bytes() -> None:
    """The array's length takes two bytes, although one is enough. A filter that changes in place encodes it again."""
    usual = request(MetadataRequest(topics=[]), 9)
    at = usual.index(b"\x01", 12)
    unusual = usual[:at] + b"\x81\0" + usual[at + 1 :]
    got: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        got.append(read_frame(connection)[4:])

    faults = Faults(kafka_wire)
    faults.on("Metadata", topic="other").drop()
    for each, expected in ((faults, unusual), (Reading(), usual)):
        with (
            upstream(serve) as server,
            Proxy.start(str(server.address), [each]) as proxy,
            Client(address(proxy)) as client,
        ):
            client.socket.sendall(framed(unusual))
            assert client.read_to_end() == b""
        assert got.pop() == expected
