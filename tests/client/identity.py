"""A small OIDC identity provider: a token endpoint for the client credentials grant."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from tests.support.unsecured import unsecured_token

CLIENT_ID = "client:1"
SECRET = "s&cret/é"


def token(user: str = "alice", seconds: float = 3600) -> str:
    """An unsecured token that expires after some seconds."""
    now = time.time()
    return unsecured_token({"sub": user, "iat": now, "exp": now + seconds, "scope": ""})


Answer = tuple[int, bytes]


class IdentityProvider:
    """An OIDC provider. ``answer`` returns its response to a request with valid credentials."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[], Answer] = lambda: granted(token())
        self.url = ""


def granted(value: str, **more: Any) -> Answer:
    """Return the response of a token server that grants a token."""
    body = {"access_token": value, "token_type": "Bearer", "expires_in": 3600, **more}
    return 200, json.dumps(body).encode()


@contextmanager
def identity_provider(certificate: str | None = None) -> Iterator[IdentityProvider]:
    """A running provider on loopback, with TLS if a PEM file with certificate and key is given."""
    provider = IdentityProvider()
    credentials = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            provider.requests.append({k: v[0] for k, v in parse_qs(form).items()})
            status, body = provider.answer()
            if self.headers["Authorization"] != f"Basic {credentials}":
                status, body = 401, b'{"error": "invalid_client"}'
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", body.decode())
                body = b""
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    provider.url = f"{scheme}://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
