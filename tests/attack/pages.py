"""Attacks on the pages: metrics of a broker, and the tap's page. Their protocol is HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from kafka_wire import OffsetCommitRequest, OffsetFetchRequest

from tests.attack.kafka import PER_CONNECTION, _commit
from tests.attack.measure import MEGABYTE, Attack
from tests.attack.other import read_frame
from tests.attack.servers import Server
from tests.broker.attacks import frame
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

PAGES = frozenset({"metrics", "tap-page"})
ATTACKS: list[tuple[frozenset[str], Attack]] = []


def attack(
    name: str, kinds: frozenset[str] = PAGES, memory: int = 256 * MEGABYTE
) -> Callable[[Callable[[Server], int]], Callable[[Server], int]]:
    """Add an attack to the list. ``kinds`` are the servers that it is for."""

    def add(run: Callable[[Server], int]) -> Callable[[Server], int]:
        ATTACKS.append((kinds, Attack(name, run, memory)))
        return run

    return add


def path(server: Server) -> str:
    """The path of the page."""
    return "/metrics" if server.kind == "metrics" else f"/?token={server.token}"


def request(server: Server, where: str = "", more: str = "") -> bytes:
    """A request for the page, or for another path."""
    return f"GET {where or path(server)} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


def _send(server: Server, data: bytes) -> int:
    """Send a request and read the response to its end. Returns the size of the request in bytes."""
    with suppress(OSError), server.stranger() as client:
        client.settimeout(PATIENCE)
        with suppress(OSError):  # refused before it was complete
            client.sendall(data)
        while client.recv(1 << 20):
            pass
    return len(data)


def _crowd(server: Server, number: int, data: bytes, *, read: bool = False) -> int:
    """Send the same on many connections, which stay open for a moment."""
    with ExitStack() as stack:
        clients = []
        for _ in range(number):
            with suppress(OSError):
                client = stack.enter_context(server.stranger())
                if not read:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                clients.append(client)
                if data:
                    client.sendall(data)
        time.sleep(0.5)  # for the peak: nothing else happens
        for client in clients if read else ():
            with suppress(OSError):
                while client.recv(1 << 20):
                    pass
        return len(data) * len(clients)


@attack("500 requests")
def many(server: Server) -> int:
    return sum(_send(server, request(server)) for _ in range(500))


@attack("200 requests with as many headers as fit")
def headers(server: Server) -> int:
    size = 1900 if server.kind == "metrics" else 3900
    return sum(_send(server, request(server, more="a:\r\n" * size)) for _ in range(200))


@attack("a line of 20 MB")
def line(server: Server) -> int:
    return _send(server, b"GET /" + b"x" * 20 * MEGABYTE)


@attack("a header of 20 MB")
def header(server: Server) -> int:
    return _send(server, request(server, more="a: " + "x" * 20 * MEGABYTE + "\r\n"))


@attack("200 addresses with 4,000 parameters")
def parameters(server: Server) -> int:
    where = path(server).partition("?")[0] + "?" + "a=&" * 2000
    return sum(_send(server, request(server, where)) for _ in range(200))


@attack("200 requests that are no HTTP")
def garbage(server: Server) -> int:
    return sum(_send(server, b"\xff" * 4000 + b"\r\n\r\n") for _ in range(200))


@attack("1,000 connections that send nothing", PAGES, 1000 * PER_CONNECTION)
def silent(server: Server) -> int:
    return _crowd(server, 1000, b"")


@attack("1,000 connections with half of a request", PAGES, 1000 * PER_CONNECTION)
def slow(server: Server) -> int:
    return _crowd(server, 1000, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 1000)


@attack("200 connections that do not read the page")
def unread(server: Server) -> int:
    return _crowd(server, 200, request(server))


@attack("64 connections that ask for the page at once")
def at_once(server: Server) -> int:
    return _crowd(server, 64, request(server), read=True)


def _offsets(port: int) -> None:
    """Commit 30,000 offsets, if they do not exist."""
    with RawClient(port) as client:
        group = OffsetFetchRequest.Group(group_id="scraped-29", topics=None)
        if client.call(OffsetFetchRequest(groups=[group]), 9).groups[0].topics:
            return
        for number in range(30):
            client.call(_commit(f"scraped-{number}", "wide", range(1000)), 9)


@attack("a scrape of 30,000 offsets", frozenset({"metrics"}))
def scrape(server: Server) -> int:
    _offsets(server.admin)
    return _send(server, request(server))


@attack("16 scrapes of 30,000 offsets that are read slowly", frozenset({"metrics"}))
def scrapes(server: Server) -> int:
    _offsets(server.admin)
    return _crowd(server, 16, request(server))


# The tap's page shows what clients of the tap send.


def _through(server: Server, *frames: bytes) -> int:
    """Send frames through the tap, and read the responses."""
    with socket.create_connection(("127.0.0.1", server.other), PATIENCE) as client:
        for data in frames:
            client.sendall(data)
            read_frame(client)
    return sum(map(len, frames))


TAP_PAGE = frozenset({"tap-page"})


@attack("50 requests with 20,000 partitions through the tap, and the page's events", TAP_PAGE)
def events(server: Server) -> int:
    partitions = [OffsetCommitRequest.Partition(partition_index=n) for n in range(20_000)]
    topic = OffsetCommitRequest.Topic(name="large", partitions=partitions)
    data = frame(OffsetCommitRequest(group_id="page", topics=[topic]), 9)
    sent = _through(server, *[data] * 50)
    return sent + _crowd(server, 20, request(server, f"/events?token={server.token}"))


@attack("20 times the details of an exchange with 20,000 partitions", TAP_PAGE)
def details(server: Server) -> int:
    partitions = [OffsetCommitRequest.Partition(partition_index=n) for n in range(20_000)]
    topic = OffsetCommitRequest.Topic(name="large", partitions=partitions)
    sent = _through(server, frame(OffsetCommitRequest(group_id="page", topics=[topic]), 9))
    for row in range(20):
        sent += _send(server, request(server, f"/details?row={row}&token={server.token}"))
    return sent


@attack("20,000 small requests through the tap, and 30 pages that follow", TAP_PAGE)
def follow(server: Server) -> int:
    from kafka_wire import ApiVersionsRequest

    _through(server, *[frame(ApiVersionsRequest(), 0)] * 5000)
    return _crowd(server, 30, request(server, f"/events?token={server.token}"))


@attack("a client id of 32 kB of control characters, 100 times", TAP_PAGE)
def control_characters(server: Server) -> int:
    from kafka_wire import FindCoordinatorRequest

    keys = ["\x1b" * 30_000] * 100
    data = frame(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4)
    return _through(server, data) + _send(
        server, request(server, f"/details?row=1&token={server.token}")
    )
