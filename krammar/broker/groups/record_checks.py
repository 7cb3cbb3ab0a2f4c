"""Checks the records of `__consumer_offsets` before they take effect: no request could have written other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafka_wire import GroupMemberState

from krammar.broker.groups.member import AWAY
from krammar.logfiles.names import MAX_EPOCH, epoch_problem, partition_problem, topic_problem

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


def _offset(key: Any, value: Any) -> None:
    _refuse("topic", topic_problem(key.topic))
    _refuse("partition", partition_problem(key.partition))


def _classic(key: Any, value: Any) -> None:
    _refuse("generation", epoch_problem(value.generation))
    for member in value.members:
        _check_timeouts(member, "session_timeout", "rebalance_timeout")


def _group(key: Any, value: Any) -> None:
    _refuse("epoch", epoch_problem(value.epoch))


def _targets(key: Any, value: Any) -> None:
    _refuse("assignment_epoch", epoch_problem(value.assignment_epoch))


def _target(key: Any, value: Any) -> None:
    _check_partitions(value.topic_partitions)


def _member(key: Any, value: Any) -> None:
    _check_timeouts(value, "rebalance_timeout_ms")
    if value.classic_member_metadata is not None:
        _check_timeouts(value.classic_member_metadata, "session_timeout_ms")


def _current(key: Any, value: Any) -> None:
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
    "OffsetCommit": _offset,
    "LegacyOffsetCommit": _offset,
    "GroupMetadata": _classic,
    "ConsumerGroupMetadata": _group,
    "ConsumerGroupTargetAssignmentMetadata": _targets,
    "ConsumerGroupTargetAssignmentMember": _target,
    "ConsumerGroupMemberMetadata": _member,
    "ConsumerGroupCurrentMemberAssignment": _current,
}
