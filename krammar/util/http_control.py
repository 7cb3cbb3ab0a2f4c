"""An HTTP listener on loopback that runs commands, for holders of a token only."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Any, NamedTuple

from krammar.util.http_server import HttpRequest, HttpResponse, HttpServer

# The environment variable with the token. Without it, each start makes a new one.
TOKEN_VARIABLE = "KRAMMAR_CONTROL_TOKEN"
# The most bytes of a request's body.
MAX_BODY = 1 << 20

_HOST = "127.0.0.1"


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
        body = request.body.decode("utf-8", "replace")
        return _json(await asyncio.to_thread(self._command, request.method, request.path, body))


def _json(reply: Reply) -> HttpResponse:
    return HttpResponse(reply.status, "application/json", f"{json.dumps(reply.value)}\n".encode())


def _refusal(status: int, reason: str) -> HttpResponse:
    return _json(Reply(status, {"error": reason}))
