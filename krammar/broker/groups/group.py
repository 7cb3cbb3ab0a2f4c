"""What classic groups and consumer groups have in common: members, and the checks of their requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import kafka_wire as kw

from krammar.broker.errors import ApiError, errors_in

if TYPE_CHECKING:
    from krammar.broker.groups.member import Member, Place
    from krammar.broker.timers import Timer

# The key of a group's timer; the second part is the member id, or a name.
Key = tuple[int, str]

CONSUMER = "consumer"


def unknown_member(member_id: str, group_id: str) -> ApiError:
    return ApiError(
        kw.ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )


class GroupState(Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Commit(NamedTuple):
    """A commit of offsets of some partitions.

    Attributes:
        epoch: the generation in a classic group, the epoch of the member in a consumer group;
            negative for none
    """

    member_id: str
    instance_id: str | None
    epoch: int
    transactional: bool = False
    places: Iterable[Place] = ()


class Group(ABC):
    """The members of one group.

    Attributes:
        kind: Kafka's name of the group's protocol
        statics: the member ids of static members, by instance id
        subscriptions: the topics that consumers read, existing or not; None if unknown
        stored: the group's records in the log, by kind and member id (or pattern)
        timers: the coordinator's timers, by key
        largest: the bytes of the protocols of all members of the classic protocol, with names and
            metadata. A rebalance sends the leader all metadata, and a record of 1 MB, by default,
            must hold those of the elected protocol.
    """

    kind: ClassVar[str]
    largest: ClassVar[int] = 16 << 20

    def __init__(self, group_id: str, protocol_type: str | None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.protocol_type = protocol_type
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.subscriptions: Collection[str] | None = None
        self.stored: dict[tuple[str, str], Any] = {}
        self.timers: dict[Key, Timer] = {}

    # -- members

    def add(self, member: Member) -> Member:
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        return member

    def remove(self, member_id: str) -> None:
        """Remove a member. Its waiting requests are answered with an error."""
        member = self.members.pop(member_id, None)
        if member is not None:
            if member.instance_id is not None:
                self.statics.pop(member.instance_id, None)
            member.fail(kw.ErrorCode.UNKNOWN_MEMBER_ID, "")

    def leave(
        self, leaving: Sequence[kw.LeaveGroupRequest.MemberIdentity], remove: Callable[[str], None]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        """Call ``remove`` for each member that leaves, and return the results of all."""
        results = []
        for identity in leaving:
            result = kw.LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            results.append(result)
            with errors_in(result):
                remove(self._leaving(identity.member_id, identity.group_instance_id))
        return results

    def _leaving(self, member_id: str, instance_id: str | None) -> str:
        """Return the id of a member that leaves. Raises ApiError."""
        if not member_id and instance_id is not None:
            # An administrator does not know the member id.
            member_id = self.statics.get(instance_id, "")
        return self.check_member(member_id, instance_id).member_id

    def replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member a new id. Requests that wait under the old id are fenced."""
        assert member.instance_id is not None
        del self.members[member.member_id]
        member.fail(kw.ErrorCode.FENCED_INSTANCE_ID, member.member_id)
        member.member_id = member_id
        member.is_new = False
        self.members[member_id] = member
        self.statics[member.instance_id] = member_id

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with an id.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has taken over the
            instance id.
        """
        if instance_id is not None:
            current = self.statics.get(instance_id)
            if current is None:
                raise ApiError(
                    kw.ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
                )
            if current != member_id:
                raise ApiError(
                    kw.ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} was fenced by member "
                    f"{current}.",
                )
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(member_id, self.group_id)
        return member

    def check_classic(self, request: kw.HeartbeatRequest | kw.SyncGroupRequest) -> Member:
        """Return the member of the classic protocol that sent a request, in the current generation. Raises ApiError."""
        member = self.check_member(request.member_id, request.group_instance_id)
        if not member.protocols:
            raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
        if request.generation_id != self.generation_of(member):
            raise ApiError(kw.ErrorCode.ILLEGAL_GENERATION)
        return member

    def check_sync(self, request: kw.SyncGroupRequest) -> Member:
        """Return the member of the classic protocol that sent a SyncGroup.

        Raises:
            ApiError: as in ``check_classic``; INCONSISTENT_GROUP_PROTOCOL if the member expects
            another protocol.
        """
        member = self.check_classic(request)
        for requested, current in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_of(member)),
        ):
            if requested is not None and current is not None and requested != current:
                raise ApiError(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return member

    @abstractmethod
    def generation_of(self, member: Member) -> int:
        """Return the generation that a member of the classic protocol sends."""

    @abstractmethod
    def protocol_of(self, member: Member) -> str | None:
        """Return the protocol, such as ``range``, in which a member of the classic protocol takes part."""

    def has_space(self, member_id: str, size: int) -> bool:
        """Return whether the protocols of a member, of ``size`` bytes, and those of all others fit into memory."""
        others = (m.size for m in self.members.values() if m.member_id != member_id)
        return size + sum(others) <= self.largest

    # -- protocols

    def supports(self, request: kw.JoinGroupRequest) -> bool:
        """Return whether a member could join: all other members support one of its protocols."""
        if not request.protocols:
            return False
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type)
        if request.protocol_type != self.protocol_type:
            return False
        common = self.common_protocols()
        return common is None or any(protocol.name in common for protocol in request.protocols)

    def common_protocols(self) -> set[str] | None:
        """Return the protocols that all members of the classic protocol support; None without any."""
        supported = [
            {name for name, _ in m.protocols} for m in self.members.values() if m.protocols
        ]
        return set.intersection(*supported) if supported else None

    def reads(self, topic: str) -> bool:
        """Return whether members read a topic. If the subscriptions of consumers are unknown, they might."""
        if self.subscriptions is not None:
            return topic in self.subscriptions
        return self.protocol_type == CONSUMER

    # -- commits

    def check_commit(self, commit: Commit) -> None:
        """Raise ApiError if a client may not commit offsets.

        A client without an epoch is an administrator, or a consumer that assigns partitions itself.
        It may commit while the group is empty, or in a transaction if it predates KIP-447.
        """
        if commit.epoch < 0 and self.state is GroupState.EMPTY:
            return
        anonymous = not commit.member_id and commit.instance_id is None
        if not (commit.transactional and commit.epoch < 0 and anonymous):
            self._check_member_commit(commit)

    @abstractmethod
    def _check_member_commit(self, commit: Commit) -> None: ...

    @abstractmethod
    def expiry_base(self, commit_timestamp: int) -> int | None:
        """Return when the retention of an offset begins (KIP-211); None if the offset must not expire.

        Times are in milliseconds since 1970.
        """
