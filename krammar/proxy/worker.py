"""A worker's side of the channel to the process that supervises it.

All workers listen on the same ports with SO_REUSEPORT, so the supervisor allots the port of each broker. Messages are
lines of JSON, objects with one key.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from krammar.proxy.addresses import ANY, Address
from krammar.proxy.clients import LOG
from krammar.proxy.listeners import ListenError
from krammar.proxy.server import Proxy, Replacement
from krammar.proxy.settings import Settings, SettingsError
from krammar.proxy.takeover import discard, prepare

# The environment variable with the number of the worker's socket.
VARIABLE = "KRAMMAR_PROXY_WORKER"
# The most bytes of a line. The longest lines are the numbers of metrics.
LIMIT = 16 << 20


# The name of a listener, and the node id of a broker.
Key = tuple[str, int]


def line(**message: Any) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


class Worker:
    """The channel of a worker.

    ``secret``    hides which users exist; the same for all workers
    ``listen``    the addresses of the proxy by the name of the listener, with their ports
    ``settings``  the text of the file of settings that all workers use; None if there is no file

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
        self.settings: str | None = begin["settings"]
        self._ports: list[list[Any]] = begin["ports"]
        self._asked: dict[Key, asyncio.Future[None]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._prepared: Replacement | None = None
        self._settled = (
            0  # the number of the last settings that all workers have accepted or refused
        )

    async def start(
        self, server: Proxy, load: Callable[[str], Settings], stop: Callable[[], object]
    ) -> None:
        """Open the ports that other workers have, report that this one listens, and handle messages.

        Args:
            server: the proxy, which listens.
            load: returns what the text of a file of settings contains. Raises SettingsError.
            stop: called if the supervisor has ended.

        Raises:
            ListenError: a port cannot be opened.
        """
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=LIMIT)
        for each in self._ports:
            await self._open(server, *each)
        self._writer.write(line(ready=True))
        self._task = asyncio.ensure_future(self._read(reader, server, load, stop))

    # -- as ``SharedPorts``

    async def want(self, listener: str, node: int, upstream: Address) -> None:
        """Have the port of a broker opened in all workers, or led to an address. Raises ListenError."""
        asked = self._asked.get((listener, node))
        if asked is None:
            asked = self._asked[listener, node] = asyncio.get_running_loop().create_future()
            self._send(want=[listener, node, *upstream])
        await asyncio.shield(asked)

    def lost(self, listener: str, node: int) -> None:
        """Report that the address of a broker is not known any more."""
        self._send(want=[listener, node, *ANY])

    def used(self, listener: str, nodes: list[int]) -> None:
        """Report the brokers that responses have named, or whose ports have connections."""
        if nodes:
            self._send(used=[listener, nodes])

    def _send(self, **message: Any) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line(**message))

    # -- messages of the supervisor

    async def _read(
        self,
        reader: asyncio.StreamReader,
        server: Proxy,
        load: Callable[[str], Settings],
        stop: Callable[[], object],
    ) -> None:
        while data := await reader.readline():
            ((kind, value),) = json.loads(data).items()
            if kind == "numbers":
                metrics = server.metrics
                self._send(numbers=metrics and metrics.registry.numbers())
            elif kind == "open":
                listener, node = value[:2]
                try:
                    await self._open(server, *value)
                except ListenError as error:
                    LOG.warning("no port for node %d: %s", node, error)
                    self._answer((listener, node), error)
                else:
                    self._answer((listener, node), None)
            elif kind == "refuse":
                listener, node, reason = value
                self._answer((listener, node), ListenError(reason))
            elif kind == "close":
                listener, node = value
                server.listeners[listener].close_port(node)
            elif kind == "prepare":
                self._preparing = asyncio.ensure_future(self._prepare(server, load, *value))
            elif kind == "settle":
                self._settle(server, *value)
        stop()

    async def _open(
        self, server: Proxy, listener: str, node: int, host: str, port: int, number: int
    ) -> None:
        await server.listeners[listener].open(node, Address(host, port), number)

    def _answer(self, key: Key, error: ListenError | None) -> None:
        asked = self._asked.pop(key, None)
        if asked is None or asked.done():
            return
        if error is None:
            asked.set_result(None)
        else:
            asked.set_exception(error)
            asked.exception()  # the connection that has asked can have ended

    async def _prepare(
        self, server: Proxy, load: Callable[[str], Settings], number: int, text: str
    ) -> None:
        """Check other settings, and report the result: an empty text, or what is wrong."""
        try:
            replacement = (await prepare(server, load, text)).replacement
        except SettingsError as error:
            self._send(prepared=[number, str(error)])
            return
        if number <= self._settled:  # it has taken too long
            discard(replacement)
            return
        self._prepared = replacement
        self._send(prepared=[number, ""])

    def _settle(self, server: Proxy, number: int, adopt: bool) -> None:
        """Use the settings that were prepared, or forget them."""
        self._settled = number
        prepared, self._prepared = self._prepared, None
        if prepared is not None and adopt:
            server.adopt(prepared)
        elif prepared is not None:
            discard(prepared)
