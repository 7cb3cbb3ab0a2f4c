"""The classic group protocol as plain state, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from kafka_wire import (
    ConsumerProtocolSubscription,
    ErrorCode,
    GroupMetadataValue,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

from krammar.broker.errors import ApiError
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.classic_protocol import ClassicProtocol
from krammar.broker.groups.group import Commit, GroupState, Key
from krammar.broker.groups.host import AnyGroup, GroupClient
from krammar.broker.groups.records import CLASSIC, group_records, read_group

SESSION = 10_000
REBALANCE = 60_000


class World:
    """Time, timers and the log of a group: a `Host` whose clock only moves when the test moves it."""

    def __init__(self, **settings: int) -> None:
        self.now = 1_000_000
        self.timers: dict[tuple[AnyGroup, Key], tuple[int, Callable[[], None]]] = {}
        self.stored: list[AnyGroup] = []
        self.failure: ErrorCode | None = None
        self.protocol = ClassicProtocol(self, **{"initial_rebalance_delay": 0, **settings})
        self.group = ClassicGroup("g", self.now)

    def now_ms(self) -> int:
        return self.now

    def schedule(self, group: AnyGroup, key: Key, delay: int, action: Callable[[], None]) -> None:
        self.timers[group, key] = (self.now + delay, action)

    def cancel(self, group: AnyGroup, key: Key) -> None:
        self.timers.pop((group, key), None)

    def store(self, group: AnyGroup) -> None:
        if self.failure is not None:
            raise ApiError(self.failure)
        *_, record = group_records(group)[1]
        assert record.value is not None
        value = GroupMetadataValue.decode(record.value)
        self.stored.append(read_group(group.group_id, {(CLASSIC, ""): value}))

    def advance(self, milliseconds: int = 0) -> None:
        """Move the clock, and run the timers that are due, in order."""
        end = self.now + milliseconds
        while due := [(when, key) for key, (when, _) in self.timers.items() if when <= end]:
            when, key = min(due, key=lambda pair: pair[0])
            self.now = max(self.now, when)
            _, action = self.timers.pop(key)
            action()
        self.now = end

    def join(
        self, member_id: str = "", version: int = 9, **changes: Any
    ) -> list[JoinGroupResponse]:
        answers: list[JoinGroupResponse] = []
        request = JoinGroupRequest(
            **{
                "group_id": "g",
                "session_timeout_ms": SESSION,
                "rebalance_timeout_ms": REBALANCE,
                "member_id": member_id,
                "protocol_type": "consumer",
                "protocols": protocols("range"),
                **changes,
            }
        )
        self.protocol.join(
            self.group, request, GroupClient("client", "/127.0.0.1", version), answers.append
        )
        return answers

    def sync(
        self,
        member_id: str,
        generation: int,
        shares: dict[str, bytes] | None = None,
        **changes: Any,
    ) -> list[SyncGroupResponse]:
        answers: list[SyncGroupResponse] = []
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequest.Assignment(member_id=member, assignment=share)
                for member, share in (shares or {}).items()
            ],
            **changes,
        )
        self.protocol.sync(self.group, request, answers.append)
        return answers

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        self.protocol.heartbeat(
            self.group,
            HeartbeatRequest(
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            ),
        )

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        leaving = [
            LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in members
        ]
        return [r.error_code for r in self.protocol.leave(self.group, leaving)]

    def stable(self, count: int, **changes: Any) -> list[str]:
        """A stable group with this number of members; the first one is the leader."""
        answers = [self.join(version=3, **changes) for _ in range(count)]
        self.advance()
        ids = [answer[0].member_id for answer in answers]
        generation = self.group.generation
        shares = {member: member.encode() for member in ids}
        for member in reversed(ids):
            self.sync(member, generation, shares if member == self.group.leader else None)
        assert self.group.state is GroupState.STABLE
        return ids

    def stable_static(self, *instances: str, **changes: Any) -> list[str]:
        """A stable group of static members; the first leads, and a share is its owner's name."""
        answers = [self.join(group_instance_id=name, **changes) for name in instances]
        self.advance()
        ids = [answer[0].member_id for answer in answers]
        shares = {member: name.encode() for member, name in zip(ids, instances, strict=True)}
        for member in reversed(ids):
            self.sync(member, 1, shares if member == self.group.leader else None)
        assert self.group.state is GroupState.STABLE
        return ids


def protocols(*names: str, topics: tuple[str, ...] = ("t",)) -> list[JoinGroupRequest.Protocol]:
    metadata = ConsumerProtocolSubscription(version=3, topics=topics).encode()
    return [JoinGroupRequest.Protocol(name=name, metadata=metadata) for name in names]


def refused(call: Callable[..., object], *args: Any, **options: Any) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        call(*args, **options)
    return error.value.code


def test_a_first_member_needs_an_id_from_version_4_on() -> None:
    world = World()
    (answer,) = world.join(version=4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-")
    assert world.group.state is GroupState.EMPTY
    joined = world.join(answer.member_id, version=4)
    assert not joined
    world.advance()
    assert joined[0].error_code == ErrorCode.NONE
    assert joined[0].leader == joined[0].member_id == answer.member_id
    assert joined[0].generation_id == 1


def test_an_id_that_is_not_used_in_time_is_forgotten() -> None:
    world = World()
    (answer,) = world.join()
    world.advance(SESSION)
    (late,) = world.join(answer.member_id)
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_assigns_and_all_get_their_share() -> None:
    world = World()
    answers = [world.join(version=3) for _ in range(3)]
    world.advance()
    responses = [answer[0] for answer in answers]
    first, *rest = responses
    assert {r.leader for r in responses} == {first.member_id}
    assert {r.protocol_name for r in responses} == {"range"}
    assert [m.member_id for m in first.members] == [r.member_id for r in responses]
    assert not any(r.members for r in rest)
    waiting = [world.sync(r.member_id, 1) for r in rest]
    assert not any(waiting)
    shares = {r.member_id: str(n).encode() for n, r in enumerate(responses)}
    mine = world.sync(first.member_id, 1, shares)
    assert [mine[0].assignment, *(w[0].assignment for w in waiting)] == [b"0", b"1", b"2"]
    assert world.group.state is GroupState.STABLE
    # The group was written before any response.
    (stored,) = world.stored
    assert {m.member_id: m.assignment for m in stored.members.values()} == shares
    assert (stored.generation, stored.protocol, stored.leader) == (1, "range", first.member_id)


def test_the_first_rebalance_waits_as_long_as_members_come() -> None:
    world = World(initial_rebalance_delay=3000)
    one = world.join(version=3)
    world.advance(2000)
    two = world.join(version=3)
    world.advance(1000)
    assert not one
    world.advance(3000)
    assert one[0].generation_id == two[0].generation_id == 1
    assert len(one[0].members) == 2


def test_the_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout() -> None:
    world = World(initial_rebalance_delay=3000)
    answers = []
    for _ in range(9):
        answers.append(world.join(version=3, rebalance_timeout_ms=7000))
        world.advance(1000)
    assert world.group.generation == 1
    assert [bool(a) for a in answers] == [True] * 7 + [False] * 2


def test_a_join_makes_the_others_join_again() -> None:
    world = World()
    (one,) = world.stable(1)
    two = world.join(version=3)
    assert refused(world.heartbeat, one, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(one)
    assert again[0].generation_id == two[0].generation_id == 2
    assert again[0].leader == one
    assert len(again[0].members) == 2
    world.heartbeat(one, 2)
    assert refused(world.heartbeat, one, 1) == ErrorCode.ILLEGAL_GENERATION


def test_who_does_not_join_again_in_time_is_out() -> None:
    world = World()
    one, two = world.stable(2, session_timeout_ms=2 * REBALANCE)
    three = world.join(version=3)
    again = world.join(two)
    world.advance(REBALANCE)
    assert one not in world.group.members
    # The leader was the member that did not join.
    assert again[0].leader == three[0].leader == two
    assert refused(world.heartbeat, one, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_after_its_session() -> None:
    world = World()
    one, two = world.stable(2)
    world.advance(SESSION - 1)
    world.heartbeat(one, 1)
    world.advance(1)
    assert list(world.group.members) == [one]
    assert refused(world.heartbeat, one, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    (again,) = world.join(one)
    assert again.generation_id == 2
    assert [m.member_id for m in again.members] == [one]
    assert refused(world.heartbeat, two, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_members_are_all_gone_is_empty_and_written_so() -> None:
    world = World()
    world.stable(2)
    world.advance(REBALANCE + SESSION)
    assert world.group.state is GroupState.EMPTY
    assert world.group.generation == 2
    assert world.stored[-1].state is GroupState.EMPTY
    assert world.stored[-1].generation == 2
    assert not world.timers


def test_a_member_that_waits_in_join_needs_no_heartbeats() -> None:
    world = World()
    one, two = world.stable(2, session_timeout_ms=SESSION)
    waiting = world.join(one)
    world.advance(SESSION - 1)
    assert refused(world.heartbeat, two, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(SESSION - 1)
    assert not waiting
    assert one in world.group.members


def test_a_new_member_that_waits_too_long_has_to_ask_again() -> None:
    world = World()
    slow = 10 * 60_000
    (one,) = world.stable(1, session_timeout_ms=slow, rebalance_timeout_ms=slow)
    waiting = world.join(version=3)
    world.advance(5 * 60_000)
    assert waiting[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(world.group.members) == [one]


def test_who_does_not_sync_is_out_after_the_rebalance_timeout() -> None:
    world = World()
    answers = [world.join(version=3, session_timeout_ms=2 * REBALANCE) for _ in range(2)]
    world.advance()
    one, two = (a[0].member_id for a in answers)
    waiting = world.sync(two, 1)
    world.advance(REBALANCE)
    assert list(world.group.members) == [two]
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert refused(world.sync, one, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_late_syncs_in_a_stable_group_keep_the_member() -> None:
    world = World()
    answers = [world.join(version=3) for _ in range(2)]
    world.advance()
    one, two = (a[0].member_id for a in answers)
    world.sync(one, 1, {one: b"1", two: b"2"})
    assert world.group.state is GroupState.STABLE
    assert world.sync(two, 1)[0].assignment == b"2"
    assert not any(key == (0, "sync") for _, key in world.timers)


def test_a_rebalance_interrupts_those_that_wait_for_their_share() -> None:
    world = World()
    answers = [world.join(version=3) for _ in range(2)]
    world.advance()
    _, two = (a[0].member_id for a in answers)
    waiting = world.sync(two, 1)
    world.join(version=3)
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert refused(world.sync, two, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_repeated_join_gets_the_same_generation() -> None:
    world = World()
    one, two = world.stable(2)
    (again,) = world.join(two)
    assert (again.generation_id, again.leader, again.members) == (1, one, [])
    assert world.group.state is GroupState.STABLE
    # But not if it wants something else, or leads.
    assert not world.join(two, protocols=protocols("range", topics=("t", "u")))
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    world = World()
    one, _ = world.stable(2)
    assert not world.join(one)
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_the_protocol_with_most_votes_wins() -> None:
    world = World()
    answers = [
        world.join(version=3, protocols=protocols(*names))
        for names in (("range", "sticky"), ("sticky", "range"), ("sticky", "other", "range"))
    ]
    world.advance()
    assert {a[0].protocol_name for a in answers} == {"sticky"}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": protocols("roundrobin")},
        {"protocol_type": "connect"},
        {"protocols": []},
    ],
)
def test_a_member_must_fit_to_the_others(changes: dict[str, Any]) -> None:
    world = World()
    world.stable(1)
    (answer,) = world.join(**changes)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state is GroupState.STABLE


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": []}])
def test_a_first_member_must_say_what_it_speaks(changes: dict[str, Any]) -> None:
    (answer,) = World().join(**changes)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_nobody() -> None:
    world = World(max_size=2)
    world.stable(2)
    (answer,) = world.join()
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.group.state is GroupState.STABLE


def test_sync_compares_protocols() -> None:
    world = World()
    (one,) = world.stable(1)
    for changes in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        assert refused(world.sync, one, 1, **changes) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(world.sync, one, 2) == ErrorCode.ILLEGAL_GENERATION
    assert world.sync(one, 1, protocol_type="consumer", protocol_name="range")


def test_leaving_starts_a_rebalance() -> None:
    world = World()
    one, two = world.stable(2)
    assert world.leave((two, None), ("nobody", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert world.join(one)[0].generation_id == 2
    assert world.leave((one, None)) == [ErrorCode.NONE]
    assert world.group.state is GroupState.EMPTY
    assert not world.timers


def test_a_pending_member_can_leave() -> None:
    world = World()
    (answer,) = world.join()
    assert world.leave((answer.member_id, None)) == [ErrorCode.NONE]
    assert not world.timers
    assert not world.group.pending


def test_a_static_member_comes_back_to_its_old_share() -> None:
    world = World()
    one, two = world.stable_static("a", "b")
    (back,) = world.join(group_instance_id="b")
    assert back.error_code == ErrorCode.NONE
    assert back.generation_id == 1
    assert back.member_id != two
    assert (back.leader, back.skip_assignment, back.members) == (one, False, [])
    assert world.group.state is GroupState.STABLE
    assert world.sync(back.member_id, 1)[0].assignment == b"b"
    assert back.member_id in world.stored[-1].members
    # The one that it replaced is fenced off.
    assert refused(world.heartbeat, two, 1, "b") == ErrorCode.FENCED_INSTANCE_ID
    assert refused(world.heartbeat, two, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(two, group_instance_id="b")[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert refused(world.heartbeat, one, 1, "c") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_is_back_skips_the_assignment() -> None:
    world = World()
    world.stable_static("a", "b")
    (back,) = world.join(group_instance_id="a")
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert len(back.members) == 2


def test_a_static_leader_of_an_older_client_does_not_know_that_it_leads() -> None:
    world = World()
    one, _ = world.stable_static("a", "b")
    (back,) = world.join(group_instance_id="a", version=8)
    assert (back.leader, back.skip_assignment, back.members) == (one, False, [])
    assert world.group.leader == back.member_id


def test_a_static_member_with_other_protocols_makes_a_rebalance() -> None:
    world = World()
    world.stable_static("a", protocols=protocols("range", "sticky"))
    (back,) = world.join(group_instance_id="a", protocols=protocols("sticky"))
    assert (back.generation_id, back.protocol_name) == (2, "sticky")
    assert world.group.state is GroupState.COMPLETING_REBALANCE


def test_a_static_member_that_cannot_be_written_stays_who_it_was() -> None:
    world = World()
    (one,) = world.stable_static("a")
    world.failure = ErrorCode.NOT_COORDINATOR
    (back,) = world.join(group_instance_id="a")
    assert back.error_code == ErrorCode.NOT_COORDINATOR
    world.heartbeat(one, 1, "a")
    world.advance(SESSION)
    assert not world.group.members


def test_two_clients_with_one_instance_id_fence_each_other() -> None:
    world = World()
    first = world.join(group_instance_id="a")
    second = world.join(group_instance_id="a")
    assert first[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    world.advance()
    assert second[0].error_code == ErrorCode.NONE
    code = refused(world.sync, first[0].member_id, 1, group_instance_id="a")
    assert code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_outlives_a_rebalance_it_misses() -> None:
    world = World()
    one, two = world.stable_static("a", "b", session_timeout_ms=3 * REBALANCE)
    world.join(version=3)
    again = world.join(one, group_instance_id="a")
    world.advance(REBALANCE)
    assert again[0].generation_id == 2
    assert two in world.group.members


def test_an_administrator_takes_out_a_static_member_by_its_name() -> None:
    world = World()
    world.stable_static("a", "b")
    assert world.leave(("", "b"), ("", "c"), ("", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(world.group.statics) == ["a"]


def test_a_static_member_leaves_only_under_its_present_id() -> None:
    world = World()
    world.stable_static("a")
    assert world.leave(("other", "a")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.group.state is GroupState.STABLE


def test_an_assignment_that_cannot_be_written_is_not_given_out() -> None:
    world = World()
    answer = world.join(version=3)
    world.advance()
    one = answer[0].member_id
    world.failure = ErrorCode.NOT_COORDINATOR
    (synced,) = world.sync(one, 1, {one: b"share"})
    assert (synced.error_code, synced.assignment) == (ErrorCode.NOT_COORDINATOR, b"")
    assert world.group.state is GroupState.PREPARING_REBALANCE
    world.failure = None
    assert world.join(one)[0].generation_id == 2
    assert world.sync(one, 2, {one: b"share"})[0].assignment == b"share"


def test_a_group_from_the_log_gives_its_members_a_whole_session() -> None:
    world = World()
    one, two = world.stable(2)
    loaded = world.stored[-1]
    assert loaded.state is GroupState.STABLE
    assert loaded.subscriptions == {"t"}
    later = World()
    later.group = loaded
    later.protocol.loaded(loaded)
    later.advance(SESSION - 1)
    later.heartbeat(one, 1)
    later.heartbeat(two, 1)
    later.advance(SESSION)
    assert not later.group.members


def test_a_group_from_the_log_that_is_too_large_rebalances() -> None:
    world = World()
    world.stable(2)
    smaller = World(max_size=1)
    smaller.group = world.stored[-1]
    smaller.protocol.loaded(smaller.group)
    one, two = smaller.group.members
    waiting = smaller.join(one)
    (answer,) = smaller.join(two)
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert waiting[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("state", "member", "generation", "code"),
    [
        ("empty", "", -1, None),
        ("empty", "x", -1, None),
        ("empty", "x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stable", "", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stable", "member", 1, None),
        ("stable", "member", 2, ErrorCode.ILLEGAL_GENERATION),
        ("stable", "member", -1, ErrorCode.ILLEGAL_GENERATION),
        ("stable", "x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("preparing", "member", 1, None),
        ("completing", "member", 1, ErrorCode.REBALANCE_IN_PROGRESS),
    ],
)
def test_who_may_commit(state: str, member: str, generation: int, code: ErrorCode | None) -> None:
    world = World()
    if state == "completing":
        answer = world.join(version=3)
        world.advance()
        member_id = answer[0].member_id
    elif state != "empty":
        (member_id,) = world.stable(1)
        if state == "preparing":
            world.join(version=3)
    else:
        member_id = ""
    who = member_id if member == "member" else member
    check, commit = world.group.check_commit, Commit(who, None, generation)
    with nullcontext() if code is None else pytest.raises(ApiError) as caught:
        check(commit)
    assert (caught and caught.value.code) == code


def test_transactions_of_old_clients_commit_without_a_generation() -> None:
    world = World()
    world.stable(1)
    world.group.check_commit(Commit("", None, -1, transactional=True))
    code = refused(world.group.check_commit, Commit("x", None, 1, transactional=True))
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


def test_subscriptions_that_are_not_a_consumers_are_unknown() -> None:
    world = World()
    odd = [JoinGroupRequest.Protocol(name="range", metadata=b"\x00\x00\xff\xff\xff\x7f")]
    world.stable(1, protocols=odd)
    assert world.group.subscriptions is None
    assert world.group.reads("t")
    connect = World()
    connect.stable(1, protocol_type="connect")
    assert not connect.group.reads("t")
