"""Consumer groups (KIP-848) as plain state, with a clock that the test moves, and against a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kafka_wire import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolSubscription,
    ErrorCode,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.classic_protocol import ClassicProtocol
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.consumer_protocol import (
    ClassicMembers,
    ConsumerProtocol,
    check_heartbeat,
)
from krammar.broker.groups.group import GroupState, Key
from krammar.broker.groups.host import AnyGroup, GroupClient
from krammar.broker.groups.matching import Matching, matcher
from krammar.broker.groups.member import Place
from krammar.broker.groups.migration import Migration
from krammar.broker.groups.records import group_records, read_group

CLIENT = GroupClient("client", "/127.0.0.1", 9)
SESSION = 45_000
REBALANCE = 10_000


@dataclass(eq=False)
class FakeTopic:
    name: str
    topic_id: UUID
    partitions: range


class FakeCluster:
    """The part of the cluster's metadata that groups read."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.topics_by_id: dict[UUID, FakeTopic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.last_offset = 0

    def create(self, name: str, partitions: int) -> FakeTopic:
        old = self.topics.get(name)
        topic = FakeTopic(name, old.topic_id if old else uuid4(), range(partitions))
        self.topics[name] = self.topics_by_id[topic.topic_id] = topic
        self.last_offset += 1
        return topic

    def delete(self, name: str) -> None:
        del self.topics_by_id[self.topics.pop(name).topic_id]
        self.last_offset += 1


class World:
    """Time, timers and the log of a group: a `Host` whose clock only moves when the test moves it."""

    def __init__(self, **properties: Any) -> None:
        self.now = 1_000_000
        self.timers: dict[tuple[AnyGroup, Key], tuple[int, Callable[[], None]]] = {}
        self.cluster = FakeCluster()
        self.failure = False
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.config = config = BrokerConfig.defaults(
            **{"group.consumer.assignment.interval.ms": "0", **properties}
        )
        self.classic = classic = ClassicProtocol(self, initial_rebalance_delay=0)
        cluster: Any = self.cluster
        migration = Migration(self, config, cluster)
        self.protocol = ConsumerProtocol(self, config, cluster, classic, migration)
        self.classic_members = ClassicMembers(self.protocol, cluster, migration)
        self.group: AnyGroup = ConsumerGroup("g")

    def now_ms(self) -> int:
        return self.now

    def schedule(self, group: AnyGroup, key: Key, delay: int, action: Callable[[], None]) -> None:
        self.timers[group, key] = (self.now + delay, action)

    def cancel(self, group: AnyGroup, key: Key) -> None:
        self.timers.pop((group, key), None)

    def in_thread(
        self, group: AnyGroup, function: Callable[[], Any], then: Callable[[Any], None]
    ) -> None:
        self.jobs.append((function, then))

    def store(self, group: AnyGroup) -> None:
        if self.failure:
            if group.stored:
                self.restart(group)
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        stored, changed = group_records(group)
        assert all(record.key for record in changed)
        group.stored = stored
        self.group = group
        again = read_group(group.group_id, stored)
        if isinstance(group, ClassicGroup):
            assert isinstance(again, ClassicGroup)
            assert again.generation == group.generation
        else:
            assert isinstance(again, ConsumerGroup)
            assert again.group_epoch == group.group_epoch
            group.touched.clear()
            assert group_records(again)[1] == []  # the log has all of it
            assert {m: (o.epoch, o.assigned, o.target) for m, o in again.members.items()} == {
                m: (o.epoch, o.assigned, o.target) for m, o in group.members.items()
            }

    def forget(self, group: AnyGroup) -> None:
        """Stop the timers of a group that another one replaces."""
        self.timers = {key: timer for key, timer in self.timers.items() if key[0] is not group}

    def restart(self, group: AnyGroup) -> None:
        """Read a group from its records again."""
        self.forget(group)
        self.group = read_group(group.group_id, group.stored)
        if isinstance(self.group, ConsumerGroup):
            self.protocol.loaded(self.group)
        else:
            self.classic.loaded(self.group)

    def run_jobs(self) -> None:
        jobs, self.jobs = self.jobs, []
        for function, then in jobs:
            then(function())

    def settle(self, member: str) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat in the member's epoch."""
        return self.heartbeat(member, self.group.members[member].epoch)

    def advance(self, milliseconds: int = 0) -> None:
        """Move the clock, and run the timers that are due, in order."""
        end = self.now + milliseconds
        while due := [(when, key) for key, (when, _) in self.timers.items() if when <= end]:
            when, key = min(due, key=lambda pair: pair[0])
            self.now = max(self.now, when)
            _, action = self.timers.pop(key)
            action()
        self.now = end

    def heartbeat(
        self, member: str, epoch: int, owned: set[Place] | None = None, **changes: Any
    ) -> ConsumerGroupHeartbeatResponse:
        if owned is not None:
            changes["topic_partitions"] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=[number])
                for topic, number in owned
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=epoch, **changes
        )
        check_heartbeat(request, self.config.group_consumer_assignors)
        return self.protocol.heartbeat(self.group, request, CLIENT)

    def join(self, member: str, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        return self.heartbeat(
            member,
            0,
            **{
                "owned": set(),
                "rebalance_timeout_ms": REBALANCE,
                "subscribed_topic_names": ["t"],
                **changes,
            },
        )


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.create("t", 4)
    return world


def places(response: ConsumerGroupHeartbeatResponse) -> set[Place] | None:
    if response.assignment is None:
        return None
    return {(t.topic_id, n) for t in response.assignment.topic_partitions for n in t.partitions}


def refused(call: Callable[..., object], *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call(*args, **kwargs)
    return caught.value.code


def test_a_silent_member_is_removed(world: World) -> None:
    world.join("a")
    world.advance(SESSION - 1)
    world.heartbeat("a", 2)
    world.advance(SESSION - 1)
    assert "a" in world.group.members
    world.advance(1)
    assert world.group.state is GroupState.EMPTY
    assert refused(world.heartbeat, "a", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_nothing_up_is_removed(world: World) -> None:
    world.join("a")
    world.join("b")
    assert len(places(world.heartbeat("a", 2)) or ()) == 2
    for _ in range(REBALANCE // 1000 - 1):
        world.advance(1000)
        world.heartbeat("a", 2)
        world.heartbeat("b", 3)
    world.advance(1000)
    assert list(world.group.members) == ["b"]
    assert len(places(world.heartbeat("b", 3)) or ()) == 4


def test_settings_of_the_group(world: World) -> None:
    world.cluster.configs[32, "g"] = {
        "consumer.session.timeout.ms": "60000",
        "consumer.heartbeat.interval.ms": "6000",
    }
    assert world.join("a").heartbeat_interval_ms == 6000
    world.advance(59_999)
    assert world.group.members
    world.advance(1)
    assert not world.group.members


def test_assignments_wait_for_the_interval() -> None:
    world = World(**{"group.consumer.assignment.interval.ms": "1000"})
    world.cluster.create("t", 4)
    world.join("a")
    assert places(world.join("b")) == set()
    assert world.group.state is GroupState.ASSIGNING
    assert places(world.heartbeat("a", 2)) is None
    world.advance(1000)
    assert len(places(world.heartbeat("a", 2)) or ()) == 2


def test_patterns_match_new_topics(world: World) -> None:
    pytest.importorskip("re2")
    world.cluster.create("u", 1)
    changes = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
    assert len(places(world.join("a", **changes)) or ()) == 4
    world.cluster.create("t2", 1)
    assert len(places(world.heartbeat("a", 2)) or ()) == 5
    world.cluster.create("u2", 1)
    assert places(world.heartbeat("a", 3)) is None
    world.cluster.delete("t")
    response = world.heartbeat("a", 3)
    owned = places(response)
    assert owned is not None and len(owned) == 1
    assert world.heartbeat("a", 3, owned).member_epoch == 4


def test_patterns_are_refreshed_in_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic does not make one heartbeat match the patterns of all members."""
    pytest.importorskip("re2")
    calls: list[str] = []

    def counted(pattern: str) -> Callable[[str], bool]:
        found = matcher(pattern)

        def match(name: str) -> bool:
            calls.append(name)
            return found(name)

        return match

    for n in range(40):
        world.cluster.create(f"made-{n}", 1)
    members = [f"m{n}" for n in range(30)]
    changes = {"subscribed_topic_names": None}
    for n, member in enumerate(members):
        world.join(member, subscribed_topic_regex=f"made-.*|{n}", **changes)
    monkeypatch.setattr("krammar.broker.groups.matching.matcher", counted)
    monkeypatch.setattr(Matching, "portion", 5_000)
    world.cluster.create("made-x", 1)
    world.cluster.delete("made-0")
    world.settle("m0")
    assert world.group.behind
    assert 0 < len(calls) <= 5 and set(calls) == {"made-x"}
    for _ in range(10):
        world.settle("m0")
    assert not world.group.behind
    assert calls == ["made-x"] * 30
    expected = sorted([*(f"made-{n}" for n in range(1, 40)), "made-x"])
    assert len(world.group.matches) == 30
    assert all(match.topics == expected for match in world.group.matches.values())
    assert world.group.subscriptions is not None
    assert "made-x" in world.group.subscriptions and "made-0" not in world.group.subscriptions


def test_large_assignments_are_computed_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsumerProtocol, "quick_size", 0)
    response = world.join("a")
    assert places(response) == set() and len(world.jobs) == 1
    # There is one at a time, and the group may change meanwhile.
    world.join("b")
    assert len(world.jobs) == 1
    world.run_jobs()
    assert world.group.assignment_epoch < world.group.group_epoch
    first = len(places(world.settle("a")) or ())
    assert first == 4 and len(world.jobs) == 1
    world.run_jobs()
    assert world.group.assignment_epoch == world.group.group_epoch
    assert {len(member.target) for member in world.group.members.values()} == {2}


def test_an_assignment_for_members_that_are_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsumerProtocol, "quick_size", 0)
    world.join("a")
    world.heartbeat("a", -1)
    world.run_jobs()
    assert not world.group.members
    response = world.join("b")
    assert response.error_code == 0
    world.run_jobs()
    assert len(world.group.members["b"].target) == 4


def test_a_pattern_that_is_none(world: World) -> None:
    code = refused(world.join, "a", subscribed_topic_regex="(?=a)")
    assert code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.group.members


def test_without_re2_a_pattern_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ApiError, match=r"krammar\[re2\]") as caught:
        world.join("a", subscribed_topic_regex="t.*")
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        (
            {"server_assignor": "sticky"},
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
    ],
)
def test_heartbeats_that_no_group_accepts(
    world: World, changes: dict[str, Any], message: str
) -> None:
    """The messages are Kafka's."""
    valid = {
        "member_id": "a",
        "member_epoch": 0,
        "topic_partitions": [],
        "rebalance_timeout_ms": REBALANCE,
        "subscribed_topic_names": ["t"],
    }
    check_heartbeat(
        ConsumerGroupHeartbeatRequest(group_id="g", **valid), world.config.group_consumer_assignors
    )
    with pytest.raises(ApiError) as caught:
        check_heartbeat(
            ConsumerGroupHeartbeatRequest(group_id="g", **{**valid, **changes}),
            world.config.group_consumer_assignors,
        )
    unsupported = "server_assignor" in changes
    wanted = ErrorCode.UNSUPPORTED_ASSIGNOR if unsupported else ErrorCode.INVALID_REQUEST
    assert (caught.value.code, caught.value.message) == (wanted, message)


def test_a_member_of_a_classic_group_cannot_send_consumer_heartbeats(world: World) -> None:
    world.group = ClassicGroup("g", world.now)
    assert refused(world.heartbeat, "a", 3) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"?")]},
    ],
    ids=["type", "subscription"],
)
def test_classic_members_that_do_not_fit_a_consumer_group(
    world: World, changes: dict[str, Any]
) -> None:
    world.join("a")
    request = join_request("c")
    for name, value in changes.items():
        setattr(request, name, value)
    code = refused(world.classic_members.join, world.group, request, CLIENT)
    assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(world.group.members) == ["a"]


def test_a_replaced_static_member_is_fenced(world: World) -> None:
    world.join("a")
    first = join_request("c")
    first.group_instance_id = "i"
    world.classic_members.join(world.group, first, CLIENT)
    other = join_request("d")
    other.group_instance_id = "i"
    code = refused(world.classic_members.join, world.group, other, CLIENT)
    assert code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("properties", "changes", "message"),
    [
        ({}, {"protocol_type": "connect"}, "does not use the consumer embedded protocol"),
        (
            {},
            {"protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"?")]},
            "the embedded consumer protocol is malformed",
        ),
        (
            {"group.consumer.max.size": "1", "group.max.size": "9"},
            {},
            "exceeds the consumer group maximum size",
        ),
    ],
    ids=["type", "subscription", "size"],
)
def test_classic_groups_that_cannot_become_consumer_groups(
    properties: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    world = World(**properties)
    world.group = group = ClassicGroup("g", world.now)
    joined: list[Any] = []
    for _ in range(2):
        request = join_request("")
        for name, value in changes.items():
            setattr(request, name, value)
        world.classic.join(group, request, CLIENT, joined.append)
        request.member_id = joined[-1].member_id
        world.classic.join(group, request, CLIENT, joined.append)
    world.advance()
    with pytest.raises(ApiError, match=message) as caught:
        world.join("a")
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(group, ClassicGroup) and len(group.members) == 2


@pytest.mark.parametrize("field", ["member", "instance_id", "rack_id"])
def test_ids_that_do_not_fit_into_records(world: World, field: str) -> None:
    changes = {"member": "a", field: "x" * 32768}
    assert refused(world.join, changes.pop("member"), **changes) == ErrorCode.INVALID_REQUEST


def test_a_full_group() -> None:
    world = World(**{"group.consumer.max.size": "1"})
    world.cluster.create("t", 1)
    world.join("a")
    assert refused(world.join, "b") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("a").member_epoch == 2


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_migration_policies(policy: str, upgrades: bool, downgrades: bool) -> None:
    world = World(**{"group.consumer.migration.policy": policy})
    world.cluster.create("t", 2)
    world.group = group = ClassicGroup("g", world.now)
    joined: list[Any] = []
    world.classic.join(group, join_request(""), CLIENT, joined.append)
    member_id = joined[0].member_id
    world.classic.join(group, join_request(member_id), CLIENT, joined.append)
    world.advance()
    request = SyncGroupRequest(group_id="g", member_id=member_id, generation_id=1)
    world.classic.sync(group, request, joined.append)
    if not upgrades:
        assert refused(world.join, "a") == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.group is group
        world.group = ConsumerGroup("g")
    world.join("a")
    assert isinstance(world.group, ConsumerGroup)
    if policy == "disabled":
        code = refused(world.classic_members.join, world.group, join_request(""), CLIENT)
        assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return
    member_id = world.classic_members.join(world.group, join_request(member_id), CLIENT).member_id
    world.heartbeat("a", -1)
    assert isinstance(world.group, ClassicGroup) == downgrades
    assert list(world.group.members) == [member_id]


def test_a_member_that_does_not_fit_leaves_a_classic_group_unchanged() -> None:
    world = World(**{"group.consumer.max.size": "1", "group.max.size": "9"})
    world.cluster.create("t", 2)
    world.group = group = ClassicGroup("g", world.now)
    joined: list[Any] = []
    world.classic.join(group, join_request(""), CLIENT, joined.append)
    member_id = joined.pop().member_id
    world.classic.join(group, join_request(member_id), CLIENT, joined.append)
    assert refused(world.join, "a") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.group is group
    world.advance()
    assert [(each.member_id, each.generation_id) for each in joined] == [(member_id, 1)]


def test_a_write_that_fails_changes_nothing(world: World) -> None:
    world.join("a")
    world.failure = True
    for call, args in (
        (world.join, ("b",)),
        (world.heartbeat, ("a", -1)),
        (lambda: world.heartbeat("a", 2, subscribed_topic_names=["u"]), ()),
    ):
        assert refused(call, *args) == ErrorCode.NOT_COORDINATOR
        assert list(world.group.members) == ["a"]
        assert (world.group.group_epoch, world.group.state) == (2, GroupState.STABLE)
        assert len(world.group.members["a"].assigned) == 4
    world.failure = False
    assert world.heartbeat("a", 2).member_epoch == 2


def test_a_classic_member_that_does_not_join_again_is_removed(world: World) -> None:
    world.join("a")
    response = world.classic_members.join(world.group, join_request("c"), CLIENT)
    sync = SyncGroupRequest(group_id="g", member_id="c", generation_id=response.generation_id)
    world.classic_members.sync(world.group, sync)
    world.join("b")
    beat = HeartbeatRequest(group_id="g", member_id="c", generation_id=response.generation_id)
    for _ in range(REBALANCE // 1000):
        code = refused(world.classic_members.heartbeat, world.group, beat)
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        world.heartbeat("a", 2)
        world.advance(1000)
    assert "c" not in world.group.members


def join_request(
    member_id: str, topics: tuple[str, ...] = ("t",), owned: dict[str, list[int]] | None = None
) -> JoinGroupRequest:
    metadata = ConsumerProtocolSubscription(
        version=3,
        topics=[*topics],
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in (owned or {}).items()
        ],
    ).encode()
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION,
        rebalance_timeout_ms=REBALANCE,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=metadata)],
    )


@dataclass
class Client848:
    """A correct client: it owns its assignment, and gives up partitions that it must no longer own."""

    member: str
    instance: str | None
    classic: bool
    topics: tuple[str, ...]
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    told: set[Place] = field(default_factory=set)
    missed: bool = False


class Groups(RuleBasedStateMachine):
    """Clients that join, leave, crash and return, while topics change. Some responses are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.clients: dict[str, Client848] = {}
        self.count = 0

    @initialize()
    def topics(self) -> None:
        self.world.cluster.create("t", 3)
        self.world.cluster.create("u", 2)

    def reset(self, client: Client848) -> None:
        """The client was fenced: it gives everything up, and joins again."""
        client.epoch = 0
        client.owned, client.told = set(), set()

    @rule(
        static=st.booleans(),
        classic=st.booleans(),
        topics=st.sampled_from([("t",), ("t", "u"), ("u",), ("absent",)]),
    )
    def start(self, static: bool, classic: bool, topics: tuple[str, ...]) -> None:
        if len(self.clients) < 5:
            self.count += 1
            instance = f"i{self.count}" if static and not classic else None
            name = f"m{self.count}"
            self.clients[name] = Client848(name, instance, classic, topics)
            self.beat(self.clients[name], lost=False)

    @rule(data=st.data(), lost=st.booleans())
    def heartbeat(self, data: st.DataObject, lost: bool) -> None:
        if self.clients:
            self.beat(self.clients[data.draw(st.sampled_from(sorted(self.clients)))], lost=lost)

    def beat(self, client: Client848, *, lost: bool) -> None:
        if isinstance(self.world.group, ClassicGroup):
            self.world.forget(self.world.group)
            self.world.group = ConsumerGroup("g")
            for other in self.clients.values():
                self.reset(other)
        try:
            if client.classic:
                self.beat_classic(client)
            else:
                self.beat_consumer(client, lost=lost)
        except ApiError as error:
            if error.code == ErrorCode.UNRELEASED_INSTANCE_ID:
                return
            if error.code not in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.ILLEGAL_GENERATION,
            ):
                raise
            self.reset(client)

    def beat_consumer(self, client: Client848, *, lost: bool) -> None:
        common: dict[str, Any] = {"instance_id": client.instance}
        if client.epoch == 0:
            client.owned = client.told = set()
            response = self.world.join(
                client.member, subscribed_topic_names=[*client.topics], **common
            )
        else:
            if client.missed:  # a full request, so that the response has the assignment
                common["rebalance_timeout_ms"] = REBALANCE
                common["subscribed_topic_names"] = [*client.topics]
            response = self.world.heartbeat(client.member, client.epoch, client.owned, **common)
        client.missed = lost
        if lost:
            return
        client.epoch = response.member_epoch
        found = places(response)
        if found is not None:
            client.told = found
        client.owned = set(client.told)

    def beat_classic(self, client: Client848) -> None:
        group = self.world.group
        if client.epoch:
            beat = HeartbeatRequest(
                group_id="g", member_id=client.member, generation_id=client.epoch
            )
            try:
                self.world.classic_members.heartbeat(group, beat)
                return
            except ApiError as error:
                if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
        names = {topic.topic_id: topic.name for topic in self.world.cluster.topics.values()}
        owned: dict[str, list[int]] = {}
        for topic_id, number in client.owned:
            if topic_id in names:
                owned.setdefault(names[topic_id], []).append(number)
        request = join_request(client.member, client.topics, owned)
        client.epoch = self.world.classic_members.join(group, request, CLIENT).generation_id
        sync = SyncGroupRequest(group_id="g", member_id=client.member, generation_id=client.epoch)
        try:
            self.world.classic_members.sync(group, sync)
        except ApiError as error:
            if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            return
        client.owned = set(group.members[client.member].assigned)

    @rule(data=st.data(), kind=st.sampled_from(["leave", "away", "crash"]))
    def stop(self, data: st.DataObject, kind: str) -> None:
        if not self.clients:
            return
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        if kind == "away" and client.instance is None:
            kind = "leave"
        if kind != "crash" and client.member in self.world.group.members:
            if isinstance(self.world.group, ClassicGroup):
                return
            if client.classic:
                leaving = [LeaveGroupRequest.MemberIdentity(member_id=client.member)]
                self.world.protocol.leave(self.world.group, leaving)
            else:
                epoch = -2 if kind == "away" else -1
                self.world.heartbeat(client.member, epoch, instance_id=client.instance)
        del self.clients[client.member]
        if kind == "away":
            self.count += 1
            name = f"m{self.count}"
            self.clients[name] = Client848(name, client.instance, False, client.topics)

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        """Let time pass. Clients that have not crashed continue to send heartbeats."""
        for _ in range(seconds // 3):
            self.world.advance(3000)
            for client in list(self.clients.values()):
                self.beat(client, lost=False)

    @rule(name=st.sampled_from(["t", "u", "v"]), partitions=st.integers(1, 4))
    def grow(self, name: str, partitions: int) -> None:
        topic = self.world.cluster.topics.get(name)
        self.world.cluster.create(name, (len(topic.partitions) if topic else 0) + partitions)

    @rule(name=st.sampled_from(["t", "u", "v"]))
    def delete(self, name: str) -> None:
        if name in self.world.cluster.topics:
            self.world.cluster.delete(name)

    @rule()
    def restart(self) -> None:
        """The broker restarts: the group is read from its records."""
        if isinstance(self.world.group, ConsumerGroup) and self.world.group.stored:
            self.world.restart(self.world.group)

    @invariant()
    def topics_are_counted(self) -> None:
        group = self.world.group
        if isinstance(group, ConsumerGroup):
            named = [member.topics for member in group.members.values()]
            matched = [match.topics for match in group.matches.values()]
            assert group.subscribed_topics() == set().union(*named, *matched)

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.world.group
        if isinstance(group, ClassicGroup):
            return
        held: dict[Place, str] = {}
        for member in group.members.values():
            for place in (*member.assigned, *member.revoking):
                assert place not in held, (place, held[place], member.member_id)
                held[place] = member.member_id
        owned: dict[Place, str] = {}
        for client in self.clients.values():
            if client.member in group.members and client.epoch:
                for place in client.owned:
                    assert place not in owned, (place, owned[place], client.member)
                    owned[place] = client.member

    def teardown(self) -> None:
        """Once nothing changes any more, every partition of a subscribed topic has its owner."""
        if not self.clients:
            return
        for _ in range(40):
            self.world.advance(3000)
            for client in list(self.clients.values()):
                self.beat(client, lost=False)
        group = self.world.group
        assert group.state is GroupState.STABLE, group
        assert set(group.members) == set(self.clients)
        owners: dict[Place, str] = {}
        for client in self.clients.values():
            for place in client.owned:
                assert owners.setdefault(place, client.member) == client.member
        topics = self.world.cluster.topics
        assert set(owners) == {
            (topics[name].topic_id, number)
            for client in self.clients.values()
            for name in client.topics
            if name in topics
            for number in topics[name].partitions
        }


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=30, stateful_step_count=25)


@pytest.mark.sweep
class TestMoreGroups(Groups.TestCase):  # type: ignore[misc, name-defined]
    """10,000 steps."""

    settings = settings(max_examples=200, stateful_step_count=50)
