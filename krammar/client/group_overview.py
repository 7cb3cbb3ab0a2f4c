"""Groups of all kinds in one form: their members, and the offsets at which they read.

Classic, consumer and share groups each have requests of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import kafka_wire as kw

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.errors import kafka_error, raise_code
from krammar.client.groups import Groups
from krammar.client.metadata import TopicPartition
from krammar.client.offsets import group_topics
from krammar.client.routing import call_coordinator
from krammar.wire.errors import WireError

SHARE = "share"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class MemberOverview:
    """A member of a group.

    Attributes:
        member_id: its name in the group
        client_id: the ``client.id`` of its settings
        host: the address from which it connects, as the broker writes it
        partitions: what it reads
    """

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group.

    Attributes:
        group_id: its name
        type: ``classic``, ``consumer`` or ``share``
        state: the broker's word, such as ``Stable`` or ``Empty``
        members: the members, in no particular order
        positions: the committed offsets; the start offsets of a share group
        lag: the records after the positions, of share groups only
    """

    group_id: str
    type: str
    state: str
    members: tuple[MemberOverview, ...]
    positions: Mapping[TopicPartition, int]
    lag: Mapping[TopicPartition, int]


class GroupOverviews:
    """Describes groups of all kinds, and changes their positions.

    Methods have an argument ``timeout_ms`` (default: ``default.api.timeout.ms``), and raise ClientError.
    """

    def __init__(self, cluster: Cluster, groups: Groups) -> None:
        self._cluster = cluster
        self._groups = groups

    def read(self, group_id: str, *, timeout_ms: float | None = None) -> GroupOverview:
        """Describe a group. Raises GroupIdNotFound."""
        kind = self._kind(group_id, timeout_ms)
        if kind is None:
            raise kafka_error(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        deadline = self._cluster.deadline(f"describing group {group_id}", timeout_ms)
        if kind == SHARE:
            return self._share(group_id, deadline)
        committed = self._groups.committed(group_id, timeout_ms=timeout_ms)
        positions = {at: each.offset for at, each in committed.items()}
        if kind == CONSUMER:
            group = self._described(kw.ConsumerGroupDescribeRequest, group_id, deadline)
            state, members = group.group_state, tuple(map(_member, group.members))
        else:
            classic = self._groups.describe(group_id, timeout_ms=timeout_ms)
            state = classic.state
            members = tuple(
                MemberOverview(
                    each.member_id, each.client_id, each.host, _assigned(each.assignment)
                )
                for each in classic.members
            )
        return GroupOverview(group_id, kind, state, members, positions, {})

    def reset(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Let a group without members continue at offsets. A missing group is created as a classic one.

        Raises:
            NonEmptyGroup or UnknownMemberId: the group has members.
        """
        if self._kind(group_id, timeout_ms) != SHARE:
            self._groups.commit(group_id, offsets, timeout_ms=timeout_ms)
            return
        deadline = self._cluster.deadline(f"resetting group {group_id}", timeout_ms)
        cls = kw.AlterShareGroupOffsetsRequest
        topics = [
            cls.Topic(
                topic_name=name,
                partitions=[
                    cls.Partition(partition_index=at.partition, start_offset=offsets[at])
                    for at in places
                ],
            )
            for name, places in group_topics(offsets).items()
        ]

        def check(response: Any) -> None:
            raise_code(response.error_code, f"group {group_id}", response.error_message)
            _check_partitions(response.responses)

        self._call(group_id, cls(group_id=group_id, topics=topics), deadline, check)

    def _kind(self, group_id: str, timeout_ms: float | None) -> str | None:
        """Return the type of a group; None if it does not exist. Old brokers only have classic groups."""
        found = [g for g in self._groups.list(timeout_ms=timeout_ms) if g.group_id == group_id]
        return (found[0].type.lower() or "classic") if found else None

    def _share(self, group_id: str, deadline: Deadline) -> GroupOverview:
        group = self._described(kw.ShareGroupDescribeRequest, group_id, deadline)
        asked = kw.DescribeShareGroupOffsetsRequest.Group(group_id=group_id, topics=None)

        def check(response: Any) -> None:
            for each in response.groups:
                raise_code(each.error_code, f"group {group_id}", each.error_message)
                _check_partitions(each.topics)

        request = kw.DescribeShareGroupOffsetsRequest(groups=[asked])
        response = self._call(group_id, request, deadline, check)
        found = [
            (TopicPartition(topic.topic_name, each.partition_index), each)
            for topic in response.groups[0].topics
            for each in topic.partitions
        ]
        positions = {at: each.start_offset for at, each in found if each.start_offset >= 0}
        lag = {at: each.lag for at, each in found if each.lag >= 0}
        members = tuple(map(_member, group.members))
        return GroupOverview(group_id, SHARE, group.group_state, members, positions, lag)

    def _described(self, cls: Any, group_id: str, deadline: Deadline) -> Any:
        """Return the description of a consumer group or a share group."""

        def check(response: Any) -> None:
            for group in response.groups:
                raise_code(group.error_code, f"group {group_id}", group.error_message)

        return self._call(group_id, cls(group_ids=[group_id]), deadline, check).groups[0]

    def _call(self, group_id: str, request: Any, deadline: Deadline, check: Any) -> Any:
        kind = kw.CoordinatorType.GROUP
        return call_coordinator(self._cluster, kind, group_id, request, deadline, check)


def _check_partitions(topics: Iterable[Any]) -> None:
    for topic in topics:
        for each in topic.partitions:
            detail = f"{topic.topic_name}-{each.partition_index}"
            raise_code(each.error_code, detail, each.error_message)


def _member(member: Any) -> MemberOverview:
    """Convert a member of a consumer group or a share group."""
    partitions = (
        TopicPartition(topic.topic_name, number)
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    )
    return MemberOverview(
        member.member_id, member.client_id, member.client_host, tuple(sorted(partitions))
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a classic consumer; none for members of other protocols."""
    try:
        found, _ = kw.ConsumerProtocolAssignment.decode_from(assignment, 0)
    except WireError:
        return ()
    return tuple(
        sorted(
            TopicPartition(topic.topic, number)
            for topic in found.assigned_partitions
            for number in topic.partitions
        )
    )
