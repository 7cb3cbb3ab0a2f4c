"""One node of a broker: its listeners and connections, its handlers, and the groups that it coordinates."""

from __future__ import annotations

import ssl
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_wire import ErrorCode

from krammar.broker.config.broker_config import attribute
from krammar.broker.connections import Connections
from krammar.broker.dispatch import Handlers
from krammar.broker.errors import BrokerError
from krammar.broker.groups.coordinator import GroupCoordinator
from krammar.broker.nodes import Addresses, Logs, Nodes, OwnLogs
from krammar.broker.server import Server

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig, Listener
    from krammar.broker.elections import Elections
    from krammar.broker.log.manager import LogManager
    from krammar.broker.security.users import Credentials
    from krammar.broker.timers import Timers
    from krammar.broker.topics import Topics
    from krammar.broker.transactions.coordinator import TransactionCoordinator

_FACTORS = {
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
}


class Node:
    """One node. Call ``assemble``, then ``listen``; after ``close``, ``listen`` opens the same ports again.

    ``handlers``, ``groups``  exist after ``assemble``
    """

    handlers: Handlers
    groups: GroupCoordinator
    _server: Server

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.addresses = Addresses(config)
        self.connections = Connections()
        self._tls: dict[str, ssl.SSLContext] = {}

    def read_tls(self) -> None:
        """Read the keys and certificates. Raises ConfigError."""
        self._tls = {
            each.name: _tls_context(self.config, each) for each in self.config.listeners if each.tls
        }

    def assemble(
        self,
        timers: Timers,
        credentials: Credentials,
        nodes: Nodes,
        cluster: ClusterMetadata,
        logs: LogManager,
        topics: Topics,
        transactions: TransactionCoordinator,
        elections: Elections,
    ) -> None:
        """Build the parts that handle requests. Each part gets only the parts that it uses."""
        config = self.config
        own: Logs = logs
        coordinated: Logs = logs
        if len(nodes) > 1:
            refusals = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
            own, coordinated = (OwnLogs(cluster, logs, config.node_id, each) for each in refusals)
        self.groups = GroupCoordinator(config, timers, cluster, coordinated, topics)
        self.handlers = Handlers(
            config=config,
            timers=timers,
            nodes=nodes,
            cluster=cluster,
            logs=own,
            coordinated=coordinated,
            topics=topics,
            groups=self.groups,
            transactions=transactions,
            connections=self.connections,
            elections=elections,
        )
        self._server = Server(config, timers, credentials, self.handlers, self.connections)

    async def listen(self) -> None:
        """Open the listeners that are closed. Raises BrokerError."""
        if self._server.is_listening:
            return
        for listener in self.config.listeners:
            bound = self.addresses.get(listener.name)
            port = listener.port if bound is None else bound[1]
            try:
                bound = await self._server.listen(listener, port, self._tls.get(listener.name))
            except OSError as error:
                raise BrokerError(
                    f"cannot listen on {listener.host}:{port}: {error.strerror}"
                ) from None
            self.addresses[listener.name] = bound

    def start(self) -> None:
        """Start the periodic work."""
        self.groups.start()
        self._server.sweep_idle()

    async def close(self) -> None:
        """Close the listeners and all connections."""
        if hasattr(self, "_server"):
            await self._server.close()


def _tls_context(config: BrokerConfig, listener: Listener) -> ssl.SSLContext:
    from krammar.broker.security.tls import server_context

    return server_context(config, listener)


def node_configs(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """Return the settings of each node: ids and ports count up from those of ``config``.

    Several nodes have three replicas by default, as in Kafka, or as many as there are nodes.
    """
    factors = dict.fromkeys(_FACTORS - config.static.keys(), min(count, 3))
    found = []
    for number in range(count):
        own = copy(config)
        shift = number * len(config.listeners)
        own.node_id = config.node_id + number
        own.listeners = [
            replace(
                each,
                port=each.port and each.port + shift,
                advertised_port=each.advertised_port and each.advertised_port + shift,
            )
            for each in config.listeners
        ]
        for name, value in factors.items():
            setattr(own, attribute(name), value)
        own.static = {
            **config.static,
            **{name: str(value) for name, value in factors.items()},
            "node.id": str(own.node_id),
            "listeners": ",".join(
                f"{each.name}://{each.host}:{each.port}" for each in own.listeners
            ),
        }
        found.append(own)
    return found
