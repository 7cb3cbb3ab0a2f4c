"""An HTTP listener on loopback that runs commands, for holders of a token only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Any, NamedTuple

from krammar.util.http_page import names_loopback

# The environment variable with the token. Without it, each start makes a new one.
TOKEN_VARIABLE = "KRAMMAR_CONTROL_TOKEN"
# A request has to arrive within this many seconds.
TIMEOUT_SECONDS = 10.0
# The most bytes of a request's head, and of its body.
MAX_HEAD = 8 * 1024
MAX_BODY = 1 << 20

_HOST = "127.0.0.1"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    413: "Content Too Large",
}


class Reply(NamedTuple):
    """A status of HTTP, and what is sent as JSON."""

    status: int
    value: Any


# Runs a command: gets the method, the path and the body. It runs in a thread of its own, so it may wait.
Command = Callable[[str, str, str], Reply]


class HttpControl:
    """The listener. ``token`` is what clients send as ``Authorization: Bearer …``."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self.token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        self.url = ""
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        """Listen on a port of the loopback address; 0 selects a free one. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, _HOST, port, limit=MAX_HEAD)
        self.url = f"http://{_HOST}:{self._server.sockets[0].getsockname()[1]}"

    @property
    def line(self) -> str:
        """The line that announces the listener and its token."""
        return f"control on {self.url} with the token {self.token}"

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
            for task in list(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError)
        try:
            with contextlib.suppress(*gone):
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    reply = self._refusal(head)
                    if reply is None:
                        body = await reader.readexactly(_length(head))
                if reply is None:
                    method, path, *_ = head.decode("latin-1").split(" ", 2)
                    reply = await asyncio.get_running_loop().run_in_executor(
                        None, self._command, method, path, body.decode("utf-8", "replace")
                    )
                data = (json.dumps(reply.value) + "\n").encode()
                start = (
                    f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
                    "Connection: close\r\n\r\n"
                )
                writer.write(start.encode() + data)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    def _refusal(self, head: bytes) -> Reply | None:
        if not names_loopback(head):
            # Otherwise a web site whose name leads here could reach it with a browser of this machine.
            return Reply(403, {"error": "use the name localhost or an address"})
        expected = f"Bearer {self.token}"
        if not compare_digest(_header(head, "authorization").encode(), expected.encode()):
            return Reply(401, {"error": "send the header Authorization: Bearer TOKEN"})
        if _length(head) > MAX_BODY:
            return Reply(413, {"error": f"the body has more than {MAX_BODY} bytes"})
        return None


def _header(head: bytes, wanted: str) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""


def _length(head: bytes) -> int:
    text = _header(head, "content-length")
    return int(text) if text.isdecimal() else 0
