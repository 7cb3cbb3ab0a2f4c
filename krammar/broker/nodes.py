"""The nodes of a cluster: which of them run, the addresses of each, and the logs that each one serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig, Listener
    from krammar.broker.log.log import PartitionLog
    from krammar.broker.log.manager import LogManager
    from krammar.broker.metadata_image import Partition, Topic

T = TypeVar("T")


class Addresses(dict[str, tuple[str, int]]):
    """The host and port that each listener of a node is bound to, by the listener's name."""

    def __init__(self, config: BrokerConfig) -> None:
        self.rack = config.broker_rack
        self._listeners = {listener.name: listener for listener in config.listeners}

    def advertised(self, listener: Listener) -> tuple[str, int]:
        """Return the host and port where clients reach the listener of the same name on this node."""
        own = self._listeners[listener.name]
        host, port = self[own.name]
        if own.advertised_host:
            host = own.advertised_host
        elif host in ("0.0.0.0", "::"):
            host = "localhost"
        return host, own.advertised_port or port


class Endpoint(NamedTuple):
    """Where clients reach a node."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Nodes(dict[int, Addresses]):
    """The addresses of all nodes, by id.

    Attributes:
        running: the ids of the nodes that the cluster sees; the cluster metadata changes it
    """

    def __init__(self, running: set[int], addresses: Mapping[int, Addresses]) -> None:
        super().__init__(addresses)
        self.running = running

    @property
    def controller(self) -> int:
        """The node that Metadata names as the controller; as in Kafka, every node serves its requests."""
        return min(self.running, default=-1)

    def endpoint(self, node_id: int, listener: Listener) -> Endpoint:
        """Return where clients of a listener reach a node."""
        addresses = self[node_id]
        return Endpoint(node_id, *addresses.advertised(listener), addresses.rack)

    def nearest(self, partition: Partition, rack: str) -> int:
        """Return the replica that a client in a rack reads from, as Kafka's RackAwareReplicaSelector (KIP-392)."""
        near = [node for node in partition.isr if node in self.running and self[node].rack == rack]
        return partition.leader if not near or partition.leader in near else max(near)

    def endpoints(self, listener: Listener) -> list[Endpoint]:
        """Return where clients of a listener reach each running node."""
        return [self.endpoint(node_id, listener) for node_id in sorted(self.running)]


class Leaders:
    """The current leaders that one response names, so that clients need no metadata to find them (KIP-951).

    A node that is cut off knows no other leader than itself. It names none, or clients would ask it
    again.
    """

    CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

    def __init__(self, nodes: Nodes, node_id: int) -> None:
        self._nodes = nodes
        self._node_id = node_id
        self._named: set[int] = set()

    def name_in(self, answer: Any, topic: Topic, index: int) -> None:
        """Set ``current_leader`` of the answer for a partition, whose error is one of ``CODES``."""
        known = topic.partitions[index]
        if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER or known.leader != self._node_id:
            self._named.add(known.leader)
            answer.current_leader.leader_id = known.leader
            answer.current_leader.leader_epoch = known.leader_epoch

    def endpoints(self, listener: Listener, make: Callable[..., T]) -> list[T]:
        """Build one object for each named leader, with the fields of its `Endpoint`."""
        if not self._named:
            return []
        running = sorted(self._named & self._nodes.running)
        return [make(**self._nodes.endpoint(node_id, listener)._asdict()) for node_id in running]


class Logs(Protocol):
    """The interface of logs for handlers. Both methods raise ApiError if another node serves the partition.

    ``get`` serves leaders, and ``follow`` also replicas in sync.
    """

    def get(self, topic: str, partition: int) -> PartitionLog | None: ...
    def follow(self, topic: str, partition: int) -> PartitionLog | None: ...
    def __iter__(self) -> Iterator[PartitionLog]: ...


class OwnLogs:
    """The logs of one of several nodes: those that it leads, or of which it has a replica.

    Args:
        refusal: the error code for partitions that another node leads, or none
    """

    def __init__(
        self, cluster: ClusterMetadata, logs: LogManager, node_id: int, refusal: ErrorCode
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._node_id = node_id
        self._refusal = refusal

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._own(topic, partition, lambda known: known.leader == self._node_id)

    def follow(self, topic: str, partition: int) -> PartitionLog | None:
        return self._own(topic, partition, lambda known: self._node_id in known.isr)

    def _own(
        self, topic: str, partition: int, serves: Callable[[Partition], bool]
    ) -> PartitionLog | None:
        log = self._logs.get(topic, partition)
        if log is not None and not serves(self._cluster.topics[topic].partitions[partition]):
            raise ApiError(self._refusal)
        return log

    def __iter__(self) -> Iterator[PartitionLog]:
        topics = self._cluster.topics
        for log in self._logs:
            if self._node_id in topics[log.topic].partitions[log.partition].replicas:
                yield log
