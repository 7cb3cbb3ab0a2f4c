"""The proxy: listens, connects to brokers, and runs the chain of filters over each connection."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from krammar.auth.tls_acceptor import TlsAcceptor
from krammar.proxy.addresses import Address, Upstreams
from krammar.proxy.brokers import Brokers
from krammar.proxy.chain import Chain, before_login, before_metadata
from krammar.proxy.clients import LOG, Clients
from krammar.proxy.held import HeldFilters
from krammar.proxy.interface import Connection, Filter
from krammar.proxy.link import Link, Links, LinkServices, LinkSettings
from krammar.proxy.listeners import FirstPorts, ListenError, Listeners, Port, SharedPorts
from krammar.proxy.partial_frames import LargeFrames
from krammar.proxy.ports import MAX_PORTS, PORT_TIMEOUT, FixedPorts, fixed_ports
from krammar.proxy.relay import Resources
from krammar.proxy.reloading import Reloading
from krammar.util.event_loop import ServerThread
from krammar.util.listening import listening_sockets, start_listening
from krammar.util.sockets import why

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics
    from krammar.proxy.users import Passwords
    from krammar.util.http_server import HttpPage
    from krammar.util.prometheus import Registry

# The largest frame that is read, in bytes: a response of 50 MiB, Kafka's fetch.max.bytes, and what is around its records.
# Decoding and encoding one of 53 MB takes 152 MB.
MAX_READ = 52 << 20
# The arguments of the class that ``Proxy.replace`` can change.
RUNNING = (
    "advertise",
    "refuse_unknown",
    "max_frame",
    "drain_timeout",
    "clients",
    "users",
    "brokers",
)
# What only some proxies need is imported when they are created: logins, and metrics.


class ProxyError(Exception):
    """The proxy cannot run."""


class Problems:
    """Collects what is wrong with settings, so that a user learns everything at once.

    Attributes:
        found: the errors
    """

    def __init__(self) -> None:
        self.found: list[Exception] = []

    @contextmanager
    def collect(self, name: str = "") -> Iterator[None]:
        """Add a ValueError or a TypeError that the block raises.

        Args:
            name: the setting, which precedes the message.
        """
        try:
            yield
        except (ValueError, TypeError) as error:
            self.found.append(ValueError(f"{name}: {error}") if name else error)

    def check(self) -> None:
        """Raise the error that was found; several ones as one ValueError with a line for each."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise ValueError("\n".join(map(str, self.found)))


class Parts(NamedTuple):
    """What connections of a proxy begin with."""

    chain: Chain
    clients: Clients
    brokers: Brokers


@dataclass(frozen=True, slots=True)
class Replacement:
    """Filters and settings that were checked, for connections that begin after ``Proxy.adopt``."""

    settings: LinkSettings
    reloading: Reloading
    drain_timeout: float


# The ports of brokers: for all listeners, or by the name of the listener. See ``FixedPorts``.
BrokerPorts = str | Mapping[str, Any]


class Proxy:
    """A proxy for one cluster. ``start`` runs it in a thread; ``serve`` runs it in the caller's event loop.

    Args:
        upstream: brokers of the cluster, as ``host:port``: a list, or a text with commas. If one cannot be reached,
            the proxy tries the next one. It finds the others in responses.
        filters: the chain, from the client to the broker.
        listen: where clients connect first, as ``host:port``. Port 0 selects a free one. Each further broker gets
            a free port of this host. For several listeners, which filters can tell apart by
            ``connection.listener``: a dictionary of names and addresses.
        advertise: the proxy's host in responses. Default: the host of ``listen``, or, if that means all
            addresses, the address to which the client has connected.
        protocol: a generated package. Default: ``kafka_wire``.
        refuse_unknown: close connections that send an API or a version that the protocol does not define.
            Default: pass such requests.
        max_frame: the largest frame that is read for a filter, or for addresses, in bytes; a frame needs up to
            five times its size in memory. Frames that only pass are not limited.
        broker_ports: the ports of brokers by node id, as a range such as ``"19092-19191"`` for the node ids from 0, as
            ``"1=19092,2=19093"``, or as a dictionary of node ids, or ranges of them, and ports. With several listeners: a
            dictionary of their names and such values. Default: free ports.
        broker_port_timeout: seconds after which a free port closes that no response names and no connection uses.
        drain_timeout: how long ``close`` waits for responses, in seconds.
        clients: TLS and logins of clients: settings of a listener of Kafka's brokers, and ``security.protocol``.
        users: who can log in at the proxy: passwords by name, or a TOML file with them.
        brokers: TLS to brokers, and the proxy's login: settings of Kafka's clients.
        secret: hides which users exist. Default: a random one.
        metrics_port: where Prometheus reads metrics, as a port of loopback or ``host:port``. Default: nowhere.
        counts: whether to count for the metrics of all workers.
        pass_unreadable: pass frames that cannot be read for a filter, or for addresses, as they came, and leave addresses of
            brokers that get no port. Filters do not see such frames. Default: close their connections.
        shared: allots the ports of brokers, if several processes share them. Default: this process does.

    Raises:
        TypeError: an element of ``filters`` is not a filter for ``protocol``.
        ValueError: an address has another form, there is no listener, or a setting is invalid or names a file that cannot be
            read; several errors are one with several lines.
    """

    # The ports of each listener.
    max_ports = MAX_PORTS
    # The bytes of all large frames that have arrived in part, above which the largest is refused.
    # Two always fit.
    max_collected = 128 << 20

    def __init__(
        self,
        upstream: str | Iterable[str],
        filters: Iterable[Filter] = (),
        *,
        listen: str | Mapping[str, str] = "127.0.0.1:0",
        advertise: str | None = None,
        protocol: ModuleType | None = None,
        refuse_unknown: bool = False,
        max_frame: int = MAX_READ,
        drain_timeout: float = 4.0,
        clients: Mapping[str, Any] | None = None,
        users: Passwords | None = None,
        brokers: Mapping[str, Any] | None = None,
        broker_ports: BrokerPorts | None = None,
        broker_port_timeout: float = PORT_TIMEOUT,
        secret: bytes | None = None,
        metrics_port: str | int | None = None,
        counts: bool = False,
        pass_unreadable: bool = False,
        shared: SharedPorts | None = None,
    ) -> None:
        if protocol is None:
            import kafka_wire

            protocol = kafka_wire
        self._protocol = protocol
        self._secret = os.urandom(32) if secret is None else secret
        self._pass_unreadable = pass_unreadable
        self._counts = counts or metrics_port is not None
        self.metrics: ProxyMetrics | None = None
        self._page: HttpPage | None = None
        self._links = Links()
        self._numbers = 0
        self.addresses: dict[str, str] = {}
        self.metrics_address: tuple[str, int] | None = None
        self._thread: ServerThread | None = None
        self._shared_ports = shared
        self.broker_port_timeout = broker_port_timeout
        self._ended = False
        self._held = HeldFilters()
        problems = Problems()
        with problems.collect():
            names = {"": listen} if isinstance(listen, str) else listen
            if not names:
                raise ValueError("a proxy needs at least one listener")
            self.listen = {name: Address.parse(each) for name, each in names.items()}
        with problems.collect():
            # Ports to listen on can be 0.
            self.metrics_port = None if metrics_port is None else Address.parse(str(metrics_port))
        upstreams = None
        with problems.collect():
            upstreams = Upstreams(upstream)
        self.fixed_ports: dict[str, FixedPorts] = {}
        if not problems.found and broker_ports is not None:
            with problems.collect("broker_ports"):
                ports = {name: each.port for name, each in self.listen.items()}
                metrics = self.metrics_port and self.metrics_port.port
                self.fixed_ports = fixed_ports(broker_ports, ports, metrics)
        with problems.collect():
            if not broker_port_timeout > 0:
                raise ValueError(
                    f"broker_port_timeout = {broker_port_timeout:g} is not more than 0"
                )
        options = {"refuse_unknown": refuse_unknown, "max_frame": max_frame}
        parts = self._parts(problems, list(filters), clients, users, brokers, options)
        problems.check()
        assert parts is not None
        assert upstreams is not None
        if self._counts:
            from krammar.proxy.metrics import ProxyMetrics, page

            self.metrics = ProxyMetrics(parts.chain.package, lambda: len(self._links))
            self._page = page(self._registry)
        self._settings = LinkSettings(
            parts.chain,
            parts.clients,
            parts.brokers,
            advertise,
            max_frame,
            before_login(parts.chain),
            before_metadata(parts.chain),
        )
        self._resources = Resources(LargeFrames(max(self.max_collected, 2 * max_frame)))
        self._services = LinkServices(
            upstreams, self._resources, self.metrics, self.opened, self.lost, self.log
        )
        self._held.hold(parts.chain.filters)
        self._reloading = Reloading((parts.clients, parts.brokers))
        self.listeners = {
            name: self._new_listeners(name, each.host, self.fixed_ports.get(name))
            for name, each in self.listen.items()
        }
        self.drain_timeout = drain_timeout

    def _new_listeners(
        self, name: str, host: str, fixed: FixedPorts | None, first: FirstPorts | None = None
    ) -> Listeners:
        return Listeners(
            name,
            host,
            self._serve_port,
            self.notice,
            lambda: self.max_ports,
            self.broker_port_timeout,
            fixed,
            self._shared_ports,
            first,
        )

    def _parts(
        self,
        problems: Problems,
        filters: list[Filter],
        clients: Mapping[str, Any] | None,
        users: Passwords | None,
        brokers: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Parts | None:
        """Return what connections begin with; None if something is invalid, which is added to ``problems``."""
        found_clients = found_brokers = None
        with problems.collect("clients"):
            found_clients = Clients(clients or {}, users, self._secret)
        with problems.collect("brokers"):
            found_brokers = Brokers(brokers or {})
        if found_clients is not None and found_clients.users is not None:
            from krammar.proxy.client_login import ClientLogin

            filters.insert(0, ClientLogin(found_clients.users, self._accepted, self._refused))
        elif found_brokers is not None and found_brokers.sasl:
            from krammar.proxy.client_login import NoClientLogin

            filters.insert(0, NoClientLogin())
        chain = None
        with problems.collect():
            if options["max_frame"] < 1:
                raise ValueError(f"max_frame = {options['max_frame']} is less than 1")
        with problems.collect():
            chain = Chain(
                self._protocol,
                filters,
                refuse_unknown=options["refuse_unknown"],
                counts=self._counts,
                pass_unreadable=self._pass_unreadable,
            )
        if chain is None or found_clients is None or found_brokers is None:
            return None
        return Parts(chain, found_clients, found_brokers)

    @classmethod
    def start(
        cls, upstream: str | Iterable[str], filters: Iterable[Filter] = (), **options: Any
    ) -> Self:
        """Start a proxy in a thread of its own; ``close`` or the end of ``with`` stops it.

        The arguments are those of the class. Methods of filters run in that thread.

        Raises:
            ProxyError: the proxy cannot listen.
        """
        proxy = cls(upstream, filters, **options)
        proxy._thread = ServerThread("krammar-proxy", proxy.serve, proxy.drain)
        proxy._thread.start()
        return proxy

    async def _registry(self) -> Registry:
        assert self.metrics is not None
        return self.metrics.registry

    def at(self, listening: Address) -> str:
        """Return the address for clients, from the one to listen on."""
        return str(Address(self._settings.advertise or listening.reachable_host, listening.port))

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as ``host:port``; of several listeners, that of the first one.

        ``addresses`` has those of all listeners by name.
        """
        assert self.addresses, "the proxy has not started"
        return next(iter(self.addresses.values()))

    def close(self) -> None:
        """Stop a proxy of ``start``: accept no connection, wait for responses, and close all connections."""
        if self._thread is not None:
            self._thread.close()

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
        for name, listen in self.listen.items():
            upstream = self._services.upstreams.broker
            try:
                port = await self.listeners[name].listen(listen, upstream)
                if self._shared_ports is None:
                    await self.listeners[name].open_fixed()
                # Otherwise they are opened when this process knows where the brokers are (``Worker.start``).
            except ListenError as error:
                self._close_listeners()
                raise ProxyError(str(error)) from error
            self.addresses[name] = self.at(Address(listen.host, port))
        if self.metrics_port is not None and self._page is not None:
            try:
                self.metrics_address = await self._page.listen(*self.metrics_port)
            except (OSError, UnicodeError) as error:
                self._close_listeners()
                raise ProxyError(
                    f"cannot listen on {self.metrics_port} for metrics: {why(error)}"
                ) from error
        self._reloading.start()

    def _close_listeners(self) -> None:
        for each in self.listeners.values():
            each.close()

    def reload(self) -> None:
        """Read keys, certificates and users again, for new connections. It also happens when their files change."""
        self._reloading.reload()

    # -- other filters and settings while it runs

    def replace(self, filters: Iterable[Filter], **settings: Any) -> None:
        """Use other filters, and other settings, for connections that begin from now on. Open ones keep theirs.

        The filters of before are closed after their last connection, unless they are among the new ones. Call this in any
        thread.

        Args:
            filters: the chain, from the client to the broker.
            settings: the arguments of the class of ``RUNNING``. Those that are not given get their defaults.

        Raises:
            TypeError, ValueError: as the class. Nothing has changed then.
        """
        replacement = self.prepare(filters, **settings)
        if self._thread is None:
            self.adopt(replacement)
        else:
            self._thread.call(lambda: self.adopt(replacement))

    def prepare(
        self,
        filters: Iterable[Filter],
        *,
        advertise: str | None = None,
        refuse_unknown: bool = False,
        max_frame: int = MAX_READ,
        drain_timeout: float = 4.0,
        clients: Mapping[str, Any] | None = None,
        users: Passwords | None = None,
        brokers: Mapping[str, Any] | None = None,
    ) -> Replacement:
        """Check filters and settings for ``adopt``, in any thread. Raises TypeError and ValueError, as the class."""
        before = self._settings
        problems = Problems()
        options = {"refuse_unknown": refuse_unknown, "max_frame": max_frame}
        parts = self._parts(problems, list(filters), clients, users, brokers, options)
        with problems.collect():
            if parts is not None and parts.clients.tls != before.clients.tls:
                raise ValueError(
                    "clients: TLS begins or ends only with a restart (security.protocol has changed)"
                )
        problems.check()
        assert parts is not None
        settings = LinkSettings(
            parts.chain,
            parts.clients,
            parts.brokers,
            advertise,
            max_frame,
            before_login(parts.chain),
            before_metadata(parts.chain),
        )
        return Replacement(settings, Reloading((parts.clients, parts.brokers)), drain_timeout)

    def adopt(self, replacement: Replacement) -> None:
        """Use what ``prepare`` has checked for new connections. Call this in the event loop that serves."""
        before, settings = self._settings, replacement.settings
        self._held.hold(settings.chain.filters)
        self._settings = before.successor = settings
        self._resources.large.limit = max(self.max_collected, 2 * settings.max_frame)
        self.drain_timeout = replacement.drain_timeout
        self._reloading.stop()
        self._reloading = replacement.reloading
        if self.addresses:
            self._reloading.start()
        for each in self.listeners.values():
            each.views.forget()
        if not before.links:
            self._held.release(before.chain.filters)

    async def drain(self) -> None:
        """Accept no connection, wait for the responses to requests in flight, and close all connections."""
        await self._stop_accepting()
        await self._links.drain(self.drain_timeout)
        await self._finish()

    async def abort(self) -> None:
        """Accept no connection, and close all connections at once."""
        await self._stop_accepting()
        await self._links.abort()
        await self._finish()

    async def _stop_accepting(self) -> None:
        self._links.refuse()
        self._reloading.stop()
        for each in self.listeners.values():
            await each.finish_accepting()
        self._close_listeners()

    async def _finish(self) -> None:
        if self._page is not None:
            await self._page.close()
        self._resources.worker.close()
        self.close_filters()

    def close_filters(self) -> None:
        """Close the filters that new connections would get. Call it for a proxy that does not serve; the end of others does."""
        if not self._ended:
            self._ended = True
            if not self._settings.links:
                self._held.release(self._settings.chain.filters)

    async def _serve_port(
        self, listeners: Listeners, port: Port, listen: Address
    ) -> asyncio.Server | TlsAcceptor:
        reuse = self._shared_ports is not None
        if not self._settings.clients.tls:
            return await start_listening(
                lambda: self._link(listeners, port).client, *listen, reuse_port=reuse
            )
        (listening,) = await listening_sockets(*listen, reuse_port=reuse)
        return TlsAcceptor(
            listening,
            self._context,
            lambda client: self._link(listeners, port).client,
            enter=lambda client, number: True,
            leave=lambda client: None,
            log=LOG,
            name=str(listen),
        )

    def _context(self) -> ssl.SSLContext:
        context = self._settings.clients.context
        assert context is not None
        return context

    def _link(self, listeners: Listeners, port: Port) -> Link:
        self._numbers += 1
        if self.metrics is not None:
            self.metrics.accepted += 1
        connection = Connection(self._numbers, "?", str(port.upstream), listeners.name)
        return Link(self._settings, self._services, connection, listeners, port)

    def _accepted(self, connection: Connection) -> None:
        if (link := self._links.of(connection)) is not None:
            link.unlock()

    def _refused(self, connection: Connection) -> None:
        if (link := self._links.of(connection)) is not None:
            # The answer is written first.
            asyncio.get_running_loop().call_soon(link.drain)

    def notice(self, text: str) -> None:
        """Handle that a port was opened, or cannot be."""
        LOG.info(text)

    def log(self, level: int, text: str, bug: BaseException | None) -> None:
        """Handle an event of a connection."""
        LOG.log(level, text, exc_info=bug)

    def opened(self, link: Link) -> None:
        """Handle a connection of a client."""
        link.settings.links += 1
        self._links.add(link)

    def lost(self, link: Link) -> None:
        """Handle the end of a connection."""
        self._links.remove(link)
        link.settings.links -= 1
        if not link.settings.links and (self._ended or link.settings is not self._settings):
            self._held.release(link.settings.chain.filters)
