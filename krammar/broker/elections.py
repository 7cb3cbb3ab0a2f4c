"""Chooses the leaders, the in-sync replicas and the replicas of partitions, by the rules of Kafka's controller.

Nothing is copied: all nodes of this process serve the same logs. So a replica is in sync as soon as
its node runs. A replica that is out of sync counts as having the records from before it left; an
unclean election removes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from kafka_wire import ConfigResourceType, ErrorCode, PartitionChangeRecord

from krammar.broker.cluster import ClusterMetadata, Partition, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.log.manager import LogManager
from krammar.broker.nodes import Nodes
from krammar.broker.topic_checks import check_replicas

NO_LEADER = -1
Place = tuple[Topic, Partition]
_UNCLEAN = "unclean.leader.election.enable"


class Elections:
    """Changes leaders and replicas. Methods that write raise ApiError.

    Attributes:
        changed: functions that are called after each change
    """

    def __init__(
        self, config: BrokerConfig, cluster: ClusterMetadata, logs: LogManager, nodes: Nodes
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._logs = logs
        self._nodes = nodes
        # Where the log ended when a replica left the replicas in sync, by topic, partition and
        # node.
        self._left_at: dict[tuple[UUID, int, int], int] = {}
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
        behind = [node for node in partition.replicas if node in running]
        if not in_sync and behind and self._allows_unclean(topic):
            self._truncate(topic, partition, behind[0])
            return _change(topic, partition, leader=behind[0], isr=behind)
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

    def elect_behind(
        self, topic: Topic, partition: Partition, lose: int, to: int | None = None
    ) -> int:
        """Make a replica the leader that lacks the last ``lose`` records, or more: whole batches are lost.

        Returns the new end offset of the log.
        """
        name = f"{topic.name}-{partition.index}"
        others = [
            node
            for node in partition.replicas
            if node in self._nodes.running and node != partition.leader
        ]
        if topic.internal:
            # Coordinators have read its records, and would continue from them.
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is internal and cannot lose records")
        if not others or to not in (None, *others):
            raise ApiError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                (
                    f"{name} has no other replica on a running node"
                    if not others
                    else f"node {to} has no replica of {name} that can take over, only {', '.join(map(str, others))}"
                ),
            )
        log = self._logs.get(topic.name, partition.index)
        if log is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No log of {name}")
        end = self._logs.truncate(log, max(log.log_start_offset, log.end_offset - lose))
        self.move_leader(topic, partition, others[0] if to is None else to)
        return end

    def _allows_unclean(self, topic: Topic) -> bool:
        overrides = self._cluster.configs.get((ConfigResourceType.TOPIC, topic.name), {})
        return bool(self._config.topics.value(_UNCLEAN, overrides))

    def _truncate(self, topic: Topic, partition: Partition, to: int) -> None:
        """Remove the records that a new leader lacks, because it was out of sync."""
        end = self._left_at.get((topic.topic_id, partition.index, to))
        log = self._logs.get(topic.name, partition.index)
        if end is not None and log is not None and end < log.end_offset and not topic.internal:
            self._logs.truncate(log, max(log.log_start_offset, end))

    def _note(self, change: PartitionChangeRecord) -> None:
        """Note where the log ends for replicas that leave the replicas in sync."""
        topic = self._cluster.topics_by_id.get(change.topic_id)
        if topic is None or change.isr is None:
            return
        index = change.partition_id
        log = self._logs.get(topic.name, index)
        for node in topic.partitions[index].isr:
            if node not in change.isr and log is not None:
                self._left_at[change.topic_id, index, node] = log.end_offset
        for node in change.isr:
            self._left_at.pop((change.topic_id, index, node), None)

    def _begin_epoch(self, change: PartitionChangeRecord) -> None:
        """Let the log of a partition with a new leader begin its epoch."""
        topic = self._cluster.topics_by_id.get(change.topic_id)
        partition = None if topic is None else topic.partitions.get(change.partition_id)
        if topic is None or partition is None or partition.leader == NO_LEADER:
            return
        log = self._logs.get(topic.name, partition.index)
        if log is not None:
            log.lead(partition.leader_epoch)

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
            self._truncate(topic, partition, running[0])
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

    def leave(self, node_id: int) -> None:
        """Give the replicas of a node to other running nodes; a partition that all of them have gets fewer."""
        self._write(self._without(*place, node_id) for place in self.all())

    def _without(
        self, topic: Topic, partition: Partition, node_id: int
    ) -> PartitionChangeRecord | None:
        if node_id not in partition.replicas:
            return None
        running = sorted(self._nodes.running - {node_id})
        others = [node for node in running if node not in partition.replicas]
        # Partitions go to different nodes.
        new = others[partition.index % len(others) :][:1] if others else []
        replicas = [node for node in partition.replicas if node != node_id] + new
        isr = [node for node in replicas if node in running] or replicas[:1]
        leader = partition.leader if partition.leader in isr else isr[0]
        if leader not in running:
            leader = NO_LEADER
        return _change(topic, partition, replicas=replicas, isr=isr, leader=leader)

    def _write(self, records: Iterable[PartitionChangeRecord | None]) -> None:
        changes = [record for record in records if record is not None]
        for change in changes:
            self._note(change)
        if changes:
            self._cluster.append(changes)
            for change in changes:
                self._begin_epoch(change)
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
