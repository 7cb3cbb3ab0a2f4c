"""The listening ports of a proxy: one for clients that connect first, and one per broker.

Clients choose a broker by its address. A port belongs to a node id: if the broker moves to another address, its port leads
there, so a client that remembers the port reaches the same broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Protocol

from krammar.auth.tls_acceptor import TlsAcceptor
from krammar.proxy.addresses import ANY, Address, describe, resolve
from krammar.proxy.ports import FixedPorts, PortUses
from krammar.proxy.rewriter import Views
from krammar.util.clock import monotonic

# Ports that the system offers for a broker, until one was not that of another broker.
_OFFERS = 64


class ListenError(Exception):
    """An address cannot be listened on."""


class Port:
    """A listening port.

    Attributes:
        number: the TCP port
        node: the id of the broker; None for the port where clients connect first
        upstream: the address of the broker; ``ANY`` if it is not known, and for first ports of several brokers
        connections: the open connections of clients
    """

    __slots__ = ("connections", "node", "number", "server", "upstream")

    def __init__(self, node: int | None, upstream: Address) -> None:
        self.node = node
        self.upstream = upstream
        self.number = 0
        self.connections = 0
        self.server: asyncio.Server | TlsAcceptor | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether it is a broker's whose address is not known."""
        return self.node is not None and self.upstream == ANY

    def stop_accepting(self) -> None:
        """Accept no more connections.

        If the server were closed in the same turn, asyncio would lose connections that it has accepted
        (python/cpython#109564).
        """
        if self.server is not None:
            loop = asyncio.get_running_loop()
            for listening in self.server.sockets:
                loop.remove_reader(listening.fileno())

    def close(self) -> None:
        if self.server is not None:
            self.server.close()


class SharedPorts(Protocol):
    """What allots the ports that several processes share. It calls ``Listeners.open`` and ``close_port`` in each of them."""

    async def want(self, listener: str, node: int, upstream: Address) -> None:
        """Have the port of a broker opened, or led to an address. Raises ListenError."""

    def lost(self, listener: str, node: int) -> None:
        """Report that the address of a broker is not known any more."""

    def used(self, listener: str, nodes: list[int]) -> None:
        """Report the brokers that responses have named, or whose ports have connections."""


# Starts the server of a port: the listeners, the port, and the resolved address.
Serve = Callable[["Listeners", Port, Address], Awaitable[asyncio.Server | TlsAcceptor]]
# The ports on which clients connect first, by their host and the address of the broker.
FirstPorts = dict[tuple[str, Address], Port]


class Listeners:
    """The listening ports of one listener.

    Attributes:
        name: the name of the listener, empty if it has none
        first: the first ports that lead to one broker
        views: the rewritten responses, which name these ports
        idle_seconds: for which a port must not have been used before it makes room for another one:
            a response that names it can be on its way to a client

    Args:
        host: the host of all ports.
        serve: starts a server.
        notice: receives a line about each port that was opened or closed, or could not be opened.
        limit: returns the most ports.
        timeout: seconds after which a port closes that no response names and no connection uses.
        fixed: the ports of brokers. They are opened by ``open_fixed``, and never closed. Default: free ones.
        shared: allots the ports, if several processes have them.
        first: the first ports, also of other listeners that lead to the same cluster.
    """

    idle_seconds = 1.0

    def __init__(
        self,
        name: str,
        host: str,
        serve: Serve,
        notice: Callable[[str], None],
        limit: Callable[[], int],
        timeout: float,
        fixed: FixedPorts | None = None,
        shared: SharedPorts | None = None,
        first: FirstPorts | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.views = Views()
        self._serve = serve
        self._notice = notice
        self._limit = limit
        self._fixed = fixed
        self._shared = shared
        self.first: FirstPorts = {} if first is None else first
        self._own: list[Port] = []  # the first ports that this object has opened
        self._ports: dict[int, Port] = {}
        self._uses: PortUses[int] = PortUses(timeout)
        self._opening = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # -- opening

    async def listen(self, listen: Address, upstream: Address) -> int:
        """Listen on an address on which clients connect first.

        Args:
            upstream: the address of the broker to which it leads, or ``ANY``.

        Returns:
            The port, which the system selects if it is 0.

        Raises:
            ListenError: the address is in use, or cannot be resolved.
        """
        port = Port(None, upstream)
        await self._start(port, listen)
        self._own.append(port)
        # With fixed ports, each broker has one of them, whatever ``upstream`` names.
        if self._fixed is None and upstream != ANY:
            self.first[listen.host, upstream] = port
        return port.number

    async def open_fixed(self) -> None:
        """Listen on all fixed ports. Raises ListenError."""
        if self._fixed is not None:
            for node, number in self._fixed.by_node.items():
                await self.open(node, ANY, number)

    async def open(self, node: int, upstream: Address, number: int) -> None:
        """Listen on the port of a broker, or lead it to another address. Raises ListenError."""
        port = self._ports.get(node)
        if port is not None and port.number != number:
            self.close_port(node)  # it was closed and opened elsewhere
            port = None
        if port is None:
            port = Port(node, upstream)
            try:
                await self._start(port, Address(self.host, number))
            except ListenError as error:
                raise ListenError(f"{error} (the port of node {node})") from error
            if self._closed:
                port.close()
                return
            self._ports[node] = port
            self._opened(port)
        elif upstream == ANY:
            port.upstream = ANY
        else:
            self._move(port, upstream)

    def _opened(self, port: Port) -> None:
        if self._fixed is None:
            assert port.node is not None
            self._uses.use(port.node)
            self._notice(
                f"listening on {Address(self.host, port.number)} for broker {port.upstream} (node {port.node})"
            )
            self._look_later()

    def _move(self, port: Port, upstream: Address) -> None:
        if port.upstream == upstream:
            return
        if port.upstream != ANY:
            self._notice(
                f"node {port.node} has moved from {port.upstream} to {upstream}; {Address(self.host, port.number)} leads there"
            )
        port.upstream = upstream
        self._use(port)

    async def _start(self, port: Port, listen: Address) -> None:
        try:
            # A host name may have several addresses, and port 0 would give each of them another port.
            host = (await resolve(listen)).host
            port.server = await self._serve(self, port, Address(host, listen.port))
        except (OSError, UnicodeError) as error:
            raise ListenError(f"cannot listen on {listen}: {describe(error)}") from error
        port.number = port.server.sockets[0].getsockname()[1]

    @property
    def first_port(self) -> int:
        """The port on which clients connect first."""
        return self._own[0].number

    # -- the ports of brokers

    def known(self, node: int, upstream: Address) -> int | None:
        """Return the port of a broker that a response names, or None if it has none that leads to this address."""
        port = self._ports.get(node)
        if port is None:
            first = self.first.get((self.host, upstream))
            return None if first is None else first.number
        if port.upstream != upstream:
            return None
        self._use(port)
        return port.number

    async def port_for(self, node: int, upstream: Address) -> int | None:
        """Return the port of a broker, opened or led to its address now if necessary; None if that fails."""
        try:
            if self._fixed is not None and node not in self._fixed.by_node:
                raise ListenError(
                    f"node {node} is outside of broker_ports, which has {self._fixed}"
                )
            if self._shared is not None:
                if self.known(node, upstream) is None:
                    await self._shared.want(self.name, node, upstream)
            else:
                async with self._opening:
                    if self.known(node, upstream) is None:
                        await self._open_here(node, upstream)
        except ListenError as error:
            self._notice(f"no port for broker {upstream}: {error}")
            return None
        port = self._ports.get(node)
        return self.known(node, upstream) if port is None else port.number

    async def _open_here(self, node: int, upstream: Address) -> None:
        if (port := self._ports.get(node)) is not None:
            self._move(port, upstream)
            return
        if len(self._ports) + len(self._own) >= self._limit():
            oldest = self._uses.oldest(
                self.idle_seconds, lambda each: self._ports[each].connections
            )
            if oldest is None:
                raise ListenError(f"{self._limit()} ports are already open, and all are in use")
            self.close_port(oldest)
        if former := self._uses.former(node):
            with suppress(ListenError):  # another program has it
                await self.open(node, upstream, former)
                return
        others: list[Port] = []
        try:
            for _ in range(_OFFERS):
                port = Port(node, upstream)
                await self._start(port, Address(self.host, 0))
                if not self._uses.is_of_another(node, port.number):
                    break
                # A client could remember it as the port of another broker.
                others.append(port)
            else:
                raise ListenError("the system offers only ports that other brokers have had")
        finally:
            for each in others:  # later, so that the system does not offer them again
                each.close()
        if self._closed:
            port.close()
            return
        self._ports[node] = port
        self._opened(port)

    def take_addresses(self, named: Collection[tuple[int, Address]]) -> None:
        """Handle that a response lists all brokers: ports of others do not lead to their addresses any more.

        An address of a broker that has gone can become that of another one.
        """
        addresses = {upstream for _, upstream in named}
        for node, port in self._ports.items():
            if port.upstream in addresses and (node, port.upstream) not in named:
                port.upstream = ANY
                if self._shared is not None:
                    self._shared.lost(self.name, node)

    def _use(self, port: Port) -> None:
        if self._fixed is None and port.node in self._ports:
            self._uses.use(port.node)

    def entered(self, port: Port) -> None:
        """Handle a connection of a client to a port."""
        port.connections += 1
        self._use(port)

    def left(self, port: Port) -> None:
        """Handle the end of a connection of a client to a port."""
        port.connections -= 1
        self._use(port)

    # -- closing

    def _look_later(self) -> None:
        if self._timer is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._uses.period, self._look, monotonic())

    def _look(self, last: float) -> None:
        """Close the ports that are not used any more, and let responses that repeat name their brokers again."""
        self._timer = None
        self.views.forget()
        for node, port in self._ports.items():
            if port.connections:
                self._uses.use(node)
        if self._shared is not None:
            self._shared.used(self.name, self._uses.since(last))
        else:
            for node in self._uses.overdue():
                self.close_port(node)
        if self._ports:
            self._look_later()

    def close_port(self, node: int) -> None:
        """Close the port of a broker. Its connections stay open."""
        port = self._ports.pop(node, None)
        if port is None:
            return
        self._uses.close(node, port.number)
        self.views.forget()
        self._notice(
            f"closed {Address(self.host, port.number)}: no client has asked for broker {port.upstream} (node {node}) lately"
        )
        port.stop_accepting()
        asyncio.get_running_loop().call_soon(port.close)

    async def finish_accepting(self) -> None:
        """Accept no more connections, and let asyncio pass on those that it has accepted."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for port in (*self._own, *self._ports.values()):
            port.stop_accepting()
        await asyncio.sleep(0)

    def close(self) -> None:
        """Close the listening ports."""
        self._closed = True
        for port in (*self._own, *self._ports.values()):
            port.close()


__all__ = ["FirstPorts", "ListenError", "Listeners", "Port", "SharedPorts"]
