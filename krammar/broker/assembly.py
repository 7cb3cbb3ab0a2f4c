"""The parts of a broker: builds them, and closes them in the opposite order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from types import ModuleType
from typing import TYPE_CHECKING

import kafka_wire
from kafka_wire import ErrorCode

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig, Listener
from krammar.broker.config.definitions import split_address
from krammar.broker.dispatch import Handlers
from krammar.broker.elections import Elections
from krammar.broker.errors import BrokerError
from krammar.broker.groups.coordinator import GroupCoordinator
from krammar.broker.log.environment import Environment
from krammar.broker.log.manager import LogManager
from krammar.broker.node import Node, node_configs
from krammar.broker.nodes import Logs, Nodes, OwnLogs
from krammar.broker.protection import check_folder, check_settings
from krammar.broker.security.users import Credentials
from krammar.broker.server import Server
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.broker.transactions.coordinator import TransactionCoordinator
from krammar.util.sockets import address_text, why

if TYPE_CHECKING:
    from krammar.broker.metrics import Metrics
    from krammar.proxy.interface import Filter

log = logging.getLogger("krammar.broker")


class Assembly:
    """The parts of one node or of several. Each part gets only the parts that it uses."""

    def __init__(
        self,
        config: BrokerConfig | None,
        nodes: int,
        clock: Callable[[], int],
        filters: Iterable[Filter],
    ) -> None:
        config = BrokerConfig.defaults() if config is None else config
        configs = [config] if nodes == 1 else node_configs(config, nodes)
        self.config = configs[0]
        self.nodes = {each.node_id: Node(each) for each in configs}
        first = self.nodes[self.config.node_id]
        self.addresses = first.addresses
        self.connections = first.connections
        for node in self.nodes.values():
            node.connections.share(self.connections)
        if filters := tuple(filters):
            self._filter(kafka_wire, *filters)
        self._clock = clock
        self._opened = AsyncExitStack()  # closes everything that is open

    def _build(self) -> None:
        """Build all parts in the running event loop. Raises BrokerError, ConfigError and OSError."""
        self.loop = asyncio.get_running_loop()
        self.timers = Timers(self.loop, self._clock)
        check_settings(self.config)
        for node in self.nodes.values():
            node.read_tls()
        self._open_files()
        self._assemble()

    async def _listen(self, node: Node) -> None:
        """Open the listeners of a node, and register it in the cluster."""
        await node.listen()
        listeners = [each for each in node.config.listeners if each.kafka]
        self.cluster.register(
            [(each, *node.addresses.advertised(each)) for each in listeners],
            node_id=node.config.node_id,
            rack=node.config.broker_rack,
        )

    def _open_files(self) -> None:
        """Open the logs and the metadata."""
        config = self.config
        self.logs = LogManager(
            config.log_dirs,
            Environment(now_ms=self.timers.now_ms, warn=log.warning, fsync=config.fsync),
        )
        self._opened.callback(self.logs.close)
        self.cluster = ClusterMetadata(
            config, node_ids=list(self.nodes), now_ms=self.timers.now_ms, warn=log.warning
        )
        self._opened.callback(self.cluster.close)
        check_folder(config, self.cluster)
        self._opened.callback(self.timers.cancel_all)

    def _assemble(self) -> None:
        """Open the topics, and build the parts of all nodes. Each part gets only the parts that it uses."""
        timers, cluster, logs = self.timers, self.cluster, self.logs
        addresses = {node_id: node.addresses for node_id, node in self.nodes.items()}
        nodes = Nodes(cluster.running, addresses)
        configs = [node.config for node in self.nodes.values()]
        self.topics = topics = Topics(configs, cluster, logs, nodes)
        self.elections = Elections(self.config, cluster, logs, nodes)
        self.transactions = TransactionCoordinator(
            self.config, timers, cluster, logs, topics, self._marked
        )
        for node in self.nodes.values():
            config = node.config
            own: Logs = logs
            coordinated: Logs = logs
            if len(nodes) > 1:
                refusals = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
                own, coordinated = (
                    OwnLogs(cluster, logs, config.node_id, each) for each in refusals
                )
            own_timers = node.timers = timers if len(nodes) == 1 else timers.branch()
            slices = node.connections.slices
            node.groups = GroupCoordinator(config, own_timers, cluster, coordinated, topics, slices)
            node.handlers = Handlers(
                config=config,
                timers=own_timers,
                nodes=nodes,
                cluster=cluster,
                logs=own,
                coordinated=coordinated,
                topics=topics,
                groups=node.groups,
                transactions=self.transactions,
                connections=node.connections,
                elections=self.elections,
            )
            credentials = Credentials(config, cluster, own_timers)
            node.server = Server(config, own_timers, credentials, node.handlers, node.connections)
            self._opened.callback(node.groups.close)
            self.elections.changed.append(node.groups.take_over)
        for node in self.nodes.values():
            self._opened.push_async_callback(node.server.close)
        first = self.nodes[self.config.node_id]
        self.groups, self.handlers = first.groups, first.handlers

    def _marked(self, partition: int, producer_id: int, committed: bool) -> None:
        for node in self.nodes.values():
            node.groups.offsets.transaction_ended(partition, producer_id, committed)

    async def _serve_metrics(self, address: str, metrics: Metrics) -> None:
        from krammar.util.http_page import HttpPage
        from krammar.util.prometheus import CONTENT_TYPE

        slices = self.connections.slices
        page = HttpPage("/metrics", CONTENT_TYPE, lambda: slices.run_from_start(metrics.text()))
        host, port = split_address("krammar.metrics", address)
        try:
            self.metrics_address = await page.listen(host, port)
        except (OSError, UnicodeError) as error:
            raise BrokerError(f"cannot listen on {host}:{port} for metrics: {why(error)}") from None
        self._opened.push_async_callback(page.close)

    def _filter(self, protocol: ModuleType, *filters: Filter) -> None:
        """Run filters over the requests of a protocol, before those that run already."""
        from krammar.proxy.chain import Chain

        known = self.connections.chains.get(protocol)
        if known is not None:
            for each in filters:
                known.add_first(each)
            return
        chain = Chain(protocol, filters)
        for node in self.nodes.values():
            node.connections.chains[protocol] = chain

    async def shut_down(self) -> None:
        """Close connections, then flush and close the logs. A second call does nothing."""
        await self._opened.pop_all().aclose()

    # Addresses.

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each node's first Kafka listener, for the setting of clients."""
        found = [node.addresses.advertised(self._first) for node in self.nodes.values()]
        return ",".join(map(address_text, found))

    @property
    def host(self) -> str:
        """The host of the first Kafka listener."""
        return self.addresses.advertised(self._first)[0]

    @property
    def port(self) -> int:
        """The port of the first Kafka listener."""
        return self.addresses.advertised(self._first)[1]

    @property
    def _first(self) -> Listener:
        return next(listener for listener in self.config.listeners if listener.kafka)
