"""Reads a URL within a time for the whole answer. The timeouts of urllib are for each read."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from contextlib import suppress
from functools import partial
from typing import Any


class _Deadline:
    """Shuts down all sockets that were opened for a request when its time is over."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_over = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def connect(self, *args: Any, **options: Any) -> socket.socket:
        """Create a connection. A copy of its descriptor stays valid when TLS replaces the socket."""
        opened = socket.create_connection(*args, **options)
        with self._lock:
            self._sockets.append(opened.dup())
        if self.is_over:
            self._end()
        return opened

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()


class _HttpHandler(urllib.request.HTTPHandler):
    deadline: _Deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPConnection, self.deadline), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    deadline: _Deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPSConnection, self.deadline), req)


def _connection(kind: Any, deadline: _Deadline, host: str, **options: Any) -> Any:
    connection = kind(host, **options)
    connection._create_connection = deadline.connect
    return connection


def fetch(url: str, most: int, seconds: float) -> bytes:
    """Return the first ``most`` bytes of a URL (file, http or https), redirects included.

    Args:
        seconds: the time for the whole answer

    Raises:
        OSError, http.client.HTTPException, ValueError: the URL cannot be read; TimeoutError after the time.
    """
    deadline = _Deadline(seconds)
    plain, tls = _HttpHandler(), _HttpsHandler()
    plain.deadline = tls.deadline = deadline
    try:
        with urllib.request.build_opener(plain, tls).open(url, timeout=seconds) as response:
            data: bytes = response.read(most)
    except (OSError, http.client.HTTPException):
        if not deadline.is_over:
            raise
    finally:
        deadline.close()
    if deadline.is_over:
        raise TimeoutError(f"the answer was not complete within {seconds:g} s")
    return data
