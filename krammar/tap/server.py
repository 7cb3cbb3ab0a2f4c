"""The server of the page, with server-sent events, in the tap's event loop.

It answers GET requests that have the token of the page's URL and a host name that leads here. Other web sites know no
token, and a name that they point to this machine (DNS rebinding) is refused.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs

from krammar.proxy.addresses import Address
from krammar.tap.details import details
from krammar.tap.feed import Feed
from krammar.tap.page import POLICY, page_html
from krammar.tap.proxy import TapError
from krammar.util.http_server import HttpRequest, HttpResponse, HttpServer, names_loopback
from krammar.util.sockets import why
from krammar.util.turns import in_thread

_INTERVAL = 0.2  # seconds between batches of events
_BATCH = 500  # changes per batch, so that no batch delays frames for more than about a millisecond
_HEARTBEAT = 15.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
}


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
        self._server = HttpServer(self._answer, _refusal, admit=self._admit)
        self.stop = self._server.close

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        host = self._address.host
        if host in ("0.0.0.0", "::", ""):
            host = "127.0.0.1"
        return f"http://{Address(host, self._address.port)}/?token={self.token}"

    async def start(self) -> None:
        """Listen. Raises TapError."""
        host = self._address.host
        try:
            _, port = await self._server.listen(host, self._address.port)
        except (OSError, UnicodeError) as error:
            raise TapError(
                f"--ui: cannot listen on {self._address}: {why(error)} (give another port, or none for any free one)"
            ) from error
        self._address = Address(host, port)

    def _admit(self, request: HttpRequest) -> HttpResponse | None:
        if not names_loopback(request.headers):
            return _refusal(403, "use the name localhost or an address")
        if not compare_digest(_query(request).get("token", "").encode(), self.token.encode()):
            return _refusal(
                403, "the token is missing or wrong; use the address that the tap has printed"
            )
        return None

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        query = _query(request)
        if request.method != "GET":
            return _refusal(405, "only GET is answered")
        if request.path == "/":
            page = page_html({"live": True, "source": self._title})
            return _response("text/html; charset=utf-8", page.encode())
        if request.path == "/details":
            return await self._details(query.get("row", ""))
        if request.path == "/events":
            last = request.headers.get("last-event-id") or query.get("after", "0")
            cursor = int(last) if last.isdecimal() and len(last) < 16 else 0
            response = _response("text/event-stream", b"")
            response.stream = lambda writer: self._events(writer, cursor)
            return response
        return _refusal(404, "this address does not exist")

    async def _details(self, number: str) -> HttpResponse:
        frames = self._feed.find(int(number)) if number.isdecimal() and len(number) < 16 else None
        if frames is None:
            return _refusal(404, "the tap does not store this exchange any more")
        # In a thread: a response with ten thousand partitions takes a second.
        data = await in_thread(
            lambda: _json_bytes([details(self._feed.package, frame) for frame in frames])
        )
        return _response("application/json", data)

    async def _events(self, writer: asyncio.StreamWriter, cursor: int) -> None:
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


def _query(request: HttpRequest) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(request.query).items()}


def _response(content_type: str, data: bytes, status: int = 200) -> HttpResponse:
    return HttpResponse(status, content_type, data, dict(_HEADERS))


def _refusal(status: int, reason: str) -> HttpResponse:
    return _response("text/plain; charset=utf-8", f"{reason}\n".encode(), status)
