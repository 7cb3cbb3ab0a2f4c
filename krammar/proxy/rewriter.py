"""Keeps a client on the proxy: replaces addresses of brokers by the proxy's, and limits versions, in its responses."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from krammar.proxy.addresses import Address
from krammar.proxy.chain import RouteTable
from krammar.proxy.errors import Refused
from krammar.proxy.listeners import Listeners
from krammar.proxy.rewrite import Endpoint, endpoints, limit_versions
from krammar.proxy.rewritten import Rewritten
from krammar.util.sockets import address_text
from krammar.wire.kafka import API_VERSIONS, METADATA, has_api_versions, is_named

# Addresses of brokers whose node ids are remembered.
_MOST_NODES = 4_096


class NodeIds:
    """The node ids of brokers that responses have named, the newest last."""

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
        if len(self._by_address) > _MOST_NODES:
            del self._by_address[next(iter(self._by_address))]


class Rewriter:
    """Changes the responses of one connection.

    ``rewritten``  responses that were rewritten for clients with the same view of the proxy

    Args:
        listeners: the ports that replace addresses.
        nodes: learns the node ids of brokers.
    """

    def __init__(self, table: RouteTable, listeners: Listeners, nodes: NodeIds) -> None:
        self._table = table
        self._listeners = listeners
        self._nodes = nodes
        self._host = listeners.host
        self.rewritten = Rewritten()

    def use_host(self, host: str) -> None:
        """Use the host by which the client reaches the proxy."""
        self._host = host
        self.rewritten = self._listeners.views.get(host)

    def rewrite(self, api_key: int, response: Any) -> list[str] | Awaitable[list[str]]:
        """Replace addresses and versions in a response, in place; return what has changed, in words.

        The result is to be awaited if ports have to be opened.
        """
        if self.rewritten.forgotten:
            self.rewritten = self._listeners.views.get(self._host)
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
            self._listeners.take_addresses(brokers.keys())
        ports = []
        for node, upstream in brokers:
            self._nodes.learn(upstream, node)
            ports.append(self._listeners.known(node, upstream))
        if None in ports:
            return self._open_ports(brokers)
        return [
            self._replace(upstream, named, port)
            for ((_, upstream), named), port in zip(brokers.items(), ports, strict=True)
        ]

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
            elif not self._table.chain.pass_unreadable:
                # With the broker's own address, the client would leave the proxy.
                raise Refused(f"no port for broker {upstream}")
        return notes
