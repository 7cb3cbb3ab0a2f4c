"""The classic group protocol (KIP-62, KIP-345, KIP-394, KIP-814): the transitions of a group.

The code does no I/O. Time and storage come from a `Host`, which tests can replace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafka_wire import (
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponseMember,
    SyncGroupRequest,
)

from krammar.broker.errors import ApiError
from krammar.broker.groups.group import Group, State, join_error, sync_error
from krammar.broker.groups.member import Member

if TYPE_CHECKING:
    from krammar.broker.groups.member import JoinReply, SyncReply

# The keys of a group's timers; the key of a member's timer is its id.
JOIN = (0, "join")
SYNC = (0, "sync")
Key = tuple[int, str]


class Host(Protocol):
    """Provides time and storage for groups."""

    def now_ms(self) -> int: ...

    def schedule(self, group: Group, key: Key, delay: int, action: Callable[[], None]) -> None:
        """Run ``action`` in ``delay`` milliseconds; replaces the previous timer of the key."""

    def cancel(self, group: Group, key: Key) -> None: ...

    def store(self, group: Group) -> None:
        """Write the group with all members and assignments. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The broker's ``group.*`` configuration; times in milliseconds."""

    initial_rebalance_delay: int = 3000
    max_size: int = 2**31 - 1
    # Heartbeats cannot reveal that a client is gone that waited in its first JoinGroup, so new members
    # must join again after five minutes.
    new_member_join_timeout: int = 300000


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a request, and the request's version."""

    client_id: str
    host: str
    version: int


def member_key(member_id: str) -> Key:
    return (1, member_id)


class ClassicProtocol:
    """Handles joins, syncs, heartbeats and leaves, and their time-outs."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self._host = host
        self._settings = settings

    # -- JoinGroup

    def join(
        self, group: Group, request: JoinGroupRequest, client: Client, reply: JoinReply
    ) -> None:
        """Let a member join the next generation; ``reply`` is called with the response."""
        member_id = request.member_id
        if not group.has_room(member_id, self._settings.max_size):
            self._remove(group, member_id)
            reply(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
            self._maybe_complete(group)
        elif group.state is State.DEAD:
            reply(join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not group.supports(request.protocol_type, protocols_of(request)):
            reply(join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id:
            self._join_unknown(group, request, client, reply)
        elif member_id in group.pending:
            if request.group_instance_id is not None:  # only dynamic members can be pending
                reply(join_error(ErrorCode.UNKNOWN_SERVER_ERROR, member_id))
            else:
                self._add(group, member_id, request, client, reply)
        else:
            self._rejoin(group, request, reply)

    def _join_unknown(
        self, group: Group, request: JoinGroupRequest, client: Client, reply: JoinReply
    ) -> None:
        instance_id = request.group_instance_id
        member_id = group.new_member_id(client.client_id, instance_id)
        if instance_id in group.statics:
            self._replace_static(group, member_id, request, client, reply)
        elif instance_id is not None or client.version < 4:
            self._add(group, member_id, request, client, reply)
        else:
            group.pending.add(member_id)
            self._expect(group, member_id, request.session_timeout_ms)
            reply(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _add(
        self,
        group: Group,
        member_id: str,
        request: JoinGroupRequest,
        client: Client,
        reply: JoinReply,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            protocols_of(request),
            is_new=True,
        )
        if self._is_first_rebalance(group):
            group.grew = True
        group.add(member, request.protocol_type, reply)
        self._expect(group, member_id, self._settings.new_member_join_timeout)
        self._rebalance_or_complete(group)

    def _rejoin(self, group: Group, request: JoinGroupRequest, reply: JoinReply) -> None:
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            reply(join_error(error.code, request.member_id))
            return
        unchanged = list(member.protocols) == protocols_of(request)
        is_leader = group.leader == member.member_id
        if group.state is State.COMPLETING_REBALANCE and unchanged:
            # Most likely, the response did not reach the member.
            reply(group.joined(member, with_members=is_leader))
        elif group.state is State.STABLE and unchanged and not is_leader:
            reply(group.joined(member, with_members=False))
        elif group.state is State.EMPTY:
            reply(join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            # A leader joins again to start a rebalance, for example because topics have changed.
            self._update(group, member, request, reply)
            self._rebalance_or_complete(group)

    def _update(
        self, group: Group, member: Member, request: JoinGroupRequest, reply: JoinReply | None
    ) -> None:
        member.protocols = protocols_of(request)
        member.rebalance_timeout = request.rebalance_timeout_ms
        member.session_timeout = request.session_timeout_ms
        # A second JoinGroup of a member, on another connection, replaces the first.
        group.answer_join(member, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.joining = reply

    def _replace_static(
        self,
        group: Group,
        member_id: str,
        request: JoinGroupRequest,
        client: Client,
        reply: JoinReply,
    ) -> None:
        """Handle the return of a static member: in a stable group, it gets its old assignment."""
        assert request.group_instance_id is not None
        old_id, old_leader = group.statics[request.group_instance_id], group.leader
        member = group.replace_static(request.group_instance_id, member_id)
        self._host.cancel(group, member_key(old_id))
        before = (member.protocols, member.rebalance_timeout, member.session_timeout)
        self._update(group, member, request, reply)
        self._expect(group, member_id, member.session_timeout)
        if group.state is State.COMPLETING_REBALANCE:
            # The leader may be assigning partitions to the old id.
            self.rebalance(group)
        elif group.state is not State.STABLE:
            self._maybe_complete(group)
        elif group.select_protocol() != group.protocol:
            self.rebalance(group)
        else:
            try:
                self._host.store(group)
            except ApiError as error:
                member.joining = None
                member.protocols, member.rebalance_timeout, member.session_timeout = before
                group.replace_static(request.group_instance_id, old_id)
                self._host.cancel(group, member_key(member_id))
                self._expect(group, old_id, member.session_timeout)
                reply(join_error(error.code, ""))
                return
            skips = client.version >= 9
            is_leader = group.leader == member_id
            response = group.joined(member, with_members=skips and is_leader)
            response.skip_assignment = skips and is_leader
            if not skips:
                # An older client that sees itself as the leader would assign partitions again.
                response.leader = old_leader or ""
            group.answer_join(member, response)

    # -- rebalances

    def _is_first_rebalance(self, group: Group) -> bool:
        return group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY

    def _rebalance_or_complete(self, group: Group) -> None:
        if group.can_rebalance():
            self.rebalance(group)
        else:
            self._maybe_complete(group)

    def _maybe_complete(self, group: Group) -> None:
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY
            and group.all_joined()
        ):
            self._complete_join(group)

    def rebalance(self, group: Group) -> None:
        """Make all members join again. The first members of a group wait for more members."""
        if group.state is State.COMPLETING_REBALANCE:
            self._fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        self._host.cancel(group, SYNC)
        first = group.state is State.EMPTY
        group.move_to(State.PREPARING_REBALANCE, self._host.now_ms())
        if first:
            group.grew = False
            delay = self._settings.initial_rebalance_delay
            self._wait_for_more(group, delay, max(group.rebalance_timeout() - delay, 0))
        elif group.all_joined():
            self._complete_join(group)
        else:
            self._wait_for_join(group)

    def _wait_for_join(self, group: Group) -> None:
        self._host.schedule(
            group, JOIN, group.rebalance_timeout(), lambda: self._complete_join(group)
        )

    def _wait_for_more(self, group: Group, delay: int, remaining: int) -> None:
        def elapsed() -> None:
            if group.grew and remaining:
                group.grew = False
                again = min(self._settings.initial_rebalance_delay, remaining)
                self._wait_for_more(group, again, max(remaining - delay, 0))
            else:
                self._complete_join(group)

        self._host.schedule(group, JOIN, delay, elapsed)

    def _complete_join(self, group: Group) -> None:
        """Begin the next generation with the members that have joined and all static members."""
        self._host.cancel(group, JOIN)
        if group.state is State.DEAD:
            return
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left; their sessions will expire.
            self._wait_for_join(group)
            return
        group.next_generation(self._host.now_ms())
        if group.state is State.EMPTY:
            try:
                self._host.store(group)
            except ApiError:
                # A restart would load the previous generation, whose members then time out.
                return
            return
        for member in list(group.members.values()):
            is_leader = member.member_id == group.leader
            group.answer_join(member, group.joined(member, with_members=is_leader))
            self._expect(group, member.member_id, member.session_timeout)
            member.is_new = False
            group.unsynced.add(member.member_id)
        generation = group.generation
        self._host.schedule(
            group, SYNC, group.rebalance_timeout(), lambda: self._expire_sync(group, generation)
        )

    # -- SyncGroup

    def sync(self, group: Group, request: SyncGroupRequest, reply: SyncReply) -> None:
        """Return a member's assignment, or accept all assignments from the leader.

        ``reply`` is called with the response as soon as the assignment is known. Raises ApiError.
        """
        if group.state is State.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol
        ):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is State.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._host.cancel(group, SYNC)
        if group.state is State.STABLE:
            reply(group.synced(member))
            return
        group.answer_sync(member, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.syncing = reply
        if group.leader == member.member_id:
            self._assign(group, request)

    def _assign(self, group: Group, request: SyncGroupRequest) -> None:
        assignments = {a.member_id: a.assignment for a in request.assignments}
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        try:
            self._host.store(group)
        except ApiError as error:
            self._fail_sync(group, error.code)
            self.rebalance(group)
            return
        group.move_to(State.STABLE, self._host.now_ms())
        for member in list(group.members.values()):
            if group.answer_sync(member, group.synced(member)):
                self._expect(group, member.member_id, member.session_timeout)

    def _fail_sync(self, group: Group, code: ErrorCode) -> None:
        for member in list(group.members.values()):
            member.assignment = b""
            if group.answer_sync(member, sync_error(code)):
                self._expect(group, member.member_id, member.session_timeout)

    def _expire_sync(self, group: Group, generation: int) -> None:
        """Remove the members that have not sent SyncGroup within the rebalance timeout."""
        late = set(group.unsynced)
        if (
            generation != group.generation
            or group.state not in (State.COMPLETING_REBALANCE, State.STABLE)
            or not late
        ):
            return
        for member_id in late:
            self._remove(group, member_id)
        self.rebalance(group)

    # -- sessions

    def heartbeat(self, group: Group, request: HeartbeatRequest) -> None:
        """Extend a member's session.

        Raises:
            ApiError: REBALANCE_IN_PROGRESS tells the member to join again.
        """
        if group.state is State.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if group.state is State.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.extend_session(group, member)
        if group.state is State.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def extend_session(self, group: Group, member: Member) -> None:
        """Restart the session timeout of a member."""
        self._expect(group, member.member_id, member.session_timeout)

    def loaded(self, group: Group) -> None:
        """Start the sessions of a group that was loaded from the log."""
        for member in group.members.values():
            self.extend_session(group, member)
        if len(group.members) > self._settings.max_size:
            self.rebalance(group)

    def _expect(self, group: Group, member_id: str, timeout: int) -> None:
        self._host.schedule(
            group,
            member_key(member_id),
            timeout,
            lambda: self._expire_session(group, member_id),
        )

    def _expire_session(self, group: Group, member_id: str) -> None:
        if group.state is State.DEAD:
            return
        member = group.members.get(member_id)
        if member_id in group.pending:
            self._remove(group, member_id)
            if group.state is State.PREPARING_REBALANCE and group.all_joined():
                self._complete_join(group)
        elif member is not None and not member.is_waiting():
            self._remove(group, member_id)
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self.rebalance(group)
            elif group.state is State.PREPARING_REBALANCE and group.all_joined():
                self._complete_join(group)

    def _remove(self, group: Group, member_id: str) -> None:
        group.remove(member_id)
        self._host.cancel(group, member_key(member_id))

    # -- LeaveGroup

    def leave(
        self, group: Group, leaving: Sequence[LeaveGroupRequestMember]
    ) -> list[LeaveGroupResponseMember]:
        """Remove members that are identified by member id, instance id or both."""
        results = group.leave(leaving, lambda member_id: self._remove(group, member_id))
        if any(result.error_code == ErrorCode.NONE for result in results):
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self.rebalance(group)
            else:
                self._maybe_complete(group)
        return results


def protocols_of(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, protocol.metadata) for protocol in request.protocols]


def _differs(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current
