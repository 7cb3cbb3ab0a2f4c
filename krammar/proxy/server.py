"""The proxy: listens, connects to brokers, and runs the chain of filters over each connection."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Iterable
from concurrent.futures import Future
from types import ModuleType, TracebackType
from typing import Any, Self

from krammar.proxy.addresses import (
    CONNECT_TIMEOUT,
    MAX_LISTENERS,
    Address,
    ListenError,
    Listeners,
    advertised_host,
    describe,
)
from krammar.proxy.chain import Chain, Refused, why_closed
from krammar.proxy.delivery import reset
from krammar.proxy.ends import MEMORY, Shared
from krammar.proxy.interface import Close, Connection, Filter
from krammar.proxy.requests import Requests
from krammar.proxy.responses import Responses
from krammar.proxy.rewrite import endpoints, limit_versions, node_id
from krammar.util.printable import escape
from krammar.wire.framing import MAX_FRAME
from krammar.wire.negotiation import API_VERSIONS

LOG = logging.getLogger("krammar.proxy")

_BACKLOG = 1_000
# Turns of the event loop in which asyncio ends connections, also one that it has just accepted.
_TURNS = 4


class ProxyError(Exception):
    """The proxy cannot run."""


class Proxy:
    """A proxy for one cluster. ``start`` runs it in a thread; ``serve`` runs it in the caller's event loop.

    Args:
        upstream: a broker of the cluster, as ``host:port``. The proxy finds the others in responses.
        filters: the chain, from the client to the broker.
        listen: where clients connect first, as ``host:port``. Port 0 selects a free one. Each further broker gets
            a free port of this host.
        advertise: the proxy's host in responses. Default: the host of ``listen``, or, if that means all
            addresses, the address to which the client has connected.
        protocol: a generated package. Default: ``kafka_wire``.
        refuse_unknown: close connections that send an API or a version that the protocol does not define.
            Default: pass such requests.
        max_frame: the largest frame that is read for a filter, or for addresses, in bytes. Frames that only
            pass are not limited.
        drain_timeout: how long ``close`` waits for responses, in seconds.

    Raises:
        TypeError: an element of ``filters`` is not a filter for ``protocol``.
        ValueError: an address has another form.
    """

    def __init__(
        self,
        upstream: str,
        filters: Iterable[Filter] = (),
        *,
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        protocol: ModuleType | None = None,
        refuse_unknown: bool = False,
        max_frame: int = MAX_FRAME,
        drain_timeout: float = 5.0,
    ) -> None:
        if protocol is None:
            import kafka_wire

            protocol = kafka_wire
        self.chain = Chain(protocol, filters, refuse_unknown=refuse_unknown)
        self.advertise = advertise
        self.max_frame = max_frame
        self.memory = bytearray(MEMORY)
        self.listeners = Listeners(self._serve_port, LOG.info, lambda: MAX_LISTENERS)
        self._upstream = Address.parse(upstream)
        self._listen = Address.parse(listen)
        self._drain_timeout = drain_timeout
        self._links: set[Link] = set()
        self._nodes: dict[Address, int] = {}
        self._numbers = 0
        self._draining = False
        self._address: Address | None = None
        self._idle = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @classmethod
    def start(cls, upstream: str, filters: Iterable[Filter] = (), **options: Any) -> Self:
        """Start a proxy in a thread of its own; ``close`` or the end of ``with`` stops it.

        The arguments are those of the class. Methods of filters run in that thread.

        Raises:
            ProxyError: the proxy cannot listen.
        """
        proxy = cls(upstream, filters, **options)
        started: Future[None] = Future()

        async def run() -> None:
            proxy._loop = asyncio.get_running_loop()
            proxy._stop = asyncio.Event()
            try:
                await proxy.serve()
            except BaseException as error:
                started.set_exception(error)
                return
            started.set_result(None)
            await proxy._stop.wait()
            await proxy.drain()

        proxy._thread = threading.Thread(
            target=lambda: asyncio.run(run()), name="krammar-proxy", daemon=True
        )
        proxy._thread.start()
        started.result()
        return proxy

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as ``host:port``."""
        assert self._address is not None, "the proxy has not started"
        return str(self._address)

    def close(self) -> None:
        """Stop a proxy of ``start``: accept no connection, wait for responses, and close all connections."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- in an event loop

    async def serve(self) -> None:
        """Listen, in the running event loop. Connections are served until ``drain``.

        Raises:
            ProxyError: the proxy cannot listen.
        """
        try:
            port = await self.listeners.listen(self._listen, self._upstream)
        except ListenError as error:
            raise ProxyError(str(error)) from error
        self._address = Address(self.advertise or _reachable(self._listen.host), port)

    async def drain(self) -> None:
        """Accept no connection, wait for the responses to requests in flight, and close all connections."""
        self._draining = True
        await self.listeners.finish_accepting()
        self.listeners.close()
        for link in list(self._links):
            link.drain()
        if self._links:
            self._idle.clear()
            try:
                async with asyncio.timeout(self._drain_timeout):
                    await self._idle.wait()
            except TimeoutError:
                LOG.warning(
                    "%d connections closed with requests in flight after %g s",
                    len(self._links),
                    self._drain_timeout,
                )
        for link in list(self._links):
            link.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _serve_port(
        self, listen: Address, bind_host: str, upstream: Address
    ) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            lambda: self._link(bind_host, upstream), *listen, backlog=_BACKLOG
        )

    def _link(self, bind_host: str, upstream: Address) -> Requests:
        self._numbers += 1
        return Link(self, self._numbers, bind_host, upstream).requests

    def opened(self, link: Link) -> None:
        """Handle a connection of a client."""
        self._links.add(link)
        self.name_node(link)
        if self._draining:
            link.abort()

    def learn(self, nodes: Iterable[tuple[Address, int]]) -> None:
        """Learn the node ids of brokers from a response."""
        before = dict(self._nodes)
        self._nodes.update(nodes)
        if self._nodes != before:
            for link in self._links:
                self.name_node(link)

    def name_node(self, link: Link) -> None:
        """Say which node a connection leads to, if that is known."""
        link.connection.node = self._nodes.get(link.upstream)

    def lost(self, link: Link) -> None:
        """Handle the end of a connection."""
        self._links.discard(link)
        if not self._links:
            self._idle.set()


class Link(Shared):
    """A connection of a client, and its connection to a broker."""

    def __init__(self, proxy: Proxy, number: int, bind_host: str, upstream: Address) -> None:
        super().__init__(
            proxy.chain, Connection(number, "?", str(upstream)), proxy.memory, proxy.max_frame
        )
        self._proxy = proxy
        self._bind_host = bind_host
        self.upstream = upstream
        self._connecting: asyncio.Task[None] | None = None
        self._host = bind_host
        self._is_open = False
        self._responses = Responses(self)
        self.requests = Requests(self, self._responses)
        self.requests.peer = self._responses
        self._responses.peer = self.requests

    def made(self) -> None:
        transport = self.requests.transport
        assert transport is not None
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer:
            self.connection.client = str(Address(peer[0], peer[1]))
        self._host = advertised_host(self._proxy.advertise, self._bind_host, local[0])
        self._proxy.opened(self)
        self.requests.hold("connecting")
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await loop.create_connection(lambda: self._responses, *self.upstream)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            self._log(logging.WARNING, f"cannot reach {self.upstream}: {escape(describe(error))}")
            self.abort()
            return
        if self.closed:
            self.abort()
            return
        self._is_open = True
        try:
            self.chain.opened(self.connection)
        except Exception as error:
            self.fail(error)
            return
        self.requests.release("connecting")

    def lost(self) -> None:
        self.closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._is_open:
            for error in self.chain.closed(self.connection):
                self._log(logging.WARNING, str(error))
        self._proxy.lost(self)

    def fail(self, error: BaseException) -> None:
        if self.closed:
            return
        level, text = why_closed(error)
        self._log(level, text, None if level < logging.ERROR else error)
        LOG.debug("where it was raised:", exc_info=error.__cause__ or error)
        self.closed = True
        if isinstance(error, Close) and error.reset and self.requests.transport is not None:
            reset(self.requests.transport)
        for end in (self.requests, self._responses):
            if end.transport is not None:
                end.transport.close()

    def _log(self, level: int, text: str, bug: BaseException | None = None) -> None:
        LOG.log(
            level,
            "connection %d of %s: %s",
            self.connection.number,
            self.connection.client,
            text,
            exc_info=bug,
        )

    def drain(self) -> None:
        self.requests.drain()

    def abort(self) -> None:
        """Close both ends at once."""
        for end in (self.requests, self._responses):
            if end.transport is not None:
                end.transport.abort()

    # -- responses that are changed

    def rewrite(self, api_key: int, response: Any) -> bool | Awaitable[bool]:
        if api_key == API_VERSIONS:
            return bool(limit_versions(self.chain.package, response, self.chain.limits))
        nodes = endpoints(api_key, response)
        if not nodes:
            return False
        self._proxy.learn((Address(node.host, node.port), node_id(node)) for node in nodes)
        known = self._proxy.listeners.known
        ports = [known(self._bind_host, Address(node.host, node.port)) for node in nodes]
        if None in ports:
            return self._open_ports(nodes)
        for node, port in zip(nodes, ports, strict=True):
            node.host, node.port = self._host, port
        return True

    async def _open_ports(self, nodes: list[Any]) -> bool:
        for node in nodes:
            upstream = Address(node.host, node.port)
            port = await self._proxy.listeners.port_for(self._bind_host, upstream)
            if port is None:  # with the broker's own address, the client would leave the proxy
                raise Refused(f"no port for broker {upstream}")
            node.host, node.port = self._host, port
        return True


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
