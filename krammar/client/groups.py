"""Lists consumer groups, and reads and commits their offsets, without being a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_wire import (
    CoordinatorType,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)

from krammar.client.cluster import Cluster
from krammar.client.committed import (
    Committed,
    GroupMember,
    check_committed,
    commit_topics,
    committed_offsets,
    member_of,
)
from krammar.client.errors import raise_code
from krammar.client.in_flight import ByVersion
from krammar.client.metadata import TopicPartition
from krammar.client.offsets import group_topics
from krammar.client.routing import call_coordinator

# From version 10, topics are named by id, which a deleted topic does not have any more.
_NAMED = 9


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list.

    Attributes:
        protocol_type: ``consumer`` for consumer groups; empty for groups that only commit offsets
        state, type: empty if the broker is too old to report them
    """

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group; ``metadata`` and ``assignment`` are encoded by the group's protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group of the classic protocol; ``protocol`` is the name of its assignor."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Member, ...]


class Groups:
    """Operations on groups that need no membership.

    Every method has an argument ``timeout_ms`` (default: ``default.api.timeout.ms``), and raises
    DeadlineError after that time, or another ClientError.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(
        self, *, states: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name.

        Args:
            states: return only groups in one of these states, such as ``Empty``.
        """
        deadline = self._cluster.deadline("listing groups", timeout_ms)
        self._cluster.refresh([], deadline)
        wanted = list(states)
        found = {}
        for node_id in list(self._cluster.metadata.nodes):
            response = self._cluster.call(
                ListGroupsRequest(states_filter=wanted),
                deadline,
                node_id=node_id,
                low=4 if wanted else 0,
                check=_check_top("listing groups"),
            )
            for g in response.groups:
                found[g.group_id] = GroupListing(
                    g.group_id, g.protocol_type, g.group_state, g.group_type
                )
        return [found[name] for name in sorted(found)]

    def describe(self, group_id: str, *, timeout_ms: float | None = None) -> GroupDescription:
        """Return a group of the classic protocol with its members.

        Raises:
            GroupIdNotFound: the group does not exist.
        """
        deadline = self._cluster.deadline(f"describing group {group_id}", timeout_ms)

        def check(response: Any) -> None:
            for group in response.groups:
                raise_code(group.error_code, f"group {group_id}", group.error_message)

        response = self._call(group_id, DescribeGroupsRequest(groups=[group_id]), deadline, check)
        group = response.groups[0]
        return GroupDescription(
            group.group_id,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            tuple(
                Member(
                    m.member_id,
                    m.group_instance_id,
                    m.client_id,
                    m.client_host,
                    m.member_metadata,
                    m.member_assignment,
                )
                for m in group.members
            ),
        )

    def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of a group; partitions without one are omitted.

        Args:
            partitions: the partitions; None means all.
            require_stable: wait for open transactions that commit offsets (KIP-447).
        """
        deadline = self._cluster.deadline(f"reading offsets of group {group_id}", timeout_ms)
        indexes: dict[str, list[int]] | None = None
        if partitions is not None:
            topics = group_topics(TopicPartition(*at) for at in partitions)
            if not topics:
                return {}
            indexes = {name: [at.partition for at in group] for name, group in topics.items()}

        def build(version: int) -> OffsetFetchRequest:
            cls = OffsetFetchRequest.Topic if version < 8 else OffsetFetchRequest.Topics
            wanted: Any = None
            if indexes is not None:
                wanted = [cls(name=n, partition_indexes=i) for n, i in indexes.items()]
            request = OffsetFetchRequest(require_stable=require_stable)
            if version < 8:
                request.group_id, request.topics = group_id, wanted
            else:
                request.groups = [OffsetFetchRequest.Group(group_id=group_id, topics=wanted)]
            return request

        request = ByVersion(OffsetFetchRequest, build)

        def answer(response: Any) -> Any:
            return next((g for g in response.groups if g.group_id == group_id), response)

        def check(response: Any) -> None:
            group = answer(response)
            raise_code(group.error_code, f"group {group_id}")
            check_committed(group_id, group)

        low = 7 if require_stable else 2 if partitions is None else 1
        response = self._call(group_id, request, deadline, check, low=low, high=_NAMED)
        return {
            TopicPartition(topic.name, p.partition_index): Committed(
                p.committed_offset, p.committed_leader_epoch, p.metadata or ""
            )
            for topic in answer(response).topics
            for p in topic.partitions
            if p.committed_offset >= 0
        }

    def commit(
        self,
        group: GroupMember | str,
        offsets: (
            Mapping[TopicPartition, Committed | int] | Mapping[tuple[str, int], Committed | int]
        ),
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets of a group.

        Args:
            group: the member that commits, or the id of a group that has no members.

        Raises:
            UnknownMemberId: the group has members, and ``group`` is not one of them.
            UnknownTopicOrPartition: a partition does not exist.
        """
        member = member_of(group)
        deadline = self._cluster.deadline(
            f"committing offsets of group {member.group_id}", timeout_ms
        )
        values = committed_offsets(offsets)
        if not values:
            return
        request = OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=commit_topics(OffsetCommitRequest, values),
        )
        self._call(
            member.group_id,
            request,
            deadline,
            partial(check_committed, member.group_id),
            low=2,
            high=_NAMED,
        )

    def delete_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Delete committed offsets of a group.

        Raises:
            GroupSubscribedToTopic: members of the group read the topic.
        """
        deadline = self._cluster.deadline(f"deleting offsets of group {group_id}", timeout_ms)
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequest.Topic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequest.Partition(partition_index=at.partition) for at in group
                    ],
                )
                for name, group in group_topics(TopicPartition(*at) for at in partitions).items()
            ],
        )

        def check(response: Any) -> None:
            raise_code(response.error_code, f"group {group_id}")
            check_committed(group_id, response)

        self._call(group_id, request, deadline, check)

    def delete(self, group_id: str, *, timeout_ms: float | None = None) -> None:
        """Delete a group without members.

        Raises:
            NonEmptyGroup: the group has members.
            GroupIdNotFound: the group does not exist.
        """
        deadline = self._cluster.deadline(f"deleting group {group_id}", timeout_ms)

        def check(response: Any) -> None:
            for result in response.results:
                raise_code(result.error_code, f"group {result.group_id}", result.error_message)

        self._call(group_id, DeleteGroupsRequest(groups_names=[group_id]), deadline, check)

    def _call(
        self,
        group_id: str,
        request: Any,
        deadline: Any,
        check: Any,
        *,
        low: int = 0,
        high: int = 32767,
    ) -> Any:
        return call_coordinator(
            self._cluster,
            CoordinatorType.GROUP,
            group_id,
            request,
            deadline,
            check,
            low=low,
            high=high,
        )


def _check_top(detail: str) -> Any:
    return lambda response: raise_code(response.error_code, detail)
