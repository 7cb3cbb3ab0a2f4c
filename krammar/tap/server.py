"""The server of the page: HTTP/1.1 on asyncio, with server-sent events, in the tap's event loop.

It answers GET requests that have the token of the page's URL and a host name that leads here. Other web sites know no
token, and a name that they point to this machine (DNS rebinding) is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import secrets
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from krammar.proxy.addresses import Address
from krammar.tap.details import details
from krammar.tap.feed import Feed
from krammar.tap.page import POLICY, page_html
from krammar.tap.proxy import TapError
from krammar.util.sockets import why

MAX_HEAD = 16_384  # bytes of a request line and its headers
MAX_CONNECTIONS = 64
PATIENCE = 10.0  # seconds for a request to arrive

_INTERVAL = 0.2  # seconds between batches of events
_BATCH = 500  # changes per batch, so that no batch delays frames for more than about a millisecond
_HEARTBEAT = 15.0
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class _Refused(Exception):
    """A request that is not answered with content."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class PageServer:
    """Serves the page of a tap.

    Args:
        feed: what the page shows.
        address: where to listen; port 0 means any free port.
        title: what the page shows as its source.
    """

    def __init__(self, feed: Feed, address: Address, title: str) -> None:
        self.token = secrets.token_urlsafe(18)
        self._feed = feed
        self._address = address
        self._title = title
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        host = self._address.host
        if host in ("0.0.0.0", "::", ""):
            host = "127.0.0.1"
        return f"http://{Address(host, self._address.port)}/?token={self.token}"

    async def start(self) -> None:
        """Listen. Raises TapError."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._address.host, self._address.port, limit=MAX_HEAD
            )
        except (OSError, UnicodeError) as error:
            raise TapError(
                f"--ui: cannot listen on {self._address}: {why(error)} (give another port, or none for any free one)"
            ) from error
        port = self._server.sockets[0].getsockname()[1]
        self._address = Address(self._address.host, port)

    async def stop(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the browser has gone, or the tap ends
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, query, after = await self._request(reader)
            if path == "/events":
                await self._events(writer, after)
                return
            if path == "/details":
                body, kind = await self._details(query), _JSON
            elif path == "/":
                config = {"live": True, "source": self._title}
                body, kind = page_html(config).encode(), _HTML
            else:
                raise _Refused(HTTPStatus.NOT_FOUND, "this address does not exist")
            status = HTTPStatus.OK
        except _Refused as refused:
            status, body, kind = refused.status, f"{refused}\n".encode(), _TEXT
        writer.write(_head(status, kind, len(body)) + body)
        await writer.drain()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, dict[str, str], int]:
        """Read and check a request; return its path, its query, and the last event that the page has."""
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large"
            ) from None
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (header.partition(":") for header in rest)
        }
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _Refused(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")
        if not self._leads_here(headers.get("host", "")):
            raise _Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the tap's page is not served under this host name; use the address that the tap has printed",
            )
        if words[0] != "GET":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered")
        try:
            url = urlsplit(words[1])
        except ValueError:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the address is not a URL") from None
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if not hmac.compare_digest(query.get("token", "").encode(), self.token.encode()):
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                "the token is missing or wrong; use the address that the tap has printed",
            )
        last = headers.get("last-event-id") or query.get("after", "0")
        return url.path, query, int(last) if last.isdecimal() and len(last) < 16 else 0

    def _leads_here(self, host: str) -> bool:
        """Whether a Host header cannot be the name of another web site that resolves to this machine."""
        try:
            name = "" if "@" in host else urlsplit(f"//{host}").hostname or ""
            if name in ("localhost", self._address.host.lower()):
                return True
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # An address is not looked up, so DNS cannot point it elsewhere.
        return address.is_loopback or not _is_loopback(self._address.host)

    async def _details(self, query: dict[str, str]) -> bytes:
        number = query.get("row", "")
        frames = self._feed.find(int(number)) if number.isdecimal() and len(number) < 16 else None
        if frames is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "the tap does not store this exchange any more")
        # In a thread: a response with ten thousand partitions takes a second.
        return await asyncio.to_thread(
            lambda: _json_bytes([details(self._feed.package, frame) for frame in frames])
        )

    async def _events(self, writer: asyncio.StreamWriter, cursor: int) -> None:
        writer.write(_head(HTTPStatus.OK, "text/event-stream", None))
        quiet = 0.0
        while True:
            if self._feed.changes > cursor:
                batch, cursor = self._feed.batch(cursor, _BATCH)
                writer.write(b"id: %d\ndata: %s\n\n" % (cursor, _json_bytes(batch)))
                quiet = 0.0
            elif quiet >= _HEARTBEAT:
                writer.write(b": still here\n\n")  # a write finds out whether the page has gone
                quiet = 0.0
            # A page that reads slowly gets fewer and larger batches; nothing waits for it.
            await writer.drain()
            if self._feed.changes - cursor < _BATCH:
                await asyncio.sleep(_INTERVAL)
                quiet += _INTERVAL
            else:
                await asyncio.sleep(_INTERVAL / 10)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _head(status: HTTPStatus, kind: str, length: int | None) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        "Cache-Control: no-store",
        "Connection: close",
        "Cross-Origin-Resource-Policy: same-origin",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        f"Content-Security-Policy: {POLICY}; frame-ancestors 'none'",
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
