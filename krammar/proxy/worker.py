"""A worker's side of the channel to the process that supervises it.

All workers listen on the same ports with SO_REUSEPORT, so the supervisor allots the port of each broker. Messages are
lines of JSON, objects with one key.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from krammar.proxy.addresses import Address, ListenError, Listeners
from krammar.proxy.clients import LOG

# The environment variable with the number of the worker's socket.
VARIABLE = "KRAMMAR_PROXY_WORKER"
# The most bytes of a line. The longest lines are the numbers of metrics.
LIMIT = 16 << 20


# The name of a listener, its host, and a broker.
Key = tuple[str, str, Address]


def line(**message: Any) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


class Worker:
    """The channel of a worker.

    ``secret``  hides which users exist; the same for all workers
    ``listen``  the addresses of the proxy by the name of the listener, with their ports

    Args:
        channel: a connected socket, whose first line waits or will come.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        first = b""
        while not first.endswith(b"\n"):
            piece = channel.recv(1)  # not more, because the event loop reads the other lines
            if not piece:
                raise ConnectionError("the supervisor has ended")
            first += piece
        begin = json.loads(first)["begin"]
        self.secret = bytes.fromhex(begin["secret"])
        self.listen = {name: str(Address(*each)) for name, each in begin["listen"].items()}
        self._ports: list[list[Any]] = begin["ports"]
        self._asked: dict[Key, asyncio.Future[int]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(
        self,
        listeners: Mapping[str, Listeners],
        numbers: Callable[[], Any],
        stop: Callable[[], object],
    ) -> None:
        """Open the ports that other workers have, report that this one listens, and handle messages.

        Args:
            numbers: returns the numbers of the metrics.
            stop: called if the supervisor has ended.

        Raises:
            ListenError: a port cannot be opened.
        """
        channel = await asyncio.open_connection(sock=self._channel, limit=LIMIT)
        reader, self._writer = channel
        for name, bind_host, host, broker_port, port in self._ports:
            await listeners[name].open(bind_host, Address(host, broker_port), port)
        self._writer.write(line(ready=True))
        self._task = asyncio.ensure_future(self._read(reader, listeners, numbers, stop))

    async def allot(self, name: str, bind_host: str, upstream: Address) -> int:
        """Return the port for a broker, the same in all workers. Raises ListenError."""
        assert self._writer is not None
        key = name, bind_host, upstream
        asked = self._asked[key] = asyncio.get_running_loop().create_future()
        self._writer.write(line(want=[name, bind_host, *upstream]))
        try:
            port: int = await asked
            return port
        finally:
            del self._asked[key]

    async def _read(
        self,
        reader: asyncio.StreamReader,
        listeners: Mapping[str, Listeners],
        numbers: Callable[[], Any],
        stop: Callable[[], object],
    ) -> None:
        assert self._writer is not None
        while data := await reader.readline():
            for kind, value in json.loads(data).items():
                if kind == "numbers":
                    self._writer.write(line(numbers=numbers()))
                    continue
                name, bind_host, host, broker_port, result = value
                upstream = Address(host, broker_port)
                asked = self._asked.get((name, bind_host, upstream))
                if asked is not None and not asked.done():
                    if kind == "open":
                        asked.set_result(result)
                    else:
                        asked.set_exception(ListenError(result))
                elif kind == "open":
                    try:
                        await listeners[name].open(bind_host, upstream, result)
                    except ListenError as error:
                        LOG.warning("no port for broker %s: %s", upstream, error)
        stop()
