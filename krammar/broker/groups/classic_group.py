"""A group of the classic protocol: its generation, and the operations that each state allows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.embedded import read_subscription
from krammar.broker.groups.group import CONSUMER, Commit, Group, GroupState
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.groups.member import Member


class ClassicGroup(Group):
    """The members and the generation of a group that `ClassicProtocol` changes.

    A group without records of its own, which only has offsets, is an empty one without a protocol
    type.

    Attributes:
        protocol: the protocol that the members agreed on, such as ``range``
        pending: ids that were returned with MEMBER_ID_REQUIRED and have not joined yet
        unsynced: members of this generation that have not sent SyncGroup yet
        grew: whether a member joined during the first rebalance, a reason to wait for more
        state_since: milliseconds since 1970; None if unknown
    """

    kind = "classic"

    def __init__(self, group_id: str, now: int | None) -> None:
        super().__init__(group_id, None)
        self.previous_state = GroupState.EMPTY
        self.state_since = now
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()
        self.grew = False

    # -- members

    def join(self, member: Member, protocol_type: str) -> None:
        """Add a member. The first one sets the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.pending.discard(member.member_id)
        self.add(member)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. Its waiting requests are answered with an error."""
        super().remove(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)

    def _leaving(self, member_id: str, instance_id: str | None) -> str:
        return member_id if member_id in self.pending else super()._leaving(member_id, instance_id)

    def replace_static(self, member: Member, member_id: str) -> None:
        old_id = member.member_id
        super().replace_static(member, member_id)
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member_id)
        if self.leader == old_id:
            self.leader = member_id

    def generation_of(self, member: Member) -> int:
        return self.generation

    def protocol_of(self, member: Member) -> str | None:
        return self.protocol

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Return whether a member may join.

        During a rebalance only members that have joined count, so the last members of a group that
        is too large are refused.
        """
        counted = [
            m.member_id
            for m in self.members.values()
            if m.joining is not None or self.state is not GroupState.PREPARING_REBALANCE
        ]
        return member_id in counted or len(counted) < max_size or self.state is GroupState.EMPTY

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

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all members support."""
        common = self.common_protocols() or set()
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

    # -- commits

    def _check_member_commit(self, commit: Commit) -> None:
        self.check_member(commit.member_id, commit.instance_id)
        if commit.epoch != self.generation:
            raise ApiError(kw.ErrorCode.ILLEGAL_GENERATION)
        if not commit.transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise ApiError(kw.ErrorCode.REBALANCE_IN_PROGRESS)

    def expiry_base(self, commit_timestamp: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp
        if self.state is GroupState.EMPTY:
            return commit_timestamp if self.state_since is None else self.state_since
        is_stable = self.state is GroupState.STABLE and self.protocol_type == CONSUMER
        return commit_timestamp if is_stable else None
