"""The classic group protocol (KIP-62, KIP-345, KIP-394, KIP-814): the transitions of a group.

The code does no I/O. Time and storage come from a `Host`, which tests can replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.group import GroupState
from krammar.broker.groups.host import JOIN, SYNC, GroupClient, Host, session_key
from krammar.broker.groups.member import JoinReply, Member, SyncReply, join_error, protocols_of

# The part of a client's name, in characters, that goes into its member id: ids have at most 32767
# bytes.
LONGEST_NAME = 8000

# Heartbeats cannot reveal that a client is gone that waited in its first JoinGroup, so new members
# must join again after five minutes.
NEW_MEMBER_JOIN_TIMEOUT = 300000


class _Join(NamedTuple):
    """A JoinGroup, its client, and the function that sends the response."""

    request: kw.JoinGroupRequest
    client: GroupClient
    reply: JoinReply


class ClassicProtocol:
    """Handles joins, syncs, heartbeats and leaves, and their time-outs.

    Args:
        host: time and storage
        initial_rebalance_delay: milliseconds
        max_size: the maximum number of members of a group
    """

    def __init__(
        self, host: Host, initial_rebalance_delay: int = 3000, max_size: int = 2**31 - 1
    ) -> None:
        self._host = host
        self._initial_delay = initial_rebalance_delay
        self._max_size = max_size

    # -- JoinGroup

    def join(
        self,
        group: ClassicGroup,
        request: kw.JoinGroupRequest,
        client: GroupClient,
        reply: JoinReply,
    ) -> None:
        """Let a member join the next generation; ``reply`` is called with the response."""
        member_id, instance_id = request.member_id, request.group_instance_id
        join = _Join(request, client, reply)
        if not group.has_room(member_id, self._max_size):
            self._remove(group, member_id)
            reply(join_error(kw.ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
            self._maybe_complete(group)
        elif not group.supports(request):
            reply(join_error(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id:
            self._join_unknown(group, join)
        elif member_id not in group.pending:
            self._rejoin(group, join)
        elif instance_id is not None:  # only dynamic members can be pending
            reply(join_error(kw.ErrorCode.UNKNOWN_SERVER_ERROR, member_id))
        else:
            self._add(group, member_id, join)

    def _join_unknown(self, group: ClassicGroup, join: _Join) -> None:
        instance_id = join.request.group_instance_id
        name = join.client.client_id if instance_id is None else instance_id
        member_id = f"{name[:LONGEST_NAME]}-{uuid4()}"
        if instance_id in group.statics:
            self._replace_static(group, group.members[group.statics[instance_id]], member_id, join)
        elif instance_id is not None or join.client.version < 4:
            self._add(group, member_id, join)
        else:
            group.pending.add(member_id)
            self._expect(group, member_id, join.request.session_timeout_ms)
            join.reply(join_error(kw.ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _add(self, group: ClassicGroup, member_id: str, join: _Join) -> None:
        request, client = join.request, join.client
        member = Member(member_id, request.group_instance_id, client.client_id, client.host)
        member.update(request)
        member.is_new = True
        member.joining = join.reply
        group.grew = True
        group.join(member, request.protocol_type)
        self._expect(group, member_id, NEW_MEMBER_JOIN_TIMEOUT)
        self._rebalance_or_complete(group)

    def _rejoin(self, group: ClassicGroup, join: _Join) -> None:
        request, reply = join.request, join.reply
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            reply(join_error(error.code, request.member_id))
            return
        unchanged = list(member.protocols) == protocols_of(request)
        is_leader = group.leader == member.member_id
        if unchanged and (
            # Most likely, the response did not reach the member.
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and not is_leader)
        ):
            reply(group.joined(member))
            return
        # A leader joins again to start a rebalance, for example because topics have changed.
        self._update(member, join)
        self._rebalance_or_complete(group)

    def _update(self, member: Member, join: _Join) -> None:
        member.update(join.request)
        # A second JoinGroup of a member, on another connection, replaces the first.
        member.answer_join(join_error(kw.ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.joining = join.reply

    def _replace_static(
        self, group: ClassicGroup, member: Member, member_id: str, join: _Join
    ) -> None:
        """Handle the return of a static member: in a stable group, it gets its old assignment."""
        old_id = member.member_id
        group.replace_static(member, member_id)
        self._host.cancel(group, session_key(old_id))
        before = (member.protocols, member.rebalance_timeout, member.session_timeout)
        self._update(member, join)
        self.extend_session(group, member)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            # During a rebalance, the leader may be assigning partitions to the old id.
            self._rebalance_or_complete(group)
            return
        try:
            self._host.store(group)
        except ApiError as error:
            member.joining = None
            member.protocols, member.rebalance_timeout, member.session_timeout = before
            group.replace_static(member, old_id)
            self._host.cancel(group, session_key(member_id))
            self.extend_session(group, member)
            join.reply(join_error(error.code, ""))
            return
        response = group.joined(member)
        if group.leader == member_id:
            response.skip_assignment = join.client.version >= 9
            if not response.skip_assignment:
                # An older client that sees itself as the leader would assign partitions again.
                response.leader, response.members = old_id, []
        member.answer_join(response)

    # -- rebalances

    def _rebalance_or_complete(self, group: ClassicGroup) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete(group)
        else:
            self.rebalance(group)

    def _maybe_complete(self, group: ClassicGroup) -> None:
        """Complete a rebalance that all members have joined; the first one waits for more members."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.all_joined()
        ):
            self._complete_join(group)

    def rebalance(self, group: ClassicGroup) -> None:
        """Make all members join again. The first members of a group wait for more members."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_sync(group, kw.ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        self._host.cancel(group, SYNC)
        first = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE, self._host.now_ms())
        if first:
            group.grew = False
            delay = self._initial_delay
            self._wait_for_more(group, delay, max(group.rebalance_timeout() - delay, 0))
        elif group.all_joined():
            self._complete_join(group)
        else:
            self._wait_for_join(group)

    def _wait_for_join(self, group: ClassicGroup) -> None:
        self._host.schedule(
            group, JOIN, group.rebalance_timeout(), lambda: self._complete_join(group)
        )

    def _wait_for_more(self, group: ClassicGroup, delay: int, remaining: int) -> None:
        def elapsed() -> None:
            if group.grew and remaining:
                group.grew = False
                again = min(self._initial_delay, remaining)
                self._wait_for_more(group, again, max(remaining - delay, 0))
            else:
                self._complete_join(group)

        self._host.schedule(group, JOIN, delay, elapsed)

    def _complete_join(self, group: ClassicGroup) -> None:
        """Begin the next generation with the members that have joined and all static members."""
        self._host.cancel(group, JOIN)
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left; their sessions will expire.
            self._wait_for_join(group)
            return
        group.next_generation(self._host.now_ms())
        if group.state is GroupState.EMPTY:
            with suppress(ApiError):
                # After a failure, a restart would load the previous generation, whose members then
                # time out.
                self._host.store(group)
            return
        for member in group.members.values():
            member.answer_join(group.joined(member))
            self.extend_session(group, member)
            member.is_new = False
        group.unsynced.update(group.members)
        self._host.schedule(
            group, SYNC, group.rebalance_timeout(), lambda: self._expire_sync(group)
        )

    # -- SyncGroup

    def sync(self, group: ClassicGroup, request: kw.SyncGroupRequest, reply: SyncReply) -> None:
        """Return a member's assignment, or accept all assignments from the leader.

        ``reply`` is called with the response as soon as the assignment is known. Raises ApiError.
        """
        member = group.check_sync(request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(kw.ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._host.cancel(group, SYNC)
        if group.state is GroupState.STABLE:
            reply(group.synced(member))
            return
        member.answer_sync(kw.SyncGroupResponse(error_code=kw.ErrorCode.UNKNOWN_MEMBER_ID))
        member.syncing = reply
        if group.leader == member.member_id:
            self._assign(group, request)

    def _assign(self, group: ClassicGroup, request: kw.SyncGroupRequest) -> None:
        assignments = {a.member_id: a.assignment for a in request.assignments}
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        try:
            self._host.store(group)
        except ApiError as error:
            self._fail_sync(group, error.code)
            self.rebalance(group)
            return
        group.move_to(GroupState.STABLE, self._host.now_ms())
        for member in group.members.values():
            if member.answer_sync(group.synced(member)):
                self.extend_session(group, member)

    def _fail_sync(self, group: ClassicGroup, code: kw.ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.answer_sync(kw.SyncGroupResponse(error_code=code)):
                self.extend_session(group, member)

    def _expire_sync(self, group: ClassicGroup) -> None:
        """Remove the members that have not sent SyncGroup within the rebalance timeout."""
        for member_id in list(group.unsynced):
            self._remove(group, member_id)
        self.rebalance(group)

    # -- sessions

    def heartbeat(self, group: ClassicGroup, request: kw.HeartbeatRequest) -> None:
        """Extend a member's session.

        Raises:
            ApiError: REBALANCE_IN_PROGRESS tells the member to join again.
        """
        self.extend_session(group, group.check_classic(request))
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(kw.ErrorCode.REBALANCE_IN_PROGRESS)

    def extend_session(self, group: ClassicGroup, member: Member) -> None:
        """Restart the session timeout of a member."""
        self._expect(group, member.member_id, member.session_timeout)

    def loaded(self, group: ClassicGroup) -> None:
        """Start the sessions of a group that was loaded from the log."""
        for member in group.members.values():
            self.extend_session(group, member)
        if len(group.members) > self._max_size:
            self.rebalance(group)

    def _expect(self, group: ClassicGroup, member_id: str, timeout: int) -> None:
        def elapsed() -> None:
            member = group.members.get(member_id)
            if member_id not in group.pending and (member is None or member.is_waiting()):
                return
            self._remove(group, member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.all_joined():
                self._complete_join(group)
            elif member is not None and group.state in (
                GroupState.STABLE,
                GroupState.COMPLETING_REBALANCE,
            ):
                self.rebalance(group)

        self._host.schedule(group, session_key(member_id), timeout, elapsed)

    def _remove(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self._host.cancel(group, session_key(member_id))

    # -- LeaveGroup

    def leave(
        self, group: ClassicGroup, leaving: Sequence[kw.LeaveGroupRequest.MemberIdentity]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        """Remove members that are identified by member id, instance id or both."""
        results = group.leave(leaving, lambda member_id: self._remove(group, member_id))
        if any(result.error_code == kw.ErrorCode.NONE for result in results):
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self.rebalance(group)
            else:
                self._maybe_complete(group)
        return results
