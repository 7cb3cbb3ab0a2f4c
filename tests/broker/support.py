"""A client that sends exactly the requests of a test, and a broker in a separate process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import kafka_wire

from krammar.broker.cluster import ClusterMetadata, Topic
from krammar.util.turns import finish
from krammar.wire.connection import ClientConnection, ConnectionClosed, ResponseReceived
from tests.support.waiting import PATIENCE


class RawClient:
    """A blocking client on one connection: any request in any version."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        client_id: str | None = "test",
        wrap: Callable[[socket.socket], socket.socket] | None = None,
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wrap is not None:
            self.socket = wrap(self.socket)
        self.wire = ClientConnection(kafka_wire, client_id=client_id)

    def send(
        self, request: Any, version: int | None = None, *, expect_response: bool = True
    ) -> None:
        """Send a request, by default in its newest version."""
        if version is None:
            version = type(request).max_version
        self.socket.sendall(
            self.wire.send_request(request, version, expect_response=expect_response)
        )

    def receive(self) -> Any:
        """The next response. Raises ConnectionError where the broker has closed the connection."""
        while True:
            event = self.wire.next_event()
            if isinstance(event, ResponseReceived):
                return event.response
            if isinstance(event, ConnectionClosed):
                raise ConnectionError("the broker has closed the connection")
            try:
                self.wire.receive_data(self.socket.recv(1 << 20))
            except ConnectionResetError as error:
                raise ConnectionError("the broker has closed the connection") from error

    def call(self, request: Any, version: int | None = None) -> Any:
        """Send a request and return its response."""
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class BrokerProcess:
    """``krammar broker`` in a separate process. ``lines`` is its output until it was ready."""

    def __init__(
        self, arguments: Sequence[str | Path], *, preexec: Callable[[], None] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "krammar", "broker", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=preexec,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[str] = []
        self.port = 0
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            found = re.search(r" listening on .*:(\d+)$", line)
            if found and not self.port:
                self.port = int(found[1])
            if line.startswith("ready "):
                return
        raise AssertionError("the broker did not start:\n" + "\n".join(self.lines))

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self._end()

    def stop(self) -> tuple[int, str]:
        """Stop the process. Returns its exit code and its output since it was ready."""
        self.process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> tuple[int, str]:
        rest, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, rest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()


def new_topic(cluster: ClusterMetadata, name: str, partitions: int, **more: Any) -> Topic:
    """Add a topic to the metadata at once, without logs."""
    return finish(cluster.creating_topic(name, partitions, **more))
