"""The parts of a broker, built in the running event loop, and closed in the opposite order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kafka_wire import ErrorCode

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.dispatch import Handlers
from krammar.broker.elections import Elections
from krammar.broker.groups.coordinator import GroupCoordinator
from krammar.broker.log.environment import Environment
from krammar.broker.log.manager import LogManager
from krammar.broker.node import Node
from krammar.broker.nodes import Logs, Nodes, OwnLogs
from krammar.broker.protection import check_folder, check_settings, has_authorizer
from krammar.broker.releases import release_of
from krammar.broker.security.users import Credentials
from krammar.broker.server import Server
from krammar.broker.share.dead_letters import DeadLetters
from krammar.broker.share.state import ShareStates
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.broker.transactions.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from krammar.broker.authorization import BrokerAuthorizer
    from krammar.broker.quotas.enforcement import Enforcement

log = logging.getLogger("krammar.broker")


class Assembly:
    """The parts that the nodes of a broker share. It also gives each node its own parts.

    Each part gets only the parts that it uses, and none gets the assembly: the broker has it, in order to
    add nodes.
    """

    def __init__(
        self,
        config: BrokerConfig,
        nodes: Mapping[int, Node],
        clock: Callable[[], int],
        opened: AsyncExitStack,
    ) -> None:
        """Build all parts in the running event loop. ``opened`` gets the functions that close them.

        Raises BrokerError, ConfigError and OSError.
        """
        self.loop = asyncio.get_running_loop()
        self.timers = Timers(self.loop, clock)
        self._config, self._nodes, self._opened = config, nodes, opened
        check_settings(config)
        for node in nodes.values():
            node.read_tls()
        self._open_files()
        addresses = {node_id: node.addresses for node_id, node in nodes.items()}
        served = self._served = Nodes(self.cluster.running, addresses)
        configs = [node.config for node in nodes.values()]
        self.topics = Topics(configs, self.cluster, self.logs, served)
        self.elections = Elections(config, self.cluster, self.logs, served)
        self.authorizer: BrokerAuthorizer | None = None
        if has_authorizer(config):
            # Imported here because most brokers of tests have none.
            from krammar.broker.authorization import BrokerAuthorizer

            self.authorizer = BrokerAuthorizer(config, self.cluster)
        self.transactions = TransactionCoordinator(
            config, self.timers, self.cluster, self.logs, self.topics, self._marked
        )
        self.share_states = ShareStates(config, self.timers, self.cluster, self.logs, self.topics)
        self.dead_letters = DeadLetters(config, self.timers, self.cluster, self.logs, self.topics)
        for node in nodes.values():
            self._equip(node)
        self._quotas: Enforcement | None = None
        self.cluster.watchers["ClientQuotaRecord"] = lambda record, added: self._enforce_quotas()
        if self.cluster.quotas:
            self._enforce_quotas()
        for node in nodes.values():
            opened.push_async_callback(node.server.close)

    def add(self, node: Node) -> None:
        """Give another node its parts. There are several nodes already. Raises ConfigError."""
        node.read_tls()
        self._served[node.config.node_id] = node.addresses
        self.cluster.add_node(node.config.node_id)
        self.topics.add_node(node.config)
        self._equip(node)
        self._limit_clients(node)
        self._opened.push_async_callback(node.server.close)

    def remove(self, node: Node) -> None:
        """Forget a node, which does not listen any more. Its other parts end with the broker."""
        self._served.pop(node.config.node_id, None)

    def _open_files(self) -> None:
        """Open the logs and the metadata."""
        config, timers = self._config, self.timers
        self.logs = LogManager(
            config.log_dirs,
            Environment(now_ms=timers.now_ms, warn=log.warning, fsync=config.fsync),
        )
        self._opened.callback(self.logs.close)
        self.cluster = ClusterMetadata(
            config, node_ids=list(self._nodes), now_ms=timers.now_ms, warn=log.warning
        )
        self._opened.callback(self.cluster.close)
        check_folder(config, self.cluster)
        self._opened.callback(timers.cancel_all)

    def _equip(self, node: Node) -> None:
        """Build the parts of a node."""
        nodes = self._served
        config, cluster = node.config, self.cluster
        own: Logs = self.logs
        coordinated: Logs = self.logs
        if len(nodes) > 1:
            refusals = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
            own, coordinated = (
                OwnLogs(cluster, self.logs, config.node_id, each) for each in refusals
            )
        node.timers = timers = self.timers if len(nodes) == 1 else self.timers.branch()
        node.groups = GroupCoordinator(
            config,
            timers,
            cluster,
            coordinated,
            self.topics,
            node.connections.slices,
            self.share_states,
        )
        node.handlers = Handlers(
            release=release_of(config.kafka_version, telemetry=config.client_telemetry),
            config=config,
            timers=timers,
            nodes=nodes,
            cluster=cluster,
            logs=own,
            coordinated=coordinated,
            topics=self.topics,
            groups=node.groups,
            transactions=self.transactions,
            share_states=self.share_states,
            dead_letters=self.dead_letters,
            connections=node.connections,
            elections=self.elections,
            authorizer=self.authorizer,
        )
        if self.authorizer is not None:
            node.handlers.guard_by(self.authorizer.guard)
        credentials = Credentials(config, cluster, timers)
        node.server = Server(config, timers, credentials, node.handlers, node.connections)
        self._opened.callback(node.groups.close)
        self.elections.changed.append(node.groups.take_over)

    def _enforce_quotas(self) -> None:
        """Enforce quotas from now on: those that there are, and all changes."""
        # Imported here because most brokers of tests have none.
        from krammar.broker.quotas.enforcement import Enforcement

        self._quotas = Enforcement(self.cluster)
        for node in self._nodes.values():
            self._limit_clients(node)

    def _limit_clients(self, node: Node) -> None:
        """Enforce quotas on a node, if there are any."""
        if self._quotas is not None:
            from krammar.broker.quotas.enforcement import NodeQuotas

            admission = node.connections.admission
            self._quotas.add(
                NodeQuotas(node.config, node.timers, self.cluster, node.handlers, admission)
            )

    def _marked(self, partition: int, producer_id: int, committed: bool) -> None:
        for node in self._nodes.values():
            node.groups.offsets.transaction_ended(partition, producer_id, committed)
