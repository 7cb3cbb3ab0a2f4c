"""Converts groups to and from records of `__consumer_offsets`, and checks records that are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import kafka_wire
from kafka_wire import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMemberState,
    GroupMetadataKey,
    GroupMetadataValue,
)

from krammar.broker.groups.assignors import ASSIGNORS
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.group import GroupState
from krammar.broker.groups.host import AnyGroup
from krammar.broker.groups.member import AWAY, Member, Place, by_topic, places_of
from krammar.broker.groups.share_group import InitializedTopic, ShareGroup, ShareMember
from krammar.logfiles.names import MAX_EPOCH, epoch_problem, partition_problem, topic_problem
from krammar.wire.batches import Record

# The version that Kafka 4.4 writes: the newest that is not flexible.
GROUP_VALUE = 3

# The kinds of a group's records, in the order in which Kafka can read tombstones of them; it reads
# values in the opposite order.
CURRENT = "ConsumerGroupCurrentMemberAssignment"
TARGETS = "ConsumerGroupTargetAssignmentMetadata"
TARGET = "ConsumerGroupTargetAssignmentMember"
TOPICS = "ConsumerGroupPartitionMetadata"
GROUP = "ConsumerGroupMetadata"
PATTERN = "ConsumerGroupRegularExpression"
MEMBER = "ConsumerGroupMemberMetadata"
CLASSIC = "GroupMetadata"
SHARE_CURRENT = "ShareGroupCurrentMemberAssignment"
SHARE_TARGET = "ShareGroupTargetAssignmentMember"
SHARE_TARGETS = "ShareGroupTargetAssignmentMetadata"
SHARE_MEMBER = "ShareGroupMemberMetadata"
SHARE_STATES = "ShareGroupStatePartitionMetadata"
SHARE_TOPICS = "ShareGroupPartitionMetadata"
SHARE_GROUP = "ShareGroupMetadata"
_ORDER = (
    *(CURRENT, TARGET, TARGETS, MEMBER, PATTERN, TOPICS, GROUP),
    *(SHARE_CURRENT, SHARE_TARGET, SHARE_TARGETS, SHARE_MEMBER, SHARE_STATES, SHARE_TOPICS),
    *(SHARE_GROUP, CLASSIC),
)
_OF_MEMBERS = (CURRENT, TARGET, MEMBER, SHARE_CURRENT, SHARE_TARGET, SHARE_MEMBER)
_NAMES = dict.fromkeys(_OF_MEMBERS, "member_id") | {PATTERN: "regular_expression"}
# The records without which a group does not exist.
ROOTS = frozenset({GROUP, SHARE_GROUP, CLASSIC})

# The fields of records for the attributes of a member. The others need a conversion.
_CLASSIC_FIELDS = {
    "member_id": "member_id",
    "instance_id": "group_instance_id",
    "client_id": "client_id",
    "client_host": "client_host",
    "rebalance_timeout": "rebalance_timeout",
    "session_timeout": "session_timeout",
    "assignment": "assignment",
}
_FIELDS = {
    "instance_id": "instance_id",
    "rack_id": "rack_id",
    "client_id": "client_id",
    "client_host": "client_host",
    "rebalance_timeout": "rebalance_timeout_ms",
    "assignor": "server_assignor",
}

# The kind of a record, and the member id or pattern in its key.
RecordKey = tuple[str, str]
T = TypeVar("T")


def fits(text: str | None) -> bool:
    """Return whether a text is short enough for a record.

    Kafka refuses longer texts in requests, although flexible versions could carry them.
    """
    return text is None or len(text) < 8192 or len(text.encode()) <= 32767


def record_key(kind: str, key: Any) -> RecordKey | None:
    """Return which record of its group a decoded key names; None for other records."""
    return (kind, getattr(key, _NAMES.get(kind, ""), "")) if kind in _ORDER else None


def group_records(group: AnyGroup) -> tuple[dict[RecordKey, Any], list[Record]]:
    """Return all records of a group, and those that differ from the log, in an order that Kafka can read."""
    new = _all_records(group)
    gone = sorted(group.stored.keys() - new.keys(), key=lambda key: _ORDER.index(key[0]))
    changed = [
        key
        for key, value in new.items()
        if (old := group.stored.get(key)) is not value and old != value
    ]
    changed.sort(key=lambda key: -_ORDER.index(key[0]))
    return new, [
        *(Record(key=_key(group, key)) for key in gone),
        *(Record(key=_key(group, key), value=new[key].encode()) for key in changed),
    ]


def tombstones(group: AnyGroup) -> list[Record]:
    """Build the records that delete a group."""
    keys = sorted(group.stored or [(CLASSIC, "")], key=lambda key: _ORDER.index(key[0]))
    return [Record(key=_key(group, key)) for key in keys]


def _key(group: AnyGroup, key: RecordKey) -> bytes:
    kind, name = key
    if kind == CLASSIC:
        return GroupMetadataKey(group=group.group_id).encode()
    names = {_NAMES[kind]: name} if kind in _NAMES else {}
    make: Any = getattr(kafka_wire, f"{kind}Key")
    data: bytes = make(group_id=group.group_id, **names).encode()
    return data


def _all_records(group: AnyGroup) -> dict[RecordKey, Any]:
    if isinstance(group, ClassicGroup):
        return {(CLASSIC, ""): _classic(group)}
    if isinstance(group, ShareGroup):
        return _share_records(group)
    found: dict[RecordKey, Any] = {
        (GROUP, ""): ConsumerGroupMetadataValue(
            epoch=group.group_epoch, metadata_hash=group.topics_hash
        ),
        (TARGETS, ""): ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assigned_at
        ),
    }
    found |= {(PATTERN, pattern): value for pattern, value in group.matches.items()}
    return found | _of_members(group, _MEMBER_RECORDS)


def _share_records(group: ShareGroup) -> dict[RecordKey, Any]:
    found: dict[RecordKey, Any] = {
        (SHARE_GROUP, ""): kafka_wire.ShareGroupMetadataValue(
            epoch=group.group_epoch, metadata_hash=group.topics_hash
        ),
        (SHARE_TARGETS, ""): kafka_wire.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assigned_at
        ),
    }
    if group.initialized or (SHARE_STATES, "") in group.stored:
        kind = kafka_wire.ShareGroupStatePartitionMetadataValue
        found[SHARE_STATES, ""] = kind(
            initialized_topics=[
                kind.TopicPartitionsInfo(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
                )
                for topic_id, topic in group.initialized.items()
            ]
        )
    return found | _of_members(group, _SHARE_MEMBER_RECORDS)


def _of_members(
    group: ConsumerGroup | ShareGroup, builders: Mapping[str, Callable[[Any], Any]]
) -> dict[RecordKey, Any]:
    """Return the records of all members; those of members that have not changed are the stored ones."""
    found = {}
    for member_id, member in group.members.items():
        for kind, build in builders.items():
            key = (kind, member_id)
            found[key] = (
                build(member)
                if member_id in group.touched or key not in group.stored
                else group.stored[key]
            )
    return found


def _classic(group: ClassicGroup) -> GroupMetadataValue:
    return GroupMetadataValue(
        version=GROUP_VALUE,
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=-1 if group.state_since is None else group.state_since,
        members=[
            GroupMetadataValue.MemberMetadata(
                subscription=member.metadata(group.protocol),
                **{field: getattr(member, name) for name, field in _CLASSIC_FIELDS.items()},
            )
            for member in group.members.values()
        ],
    )


def _member(member: Member) -> ConsumerGroupMemberMetadataValue:
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=member.session_timeout,
        supported_protocols=[
            ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=data)
            for name, data in member.protocols
        ],
    )
    return ConsumerGroupMemberMetadataValue(
        subscribed_topic_names=[*member.topics],
        subscribed_topic_regex=member.pattern,
        classic_member_metadata=classic if member.protocols else None,
        **{field: getattr(member, name) for name, field in _FIELDS.items()},
    )


def _target(member: Member) -> ConsumerGroupTargetAssignmentMemberValue:
    places = topics_of(member.target, ConsumerGroupTargetAssignmentMemberValue.TopicPartition)
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=places)


def _current(member: Member) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )


_MEMBER_RECORDS: dict[str, Callable[[Member], Any]] = {
    MEMBER: _member,
    TARGET: _target,
    CURRENT: _current,
}


def _share_member(member: ShareMember) -> kafka_wire.ShareGroupMemberMetadataValue:
    return kafka_wire.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=[*member.topics],
    )


def _share_target(member: ShareMember) -> kafka_wire.ShareGroupTargetAssignmentMemberValue:
    kind = kafka_wire.ShareGroupTargetAssignmentMemberValue
    return kind(topic_partitions=topics_of(member.target, kind.TopicPartition))


def _share_current(member: ShareMember) -> kafka_wire.ShareGroupCurrentMemberAssignmentValue:
    kind = kafka_wire.ShareGroupCurrentMemberAssignmentValue
    return kind(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=GroupMemberState.STABLE,
        assigned_partitions=topics_of(member.assigned, kind.TopicPartitions),
    )


_SHARE_MEMBER_RECORDS: dict[str, Callable[[ShareMember], Any]] = {
    SHARE_MEMBER: _share_member,
    SHARE_TARGET: _share_target,
    SHARE_CURRENT: _share_current,
}


def topics_of(places: Mapping[Place, int] | frozenset[Place], make: Callable[..., T]) -> list[T]:
    """Build one object per topic, with its id and partitions in order."""
    return [
        make(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(places).items()
    ]


def _with_epochs(
    places: Mapping[Place, int],
) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    topics = topics_of(places, ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions)
    for topic in topics:
        topic.assignment_epochs = [places[topic.topic_id, n] for n in topic.partitions]
    return topics


def read_group(group_id: str, stored: Mapping[RecordKey, Any]) -> AnyGroup:
    """Convert the values of a group's records to the group."""
    if (CLASSIC, "") in stored:
        return _read_classic(group_id, stored[CLASSIC, ""])
    if (GROUP, "") not in stored and (SHARE_GROUP, "") in stored:
        return _read_share(group_id, stored)
    group = ConsumerGroup(group_id)
    group.stored = dict(stored)
    for (kind, name), value in stored.items():
        if kind == GROUP:
            group.group_epoch, group.topics_hash = value.epoch, value.metadata_hash
        elif kind == TARGETS:
            group.assignment_epoch = value.assignment_epoch
            group.assigned_at = value.assignment_timestamp
        elif kind == PATTERN:
            group.match(name, value)
        elif kind == MEMBER:
            group.add(_read_member(name, value, stored))
    group.subscriptions = group.subscribed_topics()
    group.refresh_state()
    return group


def _read_member(
    member_id: str, value: ConsumerGroupMemberMetadataValue, stored: Mapping[RecordKey, Any]
) -> Member:
    member = Member(
        member_id,
        topics=tuple(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or "",
        **{name: getattr(value, field) for name, field in _FIELDS.items()},
    )
    if member.assignor not in ASSIGNORS:
        member.assignor = None  # Kafka can have others, by the names of their classes
    classic = value.classic_member_metadata
    if classic is not None:
        member.session_timeout = classic.session_timeout_ms
        member.protocols = [(p.name, p.metadata) for p in classic.supported_protocols]
    target = stored.get((TARGET, member_id))
    if target is not None:
        member.target = frozenset(places_of(target.topic_partitions))
    current = stored.get((CURRENT, member_id))
    if current is not None:
        epoch = current.member_epoch
        member.epoch = current.previous_member_epoch
        member.move_to(
            current.state,
            epoch,
            _read_epochs(current.assigned_partitions, epoch),
            _read_epochs(current.partitions_pending_revocation, epoch),
        )
    return member


def _read_share(group_id: str, stored: Mapping[RecordKey, Any]) -> ShareGroup:
    group = ShareGroup(group_id)
    group.stored = dict(stored)
    for (kind, name), value in stored.items():
        if kind == SHARE_GROUP:
            group.group_epoch, group.topics_hash = value.epoch, value.metadata_hash
        elif kind == SHARE_TARGETS:
            group.assignment_epoch = value.assignment_epoch
            group.assigned_at = value.assignment_timestamp
        elif kind == SHARE_STATES:
            # The state of topics that were being initialized is initialized again.
            group.initialized = {
                topic.topic_id: InitializedTopic(topic.topic_name, set(topic.partitions))
                for topic in value.initialized_topics
            }
        elif kind == SHARE_MEMBER:
            group.add(_read_share_member(name, value, stored))
    return group


def _read_share_member(member_id: str, value: Any, stored: Mapping[RecordKey, Any]) -> ShareMember:
    member = ShareMember(
        member_id,
        value.client_id,
        value.client_host,
        value.rack_id,
        tuple(sorted(set(value.subscribed_topic_names))),
    )
    target = stored.get((SHARE_TARGET, member_id))
    if target is not None:
        member.target = frozenset(places_of(target.topic_partitions))
    current = stored.get((SHARE_CURRENT, member_id))
    if current is not None:
        member.epoch, member.previous_epoch = current.member_epoch, current.previous_member_epoch
        member.assigned = frozenset(places_of(current.assigned_partitions))
    return member


def _read_epochs(
    topics: Sequence[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int
) -> dict[Place, int]:
    """Read partitions with the epochs of their assignment, which Kafka writes since version 4.2."""
    return {
        (topic.topic_id, number): since
        for topic in topics
        for number, since in zip(
            topic.partitions,
            topic.assignment_epochs or [epoch] * len(topic.partitions),
            strict=False,
        )
    }


def _read_classic(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Convert a classic group, which is STABLE if it has members, else EMPTY."""
    since = value.current_state_timestamp
    group = ClassicGroup(group_id, None if since == -1 else since)
    group.stored = {(CLASSIC, ""): value}
    group.generation = value.generation
    group.protocol = value.protocol
    group.leader = value.leader
    for stored in value.members:
        member = Member(
            protocols=[(value.protocol or "", stored.subscription)],
            **{name: getattr(stored, field) for name, field in _CLASSIC_FIELDS.items()},
        )
        if member.rebalance_timeout == -1:
            member.rebalance_timeout = member.session_timeout
        group.join(member, value.protocol_type)
    group.protocol_type = value.protocol_type or None
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.subscriptions = group.read_subscriptions()
    return group


# Checks of records that are read: no request could have written other values.

_STATES = (
    GroupMemberState.STABLE,
    GroupMemberState.UNREVOKED_PARTITIONS,
    GroupMemberState.UNRELEASED_PARTITIONS,
)


def check_group_record(kind: str, key: Any, value: Any) -> None:
    """Check the decoded key and value of a record, which is no tombstone. Raises ValueError."""
    check = _CHECKS.get(kind)
    if check is not None:
        check(key, value)


def _check_offset(key: Any, value: Any) -> None:
    _refuse("topic", topic_problem(key.topic))
    _refuse("partition", partition_problem(key.partition))


def _check_classic(key: Any, value: Any) -> None:
    _refuse("generation", epoch_problem(value.generation))
    for member in value.members:
        _check_timeouts(member, "session_timeout", "rebalance_timeout")


def _check_group(key: Any, value: Any) -> None:
    _refuse("epoch", epoch_problem(value.epoch))


def _check_targets(key: Any, value: Any) -> None:
    _refuse("assignment_epoch", epoch_problem(value.assignment_epoch))


def _check_target(key: Any, value: Any) -> None:
    _check_partitions(value.topic_partitions)


def _check_member(key: Any, value: Any) -> None:
    _check_timeouts(value, "rebalance_timeout_ms")
    if value.classic_member_metadata is not None:
        _check_timeouts(value.classic_member_metadata, "session_timeout_ms")


def _check_current(key: Any, value: Any) -> None:
    for name in ("member_epoch", "previous_member_epoch"):
        epoch = getattr(value, name)
        if not AWAY <= epoch <= MAX_EPOCH:
            _refuse(name, f"{epoch} is not the epoch of a member")
    if value.state not in _STATES:
        _refuse("state", f"{int(value.state)} is unknown")
    for topics in (value.assigned_partitions, value.partitions_pending_revocation):
        _check_partitions(topics)
        for topic in topics:
            for epoch in topic.assignment_epochs or ():
                if not AWAY <= epoch <= MAX_EPOCH:
                    _refuse("assignment_epochs", f"{epoch} is not the epoch of a member")


def _check_share_current(key: Any, value: Any) -> None:
    for name in ("member_epoch", "previous_member_epoch"):
        _refuse(name, epoch_problem(getattr(value, name)))
    if value.state != GroupMemberState.STABLE:
        _refuse("state", f"{int(value.state)} is not the state of a share group's member")
    _check_partitions(value.assigned_partitions)


def _check_share_states(key: Any, value: Any) -> None:
    _check_partitions(value.initializing_topics)
    _check_partitions(value.initialized_topics)


def _check_partitions(topics: Iterable[Any]) -> None:
    for topic in topics:
        for number in topic.partitions:
            _refuse("partitions", partition_problem(number))


def _check_timeouts(holder: Any, *names: str) -> None:
    for name in names:
        timeout = getattr(holder, name)
        if timeout < -1:  # -1 if the client has sent none
            _refuse(name, f"{timeout} is not a time-out in milliseconds")


def _refuse(field: str, problem: str | None) -> None:
    if problem is not None:
        raise ValueError(f"{field}: {problem}")


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "OffsetCommit": _check_offset,
    "LegacyOffsetCommit": _check_offset,
    "GroupMetadata": _check_classic,
    "ConsumerGroupMetadata": _check_group,
    "ConsumerGroupTargetAssignmentMetadata": _check_targets,
    "ConsumerGroupTargetAssignmentMember": _check_target,
    "ConsumerGroupMemberMetadata": _check_member,
    "ConsumerGroupCurrentMemberAssignment": _check_current,
    "ShareGroupMetadata": _check_group,
    "ShareGroupTargetAssignmentMetadata": _check_targets,
    "ShareGroupTargetAssignmentMember": _check_target,
    "ShareGroupCurrentMemberAssignment": _check_share_current,
    "ShareGroupStatePartitionMetadata": _check_share_states,
}
