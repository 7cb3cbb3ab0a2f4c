"""An HTTP listener with one page, in an asyncio loop. No client can stall it or use it up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

# The request and the response each have to pass within this many seconds.
TIMEOUT_SECONDS = 10.0
# The most bytes of a request's head.
MAX_HEAD = 8 * 1024
# The most connections; one more replaces the oldest.
MAX_CONNECTIONS = 16


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
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on an address; port 0 selects a free one. Returns host and port. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_HEAD)
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
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
                writer.write(await self._answer(head))
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), TIMEOUT_SECONDS)
        finally:
            writer.transport.abort()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        allow = ""
        if method not in (b"GET", b"HEAD"):
            status, text, allow = "405 Method Not Allowed", "use GET\n", "Allow: GET, HEAD\r\n"
        elif path != self._path:
            status, text = "404 Not Found", f"the only page is {self._path}\n"
        else:
            status, text = "200 OK", await self._page()
        body = text.encode()
        kind = self._type if status.startswith("200") else "text/plain; charset=utf-8"
        lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        answer = f"{lines}{allow}Connection: close\r\n\r\n".encode()
        return answer if method == b"HEAD" else answer + body
