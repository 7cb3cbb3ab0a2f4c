"""A share group (KIP-932): its epochs, its members, and the partitions whose state is initialized."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.group import GroupState, Key, unknown_member
from krammar.broker.groups.member import Place
from krammar.broker.groups.subscribed import SubscribedTopics

if TYPE_CHECKING:
    from krammar.broker.timers import Timer


@dataclass(slots=True, eq=False)
class ShareMember:
    """A member of a share group.

    Attributes:
        topics: the topics that it subscribes to, in order
        epoch: the assignment epoch that it has reached
        previous_epoch: also accepted, because the response with the new epoch may have been lost
        assigned: the partitions that it reads
        target: the partitions that the assignor chose for it
    """

    member_id: str
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[Place] = frozenset()
    target: frozenset[Place] = frozenset()


@dataclass(slots=True, eq=False)
class InitializedTopic:
    """A topic with the partitions whose state exists at the share coordinator."""

    name: str
    partitions: set[int] = field(default_factory=set)

    def first_missing(self) -> int:
        """Return the first partition without state; partitions are initialized in order."""
        number = 0
        while number in self.partitions:
            number += 1
        return number


class ShareGroup:
    """The members and the epochs of a group that `ShareProtocol` changes.

    Attributes:
        group_epoch: raised by each change of members, subscriptions or topics
        assignment_epoch, assigned_at: the group epoch and the time of the target assignment
        assigning: whether an assignment is being computed
        initialized: by topic id
        topics_hash: identifies the subscribed topics and their partitions, as of ``topics_seen``,
            an offset of the metadata log
        touched: the members whose records may differ from those in the log
        stored: the group's records in the log, by kind and member id
        timers: the coordinator's timers, by key
    """

    kind: ClassVar[str] = "share"
    protocol_type: ClassVar[str] = "share"
    assignor: ClassVar[str] = "simple"

    def __init__(self, group_id: str, group_epoch: int = 1) -> None:
        self.group_id = group_id
        self.members: dict[str, ShareMember] = {}
        self.group_epoch = self.assignment_epoch = group_epoch
        self.assigned_at = 0
        self.assigning = False
        self.initialized: dict[UUID, InitializedTopic] = {}
        self.topics_hash = 0
        self.topics_seen = -1
        self.touched: set[str] = set()
        self.stored: dict[tuple[str, str], Any] = {}
        self.timers: dict[Key, Timer] = {}
        self.subscribed = SubscribedTopics()

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def add(self, member: ShareMember) -> ShareMember:
        self.subscribed.add(member.topics)
        self.members[member.member_id] = member
        return member

    def remove(self, member: ShareMember) -> None:
        self.subscribed.remove(member.topics)
        del self.members[member.member_id]

    def subscribe(self, member: ShareMember, topics: Iterable[str]) -> None:
        """Change the topics that a member subscribes to."""
        names = tuple(sorted(set(topics)))
        self.subscribed.add(names)
        self.subscribed.remove(member.topics)
        member.topics = names

    def check_member(self, member_id: str) -> ShareMember:
        """Return the member with an id. Raises ApiError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(member_id, self.group_id)
        return member

    def check_empty(self) -> None:
        """Raise ApiError(NON_EMPTY_GROUP) if the group has members."""
        if self.members:
            raise ApiError(kw.ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def reconcile(self, member: ShareMember) -> None:
        """Give a member its target. Several members can read a partition, so nobody has to wait."""
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
            member.assigned = member.target
            self.touched.add(member.member_id)
