"""Chooses the leaders, the in-sync replicas and the replicas of partitions, by the rules of Kafka's controller.

Nothing is copied: all nodes of this process serve the same logs. So a replica is in sync as soon as its node runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kafka_wire import ErrorCode, PartitionChangeRecord

from krammar.broker.assignments import check_replicas
from krammar.broker.cluster import ClusterMetadata, Partition, Topic
from krammar.broker.errors import ApiError
from krammar.broker.nodes import Nodes

NO_LEADER = -1
Place = tuple[Topic, Partition]


class Elections:
    """Changes leaders and replicas. Methods that write raise ApiError.

    ``changed``  functions that are called after each change
    """

    def __init__(self, cluster: ClusterMetadata, nodes: Nodes) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self.changed: list[Callable[[], None]] = []

    def find(self, topic: str, index: int) -> Place:
        """Return a partition. Raises ApiError if it does not exist."""
        found = self._cluster.topics.get(topic)
        if found is not None and index in found.partitions:
            return found, found.partitions[index]
        what = f"topic as {topic}" if found is None else f"partition as {topic}-{index}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")

    @property
    def topics(self) -> list[Topic]:
        """All topics at this moment."""
        return list(self._cluster.topics.values())

    def all(self) -> Iterator[Place]:
        """Yield all partitions."""
        for topic in self.topics:
            for partition in list(topic.partitions.values()):
                yield topic, partition

    def settle(self) -> None:
        """Let every partition have the leader and the in-sync replicas that the running nodes allow."""
        self._write(self._settled(*place) for place in self.all())

    def _settled(self, topic: Topic, partition: Partition) -> PartitionChangeRecord | None:
        running = self._nodes.running
        in_sync = [node for node in partition.isr if node in running]
        if not in_sync:
            # The last replica in sync stays listed: only it has all records.
            return _change(topic, partition, leader=NO_LEADER)
        leader = partition.leader
        if leader not in in_sync:
            leader = next(node for node in partition.replicas if node in in_sync)
        in_sync += [node for node in partition.replicas if node in running and node not in in_sync]
        target = [node for node in partition.replicas if node not in partition.removing_replicas]
        if partition.moving and all(node in running for node in target):
            return PartitionChangeRecord(
                partition_id=partition.index,
                topic_id=topic.topic_id,
                leader=leader if leader in target else target[0],
                isr=[node for node in in_sync if node in target],
                replicas=target,
                adding_replicas=[],
                removing_replicas=[],
                directories=partition.directories[:1] * len(target),
            )
        return _change(topic, partition, leader=leader, isr=in_sync)

    def move_leader(self, topic: Topic, partition: Partition, to: int) -> None:
        """Make a running node the leader. If it has no replica, it gets the leader's."""
        replicas = partition.replicas
        if to not in replicas:
            old = partition.leader if partition.leader in replicas else replicas[0]
            replicas = [to if node == old else node for node in replicas]
        isr = [node for node in replicas if node in self._nodes.running]
        self._write([_change(topic, partition, leader=to, isr=isr, replicas=replicas)])

    def elect(self, topic: Topic, partition: Partition, *, unclean: bool) -> None:
        """Elect the preferred leader, or with ``unclean`` any replica if there is no leader (KIP-460)."""
        preferred = partition.replicas[0]
        if partition.leader == preferred or (unclean and partition.leader != NO_LEADER):
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "The right leader leads already.")
        running = [node for node in partition.replicas if node in self._nodes.running]
        if unclean:
            if not running:
                raise ApiError(
                    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica is on a running node."
                )
            self._write([_change(topic, partition, leader=running[0], isr=running)])
        elif preferred in running and preferred in partition.isr:
            self._write([_change(topic, partition, leader=preferred)])
        else:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"Node {preferred}, the preferred leader, is not in sync.",
            )

    def reassign(
        self,
        topic: Topic,
        partition: Partition,
        replicas: Sequence[int] | None,
        *,
        allow_factor_change: bool = True,
    ) -> None:
        """Give a partition other replicas, or with None cancel the reassignment in progress (KIP-455).

        It completes when all new replicas are on running nodes.
        """
        kept = [node for node in partition.replicas if node not in partition.adding_replicas]
        if replicas is None:
            if not partition.moving:
                raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            replicas = kept
        else:
            check_replicas([replicas], self._nodes)
            if not allow_factor_change and len(replicas) != len(kept):
                raise ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {len(kept)} to {len(replicas)}",
                )
        change = _change(
            topic,
            partition,
            replicas=[*replicas, *(node for node in kept if node not in replicas)],
            adding_replicas=[node for node in replicas if node not in kept],
            removing_replicas=[node for node in kept if node not in replicas],
        )
        self._write([change])
        self._write([self._settled(*self.find(topic.name, partition.index))])

    def _write(self, records: Iterable[PartitionChangeRecord | None]) -> None:
        changes = [record for record in records if record is not None]
        if changes:
            self._cluster.append(changes)
            for notify in self.changed:
                notify()


def _change(topic: Topic, partition: Partition, **changes: Any) -> PartitionChangeRecord | None:
    """Return the record of what changes, or None if nothing does. A new leader begins a new epoch."""
    different = {
        name: value for name, value in changes.items() if value != getattr(partition, name)
    }
    if not different:
        return None
    if partition.directories and "replicas" in different:
        different["directories"] = partition.directories[:1] * len(different["replicas"])
    return PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, **different)
