"""A group of either protocol: its members and generation, and the operations that each state allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import kafka_wire as kw

from krammar.broker.errors import ApiError, errors_in
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.groups.member import Member, Place
    from krammar.broker.timers import Timer

# The key of a group's timer; the second part is the member id, or a name.
Key = tuple[int, str]

CONSUMER = "consumer"
# The size in bytes of the protocols of all members of the classic protocol, with names and metadata. A rebalance sends
# the leader all metadata, and a record of 1 MB, by default, must hold those of the elected protocol.
LARGEST_GROUP = 16 << 20
INT32_MAX = 2**31 - 1


class GroupKind(Enum):
    """The protocol of a group; the values are Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupState(Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """The members and the generation of one group.

    `protocol.ClassicProtocol` and `consumer.ConsumerProtocol` change it; the fields from ``assignment_epoch`` on
    belong to the latter.

    ``generation``     of a classic group; ``group_epoch`` is the same number in a consumer group
    ``statics``        the member ids of static members, by instance id
    ``pending``        ids that were returned with MEMBER_ID_REQUIRED and have not joined yet
    ``unsynced``       members of this generation that have not sent SyncGroup yet
    ``subscriptions``  the topics that a consumer group reads, existing or not; None if unknown
    ``state_since``    milliseconds since 1970; None if unknown
    ``grew``           whether a member joined during the first rebalance, a reason to wait for more
    ``assignment_epoch``, ``assigned_at``  the group epoch and the time of the target assignment
    ``matches``        the record of each pattern of the members, with the topics that match it
    ``matched``        the names of all topics with which each pattern was compared
    ``behind``         whether patterns must still be compared with the current topics
    ``assigning``      whether an assignment is being computed
    ``topics_hash``    identifies the subscribed topics and their partitions, as of ``topics_seen``, an offset of the
                       metadata log
    ``stored``         the group's records in the log, by kind and member id (or pattern)
    ``touched``        the members whose records may differ from those in the log
    ``timers``         the coordinator's timers, by key
    """

    def __init__(self, group_id: str, now: int | None, kind: GroupKind = GroupKind.CLASSIC) -> None:
        self.group_id = group_id
        self.kind = kind
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_since = now
        self.generation = 0 if kind is GroupKind.CLASSIC else 1
        self.protocol_type: str | None = None if kind is GroupKind.CLASSIC else CONSUMER
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()
        self.subscriptions: Collection[str] | None = None
        # How many members and patterns of a consumer group name each topic.
        self._named: dict[str, int] = {}
        self.grew = False
        self.assignment_epoch = self.generation
        self.assigned_at = 0
        self.matches: dict[str, kw.ConsumerGroupRegularExpressionValue] = {}
        self.matched: dict[str, frozenset[str]] = {}
        self.behind = False
        self.assigning = False
        self.topics_hash = 0
        self.topics_seen = -1
        self.stored: dict[tuple[str, str], Any] = {}
        self.touched: set[str] = set()
        self.timers: dict[Key, Timer] = {}

    # -- members

    @property
    def group_epoch(self) -> int:
        """The epoch of a consumer group (KIP-848). A group that changes its protocol keeps the number."""
        return self.generation

    @group_epoch.setter
    def group_epoch(self, epoch: int) -> None:
        self.generation = epoch

    def add(self, member: Member, protocol_type: str = CONSUMER) -> Member:
        """Add a member. The first one sets the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.topics, 1)
        self.pending.discard(member.member_id)
        return member

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. Its waiting requests are answered with an error."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.topics, -1)
            if member.instance_id is not None:
                self.statics.pop(member.instance_id, None)
            member.fail(kw.ErrorCode.UNKNOWN_MEMBER_ID, "")
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)

    def leave(
        self, leaving: Sequence[kw.LeaveGroupRequest.MemberIdentity], remove: Callable[[str], None]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        """Call ``remove`` for each member that leaves, and return the results of all."""
        results = []
        for identity in leaving:
            member_id, instance_id = identity.member_id, identity.group_instance_id
            result = kw.LeaveGroupResponse.MemberResponse(
                member_id=member_id, group_instance_id=instance_id
            )
            results.append(result)
            with errors_in(result):
                if member_id not in self.pending:
                    if not member_id and instance_id is not None:
                        # An administrator does not know the member id.
                        member_id = self.statics.get(instance_id, "")
                    self.check_member(member_id, instance_id)
                remove(member_id)
        return results

    def replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member a new id. Requests that wait under the old id are fenced."""
        assert member.instance_id is not None
        old_id = member.member_id
        del self.members[old_id]
        member.fail(kw.ErrorCode.FENCED_INSTANCE_ID, old_id)
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member_id)
        member.member_id = member_id
        member.is_new = False
        self.members[member_id] = member
        self.statics[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with an id.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has taken over the instance id.
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
            raise ApiError(
                kw.ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def check_classic(self, request: kw.HeartbeatRequest | kw.SyncGroupRequest) -> Member:
        """Return the member of the classic protocol that sent a request, in the current generation. Raises ApiError."""
        member = self.check_member(request.member_id, request.group_instance_id)
        if not member.protocols:
            raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
        generation = self.generation if self.kind is GroupKind.CLASSIC else member.epoch
        if request.generation_id != generation:
            raise ApiError(kw.ErrorCode.ILLEGAL_GENERATION)
        return member

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Return whether a member may join.

        During a rebalance only members that have joined count, so the last members of a group that is too large
        are refused.
        """
        counted = [
            m.member_id
            for m in self.members.values()
            if m.joining is not None or self.state is not GroupState.PREPARING_REBALANCE
        ]
        return member_id in counted or len(counted) < max_size or self.state is GroupState.EMPTY

    def has_space(self, member_id: str, size: int) -> bool:
        """Return whether the protocols of a member, of ``size`` bytes, and those of all others fit into memory."""
        others = (m.size for m in self.members.values() if m.member_id != member_id)
        return size + sum(others) <= LARGEST_GROUP

    def all_joined(self) -> bool:
        """Return whether all members, pending ones included, wait in JoinGroup."""
        return not self.pending and all(m.joining is not None for m in self.members.values())

    def rebalance_timeout(self) -> int:
        """Return the longest rebalance timeout of all members, in milliseconds."""
        return max((m.rebalance_timeout for m in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader. Returns False if there is none."""
        joined = [m.member_id for m in self.members.values() if m.joining is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    # -- protocols

    def supports(self, request: kw.JoinGroupRequest) -> bool:
        """Return whether a member could join: all other members support one of its protocols."""
        if not request.protocols:
            return False
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type)
        if request.protocol_type != self.protocol_type:
            return False
        common = self._common()
        return common is None or any(protocol.name in common for protocol in request.protocols)

    def _common(self) -> set[str] | None:
        """Return the protocols that all members of the classic protocol support; None without any."""
        supported = [
            {name for name, _ in m.protocols} for m in self.members.values() if m.protocols
        ]
        return set.intersection(*supported) if supported else None

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all members support."""
        common = self._common() or set()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def read_subscriptions(self) -> frozenset[str] | None:
        """Return the topics that consumers subscribe to; None if the members are not valid consumers."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(read_subscription(member.metadata(self.protocol), 0).topics)
            except WireError:
                return None
        return frozenset(topics)

    def reads(self, topic: str) -> bool:
        """Return whether members read a topic. If the subscriptions of consumers are unknown, they might."""
        if self.subscriptions is not None:
            return topic in self.subscriptions
        return self.protocol_type == CONSUMER

    # -- consumer groups

    def subscribed_topics(self) -> KeysView[str]:
        """Return the topics that members of a consumer group subscribe to by name or by a pattern, now and later.

        They are counted with each change, because hundreds of members can name thousands of topics each.
        """
        return self._named.keys()

    def subscribe(self, member: Member, topics: tuple[str, ...]) -> None:
        """Change the topics that a member subscribes to by name."""
        self._count(topics, 1)
        self._count(member.topics, -1)
        member.topics = topics

    def match(self, pattern: str, found: kw.ConsumerGroupRegularExpressionValue | None) -> None:
        """Change the topics that match a pattern; None removes the pattern."""
        before = self.matches.pop(pattern, None)
        if found is not None:
            self._count(found.topics, 1)
            self.matches[pattern] = found
        if before is not None:
            self._count(before.topics, -1)

    def _count(self, topics: Iterable[str], by: int) -> None:
        named = self._named
        for name in topics:
            count = named.get(name, 0) + by
            if count:
                named[name] = count
            else:
                del named[name]

    def owned_by_others(self, member: Member) -> set[Place]:
        """Return the partitions that other members may own or have not given up yet."""
        others = (other for other in self.members.values() if other is not member)
        return {place for other in others for place in (*other.assigned, *other.revoking)}

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members ask for; None if none does."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return max(votes, key=lambda name: (votes[name], name), default=None)

    def refresh_state(self) -> None:
        """Set the state of a consumer group, which follows from its members."""
        if not self.members:
            self.state = GroupState.EMPTY
        elif self.group_epoch > self.assignment_epoch:
            self.state = GroupState.ASSIGNING
        elif all(m.is_reconciled(self.assignment_epoch) for m in self.members.values()):
            self.state = GroupState.STABLE
        else:
            self.state = GroupState.RECONCILING

    # -- states

    def move_to(self, state: GroupState, now: int) -> None:
        self.previous_state = self.state
        self.state = state
        self.state_since = now

    def next_generation(self, now: int) -> None:
        """Begin a new generation with the current members."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscriptions = self.read_subscriptions()
        self.move_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now)
        self.unsynced.clear()

    # -- answers

    def joined(self, member: Member) -> kw.JoinGroupResponse:
        """Build the response to JoinGroup for the current generation. The leader gets all members."""
        members = self.members.values() if member.member_id == self.leader else ()
        return kw.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=[
                kw.JoinGroupResponse.Member(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(self.protocol),
                )
                for each in members
            ],
        )

    def synced(self, member: Member) -> kw.SyncGroupResponse:
        return kw.SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    # -- checks of commits and administration

    def check_epoch(
        self,
        member_id: str,
        epoch: int,
        places: Iterable[Place] | None = None,
        *,
        transactional: bool = False,
    ) -> None:
        """Check the epoch of a commit or a fetch of offsets.

        A commit with an older epoch is valid for partitions that the member has had since then (KIP-1251).

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION in the classic protocol and in
                transactions.
        """
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch and not (
            places is not None
            and 0 <= epoch < member.epoch
            and _since(epoch, member.assigned | member.revoking, places)
        ):
            is_classic = transactional or member.protocols
            raise ApiError(
                kw.ErrorCode.ILLEGAL_GENERATION if is_classic else kw.ErrorCode.STALE_MEMBER_EPOCH
            )

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        places: Iterable[Place] = (),
    ) -> None:
        """Raise ApiError if a client may not commit offsets of some partitions.

        A client without a generation is an administrator, or a consumer that assigns partitions itself. It may
        commit while the group is empty, or in a transaction if it predates KIP-447.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if transactional and generation < 0 and not member_id and instance_id is None:
            return
        if self.kind is GroupKind.CONSUMER:
            self.check_epoch(member_id, generation, places, transactional=transactional)
            return
        self.check_member(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(kw.ErrorCode.ILLEGAL_GENERATION)
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise ApiError(kw.ErrorCode.REBALANCE_IN_PROGRESS)

    def expiry_base(self, commit_timestamp: int) -> int | None:
        """Return when the retention of an offset begins (KIP-211); None if the offset must not expire.

        Times are in milliseconds since 1970.
        """
        if self.protocol_type is None or self.kind is GroupKind.CONSUMER:
            return commit_timestamp
        if self.state is GroupState.EMPTY:
            return commit_timestamp if self.state_since is None else self.state_since
        is_stable = self.state is GroupState.STABLE and self.protocol_type == CONSUMER
        return commit_timestamp if is_stable else None


def _since(epoch: int, owned: Mapping[Place, int], places: Iterable[Place]) -> bool:
    """Return whether a member has had all of these partitions since an epoch."""
    return all(epoch >= owned.get(place, INT32_MAX) for place in places)


def read_subscription(data: bytes, newest: int = 3) -> kw.ConsumerProtocolSubscription:
    """Decode the metadata of a consumer that speaks the classic protocol. Raises WireError."""
    return kw.ConsumerProtocolSubscription.decode_from(as_version(data, newest), 0)[0]


def as_version(data: bytes, newest: int = 3) -> bytes:
    """Replace the version of a consumer's data if it is newer than ``newest``, whose layout begins like it."""
    version = newest.to_bytes(2, "big")
    return data if data[:2] <= version else version + data[2:]
