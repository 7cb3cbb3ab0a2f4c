"""Finds the handler of an API, and gives each group of handlers the parts that it uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from krammar.broker.apis import APIS, REFUSED

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.connections import Connections
    from krammar.broker.elections import Elections
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.handlers.api_versions import ApiVersionsHandlers
    from krammar.broker.handlers.configs import ConfigHandlers
    from krammar.broker.handlers.describe import DescribeHandlers
    from krammar.broker.handlers.elections import ElectionHandlers
    from krammar.broker.handlers.fetch import FetchHandlers
    from krammar.broker.handlers.group_offsets import GroupOffsetHandlers
    from krammar.broker.handlers.groups import GroupHandlers
    from krammar.broker.handlers.metadata import MetadataHandlers
    from krammar.broker.handlers.node import NodeHandlers
    from krammar.broker.handlers.offsets import OffsetHandlers
    from krammar.broker.handlers.produce import ProduceHandlers
    from krammar.broker.handlers.security import SecurityHandlers
    from krammar.broker.handlers.topics import TopicHandlers
    from krammar.broker.handlers.transaction_admin import TransactionAdminHandlers
    from krammar.broker.handlers.transactions import TransactionHandlers
    from krammar.broker.handlers.wafka import WafkaHandlers
    from krammar.broker.nodes import Logs, Nodes
    from krammar.broker.session import Session
    from krammar.broker.timers import Timers
    from krammar.broker.topics import Topics
    from krammar.broker.transactions.coordinator import TransactionCoordinator

    # Returns a response, ``Steps`` of one, or an awaitable of one.
    Handler = Callable[[Session, Any, int], Any]


class Handlers(dict[int, "Handler"]):
    """All handlers by api key. The handler of an unserved API returns an error.

    A group is imported and created at its first use, so that a broker starts fast.
    """

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        nodes: Nodes,
        cluster: ClusterMetadata,
        logs: Logs,
        coordinated: Logs,
        topics: Topics,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        connections: Connections,
        elections: Elections,
    ) -> None:
        """Make the handlers of one node.

        Args:
            logs: the logs that the node leads
            coordinated: the same with the errors of coordinators
        """
        self._config = config
        self._timers = timers
        self._nodes = nodes
        self._cluster = cluster
        self._logs = logs
        self._coordinated = coordinated
        self._topics = topics
        self._groups = groups
        self._transactions = transactions
        self._connections = connections
        self._observe: Callable[[Handler], Handler] | None = None
        self._elections = elections

    def __missing__(self, api_key: int) -> Handler:
        api = APIS.get(api_key)
        handler: Handler = attrgetter(REFUSED if api is None else api.handler)(self)
        if self._observe is not None:
            handler = self._observe(handler)
        self[api_key] = handler
        return handler

    def observe_by(self, observe: Callable[[Handler], Handler]) -> None:
        """Replace all handlers by those that ``observe`` returns for them."""
        self._observe = observe
        self.clear()

    def see(self, cluster: ClusterMetadata) -> None:
        """Answer from this state of the cluster from now on."""
        self._cluster = cluster
        self._nodes = self._nodes.seeing(cluster.running)
        self.clear()
        for name, part in vars(type(self)).items():
            if isinstance(part, cached_property):
                vars(self).pop(name, None)

    # The groups, by the names in apis.py.

    @cached_property
    def api_versions(self) -> ApiVersionsHandlers:
        from krammar.broker.handlers.api_versions import ApiVersionsHandlers

        return ApiVersionsHandlers(self._config, self._cluster)

    @cached_property
    def produce(self) -> ProduceHandlers:
        from krammar.broker.handlers.produce import ProduceHandlers

        return ProduceHandlers(
            self._config, self._nodes, self._cluster, self._logs, self._transactions
        )

    @cached_property
    def fetch(self) -> FetchHandlers:
        from krammar.broker.handlers.fetch import FetchHandlers

        return FetchHandlers(
            self._config, self._timers, self._nodes, self._cluster, self._logs, self._connections
        )

    @cached_property
    def offsets(self) -> OffsetHandlers:
        from krammar.broker.handlers.offsets import OffsetHandlers

        return OffsetHandlers(self._cluster, self._logs)

    @cached_property
    def metadata(self) -> MetadataHandlers:
        from krammar.broker.handlers.metadata import MetadataHandlers

        return MetadataHandlers(self._config, self._nodes, self._cluster, self._topics)

    @cached_property
    def topics(self) -> TopicHandlers:
        from krammar.broker.handlers.topics import TopicHandlers

        return TopicHandlers(self._config, self._nodes, self._cluster, self._logs, self._topics)

    @cached_property
    def configs(self) -> ConfigHandlers:
        from krammar.broker.handlers.configs import ConfigHandlers

        return ConfigHandlers(self._config, self._cluster, self._topics)

    @cached_property
    def groups(self) -> GroupHandlers:
        from krammar.broker.handlers.groups import GroupHandlers

        return GroupHandlers(self._config, self._nodes, self._cluster, self._topics, self._groups)

    @cached_property
    def group_offsets(self) -> GroupOffsetHandlers:
        from krammar.broker.handlers.group_offsets import GroupOffsetHandlers

        return GroupOffsetHandlers(
            self._config, self._timers, self._cluster, self._groups, self._transactions
        )

    @cached_property
    def transactions(self) -> TransactionHandlers:
        from krammar.broker.handlers.transactions import TransactionHandlers

        return TransactionHandlers(
            self._cluster, self._coordinated, self._topics, self._transactions
        )

    @cached_property
    def transaction_admin(self) -> TransactionAdminHandlers:
        from krammar.broker.handlers.transaction_admin import TransactionAdminHandlers

        return TransactionAdminHandlers(
            self._timers,
            self._cluster,
            self._logs,
            self._coordinated,
            self._topics,
            self._transactions,
        )

    @cached_property
    def security(self) -> SecurityHandlers:
        from krammar.broker.handlers.security import SecurityHandlers

        return SecurityHandlers(self._cluster)

    @cached_property
    def describe(self) -> DescribeHandlers:
        from krammar.broker.handlers.describe import DescribeHandlers

        return DescribeHandlers(self._config, self._nodes, self._cluster, self._logs)

    @cached_property
    def elections(self) -> ElectionHandlers:
        from krammar.broker.handlers.elections import ElectionHandlers

        return ElectionHandlers(self._elections)

    @cached_property
    def node(self) -> NodeHandlers:
        from krammar.broker.handlers.node import NodeHandlers

        return NodeHandlers(self._config, self._timers, self._nodes, self._cluster, self._logs)

    @cached_property
    def wafka(self) -> WafkaHandlers:
        from krammar.broker.handlers.wafka import WafkaHandlers

        return WafkaHandlers(self._config, self._timers, self._cluster, self._logs, self._topics)

    @cached_property
    def unserved(self) -> Handler:
        from krammar.broker.handlers.unserved import unserved

        return unserved
