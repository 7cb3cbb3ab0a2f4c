"""A connection of a client, and its connection to a broker."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krammar.proxy.addresses import (
    ANY,
    CONNECT_TIMEOUT,
    Address,
    Upstreams,
    advertised_host,
    describe,
)
from krammar.proxy.brokers import Brokers
from krammar.proxy.chain import Chain
from krammar.proxy.clients import LOG, Clients
from krammar.proxy.delivery import reset
from krammar.proxy.in_flight import PendingRequest
from krammar.proxy.interface import Close, Connection
from krammar.proxy.limited import LARGEST_BEFORE_LOGIN, LimitedWorks
from krammar.proxy.listeners import Listeners, Port
from krammar.proxy.relayed import RelayedRequests, RelayedResponses
from krammar.proxy.requests import Requests
from krammar.proxy.responses import Responses
from krammar.proxy.rewrite import Endpoint, endpoints, limit_versions
from krammar.proxy.running import FilterError, hook_error, why_closed
from krammar.proxy.shared import LargeFrames, Shared
from krammar.proxy.work import Refused, Work
from krammar.util.printable import escape
from krammar.util.sockets import address_text
from krammar.util.turns import Turns
from krammar.util.worker import WorkerThread
from krammar.wire.kafka import API_VERSIONS, METADATA, has_api_versions, is_named

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics

# Addresses of brokers whose node ids are remembered.
_MOST_NODES = 4_096


@dataclass(slots=True)
class Common:
    """What connections of a proxy have in common, until it gets other settings.

    ``links``          the number of open connections that have it
    ``successor``      what connections get that begin now; None if it is this object

    ``upstreams``      the addresses of the cluster
    ``advertise``      the proxy's host in responses, or None
    ``memory``         for one read, of any connection
    ``max_frame``      the largest frame that is read, in bytes
    ``before_login``     the work for requests before the login of a client
    ``before_metadata``  the work for requests to a broker whose address is not known
    ``metrics``        counts requests and responses; None without a metrics page
    ``nodes``          the node ids of brokers that responses have named, the newest last
    ``opened``, ``lost``  called at the begin and the end of a connection
    ``log``            writes a line with a level, and the exception if it is a bug
    ``large``          limits the large frames that are collected
    ``turns``          shares each turn of the event loop among all connections
    ``worker``         decodes and encodes large frames
    """

    chain: Chain
    clients: Clients
    brokers: Brokers
    upstreams: Upstreams
    advertise: str | None
    memory: bytearray
    max_frame: int
    before_login: LimitedWorks
    before_metadata: LimitedWorks
    metrics: ProxyMetrics | None
    opened: Callable[[Link], None]
    lost: Callable[[Link], None]
    log: Callable[[int, str, BaseException | None], None]
    large: LargeFrames
    nodes: dict[Address, int] = field(default_factory=dict)
    turns: Turns = field(default_factory=Turns)
    worker: WorkerThread = field(default_factory=WorkerThread)
    links: int = 0
    successor: Common | None = None


class Link(Shared):
    """A connection of a client, and its connection to a broker."""

    def __init__(
        self, common: Common, connection: Connection, listeners: Listeners, port: Port
    ) -> None:
        super().__init__(common.chain, connection, common.memory, common.max_frame)
        self.common = common
        self.metrics = common.metrics
        self.large, self.turns, self.worker = common.large, common.turns, common.worker
        self._listeners = listeners
        self._port = port
        self._upstream = port.upstream
        self._is_limited = False
        self._renewal: asyncio.TimerHandle | None = None
        self._host = listeners.host
        self._tls_error: str | None = None
        self._is_open = False
        self._responses, self.requests = self._directions()
        self.requests.peer = self._responses
        self._responses.peer = self.requests

    def _directions(self) -> tuple[Responses, Requests]:
        if self.chain.package.is_kafka_like:
            responses = Responses(self)
            return responses, Requests(self, responses)
        relayed = RelayedResponses(self)
        return relayed, RelayedRequests(self, relayed)

    def made(self) -> None:
        transport = self.requests.transport
        assert transport is not None
        while self.common.successor is not None:  # since the handshake began
            self.common = self.common.successor
        common, self._upstream = self.common, self._port.upstream
        self.chain = common.chain
        self.locked, self._is_limited = common.clients.sasl, self._port.is_unknown
        self._choose_works()
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer:
            self.connection.client = str(Address(peer[0], peer[1]))
        if self._upstream != ANY:
            self.connection.upstream = str(self._upstream)
        self._host = advertised_host(common.advertise, self._listeners.host, local[0])
        self.rewritten = self._listeners.views.get(self._host)
        self._listeners.entered(self._port)
        common.opened(self)
        if common.clients.tls and not self._read_certificate(transport):
            return
        self.requests.wait_for(self._connect())

    def _choose_works(self) -> None:
        common = self.common
        self.max_frame = common.max_frame
        if self.locked:
            self.works = common.before_login
            self.max_frame = min(common.max_frame, LARGEST_BEFORE_LOGIN)
        elif self._is_limited:
            self.works = common.before_metadata
        else:
            self.works = common.chain.works

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
        upstreams = self.common.upstreams
        for upstream in upstreams.to_try(self._upstream):
            if await self._reach(upstream):
                upstreams.reached(upstream)
                self._upstream = upstream
                self.connection.upstream = str(upstream)
                break
        else:
            self.abort()
            return
        if self.closed:
            self.abort()
            return
        if self.common.brokers.sasl:
            try:
                await self.log_in()
            except Exception as error:
                self.fail(error)
                return
        self._is_open = True
        try:
            self.chain.opened(self.connection)
            self.watches = self.chain.watches(self.connection, self)
        except Exception as error:
            self.fail(error)

    async def _reach(self, upstream: Address) -> bool:
        """Connect to an address; return whether it was reached."""
        loop, brokers = asyncio.get_running_loop(), self.common.brokers
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await loop.create_connection(
                    lambda: self._responses, *upstream, ssl=brokers.context
                )
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            self._log(logging.WARNING, f"cannot reach {upstream}: {escape(brokers.why(error))}")
            return False
        return True

    async def log_in(self) -> None:
        try:
            seconds, self.offered = await self.common.brokers.log_in(
                self.requests.send_now, self._upstream
            )
        except Refused as error:
            raise (
                error if self._tls_error is None else Refused(self._tls_error)
            ) from error.__cause__
        if seconds and not self.closed:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(seconds, self.requests.renew_login)

    def broker_lost(self, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self.end(f"broker: {self.common.brokers.why(error)}")
        if isinstance(error, ssl.SSLError):  # for example, TLS 1.3 refuses certificates late
            self._tls_error = f"connection to {self._upstream}: {self.common.brokers.why(error)}"
            self.fail(Refused(self._tls_error))

    def unlock(self) -> None:
        """Serve all requests, after the login of the client."""
        self.locked = False
        self._choose_works()

    def unknown(self, api: int) -> Work | None:
        works = self.works
        return (works if isinstance(works, LimitedWorks) else self.chain).unknown(api)

    def name_node(self) -> None:
        node = None if self._is_limited else self._port.node
        self.connection.node = self.common.nodes.get(self._upstream) if node is None else node

    @property
    def is_connected(self) -> bool:
        """Whether the broker was reached."""
        return self._responses.transport is not None

    def is_undecided(self, is_request: bool, correlation_id: int) -> bool:
        end = self.requests if is_request else self._responses
        return end.is_undecided(correlation_id)

    def pause(self, paused: bool) -> None:
        for end in (self.requests, self._responses):
            if paused:
                end.hold("watch")
            else:
                end.release("watch")

    def lost(self, error: Exception | None) -> None:
        self.closed = True
        self.end(f"client: {describe(error)}" if isinstance(error, OSError) else "by the proxy")
        for each in self.watches:
            try:
                each.closed()
            except BaseException as raised:
                self._note_failure(hook_error(each, "closed", raised))
        if self._renewal is not None:
            self._renewal.cancel()
        if self._is_open:
            for failure in self.chain.closed(self.connection):
                self._note_failure(failure)
        if self.metrics is not None:
            for entry in self.in_flight:
                if type(entry) is PendingRequest and entry.started:
                    self.metrics.error(entry.work.api_key, "lost")
        self._listeners.left(self._port)
        self.common.lost(self)

    def fail(self, error: BaseException) -> None:
        if self.closed:
            return
        self._count_filter_error(error)
        level, text = why_closed(error)
        self.end(f"by the proxy: {error.reason if isinstance(error, Close) else text}")
        self._log(level, text, None if level < logging.ERROR else error)
        LOG.debug("where it was raised:", exc_info=error.__cause__ or error)
        self.closed = True
        if isinstance(error, Close) and error.reset and self.requests.transport is not None:
            reset(self.requests.transport)
        for end in (self.requests, self._responses):
            if end.transport is not None:
                end.transport.close()

    def _note_failure(self, error: Exception) -> None:
        """Log an error that a filter has raised at the end of the connection."""
        self._count_filter_error(error)
        self._log(logging.WARNING, str(error))

    def _count_filter_error(self, error: BaseException) -> None:
        if self.metrics is not None and isinstance(error, FilterError):
            self.metrics.filter_error(str(error).partition(" ")[0])  # the name of the method

    def _log(self, level: int, text: str, bug: BaseException | None = None) -> None:
        number, client = self.connection.number, self.connection.client
        self.common.log(level, f"connection {number} of {client}: {text}", bug)

    def drain(self) -> None:
        self.requests.drain()

    def abort(self) -> None:
        """Close both ends at once."""
        for end in (self.requests, self._responses):
            if end.transport is not None:
                end.transport.abort()

    # -- responses that are changed

    def rewrite(self, api_key: int, response: Any) -> list[str] | Awaitable[list[str]]:
        if self.rewritten.forgotten:
            self.rewritten = self._listeners.views.get(self._host)
        package = self.chain.package
        if api_key == API_VERSIONS and has_api_versions(package):
            return limit_versions(package, response, self.chain.limits)
        # A response can name the same broker for thousands of groups.
        by_broker: dict[tuple[int, str, int], list[Endpoint]] = {}
        for each in endpoints(response):
            by_broker.setdefault(each.place, []).append(each)
        brokers = {
            (node, Address(host, port)): found for (node, host, port), found in by_broker.items()
        }
        if api_key == METADATA and is_named(package, METADATA, "Metadata"):
            self._listeners.take_addresses(brokers.keys())
        ports = []
        for node, upstream in brokers:
            self._learn(node, upstream)
            ports.append(self._listeners.known(node, upstream))
        if None in ports:
            return self._open_ports(brokers)
        return [
            self._replace(upstream, named, port)
            for ((_, upstream), named), port in zip(brokers.items(), ports, strict=True)
        ]

    def _learn(self, node: int, upstream: Address) -> None:
        nodes = self.common.nodes
        nodes.pop(upstream, None)
        nodes[upstream] = node
        if len(nodes) > _MOST_NODES:
            del nodes[next(iter(nodes))]

    def _replace(self, upstream: Address, named: list[Endpoint], port: int | None) -> str:
        """Replace the address of a broker by the proxy's; return what was done."""
        for each in named:
            each.move(self._host, port)
        return f"{upstream} replaced by {address_text((self._host, port))}"

    async def _open_ports(self, brokers: dict[tuple[int, Address], list[Endpoint]]) -> list[str]:
        notes = []
        for (node, upstream), named in brokers.items():
            port = await self._listeners.port_for(node, upstream)
            if port is not None:
                notes.append(self._replace(upstream, named, port))
            elif not self.chain.pass_unreadable:
                # With the broker's own address, the client would leave the proxy.
                raise Refused(f"no port for broker {upstream}")
        return notes
