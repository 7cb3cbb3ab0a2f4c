"""The consumer groups of a broker in a test, as plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.embedded import decode_assignment
from krammar.broker.groups.group import GroupState
from krammar.broker.groups.share_group import ShareGroup
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.groups.host import AnyGroup, OffsetGroup
    from krammar.broker.groups.member import Member as KafkaMember
    from krammar.broker.log.manager import LogManager


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group.

    Attributes:
        instance_id: of a static member (``group.instance.id``); None for others
        partitions: the topics and partitions that it reads, sorted; empty during a rebalance of a
            classic group
    """

    member_id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        state: by Kafka's name, such as ``Empty`` or ``Stable``
        protocol: the assignor that the members of a classic group agreed on, such as ``range``;
            None otherwise
        offsets: the committed offsets, by topic and partition
        lag: the records after each committed offset, by topic and partition
    """

    group_id: str
    state: str
    protocol: str | None
    members: tuple[Member, ...]
    offsets: dict[tuple[str, int], int]
    lag: dict[tuple[str, int], int] = field(default_factory=dict, compare=False)


def groups_of(
    coordinators: Iterable[GroupCoordinator], cluster: ClusterMetadata, logs: LogManager
) -> dict[str, Group]:
    """Read the groups of all nodes. Call it in the broker's loop."""
    return {
        group.group_id: _group(group, coordinator, cluster, logs)
        for coordinator in coordinators
        for group in coordinator.all_groups()
        if not isinstance(group, ShareGroup)
    }


def _group(
    group: OffsetGroup, coordinator: GroupCoordinator, cluster: ClusterMetadata, logs: LogManager
) -> Group:
    members = tuple(_member(group, member, cluster) for member in group.members.values())
    committed = sorted(coordinator.offsets.of_group(group.group_id).items())
    offsets = {where: each.offset for where, each in committed}
    ends = {where: logs.get(*where) for where in offsets}
    lag = {
        where: max(0, log.end_offset - offsets[where])
        for where, log in ends.items()
        if log is not None
    }
    protocol = group.protocol if isinstance(group, ClassicGroup) else None
    return Group(group.group_id, group.state.value, protocol, members, offsets, lag)


def settled_ms(group: AnyGroup) -> int:
    """Return when the members got their partitions, in milliseconds of the coordinator's clock."""
    since = group.state_since if isinstance(group, ClassicGroup) else group.assigned_at
    return since or 0  # it is None for a group of another broker's folder


def _member(group: OffsetGroup, member: KafkaMember, cluster: ClusterMetadata) -> Member:
    if not isinstance(group, ClassicGroup):
        names = {topic_id: topic.name for topic_id, topic in cluster.topics_by_id.items()}
        partitions = tuple(
            sorted((names[topic_id], at) for topic_id, at in member.assigned if topic_id in names)
        )
    else:
        partitions = _partitions(member.assignment) if group.state is GroupState.STABLE else ()
    return Member(member.member_id, member.client_id, member.instance_id, partitions)


def _partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Decode a consumer's assignment. Members of other protocol types, such as connect, have none."""
    try:
        assigned = decode_assignment(assignment)
    except WireError:
        return ()
    return tuple(sorted((each.topic, number) for each in assigned for number in each.partitions))
