"""A place at which tasks of a query wait until the test lets them continue."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

import pyarrow as pa

from tests.support.waiting import PATIENCE


class Gate:
    """A port of loopback that each task knocks at, with its first rows in its hands."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._waiting: queue.Queue[socket.socket] = queue.Queue()
        self._left = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        number: int = self._listener.getsockname()[1]
        return number

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        # Closing alone does not end ``accept``.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._left > 0:
                    self._left -= 1
                    connection.close()
                else:
                    self._waiting.put(connection)

    def wait(self, count: int) -> None:
        """Wait until this many tasks wait here; they continue to wait."""
        found = [self._waiting.get(timeout=PATIENCE) for _ in range(count)]
        for one in found:
            self._waiting.put(one)

    def let_through(self, count: int) -> None:
        """So many tasks, those among them that are here already; those that come after them wait."""
        with self._lock:
            self._left += count
            while self._left and not self._waiting.empty():
                self._left -= 1
                self._waiting.get().close()

    def open(self) -> None:
        self.let_through(1 << 30)


def through(
    port: int, ahead: int = 0
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: the same rows, after the gate at ``port`` has let the task pass; so many batches
    go ahead of that."""

    # Inside, for what Spark's workers run is sent to them, and this package is not theirs.
    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == ahead:
                with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
                    connection.settimeout(PATIENCE)
                    connection.recv(1)
            yield batch

    return passing
