"""A link: a connection of a client, and its connection to a broker; and the open links of a proxy."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krammar.proxy.addresses import (
    ANY,
    CONNECT_TIMEOUT,
    Address,
    Upstreams,
    advertised_host,
    describe,
)
from krammar.proxy.brokers import Brokers
from krammar.proxy.chain import Chain, RestrictedRoutes, RouteTable
from krammar.proxy.clients import LOG, Clients
from krammar.proxy.delivery import reset
from krammar.proxy.errors import FilterError, Refused, hook_error, why_closed
from krammar.proxy.in_flight import InFlight, OwnRequests, PendingRequest
from krammar.proxy.interface import Close, Connection, Exchange
from krammar.proxy.listeners import Listeners, Port
from krammar.proxy.relay import LinkState, Resources, Side
from krammar.proxy.rewriter import NodeIds, Rewriter
from krammar.proxy.route import Route
from krammar.proxy.scanner import RequestScanner, ResponseScanner
from krammar.util.printable import escape

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics

# Bytes of a frame before the login, as Kafka's default for sasl.server.max.receive.size.
_LARGEST_BEFORE_LOGIN = 524_288
# Turns of the event loop in which asyncio ends connections, also one that it has just accepted.
_TURNS = 4


@dataclass(slots=True)
class LinkSettings:
    """The filters and settings of links, until the proxy gets others.

    Attributes:
        advertise: the proxy's host in responses, or None
        max_frame: the largest frame that is read, in bytes
        before_login: the routes before the login of a client
        before_metadata: the routes to a broker whose address is not known
        links: the number of open links that have them
        successor: what links get that begin now; None if it is this object
    """

    chain: Chain
    clients: Clients
    brokers: Brokers
    advertise: str | None
    max_frame: int
    before_login: RestrictedRoutes
    before_metadata: RestrictedRoutes
    links: int = 0
    successor: LinkSettings | None = None


@dataclass(slots=True)
class LinkServices:
    """What all links of a proxy use, whatever their settings.

    Attributes:
        upstreams: the addresses of the cluster
        metrics: counts requests and responses; None without a metrics page
        opened, lost: called at the begin and the end of a link
        log: writes a line with a level, and the exception if it is a bug
    """

    upstreams: Upstreams
    resources: Resources
    metrics: ProxyMetrics | None
    opened: Callable[[Link], None]
    lost: Callable[[Link], None]
    log: Callable[[int, str, BaseException | None], None]
    nodes: NodeIds = field(default_factory=NodeIds)


class Link:
    """A connection of a client, and its connection to a broker.

    Attributes:
        client, broker: its sides
    """

    def __init__(
        self,
        settings: LinkSettings,
        services: LinkServices,
        connection: Connection,
        listeners: Listeners,
        port: Port,
    ) -> None:
        self.settings = settings
        self.connection = connection
        self._services = services
        self._metrics = services.metrics
        self._listeners = listeners
        self._port = port
        self._upstream = port.upstream
        self._is_limited = False
        self._renewal: asyncio.TimerHandle | None = None
        self._tls_error: str | None = None
        self._is_open = False
        resources = services.resources
        self._state = state = LinkState(connection, self.fail)
        self._table = table = RouteTable(settings.chain, settings.max_frame)
        self._in_flight = in_flight = InFlight()
        self._rewriter = Rewriter(table, listeners, services.nodes)
        self.client = Side(True, state, resources, self)
        self.broker = Side(False, state, resources, self)
        self.client.peer, self.broker.peer = self.broker, self.client
        self._responses = ResponseScanner(
            self.broker,
            state,
            table,
            resources,
            in_flight,
            services.metrics,
            rewriter=self._rewriter,
            new_exchange=self._new_exchange,
            check_drained=self._check_drained,
        )
        self._requests = RequestScanner(
            self.client,
            state,
            table,
            resources,
            in_flight,
            services.metrics,
            responses=self._responses,
            new_exchange=self._new_exchange,
            log_in=self._log_in,
            check_drained=self._check_drained,
        )
        self._own = OwnRequests(state, table, resources, self._requests.send_own)
        reads = settings.chain.package.is_kafka_like
        self.client.scan = self._requests.scan if reads else self.client.pass_all
        self.broker.scan = self._responses.scan if reads else self.broker.pass_all

    # -- what happens to the sides

    def connected(self, side: Side) -> None:
        if side is self.client:
            self._accepted()

    def resumed(self, side: Side) -> None:
        if side is self.client:
            self._requests.check_eof()
        else:
            self._responses.check_end()

    def half_closed(self, side: Side) -> None:
        side.ended = True
        if side is self.client:
            self._state.note_end("by the client")
            self._requests.check_eof()
        else:
            self._state.note_end("by the broker")
            self._responses.broker_ended()

    def disconnected(self, side: Side, error: Exception | None) -> None:
        side.ended = True
        if side is self.client:
            self._client_lost(error)
        else:
            self._broker_lost(error)

    # -- the begin

    def _accepted(self) -> None:
        transport = self.client.transport
        assert transport is not None
        while self.settings.successor is not None:  # since the handshake began
            self.settings = self.settings.successor
        settings, self._upstream = self.settings, self._port.upstream
        self._table.chain = settings.chain
        self._state.locked, self._is_limited = settings.clients.sasl, self._port.is_unknown
        self._choose_routes()
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer:
            self.connection.client = str(Address(peer[0], peer[1]))
        if self._upstream != ANY:
            self.connection.upstream = str(self._upstream)
        host = advertised_host(settings.advertise, self._listeners.host, local[0])
        self._rewriter.use_host(host)
        self._listeners.entered(self._port)
        self._services.opened(self)
        if settings.clients.tls and not self._read_certificate(transport):
            return
        self._requests.wait_for(self._connect())

    def _choose_routes(self) -> None:
        settings, table = self.settings, self._table
        table.max_frame = settings.max_frame
        if self._state.locked:
            table.routes = settings.before_login
            table.max_frame = min(settings.max_frame, _LARGEST_BEFORE_LOGIN)
        elif self._is_limited:
            table.routes = settings.before_metadata
        else:
            table.routes = settings.chain.routes

    def _read_certificate(self, transport: asyncio.BaseTransport) -> bool:
        """Set the client's name from its certificate; return whether that is valid."""
        from krammar.auth.names import CertificateError
        from krammar.auth.server_tls import name_of_peer

        try:
            self.connection.principal = name_of_peer(transport)
        except CertificateError as error:
            self.fail(Refused(str(error)))
            return False
        return True

    async def _connect(self) -> None:
        upstreams = self._services.upstreams
        for upstream in upstreams.to_try(self._upstream):
            if await self._reach(upstream):
                upstreams.reached(upstream)
                self._upstream = upstream
                self.connection.upstream = str(upstream)
                break
        else:
            self.abort()
            return
        if self._state.closed:
            self.abort()
            return
        if self.settings.brokers.sasl:
            try:
                await self._log_in()
            except Exception as error:
                self.fail(error)
                return
        self._is_open = True
        chain = self._table.chain
        try:
            chain.opened(self.connection)
            self._state.watches = chain.watches(self.connection, self)
        except Exception as error:
            self.fail(error)

    async def _reach(self, upstream: Address) -> bool:
        """Connect to an address; return whether it was reached."""
        loop, brokers = asyncio.get_running_loop(), self.settings.brokers
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await loop.create_connection(lambda: self.broker, *upstream, ssl=brokers.context)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            self._log(logging.WARNING, f"cannot reach {upstream}: {escape(brokers.why(error))}")
            return False
        return True

    async def _log_in(self) -> None:
        """Log in at the broker, while no requests of the client are passed on."""
        try:
            seconds, self._state.offered = await self.settings.brokers.log_in(
                self._own.send_login, self._upstream
            )
        except Refused as error:
            raise (
                error if self._tls_error is None else Refused(self._tls_error)
            ) from error.__cause__
        if seconds and not self._state.closed:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(seconds, self._requests.renew_login)

    def unlock(self) -> None:
        """Serve all requests, after the login of the client."""
        self._state.locked = False
        self._choose_routes()

    def _new_exchange(self, route: Route, correlation_id: int, client_id: str | None) -> Exchange:
        node = None if self._is_limited else self._port.node
        self.connection.node = self._services.nodes.get(self._upstream) if node is None else node
        return self._own.exchange(route, correlation_id, client_id)

    # -- as ``interface.Relay``

    def is_undecided(self, is_request: bool, correlation_id: int) -> bool:
        """Return whether a frame that has arrived waits for filters, or for ports, so that notes can follow."""
        scanner = self._requests if is_request else self._responses
        return scanner.is_undecided(correlation_id)

    def pause(self, paused: bool) -> None:
        """Stop reading from client and broker, or go on."""
        for side in (self.client, self.broker):
            if paused:
                side.hold("watch")
            else:
                side.release("watch")

    # -- the end

    @property
    def is_connected(self) -> bool:
        """Whether the broker was reached."""
        return self.broker.transport is not None

    @property
    def is_closed(self) -> bool:
        """Whether nothing that arrives is handled any more."""
        return self._state.closed

    @property
    def is_busy(self) -> bool:
        """Whether requests have no response yet, or a frame is incomplete or in an async method of a filter."""
        return bool(self._in_flight.entries) or self._responses.is_busy or self._requests.is_busy

    def drain(self) -> None:
        """Begin no other request, and close the link after the responses."""
        self._requests.drain()

    def _check_drained(self) -> None:
        """Close the link if it drains, and nothing is under way."""
        if not self.is_busy:
            self.client.close()

    def abort(self) -> None:
        """Close both sides at once."""
        self.client.abort()
        self.broker.abort()

    def fail(self, error: BaseException) -> None:
        """Close both sides because of an error."""
        state = self._state
        if state.closed:
            return
        self._count_filter_error(error)
        level, text = why_closed(error)
        state.note_end(f"by the proxy: {error.reason if isinstance(error, Close) else text}")
        self._log(level, text, None if level < logging.ERROR else error)
        LOG.debug("where it was raised:", exc_info=error.__cause__ or error)
        state.closed = True
        if isinstance(error, Close) and error.reset and self.client.transport is not None:
            reset(self.client.transport)
        self.client.close()
        self.broker.close()

    def _broker_lost(self, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self._state.note_end(f"broker: {self.settings.brokers.why(error)}")
        if isinstance(error, ssl.SSLError):  # for example, TLS 1.3 refuses certificates late
            why = self.settings.brokers.why(error)
            self._tls_error = f"connection to {self._upstream}: {why}"
            self.fail(Refused(self._tls_error))
        self._responses.broker_lost()

    def _client_lost(self, error: Exception | None) -> None:
        state = self._state
        state.closed = True
        state.note_end(
            f"client: {describe(error)}" if isinstance(error, OSError) else "by the proxy"
        )
        for each in state.watches:
            try:
                each.closed()
            except BaseException as raised:
                self._note_failure(hook_error(each, "closed", raised))
        if self._renewal is not None:
            self._renewal.cancel()
        if self._is_open:
            for failure in self._table.chain.closed(self.connection):
                self._note_failure(failure)
        if self._metrics is not None:
            for entry in self._in_flight.entries:
                if type(entry) is PendingRequest and entry.started:
                    self._metrics.error(entry.route.api_key, "lost")
        self._listeners.left(self._port)
        self._services.lost(self)
        self._requests.client_lost()
        self._responses.client_lost()
        self._in_flight.fail_own()
        self.broker.abort()

    def _note_failure(self, error: Exception) -> None:
        """Log an error that a filter has raised at the end of the link."""
        self._count_filter_error(error)
        self._log(logging.WARNING, str(error))

    def _count_filter_error(self, error: BaseException) -> None:
        if self._metrics is not None and isinstance(error, FilterError):
            self._metrics.filter_error(str(error).partition(" ")[0])  # the name of the method

    def _log(self, level: int, text: str, bug: BaseException | None = None) -> None:
        number, client = self.connection.number, self.connection.client
        self._services.log(level, f"connection {number} of {client}: {text}", bug)


class Links:
    """The open links, by the numbers of their connections. After ``refuse``, those that are added are closed."""

    def __init__(self) -> None:
        self._open: dict[int, Link] = {}
        self._refuses = False
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def of(self, connection: Connection) -> Link | None:
        """Return the link of a connection; None after its end."""
        return self._open.get(connection.number)

    def add(self, link: Link) -> None:
        self._open[link.connection.number] = link
        if self._refuses:
            link.abort()

    def refuse(self) -> None:
        """Close the links that are added from now on."""
        self._refuses = True

    def remove(self, link: Link) -> None:
        self._open.pop(link.connection.number, None)
        if not self._open:
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Wait for the responses to requests in flight, at most so many seconds, and close all links."""
        for link in list(self._open.values()):
            link.drain()
        if self._open:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                LOG.warning(
                    "%d connections closed with requests in flight after %g s",
                    len(self._open),
                    seconds,
                )
        await self.abort()

    async def abort(self) -> None:
        """Close all links at once."""
        for link in list(self._open.values()):
            link.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
