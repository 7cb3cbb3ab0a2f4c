"""Converts groups and committed offsets to and from records of `__consumer_offsets`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafka_wire import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMemberMetadata,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

from krammar.broker.groups.group import Group, State
from krammar.broker.groups.member import Member
from krammar.wire.batches import Record
from krammar.wire.primitives import NULL_UUID

TopicPartition = tuple[str, int]

# The versions that Kafka 4.4 writes: the newest version of groups that is not flexible, and the version of
# offsets with the topic's id.
GROUP_VALUE = 3
OFFSET_VALUE = 4


def fits(text: str | None) -> bool:
    """Return whether a text is short enough for a record.

    Kafka refuses longer texts in requests, although flexible versions could carry them.
    """
    return text is None or len(text) < 8192 or len(text.encode()) <= 32767


class Committed(NamedTuple):
    """A committed offset; times in milliseconds since 1970.

    ``position``  the offset of its record in `__consumer_offsets`; the larger one wins
    ``expires``   the expiry that the client requested (OffsetCommit v2 to v4), or None
    ``topic_id``  the null UUID in records written before Kafka 4.2
    """

    offset: int
    leader_epoch: int
    metadata: str
    timestamp: int
    expires: int | None = None
    topic_id: UUID = NULL_UUID
    position: int = -1


def offset_record(group_id: str, where: TopicPartition, committed: Committed | None) -> Record:
    """Build the record of a committed offset, or its tombstone for None."""
    key = OffsetCommitKey(group=group_id, topic=where[0], partition=where[1]).encode()
    if committed is None:
        return Record(key=key)
    # Only version 1 has an expiry.
    version = OFFSET_VALUE if committed.expires is None else 1
    value = OffsetCommitValue(
        version=version,
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.timestamp,
        expire_timestamp=-1 if committed.expires is None else committed.expires,
        topic_id=NULL_UUID if version == 1 else committed.topic_id,
    )
    return Record(key=key, value=value.encode())


def read_offset(value: OffsetCommitValue | LegacyOffsetCommitValue, position: int) -> Committed:
    """Convert the value of a record at offset ``position``."""
    if isinstance(value, LegacyOffsetCommitValue):
        return Committed(
            value.offset, -1, value.metadata, value.commit_timestamp, position=position
        )
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        None if value.expire_timestamp == -1 else value.expire_timestamp,
        value.topic_id,
        position,
    )


def group_record(group: Group) -> Record:
    """Build the record of a group with its members and their assignments."""
    value = GroupMetadataValue(
        version=GROUP_VALUE,
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=-1 if group.state_since is None else group.state_since,
        members=[
            GroupMetadataValueMemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout,
                session_timeout=member.session_timeout,
                subscription=member.metadata(group.protocol) or b"",
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return Record(key=GroupMetadataKey(group=group.group_id).encode(), value=value.encode())


def empty_group_record(group: Group) -> Record:
    """Build the record of a new group, which has no generation yet."""
    value = GroupMetadataValue(
        version=GROUP_VALUE,
        protocol=None,
        leader=None,
        current_state_timestamp=-1 if group.state_since is None else group.state_since,
    )
    return Record(key=GroupMetadataKey(group=group.group_id).encode(), value=value.encode())


def group_tombstone(group_id: str) -> Record:
    return Record(key=GroupMetadataKey(group=group_id).encode())


def read_group(group_id: str, value: GroupMetadataValue) -> Group:
    """Convert the value of a record to a group: STABLE if it has members, else EMPTY."""
    since = value.current_state_timestamp
    group = Group(group_id, None if since == -1 else since)
    group.generation = value.generation
    group.protocol = value.protocol
    group.leader = value.leader
    for stored in value.members:
        timeout = stored.rebalance_timeout
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout if timeout == -1 else timeout,
            stored.session_timeout,
            [(value.protocol or "", stored.subscription)],
            stored.assignment,
        )
        group.add(member, value.protocol_type, None)
    group.protocol_type = value.protocol_type or None
    group.state = State.STABLE if group.members else State.EMPTY
    group.subscriptions = group.read_subscriptions()
    return group
