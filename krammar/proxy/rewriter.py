"""Keeps a client on the proxy: replaces addresses of brokers by the proxy's, and limits versions, in its responses.

Responses that were rewritten are remembered. Clients ask for the same metadata and versions again and again, and brokers
mostly send the same bytes. What the proxy builds from a response depends only on these bytes, on the ports of the proxy, and
on what filters name. When a port closes, the responses are forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from krammar.proxy.addresses import Address
from krammar.proxy.chain import RouteTable
from krammar.proxy.errors import Refused
from krammar.proxy.rewrite import Endpoint, endpoints, limit_versions
from krammar.proxy.route import Route
from krammar.util.sockets import address_text
from krammar.wire.kafka import API_VERSIONS, METADATA, has_api_versions, is_named

# Responses that repeat: Metadata, FindCoordinator, ApiVersions, DescribeCluster. Others contain offsets or records.
_REPEATED = frozenset({3, 10, API_VERSIONS, 60})
# Entries of a cache, and their bytes. If it is full, it is emptied: what clients still ask for is soon there again.
MAX_ENTRIES = 64
MAX_BYTES = 4 << 20

Versions = Mapping[int, tuple[int, int]]


class Known(NamedTuple):
    """A rewritten response.

    Attributes:
        rest: the bytes after the correlation id; None if the response does not change
        prefix: the length prefix of the rewritten frame
        offered: the broker's versions, for a response to ApiVersions
        notes: what has changed, in words
    """

    rest: bytes | None
    prefix: bytes
    offered: Versions | None
    notes: tuple[str, ...] = ()


class Rewritten:
    """The rewritten responses for clients that see the proxy under one address.

    Attributes:
        forgotten: whether it remembers nothing any more, because it could name ports that are closed
    """

    def __init__(self) -> None:
        self.forgotten = False
        # By the bytes of the response after its correlation id. The route is another one after filters have changed.
        self.known: dict[tuple[Route, bytes], Known] = {}
        self._bytes = 0

    def add(
        self,
        route: Route,
        before: bytes,
        after: bytes,
        offered: Versions | None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """Remember a response. ``Known`` describes the other arguments.

        Args:
            before: the frame from the broker.
            after: the frame for the client, which is the same object if nothing has changed.
        """
        if self.forgotten:
            return
        changed = after is not before
        size = len(before) + (len(after) if changed else 0)
        if route.api_key not in _REPEATED or size > MAX_BYTES // 4:
            return
        if len(self.known) >= MAX_ENTRIES or self._bytes + size > MAX_BYTES:
            self.known.clear()
            self._bytes = 0
        self._bytes += size
        rest = after[8:] if changed else None
        self.known[route, before[8:]] = Known(rest, after[:4], offered, notes)

    def forget(self) -> None:
        """Forget all responses, also those that are being rewritten now."""
        self.forgotten = True
        self.known.clear()


# Hosts under which clients see a listener, whose responses are remembered.
_MAX_VIEWS = 4


class Views:
    """The rewritten responses of a listener, by the host under which clients see it."""

    def __init__(self) -> None:
        self._views: dict[str, Rewritten] = {}

    def get(self, host: str) -> Rewritten:
        """Return the responses of a view. The others are forgotten if there are too many."""
        if host not in self._views and len(self._views) >= _MAX_VIEWS:
            self.forget()
        return self._views.setdefault(host, Rewritten())

    def forget(self) -> None:
        """Forget all responses: they can name ports that have changed."""
        for each in self._views.values():
            each.forget()
        self._views.clear()


class NodeIds:
    """The node ids of brokers that responses have named, the newest last.

    Attributes:
        most: addresses whose node ids are remembered
    """

    most = 4_096

    def __init__(self) -> None:
        self._by_address: dict[Address, int] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def get(self, address: Address) -> int | None:
        return self._by_address.get(address)

    def learn(self, address: Address, node: int) -> None:
        """Remember the node id of a broker, and forget the oldest one if there are too many."""
        self._by_address.pop(address, None)
        self._by_address[address] = node
        if len(self._by_address) > self.most:
            del self._by_address[next(iter(self._by_address))]


class PortsOfBrokers(Protocol):
    """The ports of a listener, which replace the addresses of brokers."""

    @property
    def host(self) -> str: ...

    @property
    def views(self) -> Views: ...

    def take_addresses(self, named: Collection[tuple[int, Address]]) -> None:
        """Handle that a response lists all brokers."""

    def known(self, node: int, upstream: Address) -> int | None:
        """Return the port of a broker that a response names, or None if it has none that leads to this address."""

    async def port_for(self, node: int, upstream: Address) -> int | None:
        """Return the port of a broker, opened or led to its address now if necessary; None if that fails."""


class Rewriter:
    """Changes the responses of one connection.

    Attributes:
        rewritten: responses that were rewritten for clients with the same view of the proxy

    Args:
        ports: those of the listener to which the client has connected.
        nodes: learns the node ids of brokers.
    """

    def __init__(self, table: RouteTable, ports: PortsOfBrokers, nodes: NodeIds) -> None:
        self._table = table
        self._ports = ports
        self._nodes = nodes
        self._host = ports.host
        self.rewritten = Rewritten()

    def use_host(self, host: str) -> None:
        """Use the host by which the client reaches the proxy."""
        self._host = host
        self.rewritten = self._ports.views.get(host)

    def rewrite(self, api_key: int, response: Any) -> list[str] | Awaitable[list[str]]:
        """Replace addresses and versions in a response, in place; return what has changed, in words.

        The result is to be awaited if ports have to be opened.
        """
        if self.rewritten.forgotten:
            self.rewritten = self._ports.views.get(self._host)
        package = self._table.chain.package
        if api_key == API_VERSIONS and has_api_versions(package):
            return limit_versions(package, response, self._table.chain.limits)
        # A response can name the same broker for thousands of groups.
        by_broker: dict[tuple[int, str, int], list[Endpoint]] = {}
        for each in endpoints(response):
            by_broker.setdefault(each.place, []).append(each)
        brokers = {
            (node, Address(host, port)): found for (node, host, port), found in by_broker.items()
        }
        if api_key == METADATA and is_named(package, METADATA, "Metadata"):
            self._ports.take_addresses(brokers.keys())
        numbers = []
        for node, upstream in brokers:
            self._nodes.learn(upstream, node)
            numbers.append(self._ports.known(node, upstream))
        if None in numbers:
            return self._open_ports(brokers)
        return [
            self._replace(upstream, named, port)
            for ((_, upstream), named), port in zip(brokers.items(), numbers, strict=True)
        ]

    def _replace(self, upstream: Address, named: list[Endpoint], port: int | None) -> str:
        """Replace the address of a broker by the proxy's; return what was done."""
        for each in named:
            each.move(self._host, port)
        return f"{upstream} replaced by {address_text((self._host, port))}"

    async def _open_ports(self, brokers: dict[tuple[int, Address], list[Endpoint]]) -> list[str]:
        notes = []
        for (node, upstream), named in brokers.items():
            port = await self._ports.port_for(node, upstream)
            if port is not None:
                notes.append(self._replace(upstream, named, port))
            elif not self._table.chain.pass_unreadable:
                # With the broker's own address, the client would leave the proxy.
                raise Refused(f"no port for broker {upstream}")
        return notes
