"""The server of the page over HTTP, its feed, and who is refused."""

from __future__ import annotations

import asyncio
import base64
import gc
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kafka_wire
import pytest
from kafka_wire import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

from krammar.proxy.addresses import Address
from krammar.tap.describe import Describer
from krammar.tap.exchanges import Exchanges
from krammar.tap.feed import Feed
from krammar.tap.frame import Frame
from krammar.tap.proxy import TapError
from krammar.tap.server import PageServer
from krammar.util.http_server import HttpServer
from krammar.wire.package import package_of
from tests.cli.test_tap import started, talk
from tests.support.waiting import PATIENCE
from tests.tap.support import broker, inspector, invoke, upstream
from tests.tap.test_exchanges import asking, beat
from tests.tap.test_inspector import request, response

PACKAGE = package_of(kafka_wire)


def feeding(**options: Any) -> tuple[Feed, Exchanges]:
    """Return a feed, and the exchanges that fill it."""
    feed = Feed(PACKAGE, **options)
    return feed, Exchanges(Describer(PACKAGE), feed.ended, feed.begun)


class Served:
    """A page server in a thread."""

    def __init__(self, feed: Feed, host: str = "127.0.0.1") -> None:
        self.page = PageServer(feed, Address(host, 0), "a test")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.call(self.page.start())
        url = urlsplit(self.page.url)
        assert url.port
        self.address = ("127.0.0.1", url.port)
        self.token = parse_qs(url.query)["token"][0]

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def close(self) -> None:
        self.call(self.page.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def get(
        self, path: str, *, host: str | None = None, method: str = "GET"
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        headers = {} if host is None else {"Host": host}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        result = answer.status, answer.read(), dict(answer.getheaders())
        connection.close()
        return result

    def events(self, after: int = 0) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        connection.request("GET", f"/events?token={self.token}&after={after}")
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "text/event-stream"
        try:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()


@contextmanager
def served(feed: Feed, host: str = "127.0.0.1") -> Iterator[Served]:
    """Serve the page of a feed."""
    server = Served(feed, host)
    try:
        yield server
    finally:
        server.close()


def test_the_page_and_its_headers() -> None:
    with served(feeding()[0]) as server:
        status, body, headers = server.get(f"/?token={server.token}")
    assert status == 200
    assert body.startswith(b"<!doctype html><!-- krammar tap -->")
    assert b'{"live": true, "source": "a test"}' in body
    assert headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "http" not in headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=wrong", "/events", "/details?row=1"])
def test_nothing_without_the_token(path: str) -> None:
    with served(feeding()[0]) as server:
        status, body, _ = server.get(path)
    assert status == 403
    assert b"the token is missing or wrong; use the address that the tap has printed" in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("10.0.0.1:{port}", 200),
        ("", 403),
        ("[::1", 403),
        ("[evil]:80", 403),
        ("localhost:{port}", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
    ],
)
def test_names_that_others_could_point_here_are_refused(host: str, status: int) -> None:
    with served(feeding()[0]) as server:
        path = f"/?token={server.token}"
        answer = server.get(path, host=host.format(port=server.address[1]))
    assert answer[0] == status
    if status == 403:
        assert b"use the name localhost or an address" in answer[1]


def test_other_machines_if_told_so() -> None:
    with served(feeding()[0], "0.0.0.0") as server:
        path = f"/?token={server.token}"
        assert server.get(path, host="10.0.0.1:80")[0] == 200
        assert server.get(path, host="evil.example")[0] == 403
        assert server.get("/", host="10.0.0.1:80")[0] == 403


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /?token=T HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"GET /nowhere?token=T HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"403"),
        (b"GET //[?token=T HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"nonsense\r\nHost: localhost\r\n\r\n", b"403"),
        (b"GET /?token=T HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000, b"431"),
        (b"GET /details?row=99&token=T HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET /details?row=-1&token=T HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (
            b"GET /details?row=" + b"9" * 99 + b"&token=T HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"404",
        ),
    ],
)
def test_bad_requests(sent: bytes, status: bytes) -> None:
    with (
        served(feeding()[0]) as server,
        socket.create_connection(server.address, timeout=PATIENCE) as client,
    ):
        client.sendall(sent.replace(b"token=T", b"token=" + server.token.encode()))
        assert client.recv(65536).split()[1] == status


def test_a_client_that_says_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpServer, "timeout_seconds", 0.05)
    with (
        served(feeding()[0]) as server,
        socket.create_connection(server.address, timeout=PATIENCE) as client,
    ):
        client.sendall(b"GET /")
        assert client.recv(100) == b""


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        page = PageServer(Feed(PACKAGE), Address("127.0.0.1", port), "")
        with pytest.raises(
            TapError, match=rf"--ui: cannot listen on 127.0.0.1:{port}: .*another port"
        ):
            asyncio.run(page.start())


def test_rows_arrive_and_change() -> None:
    feed, exchanges = feeding()
    with served(feed) as server:
        asked, told = beat(error=27)
        events = server.events()
        feed.opened(5_000, 1, "a:1", "b:2")
        exchanges.frame(asked)
        first = next(events)
        while not first["rows"]:
            first = next(events)
        (row,) = first["rows"]
        assert row[:7] == [1, 10_000, 1, "Heartbeat", 4, "c", []]
        assert row[8:] == [asked.size, None, None, "waiting", []]
        exchanges.frame(told)
        (row,) = next(events)["rows"]
        assert row[8:] == [asked.size, told.size, 2_000, "error", ["REBALANCE_IN_PROGRESS"]]
        feed.closed(9_000, 1, "by the client")
        assert next(events)["connections"] == [[1, "a:1", "b:2", 5, 9, "by the client"]]
        events.close()
        # A page that was interrupted continues after the last event that it has.
        assert next(server.events(after=3))["connections"][0][4] == 9
        assert len(next(server.events())["rows"]) == 1


def test_details_are_decoded_when_they_are_asked_for() -> None:
    feed, exchanges = feeding()
    for frame in beat(error=27):
        exchanges.frame(frame)
    with served(feed) as server:
        status, body, _ = server.get(f"/details?row=1&token={server.token}")
    assert status == 200
    asked, told = json.loads(body)
    assert base64.b64decode(asked["data"]) == beat()[0].data
    header, message = told["tree"]
    assert header[0] == "ResponseHeader"
    fields = {node[0]: node for node in message[5]}
    assert fields["error_code"][1:5] == ["INT16", 9, 11, "27 REBALANCE_IN_PROGRESS"]
    assert told["error"] == ""


def test_passwords_are_not_stored() -> None:
    seen = inspector()
    frames: list[Frame] = [
        seen.request(request(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"), 2), 0),
        seen.response(response(SaslAuthenticateResponse(auth_bytes=b"proof"), 2), 1),
    ]
    for secrets in (False, True):
        feed, exchanges = feeding(secrets=secrets)
        for frame in frames:
            exchanges.frame(frame)
        found = feed.find(1)
        assert found is not None
        asked, told = (frame.data if frame else b"" for frame in found)
        assert (b"hunter2" in asked, b"proof" in told) == (secrets, secrets)


def test_the_oldest_exchanges_make_room() -> None:
    feed, exchanges = feeding(max_rows=10)
    for number in range(25):
        exchanges.frame(asking("orders", number))
    batch, cursor = feed.batch(0, 1000)
    assert (batch["first"], [row[0] for row in batch["rows"]]) == (16, list(range(16, 26)))
    assert cursor == 25
    assert feed.find(15) is None
    assert feed.find(16) is not None
    # The response of a forgotten request is ignored.
    seen = inspector()
    seen.request(asking("orders", 3).data, 0)
    exchanges.frame(seen.response(response(kafka_wire.MetadataResponse(), 12, 3), 5))
    assert feed.batch(cursor, 10)[0]["rows"] == []


def test_bytes_are_bounded_too() -> None:
    feed, exchanges = feeding(max_bytes=3_000)
    for number in range(50):
        exchanges.frame(asking("x" * 200, number))
    batch, _ = feed.batch(0, 1000)
    stored = [feed.find(row[0]) for row in batch["rows"]]
    assert 8 < len(stored) < 15
    assert sum(len(f.data) for each in stored if each for f in each if f) <= 3_000


def test_the_garbage_collector_does_not_walk_through_what_is_stored() -> None:
    feed, exchanges = feeding()
    for number in range(500):
        for frame in beat(number):
            exchanges.frame(frame)
    del frame
    gc.collect()
    before = len(gc.get_objects())
    for number in range(500, 1_000):
        for frame in beat(number):
            exchanges.frame(frame)
    del frame
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert feed.find(1_000) is not None


def test_batches_are_bounded_and_miss_nothing() -> None:
    feed, exchanges = feeding()
    for number in range(25):
        exchanges.frame(asking("orders", number))
    cursor, seen = 0, []
    while feed.changes > cursor:
        batch, cursor = feed.batch(cursor, 10)
        assert len(batch["rows"]) <= 10
        seen += [row[0] for row in batch["rows"]]
    assert seen == list(range(1, 26))


def test_the_command() -> None:
    with upstream(broker) as one:
        process = started([one.address], "--ui", first="page: ")
        with process as tap:
            url = urlsplit(tap.before[0].split()[1])
            talk(tap.address)
            connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=PATIENCE)
            connection.request("GET", f"/events?{url.query}")
            answer = connection.getresponse()
            rows: dict[int, Any] = {}
            while len(rows) < 2 or any(row[11] == "waiting" for row in rows.values()):
                line = answer.readline()
                if line.startswith(b"data: "):
                    rows |= {row[0]: row for row in json.loads(line[6:])["rows"]}
            code, out, err = tap.end(2)
    assert [row[3] for row in rows.values()] == ["ApiVersions", "Metadata"]
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("4 frames: every frame decoded")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--upstream", "a:1", "--ui", "nonsense"), "'nonsense' is not PORT or HOST:PORT"),
        (
            ("--upstream", "a:1", "--api", "Produc"),
            "has no api 'Produc' (did you mean \"Produce\"?)",
        ),
        (("--upstream", "a:1", "--ui", "0", "--errors"), "the page has filters of its own"),
        (("--upstream", "a:1", "--secrets"), "--secrets needs --ui, --html or --pcap"),
        ((__file__, "--ui", "0"), "use --html OUT to see a capture in a browser"),
        (("--upstream", "a:1", "--html", "x.html"), "--html needs the FILE of a capture"),
        ((__file__, "--pcap", "x", "--errors"), "--pcap cannot be combined with --api"),
    ],
)
def test_misuse(arguments: tuple[str, ...], message: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2
    assert message in " ".join(output.split())
