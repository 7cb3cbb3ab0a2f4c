"""The share groups of a broker in a test, as plain Python: which records they have, and what became of each (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_wire import ShareRecordState

from krammar.broker.errors import ApiError
from krammar.broker.groups.share_group import ShareGroup as KafkaShareGroup
from krammar.broker.share.partition import RecordLimits, RecordRange, SharePartition
from krammar.broker.share.records import UNKNOWN, SharePartitionKey
from krammar.testing.groups import Member

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.groups.share_group import ShareMember
    from krammar.broker.share.partitions import LedPartition
    from krammar.broker.share.state import ShareStates


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """A record that a share group has begun to read.

    Attributes:
        state: ``available``, ``acquired``, ``acknowledged``, ``archived``, or ``archiving`` until the dead letter of a
            record is written
        deliveries: how often members got it
        member_id: who has acquired it; None in other states
        locked_until: when it is available again, in milliseconds since 1970 of the broker's clock; None in other states
    """

    topic: str
    partition: int
    offset: int
    state: str
    deliveries: int
    member_id: str | None = None
    locked_until: int | None = None


@dataclass(frozen=True, slots=True)
class SharePartitionState:
    """What a share group has done with a partition.

    Attributes:
        start_offset: the group is done with all records before it
        records: from there to the last record that a member got
    """

    start_offset: int
    records: tuple[ShareRecord, ...]


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group.

    Attributes:
        state: ``Stable`` or ``Empty``
        partitions: by topic and partition, as far as members have read them
    """

    group_id: str
    state: str
    members: tuple[Member, ...]
    partitions: dict[tuple[str, int], SharePartitionState]

    def records(self, topic: str, *, state: str | None = None) -> list[ShareRecord]:
        """Return the records of a topic, from each partition's start offset to the last record that a member got.

        Args:
            state: return only records in this state
        """
        return [
            record
            for (name, _), partition in sorted(self.partitions.items())
            for record in partition.records
            if name == topic and state in (None, record.state)
        ]


def share_groups_of(
    coordinators: Iterable[GroupCoordinator],
    led: Iterable[LedPartition],
    states: ShareStates,
    cluster: ClusterMetadata,
) -> dict[str, ShareGroup]:
    """Read the share groups of all nodes. Call it in the broker's loop.

    Args:
        led: the share partitions that nodes have loaded; the others are read from ``states``
    """
    groups = {
        group.group_id: group
        for coordinator in coordinators
        for group in coordinator.all_groups()
        if isinstance(group, KafkaShareGroup)
    }
    known = {key: _stored(states, key) for key in states.all_keys()}
    known.update((each.key, each.states) for each in led if each.is_current)
    found: dict[str, ShareGroup] = {}
    for group_id in sorted({*groups, *(key[0] for key in known)}):
        group = groups.get(group_id) or KafkaShareGroup(group_id)
        members = tuple(_member(each, cluster) for each in group.members.values())
        found[group_id] = ShareGroup(group_id, group.state.value, members, {})
    for (group_id, topic_id, index), partition in known.items():
        topic = cluster.topics_by_id.get(topic_id)
        if topic is not None and partition is not None:
            found[group_id].partitions[topic.name, index] = SharePartitionState(
                partition.start_offset,
                tuple(
                    record
                    for each in partition.ranges
                    for record in _records(topic.name, index, each)
                ),
            )
    return found


def _member(member: ShareMember, cluster: ClusterMetadata) -> Member:
    topics = cluster.topics_by_id
    partitions = sorted((topics[each].name, at) for each, at in member.assigned if each in topics)
    return Member(member.member_id, member.client_id, None, tuple(partitions))


def _stored(states: ShareStates, key: SharePartitionKey) -> SharePartition | None:
    """Return what is stored of a share partition; None if no member has read it yet."""
    try:
        stored = states.read_summary(*key)
    except ApiError:  # its topic was deleted
        return None
    if stored is None or stored.state.start_offset == UNKNOWN:
        return None
    return SharePartition(
        stored.state, RecordLimits(deliveries=1, locks=0, lock_ms=0, renews=False)
    )


def _records(topic: str, partition: int, each: RecordRange) -> Iterator[ShareRecord]:
    locked = each.state is ShareRecordState.ACQUIRED
    for offset in range(each.first, each.last + 1):
        yield ShareRecord(
            topic,
            partition,
            offset,
            each.state.name.lower(),
            each.count,
            each.member if locked else None,
            each.deadline if locked else None,
        )
