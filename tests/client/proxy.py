"""A TCP proxy that knows frames. Tests let it cut connections and lose responses."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter, deque
from types import TracebackType
from typing import Self

import kafka_wire

from krammar.broker.apis import RANGES
from krammar.wire.connection import unsupported_version_response
from krammar.wire.framing import PREFIX, join_frame
from krammar.wire.kafka import API_VERSIONS


class Proxy:
    """Listens on loopback and passes everything on to ``target``.

    ``requests``    counts the requests by api key
    ``lose``        the number of responses to lose, by api key: the broker handles the request, and then the
                    connection is cut
    ``cut_before``  the number of requests to lose, by api key: the connection is cut before the broker gets them
    ``last_api_versions``  the proxy itself answers later versions of ApiVersions, like a broker that does not know them
    ``flowing``     set at first; while it is not set, the proxy holds responses back
    """

    def __init__(self) -> None:
        self.target = ("127.0.0.1", 0)
        self.requests: Counter[int] = Counter()
        self.lose: Counter[int] = Counter()
        self.cut_before: Counter[int] = Counter()
        self.last_api_versions = 32767
        self.flowing = threading.Event()
        self.flowing.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            keys: deque[int] = deque()
            self._start(self._up, client, server, keys)
            self._start(self._down, client, server, keys)

    def _up(self, client: socket.socket, server: socket.socket, keys: deque[int]) -> None:
        while (frame := _frame(client)) is not None:
            key = int.from_bytes(frame[PREFIX : PREFIX + 2], "big")
            with self._lock:
                self.requests[key] += 1
                cut = self.cut_before[key] > 0
                self.cut_before[key] -= cut
            if cut:
                break
            if key == API_VERSIONS and frame[PREFIX + 3] > self.last_api_versions:
                offered = RANGES | {API_VERSIONS: (0, self.last_api_versions)}
                body = unsupported_version_response(kafka_wire, offered).encode(0)
                client.sendall(join_frame([frame[PREFIX + 4 : PREFIX + 8], body]))
                continue
            keys.append(key)
            try:
                server.sendall(frame)
            except OSError:
                break
        self._cut(client, server)

    def _down(self, client: socket.socket, server: socket.socket, keys: deque[int]) -> None:
        while (frame := _frame(server)) is not None:
            key = keys.popleft()
            with self._lock:
                lost = self.lose[key] > 0
                self.lose[key] -= lost
            if lost:
                break
            self.flowing.wait()
            try:
                client.sendall(frame)
            except OSError:
                break
        self._cut(client, server)

    def _cut(self, *pair: socket.socket) -> None:
        for one in pair:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._sockets -= set(pair)

    def cut_all(self) -> None:
        """Cut all connections that there are."""
        with self._lock:
            sockets = list(self._sockets)
        self._cut(*sockets)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.flowing.set()
        self._threads[0].join()
        self.cut_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _frame(source: socket.socket) -> bytes | None:
    """A whole frame with its prefix; None at the end."""
    prefix = _exactly(source, PREFIX)
    if prefix is None:
        return None
    body = _exactly(source, int.from_bytes(prefix, "big"))
    return None if body is None else prefix + body


def _exactly(source: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = source.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
