"""The proxy: listens, connects to brokers, and runs the chain of filters over each connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from krammar.auth.tls_acceptor import TlsAcceptor
from krammar.proxy.addresses import MAX_LISTENERS, Address, ListenError, Listeners, Upstreams
from krammar.proxy.before_login import WorksBeforeLogin
from krammar.proxy.brokers import Brokers
from krammar.proxy.chain import Chain
from krammar.proxy.clients import LOG, Clients
from krammar.proxy.ends import MEMORY
from krammar.proxy.interface import Connection, Filter
from krammar.proxy.link import Common, Link
from krammar.proxy.links import Links
from krammar.proxy.reloading import Reloading
from krammar.proxy.requests import Requests
from krammar.proxy.rewritten import Views
from krammar.proxy.server_thread import ServerThread
from krammar.proxy.shared import LargeFrames
from krammar.util.listening import listening_sockets, start_listening
from krammar.util.sockets import why

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics
    from krammar.proxy.users import Passwords
    from krammar.util.http_page import HttpPage
    from krammar.util.prometheus import Registry

# The largest frame that is read, in bytes: a response of 50 MiB, Kafka's fetch.max.bytes, and what is around its records.
# Decoding and encoding one of 53 MB takes 152 MB.
MAX_READ = 52 << 20
# The bytes of all large frames that have arrived in part, above which the largest is refused; two always fit.
MAX_COLLECTED = 128 << 20
# What only some proxies need is imported when they are created: logins, and metrics.


class ProxyError(Exception):
    """The proxy cannot run."""


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
        drain_timeout: how long ``close`` waits for responses, in seconds.
        clients: TLS and logins of clients: settings of a listener of Kafka's brokers, and ``security.protocol``.
        users: who can log in at the proxy: passwords by name, or a TOML file with them.
        brokers: TLS to brokers, and the proxy's login: settings of Kafka's clients.
        secret: hides which users exist. Default: a random one.
        metrics_port: where Prometheus reads metrics, as a port of loopback or ``host:port``. Default: nowhere.
        counts: whether to count for the metrics of all workers.
        pass_unreadable: pass frames that cannot be read for a filter, or for addresses, as they came, and leave addresses of
            brokers that get no port. Filters do not see such frames. Default: close their connections.
        allot: returns the port for a broker, by the name of the listener, its host, and the broker's address. Several
            processes then share the ports. Default: any free port.

    Raises:
        TypeError: an element of ``filters`` is not a filter for ``protocol``.
        ValueError: an address has another form, there is no listener, or a setting is invalid or names a file that cannot be read.
    """

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
        secret: bytes | None = None,
        metrics_port: str | int | None = None,
        counts: bool = False,
        pass_unreadable: bool = False,
        allot: Callable[[str, str, Address], Awaitable[int]] | None = None,
    ) -> None:
        if protocol is None:
            import kafka_wire

            protocol = kafka_wire
        try:
            self._clients = Clients(clients or {}, users, secret)
        except ValueError as error:
            raise ValueError(f"clients: {error}") from None
        try:
            self._brokers = Brokers(brokers or {})
        except ValueError as error:
            raise ValueError(f"brokers: {error}") from None
        self._reloading = Reloading((self._clients, self._brokers))
        if self._clients.users is not None:
            from krammar.proxy.client_login import ClientLogin

            filters = [ClientLogin(self._clients.users, self._accepted, self._refused), *filters]
        elif self._brokers.sasl:
            from krammar.proxy.client_login import NoClientLogin

            filters = [NoClientLogin(), *filters]
        # Ports to listen on can be 0.
        self.metrics_port = None if metrics_port is None else Address.parse(str(metrics_port))
        counts = counts or metrics_port is not None
        chain = Chain(
            protocol,
            filters,
            refuse_unknown=refuse_unknown,
            counts=counts,
            pass_unreadable=pass_unreadable,
        )
        self.metrics: ProxyMetrics | None = None
        self._page: HttpPage | None = None
        self._links = Links()
        if counts:
            from krammar.proxy.metrics import ProxyMetrics, page

            self.metrics = ProxyMetrics(chain.package, lambda: len(self._links))
            self._page = page(self._registry)
        names = {"": listen} if isinstance(listen, str) else listen
        if not names:
            raise ValueError("a proxy needs at least one listener")
        self.listen = {name: Address.parse(each) for name, each in names.items()}
        self._shares_ports = allot is not None
        self.listeners = {
            name: Listeners(
                partial(self._serve_port, name),
                self.notice,
                lambda: MAX_LISTENERS,
                None if allot is None else partial(allot, name),
            )
            for name in names
        }
        self._common = Common(
            chain,
            self._clients,
            self._brokers,
            self.listeners,
            Upstreams(upstream),
            advertise,
            bytearray(MEMORY),
            max_frame,
            WorksBeforeLogin(chain),
            self.metrics,
            Views(),
            self.opened,
            self.lost,
            self.log,
            LargeFrames(max(MAX_COLLECTED, 2 * max_frame)),
        )
        self.drain_timeout = drain_timeout
        self._numbers = 0
        self.addresses: dict[str, str] = {}
        self.metrics_address: tuple[str, int] | None = None
        self._thread: ServerThread | None = None

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
        return str(Address(self._common.advertise or listening.reachable_host, listening.port))

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
            try:
                port = await self.listeners[name].listen(listen, self._common.upstreams.broker)
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

    async def drain(self) -> None:
        """Accept no connection, wait for the responses to requests in flight, and close all connections."""
        await self._stop_accepting()
        await self._links.drain(self.drain_timeout)
        await self._close_page()

    async def abort(self) -> None:
        """Accept no connection, and close all connections at once."""
        await self._stop_accepting()
        await self._links.abort()
        await self._close_page()

    async def _stop_accepting(self) -> None:
        self._links.refuse()
        self._reloading.stop()
        for each in self.listeners.values():
            await each.finish_accepting()
        self._close_listeners()

    async def _close_page(self) -> None:
        if self._page is not None:
            await self._page.close()
        self._common.worker.close()

    async def _serve_port(
        self, listener: str, listen: Address, bind_host: str, upstream: Address
    ) -> asyncio.Server | TlsAcceptor:
        if not self._clients.tls:
            return await start_listening(
                lambda: self._link(listener, bind_host, upstream),
                *listen,
                reuse_port=self._shares_ports,
            )
        (listening,) = await listening_sockets(*listen, reuse_port=self._shares_ports)
        return TlsAcceptor(
            listening,
            self._context,
            lambda client: self._link(listener, bind_host, upstream),
            enter=lambda client, number: True,
            leave=lambda client: None,
            log=LOG,
            name=str(listen),
        )

    def _context(self) -> ssl.SSLContext:
        assert self._clients.context is not None
        return self._clients.context

    def _link(self, listener: str, bind_host: str, upstream: Address) -> Requests:
        self._numbers += 1
        if self.metrics is not None:
            self.metrics.accepted += 1
        connection = Connection(self._numbers, "?", str(upstream), listener)
        return Link(self._common, connection, bind_host, upstream).requests

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
        self._links.add(link)

    def lost(self, link: Link) -> None:
        """Handle the end of a connection."""
        self._links.remove(link)
