"""Several nodes for one test or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from krammar.broker import Cluster, ConfigError
from krammar.broker.process import ClusterProcess
from krammar.testing.embedded import Embedded
from krammar.testing.options import Options, read_options

if TYPE_CHECKING:
    from krammar.broker.cluster import Partition
    from krammar.proxy.interface import Filter


class KafkaCluster(Embedded[Cluster]):
    """Running nodes on loopback, with what tests need. Use ``start``.

    The nodes share one storage; nothing is replicated. Clients see leaders, replicas and errors of
    a cluster.
    """

    _kind, _process_kind = Cluster, ClusterProcess

    def __init__(self, options: Options, nodes: int) -> None:
        super().__init__(options)
        self._nodes = nodes

    @classmethod
    def start(
        cls,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        nodes: int = 3,
        topics: Any = None,
        records: Mapping[str, Iterable[Any]] | None = None,
        sasl: str | None = None,
        users: Any = None,
        acls: Iterable[Mapping[str, Any]] | None = None,
        tls: bool = False,
        filters: Iterable[Filter] = (),
        process: bool = False,
        kafka_like_delays: bool | int = False,
        kafka_version: str | None = None,
        client_metrics: bool | Mapping[str, Any] = False,
        **more: Any,
    ) -> Self:
        """Start nodes on free ports; ``close`` or the end of ``with`` stops them.

        Args:
            nodes: the number of nodes; their ids begin at 1
            settings: these and the others are as in ``KafkaBroker.start``

        Raises:
            ConfigError: a keyword or a setting is unknown or invalid.
            BrokerError: a node cannot start.
            MissingExtra: ``tls`` needs trustme, which is not installed.
        """
        if type(nodes) is not int or nodes < 1:
            raise ConfigError("nodes", str(nodes), "is not a number of nodes from 1 on")
        options = read_options(
            settings,
            topics=topics,
            records=records,
            sasl=sasl,
            users=users,
            acls=acls,
            tls=tls,
            filters=filters,
            process=process,
            kafka_like_delays=kafka_like_delays,
            kafka_version=kafka_version,
            client_metrics=client_metrics,
            **more,
        )
        return cls(options, nodes)._begin()

    def _options_of_start(self) -> dict[str, Any]:
        return {"nodes": self._nodes}

    # The methods of the cluster that tests need most. ``broker`` has all of them.

    def stop_node(self, node_id: int) -> None:
        """Stop a node: its leaders move, then its connections close. Raises ValueError for an unknown one."""
        self.broker.stop_node(node_id)

    def kill_node(self, node_id: int) -> None:
        """Kill a node without moving its leaders. Raises ValueError for an unknown one."""
        self.broker.kill_node(node_id)

    def refuse_connections(self, *node_ids: int) -> None:
        """Let nodes refuse new connections, until ``heal``. Raises ValueError for an unknown one."""
        self.broker.refuse_connections(*node_ids)

    def coordinator(self, key: str, kind: Literal["group", "transaction"] = "group") -> int:
        """Return the coordinator of a group or a transactional id, or -1. Raises ValueError."""
        return self.broker.coordinator(key, kind)

    def move_coordinator(
        self, key: str, to: int, kind: Literal["group", "transaction"] = "group"
    ) -> None:
        """Make a running node the coordinator of a group or a transactional id. Raises ValueError."""
        self.broker.move_coordinator(key, to, kind)

    def start_node(self, node_id: int) -> None:
        """Start a stopped node on its old ports. Raises ValueError for an unknown one."""
        self.broker.start_node(node_id)

    def add_node(self) -> int:
        """Start another node, without partitions, and return its id."""
        return self.broker.add_node()

    def remove_node(self, node_id: int) -> None:
        """Remove a node for good; other nodes get its replicas. Raises ValueError for the first and for unknown ones."""
        self.broker.remove_node(node_id)

    def partition_from(self, others: Literal["clients", "nodes"], *node_ids: int) -> None:
        """Cut nodes off from clients or from the other nodes, until ``heal``. Raises ValueError."""
        self.broker.partition_from(others, *node_ids)

    def heal(self) -> None:
        """End all network partitions."""
        self.broker.heal()

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make a running node the leader of a partition. Raises ValueError if that is impossible."""
        self.broker.move_leader(topic, partition, to)

    def unclean_election(
        self, topic: str, partition: int, *, lose: int, to: int | None = None
    ) -> int:
        """Let a replica lead that lacks the last ``lose`` records. Returns the new end offset. Raises ValueError."""
        return self.broker.unclean_election(topic, partition, lose=lose, to=to)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or -1. Raises ValueError if it does not exist."""
        return self.broker.leader(topic, partition)

    def partition(self, topic: str, partition: int) -> Partition:
        """Return a partition: its ``leader``, ``leader_epoch``, ``replicas`` and ``isr``.

        Raises ValueError if it does not exist.
        """
        return self.broker.partition(topic, partition)
