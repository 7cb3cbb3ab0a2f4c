"""The HTTP listener of one page, and clients that try to use it up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from krammar.util import http_server
from krammar.util.http_server import MAX_CONNECTIONS, MAX_HEAD, HttpPage, HttpServer
from tests.support.waiting import PATIENCE

Address = tuple[str, int]


def serve(test: Callable[[Address], Awaitable[None]], content: str = "content\n") -> None:
    async def page() -> str:
        return content

    async def run() -> None:
        listener = HttpPage("/metrics", "text/plain", page)
        address = await listener.listen("127.0.0.1", 0)
        try:
            await test(address)
        finally:
            await asyncio.wait_for(listener.close(), PATIENCE)

    asyncio.run(run())


async def ask(address: Address, request: str) -> str:
    """Send a request, and return the whole response; empty if the connection was cut."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request.encode())
        return (await asyncio.wait_for(reader.read(), PATIENCE)).decode()
    except ConnectionError:
        return ""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        ("GET /metrics", "200 OK", "content\n"),
        ("GET /metrics?name=x", "200 OK", "content\n"),
        ("HEAD /metrics", "200 OK", ""),
        ("GET /", "404 Not Found", "the only page is /metrics\n"),
        ("POST /metrics", "405 Method Not Allowed", "use GET\n"),
    ],
)
def test_one_page_is_served(request_line: str, status: str, body: str) -> None:
    async def test(address: Address) -> None:
        answer = await ask(address, f"{request_line} HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
        head, _, rest = answer.partition("\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status}\r\n")
        assert "Connection: close" in head
        assert rest == body

    serve(test)


def test_a_head_that_is_too_long_is_refused() -> None:
    async def test(address: Address) -> None:
        answer = await ask(address, "GET /" + "x" * 3 * MAX_HEAD)
        assert answer.startswith("HTTP/1.1 431 ")
        assert (await ask(address, "GET /metrics HTTP/1.0\r\n\r\n")).endswith("content\n")

    serve(test)


def test_silent_clients_keep_nobody_out() -> None:
    async def test(address: Address) -> None:
        silent = [await asyncio.open_connection(*address) for _ in range(3 * MAX_CONNECTIONS)]
        assert (await ask(address, "GET /metrics HTTP/1.0\r\n\r\n")).endswith("content\n")
        # The oldest connections were closed.
        assert await asyncio.wait_for(silent[0][0].read(), PATIENCE) == b""
        for _, writer in silent:
            writer.close()

    serve(test)


def test_connections_of_one_turn_that_are_too_many_are_closed() -> None:
    """The oldest are replaced before they have run at all."""

    async def test(address: Address) -> None:
        loop = asyncio.get_running_loop()
        # The loop accepts all of them in one turn, because nothing awaits in between.
        clients = [socket.create_connection(address, PATIENCE) for _ in range(3 * MAX_CONNECTIONS)]
        for client in clients:
            client.setblocking(False)
        replaced = clients[: 2 * MAX_CONNECTIONS]
        received = [
            await asyncio.wait_for(loop.sock_recv(client, 1), PATIENCE) for client in replaced
        ]
        assert received == [b""] * len(replaced)
        for client in clients:
            client.close()

    serve(test)


def test_slow_clients_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpServer, "timeout_seconds", 0.05)

    async def test(address: Address) -> None:
        assert await ask(address, "GET /metrics HTTP/1.1\r\n") == ""
        # A client that does not read its response is cut off, too.
        reader, writer = await asyncio.open_connection(*address, limit=1)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        while not writer.transport.is_closing():
            try:
                await asyncio.wait_for(reader.read(1), 0.05)
                writer.write(b"more")
                await writer.drain()
            except (TimeoutError, ConnectionError):
                break
        assert (await ask(address, "HEAD /metrics HTTP/1.0\r\n\r\n")).startswith("HTTP/1.1 200")

    serve(test, "x" * (64 << 20))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9404", 200),
        ("127.0.0.1", 200),
        ("[::1]:9404", 200),
        ("192.168.1.5:9404", 200),
        ("attacker.example", 403),
        ("attacker.example:9404", 403),
        ("localhost.attacker.example", 403),
        ("", 403),
        ("[", 403),
    ],
)
def test_other_host_names(host: str, status: int) -> None:
    """A web site whose name leads to this machine cannot read the page."""

    async def test(address: Address) -> None:
        answer = await ask(address, f"GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n")
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert ("content" in answer.partition("\r\n\r\n")[2]) == (status == 200)

    serve(test)


def test_pages_that_other_machines_can_read_have_any_name() -> None:
    async def page() -> str:
        return "content"

    async def run() -> None:
        listener = HttpPage("/metrics", "text/plain", page)
        _, port = await listener.listen("0.0.0.0", 0)
        request = "GET /metrics HTTP/1.1\r\nHost: kafka.example\r\n\r\n"
        assert (await ask(("127.0.0.1", port), request)).endswith("content")
        await listener.close()

    asyncio.run(run())


def test_clients_share_pages() -> None:
    """Sixteen clients that read slowly do not need sixteen pages."""
    built: list[str] = []

    async def page() -> str:
        built.append("x" * (20 << 20))
        return built[-1]

    async def run() -> None:
        listener = HttpPage("/metrics", "text/plain", page)
        address = await listener.listen("127.0.0.1", 0)
        writers = []
        for _ in range(MAX_CONNECTIONS):
            reader, writer = await asyncio.open_connection(*address, limit=1024)
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert await reader.readexactly(8) == b"HTTP/1.1"
            writers.append(writer)
        assert len(built) == http_server.MAX_PAGES
        for writer in writers:
            writer.transport.abort()
        # Nobody reads the old pages any more.
        while len(built) == http_server.MAX_PAGES:
            assert (await ask(address, "GET /metrics HTTP/1.0\r\n\r\n")).endswith("x")
        await listener.close()

    asyncio.run(run())
