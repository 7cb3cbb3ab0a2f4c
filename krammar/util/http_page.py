"""An HTTP listener with one page, in an asyncio loop. No client can stall it or use it up."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import weakref
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit
from weakref import WeakSet

# The request and the response each have to pass within this many seconds.
TIMEOUT_SECONDS = 10.0
# The most bytes of a request's head.
MAX_HEAD = 8 * 1024
# The most connections; one more replaces the oldest.
MAX_CONNECTIONS = 16
# The most pages in memory. While slow clients read so many, others get the newest of them.
MAX_PAGES = 2
# A page is written in pieces of this size in bytes.
PIECE = 64 * 1024


class HttpPage:
    """A listener that answers GET and HEAD for one path, and closes the connection after each response.

    Args:
        path: the path of the page
        content_type: its content type
        page: returns the text
    """

    def __init__(self, path: str, content_type: str, page: Callable[[], Awaitable[str]]) -> None:
        self._path = path
        self._type = content_type
        self._page = page
        self._local = False  # whether only this machine can connect
        self._building: asyncio.Future[_Page] | None = None
        self._pages: WeakSet[_Page] = WeakSet()  # that are being sent
        self._newest: weakref.ref[_Page] | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on an address; port 0 selects a free one. Returns host and port. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_HEAD)
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
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            oldest.cancel()
            del self._open[oldest]
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # TimeoutError is an OSError.
        gone = (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError)
        try:
            with contextlib.suppress(*gone):
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)
                start, page = await self._answer(head)
                await asyncio.wait_for(_send(writer, start, page), TIMEOUT_SECONDS)
        finally:
            writer.transport.abort()

    async def _answer(self, head: bytes) -> tuple[bytes, _Page]:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        allow = ""
        if self._local and not names_loopback(head):
            # Otherwise a web site whose name leads here could read the page with a browser of this machine.
            status, text = "403 Forbidden", "use the name localhost or an address\n"
        elif method not in (b"GET", b"HEAD"):
            status, text, allow = "405 Method Not Allowed", "use GET\n", "Allow: GET, HEAD\r\n"
        elif path != self._path:
            status, text = "404 Not Found", f"the only page is {self._path}\n"
        else:
            status, text = "200 OK", None
        page = await self._shared() if text is None else _Page(text.encode())
        kind = self._type if text is None else "text/plain; charset=utf-8"
        size = len(page.data)
        lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n"
        start = f"{lines}{allow}Connection: close\r\n\r\n".encode()
        return start, _Page(b"") if method == b"HEAD" else page

    async def _shared(self) -> _Page:
        """Return the page. Clients that ask at the same time share it, and slow ones use few pages up."""
        if self._newest is not None and len(self._pages) >= MAX_PAGES:
            newest = self._newest()
            if newest is not None:
                return newest
        if self._building is None:
            self._building = asyncio.ensure_future(self._build())
        return await asyncio.shield(self._building)

    async def _build(self) -> _Page:
        try:
            page = _Page((await self._page()).encode())
        finally:
            self._building = None
        self._pages.add(page)
        self._newest = weakref.ref(page)
        return page


class _Page:
    """The text of a page, which is in memory as long as a connection sends it."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


async def _send(writer: asyncio.StreamWriter, start: bytes, page: _Page) -> None:
    """Write in pieces: asyncio would copy what the client has not read of a large one."""
    writer.write(start)
    view = memoryview(page.data)
    for begin in range(0, len(view), PIECE):
        writer.write(view[begin : begin + PIECE])
        await writer.drain()
    writer.close()
    await writer.wait_closed()


def is_loopback(host: str) -> bool:
    """Return whether a host is an address or the name of this machine alone."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def names_loopback(head: bytes) -> bool:
    """Return whether the Host header is an address or localhost. HTTP/1.0 needs none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"host":
            try:
                host = urlsplit(f"//{value.strip().decode('latin-1')}").hostname or ""
                return host == "localhost" or bool(ipaddress.ip_address(host))
            except ValueError:
                return False
    return True
