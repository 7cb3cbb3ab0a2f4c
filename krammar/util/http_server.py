"""An HTTP/1.1 server in an asyncio loop, with limits, and two listeners: one page, and commands for holders of a token.

No client can stall the server or use it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import secrets
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from weakref import WeakSet

from krammar.util.forks import close_sockets_in_children
from krammar.util.sockets import is_loopback
from krammar.util.turns import in_thread

# After a refusal, so many seconds of the request's body are ignored: a reset would overtake the refusal.
LINGER_SECONDS = 1.0
# The most bytes of a request's head. Browsers send cookies of other servers on localhost.
MAX_HEAD = 16 * 1024
# The most connections; one more replaces the oldest. Admitted connections do not count.
MAX_CONNECTIONS = 16
# A response is written in pieces of this size in bytes.
PIECE = 64 * 1024
# A longer Content-Length is too large for any limit.
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. ``path`` has no query, and ``headers`` have names in small letters."""

    method: str
    path: str
    query: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: bytes = b""


@dataclass(slots=True, weakref_slot=True, eq=False)
class HttpResponse:
    """A response. It is in memory as long as a connection sends it.

    Attributes:
        stream: sends what follows the data, for as long as it likes; then the response has no Content-Length
    """

    status: int
    content_type: str
    data: bytes = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    stream: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None


class HttpServer:
    """A listener that closes the connection after each response.

    Args:
        handle: returns the response to a request
        refuse: returns the response that refuses a request, from a status and a reason
        max_body: the most bytes of a request's body; 0 to read none
        admit: returns the response that refuses a request, or None for one that may take its time; by default
            everybody is served, but no connection may

    Attributes:
        timeout_seconds: in which the request, its body and the response each have to pass
    """

    timeout_seconds = 10.0

    def __init__(
        self,
        handle: Callable[[HttpRequest], Awaitable[HttpResponse]],
        refuse: Callable[[int, str], HttpResponse],
        *,
        max_body: int = 0,
        admit: Callable[[HttpRequest], HttpResponse | None] | None = None,
    ) -> None:
        self._handle = handle
        self._refuse = refuse
        self._max_body = max_body
        self._admit = admit
        self._local = False  # whether only this machine can connect
        self._open: set[asyncio.Task[None]] = set()
        self._counted: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on an address; port 0 selects a free one. Returns host and port. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_HEAD)
        close_sockets_in_children(self._server)
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        self._local = is_loopback(bound[0])
        return bound

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
            for task in list(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._counted) >= MAX_CONNECTIONS:
            oldest = next(iter(self._counted))
            oldest.cancel()
            del self._counted[oldest]
        close_sockets_in_children(writer)
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        self._counted[task] = None
        task.add_done_callback(partial(self._end, writer.transport))

    def _end(self, transport: asyncio.WriteTransport, task: asyncio.Task[None]) -> None:
        # Not in the coroutine: a task that is cancelled before its first step runs none of its code.
        transport.abort()
        self._open.discard(task)
        self._counted.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # TimeoutError is an OSError.
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            response, with_data = await self._response(reader)
            await asyncio.wait_for(_send(writer, response, with_data), self.timeout_seconds)
            if response.stream is not None:
                await response.stream(writer)
            if response.status >= HTTPStatus.BAD_REQUEST:
                writer.write_eof()
                async with asyncio.timeout(LINGER_SECONDS):
                    while await reader.read(PIECE):
                        pass
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), self.timeout_seconds)

    async def _response(self, reader: asyncio.StreamReader) -> tuple[HttpResponse, bool]:
        """Read a request, and return its response, and whether that is sent with its data."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self.timeout_seconds)
        except asyncio.LimitOverrunError:
            return self._refuse(431, "the head of the request is too long"), True
        request = _parsed(head)
        length, response = self._check(request)
        if response is None:
            body = await asyncio.wait_for(reader.readexactly(length), self.timeout_seconds)
            response = await self._handle(replace(request, body=body))
        return response, request.method != "HEAD"

    def _check(self, request: HttpRequest) -> tuple[int, HttpResponse | None]:
        """Return the length of a request's body, or the response that refuses the request."""
        if self._local and not names_loopback(request.headers):
            # Otherwise a web site whose name resolves to this machine could use the server through a local browser.
            return 0, self._refuse(403, "use the name localhost or an address")
        if self._admit is not None:
            refused = self._admit(request)
            if refused is not None:
                return 0, refused
            task = asyncio.current_task()
            assert task is not None
            self._counted.pop(task, None)
        if not self._max_body:
            return 0, None
        if "transfer-encoding" in request.headers:
            return 0, self._refuse(411, "send the body with a Content-Length, not in chunks")
        text = request.headers.get("content-length", "0")
        if not (text.isascii() and text.isdecimal()):
            return 0, self._refuse(400, "Content-Length is not a number of bytes")
        length = self._max_body + 1 if len(text) > _DIGITS else int(text)
        if length > self._max_body:
            return 0, self._refuse(413, f"the body has more than {self._max_body} bytes")
        return length, None


def _parsed(head: bytes) -> HttpRequest:
    start, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = start.partition(" ")
    path, _, query = rest.partition(" ")[0].partition("?")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return HttpRequest(method, path, query, headers)


async def _send(writer: asyncio.StreamWriter, response: HttpResponse, with_data: bool) -> None:
    """Write in pieces: asyncio would copy what the client has not read of a large response."""
    headers = {
        "Content-Type": response.content_type,
        **({} if response.stream else {"Content-Length": str(len(response.data))}),
        **response.headers,
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    view = memoryview(response.data if with_data else b"")
    for begin in range(0, len(view), PIECE):
        writer.write(view[begin : begin + PIECE])
        await writer.drain()


def names_loopback(headers: dict[str, str]) -> bool:
    """Return whether the Host header is an address or localhost. HTTP/1.0 needs none."""
    if "host" not in headers:
        return True
    try:
        host = urlsplit(f"//{headers['host']}").hostname or ""
        return host == "localhost" or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


# Pages.

# The most pages in memory. While slow clients read so many, others get the newest of them.
MAX_PAGES = 2


class HttpPage:
    """A listener that answers GET and HEAD for one path.

    Args:
        path: the path of the page
        content_type: its content type
        page: returns the text
    """

    def __init__(self, path: str, content_type: str, page: Callable[[], Awaitable[str]]) -> None:
        self._path = path
        self._type = content_type
        self._page = page
        self._building: asyncio.Future[HttpResponse] | None = None
        self._pages: WeakSet[HttpResponse] = WeakSet()  # that are being sent
        self._newest: weakref.ref[HttpResponse] | None = None
        self._server = HttpServer(self._answer, _refusal_page)
        self.listen = self._server.listen
        self.close = self._server.close

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            refused = _refusal_page(405, "use GET")
            refused.headers["Allow"] = "GET, HEAD"
            return refused
        if request.path != self._path:
            return _refusal_page(404, f"the only page is {self._path}")
        return await self._shared()

    async def _shared(self) -> HttpResponse:
        """Return the page. Clients that ask at the same time share it, and slow ones use few pages up."""
        if self._newest is not None and len(self._pages) >= MAX_PAGES:
            newest = self._newest()
            if newest is not None:
                return newest
        if self._building is None:
            self._building = asyncio.ensure_future(self._build())
        return await asyncio.shield(self._building)

    async def _build(self) -> HttpResponse:
        try:
            page = HttpResponse(200, self._type, (await self._page()).encode())
        finally:
            self._building = None
        self._pages.add(page)
        self._newest = weakref.ref(page)
        return page


def _refusal_page(status: int, reason: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", f"{reason}\n".encode())


# Commands.

# The environment variable with the token. Without it, each start makes a new one.
TOKEN_VARIABLE = "KRAMMAR_CONTROL_TOKEN"
# The most bytes of a request's body.
MAX_BODY = 1 << 20

_HOST = "127.0.0.1"


class Reply(NamedTuple):
    """A status of HTTP, and what is sent as JSON."""

    status: int
    value: Any


@dataclass(frozen=True, slots=True)
class Command:
    """What a client asks for.

    Attributes:
        parts: the parts of the path
        query: the values after the path, by name
    """

    method: str
    parts: tuple[str, ...]
    query: dict[str, str]
    body: str


# Runs a command, or returns None for one that it does not know. It runs in a thread of its own, so it may wait.
# A ValueError is answered with status 400.
Runner = Callable[[Command], Reply | None]


class HttpControl:
    """A listener on loopback that runs commands. ``token`` is what clients send as ``Authorization: Bearer …``.

    Args:
        runners: the first one that knows a command runs it
    """

    def __init__(self, *runners: Runner) -> None:
        self._runners = runners
        self.token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        self.url = ""
        self._server = HttpServer(self._run, _refusal, max_body=MAX_BODY, admit=self._admit)
        self.close = self._server.close

    async def listen(self, port: int) -> None:
        """Listen on a port of the loopback address; 0 selects a free one. Raises OSError."""
        host, bound = await self._server.listen(_HOST, port)
        self.url = f"http://{host}:{bound}"

    @property
    def line(self) -> str:
        """The line that announces the listener and its token."""
        return f"control on {self.url} with the token {self.token}"

    def _admit(self, request: HttpRequest) -> HttpResponse | None:
        given = request.headers.get("authorization", "").encode()
        if compare_digest(given, f"Bearer {self.token}".encode()):
            return None
        return _refusal(401, "send the header Authorization: Bearer TOKEN")

    async def _run(self, request: HttpRequest) -> HttpResponse:
        command = Command(
            request.method,
            tuple(unquote(part) for part in request.path.split("/") if part),
            dict(parse_qsl(request.query, keep_blank_values=True)),
            request.body.decode("utf-8", "replace"),
        )
        return _json(await in_thread(self._reply, command))

    def _reply(self, command: Command) -> Reply:
        try:
            for run in self._runners:
                reply = run(command)
                if reply is not None:
                    return reply
        except ValueError as error:
            return Reply(400, {"error": str(error)})
        return Reply(404, {"error": f"{command.method} /{'/'.join(command.parts)} does not exist"})


def _json(reply: Reply) -> HttpResponse:
    return HttpResponse(reply.status, "application/json", f"{json.dumps(reply.value)}\n".encode())


def _refusal(status: int, reason: str) -> HttpResponse:
    return _json(Reply(status, {"error": reason}))
