"""What a broker says to groups: requests over raw connections, and the answers without what differs
from run to run (ids, ports, times)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from kafka_wire import (
    AddOffsetsToTxnRequest,
    ConsumerGroupDescribeRequest,
    ConsumerProtocolSubscription,
    CoordinatorType,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

from tests.broker.support import RawClient
from tests.support.waiting import until

_NO_ID = UUID(int=0)
# Of topics and of members, which have a name in front.
_ID = re.compile(r"^(.*-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_NOT_READY = {14, 15, 16}


class Talk:
    """A conversation with a broker, and what of it can be compared."""

    def __init__(self, port: int) -> None:
        self.heard: list[tuple[str, Any]] = []
        self._port = port
        self._names: dict[str, str] = {}
        self._open = ExitStack()
        self.client = self.connect()

    def connect(self) -> RawClient:
        return self._open.enter_context(RawClient(self._port))

    def close(self) -> None:
        self._open.close()

    def say(self, request: Any, version: int | None = None, client: RawClient | None = None) -> Any:
        """Send a request, note what comes back."""
        response = (client or self.client).call(request, version)
        self.note(request, version, response)
        return response

    def note(self, request: Any, version: int | None, response: Any) -> None:
        label = f"{type(request).__name__} v{version}"
        plain = response.to_dict()
        # Kafka keeps groups and members in no order.
        for groups in (plain.get("groups"), plain.get("results")):
            if groups:
                groups.sort(key=lambda group: str(group.get("group_id")))
        if isinstance(
            request, JoinGroupRequest | DescribeGroupsRequest | ConsumerGroupDescribeRequest
        ):
            for holder in [plain, *plain.get("groups", ())]:
                holder.get("members", []).sort(
                    key=lambda member: self._names.get(member["member_id"], "?")
                )
        if isinstance(request, FindCoordinatorRequest) and plain["error_code"]:
            del plain["error_message"]  # everybody has words of his own
        self.heard.append((label, self._plain(plain)))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: self._plain(item)
                for key, item in value.items()
                if key not in ("throttle_time_ms", "unknown_tags")
            }
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if value == self._port and not isinstance(value, bool):
            return "<port>"
        if isinstance(value, str) and value != str(_NO_ID) and _ID.match(value):
            return self._names.setdefault(value, f"<{len(self._names)}>")
        return value


def ready(port: int) -> None:
    """Wait until a broker has the coordinators of groups and transactions at work."""
    with RawClient(port) as client:
        for kind in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"])
            until(lambda request=request: client.call(request).coordinators[0].error_code == 0)
        groups = [f"probe-{n}" for n in range(100)]
        until(
            lambda: not _NOT_READY
            & {g.error_code for g in client.call(DescribeGroupsRequest(groups=groups)).groups}
        )
        until(
            lambda: client.call(
                InitProducerIdRequest(transactional_id="probe", transaction_timeout_ms=60_000), 4
            ).error_code
            == 0
        )


def make_topic(client: RawClient, name: str, partitions: int) -> UUID:
    """A topic that the broker knows of; one is enough for all cases."""
    client.call(
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name, num_partitions=partitions, replication_factor=1
                )
            ],
            timeout_ms=10_000,
        ),
        7,
    )
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
    until(lambda: client.call(request, 12).topics[0].error_code == 0)
    topic_id = client.call(request, 12).topics[0].topic_id
    assert isinstance(topic_id, UUID)
    return topic_id


def wait_for_group(talk: Talk, group: str) -> None:
    """Kafka answers a first JoinGroup before others see the group."""
    request = DescribeGroupsRequest(groups=[group])
    until(lambda: talk.client.call(request, 6).groups[0].error_code == 0)


def join_request(group: str, member: str = "", **changes: Any) -> JoinGroupRequest:
    """Build a JoinGroup. ``changes`` replace fields."""
    topics = changes.pop("topics", ["t"])
    owned = changes.pop("owned", ())
    metadata = ConsumerProtocolSubscription(
        version=3,
        topics=topics,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[*owned])
        ],
        generation_id=changes.pop("generation_id", -1),
    ).encode()
    names = changes.pop("names", ["range"])
    return JoinGroupRequest(
        **{
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": member,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequest.Protocol(name=n, metadata=metadata) for n in names],
            **changes,
        }
    )


def join(talk: Talk, group: str, version: int = 9, **changes: Any) -> Any:
    """Send JoinGroup, and return the response."""
    response = talk.say(join_request(group, **changes), version)
    if response.error_code == 79:
        response = talk.say(join_request(group, response.member_id, **changes), version)
    return response


def sync_request(group: str, joined: Any, **changes: Any) -> SyncGroupRequest:
    """Build the SyncGroup that follows a JoinGroup."""
    shares = changes.pop("shares", {joined.member_id: b"share"})
    return SyncGroupRequest(
        **{
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequest.Assignment(member_id=m, assignment=a) for m, a in shares.items()
            ],
            **changes,
        }
    )


def stable(talk: Talk, group: str, **changes: Any) -> Any:
    """Let one member join and sync, and return its JoinGroup response."""
    joined = join(talk, group, **changes)
    instance = changes.get("group_instance_id")
    protocol = joined.protocol_name
    kind = changes.get("protocol_type", "consumer")
    talk.say(
        sync_request(
            group, joined, protocol_name=protocol, protocol_type=kind, group_instance_id=instance
        ),
        5,
    )
    return joined


def beat(group: str, joined: Any, **changes: Any) -> HeartbeatRequest:
    """Build a Heartbeat of a member that has joined."""
    return HeartbeatRequest(
        **{
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            **changes,
        }
    )


def leave(group: str, *members: tuple[str, str | None], version: int = 5) -> LeaveGroupRequest:
    """Build a LeaveGroup; old versions name only one member."""
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=members[0][0])
    return LeaveGroupRequest(
        group_id=group,
        members=[
            LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in members
        ],
    )


def commit(
    group: str, offsets: Mapping[int, int], topic: str | UUID = "t", **changes: Any
) -> OffsetCommitRequest:
    """Build an OffsetCommit of partitions of one topic."""
    metadata = changes.pop("metadata", "note")
    return OffsetCommitRequest(
        **{
            "group_id": group,
            "topics": [
                OffsetCommitRequest.Topic(
                    **{"name" if isinstance(topic, str) else "topic_id": topic},
                    partitions=[
                        OffsetCommitRequest.Partition(
                            partition_index=p, committed_offset=o, committed_metadata=metadata
                        )
                        for p, o in offsets.items()
                    ],
                )
            ],
            **changes,
        }
    )


def fetch(
    version: int,
    group: str,
    topic: str | UUID | None = "t",
    partitions: Sequence[int] = (0, 1),
    **changes: Any,
) -> OffsetFetchRequest:
    """Build an OffsetFetch of one group, in the form of a version."""
    if version < 8:
        topics = None
        if topic is not None:
            topics = [OffsetFetchRequest.Topic(name=str(topic), partition_indexes=partitions)]
        return OffsetFetchRequest(group_id=group, topics=topics, **changes)
    asked = None
    if topic is not None:
        asked = [
            OffsetFetchRequest.Topics(
                **{"name" if isinstance(topic, str) else "topic_id": topic},
                partition_indexes=partitions,
            )
        ]
    member = changes.pop("member_id", None)
    epoch = changes.pop("member_epoch", -1)
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.Group(
                group_id=group, topics=asked, member_id=member, member_epoch=epoch
            )
        ],
        **changes,
    )


def delete_offsets(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    """Build an OffsetDelete of partitions of one topic."""
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.Topic(
                name=topic,
                partitions=[OffsetDeleteRequest.Partition(partition_index=p) for p in partitions],
            )
        ],
    )


Case = Callable[[Talk, UUID], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def coordinators(talk: Talk, topic_id: UUID) -> None:
    for version in range(7):
        kinds = [0] if version == 0 else [0, 1]
        for kind in kinds:
            keys = {"key": "k"} if version < 4 else {"coordinator_keys": ["k", "", "k"]}
            talk.say(FindCoordinatorRequest(key_type=kind, **keys), version)
    for version in (1, 3):
        talk.say(FindCoordinatorRequest(key="k", key_type=2), version)
    for version in (4, 5):
        talk.say(FindCoordinatorRequest(key_type=2, coordinator_keys=["k"]), version)
    talk.say(FindCoordinatorRequest(key_type=2, coordinator_keys=["no-share-key"]), 6)
    talk.say(FindCoordinatorRequest(coordinator_keys=[]), 6)


@case
def joins(talk: Talk, topic_id: UUID) -> None:
    for version in range(10):
        group = f"join-{version}"
        joined = join(talk, group, version)
        talk.say(join_request(group, joined.member_id), version)
        talk.say(join_request(group, joined.member_id, names=["other"]), version)
        refusals: list[dict[str, Any]] = [
            {"session_timeout_ms": 0},
            {"session_timeout_ms": 2**31 - 1},
            {"member_id": "nobody"},
            {"protocol_type": "connect"},
            {"names": ["unknown"]},
            {"names": []},
            {"protocol_type": ""},
        ]
        for changes in refusals:
            talk.say(join_request(group, **changes), version)
            talk.say(join_request(f"{group}-new", **changes), version)
        talk.say(join_request(""), version)
        if version >= 5:
            talk.say(join_request(group, "nobody", group_instance_id="x"), version)
            talk.say(join_request(group, joined.member_id, group_instance_id="x"), version)


@case
def states_of_new_groups(talk: Talk, topic_id: UUID) -> None:
    """A group exists from the first JoinGroup on, even if that one is refused."""
    for name, changes in (("a", {"names": []}), ("b", {"protocol_type": ""}), ("c", {})):
        group = f"new-{name}"
        talk.say(join_request(group, **changes), 9)
        wait_for_group(talk, group)
        talk.say(DescribeGroupsRequest(groups=[group]), 6)


@case
def syncs(talk: Talk, topic_id: UUID) -> None:
    for version in range(6):
        group = f"sync-{version}"
        joined = join(talk, group)
        for changes in (
            {"generation_id": 7},
            {"member_id": "nobody"},
            {"group_id": "nothing"},
            {"group_id": ""},
        ):
            talk.say(sync_request(group, joined, **changes), version)
        if version >= 3:
            talk.say(sync_request(group, joined, group_instance_id="x"), version)
        if version >= 5:
            for changes in (
                {"protocol_name": None},
                {"protocol_type": None},
                {"protocol_name": "x"},
                {"protocol_type": "x"},
            ):
                talk.say(sync_request(group, joined, **changes), version)
        talk.say(sync_request(group, joined, shares={}), version)
        talk.say(sync_request(group, joined), version)
        talk.say(leave(group, (joined.member_id, None)), 3)
        talk.say(sync_request(group, joined), version)


@case
def heartbeats(talk: Talk, topic_id: UUID) -> None:
    group = "heartbeat"
    pending = talk.say(join_request(group), 9)
    for version in range(5):
        talk.say(beat(group, pending), version)
    joined = talk.say(join_request(group, pending.member_id), 9)
    talk.say(beat(group, joined), 4)
    talk.say(sync_request(group, joined), 5)
    for version in range(5):
        for changes in (
            {},
            {"generation_id": 5},
            {"member_id": "nobody"},
            {"member_id": ""},
            {"group_id": "nothing"},
            {"group_id": ""},
        ):
            talk.say(beat(group, joined, **changes), version)
        if version >= 3:
            talk.say(beat(group, joined, group_instance_id="x"), version)


@case
def leaving(talk: Talk, topic_id: UUID) -> None:
    for version in range(6):
        group = f"leave-{version}"
        talk.say(leave(group, ("nobody", None), version=version), version)
        talk.say(leave("", ("nobody", None), version=version), version)
        joined = stable(talk, group)
        talk.say(leave(group, ("nobody", None), version=version), version)
        pending = talk.say(join_request(group), 9)
        if version >= 3:
            talk.say(
                leave(
                    group,
                    ("x", "x"),
                    ("", "x"),
                    ("", None),
                    (joined.member_id, "x"),
                    version=version,
                ),
                version,
            )
        talk.say(leave(group, (pending.member_id, None), version=version), version)
        talk.say(leave(group, (joined.member_id, None), version=version), version)
        talk.say(leave(group, (joined.member_id, None), version=version), version)
        talk.say(beat(group, joined), 4)
        talk.say(DescribeGroupsRequest(groups=[group]), 6)


@case
def rebalances(talk: Talk, topic_id: UUID) -> None:
    group = "rebalance"
    first = stable(talk, group)
    other = talk.connect()
    request = join_request(group, talk.say(join_request(group), 9, other).member_id)
    other.send(request, 9)
    until(lambda: talk.client.call(beat(group, first), 4).error_code != 0)
    talk.say(beat(group, first), 4)
    talk.say(sync_request(group, first), 5)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)
    talk.say(commit(group, {0: 1}, generation_id_or_member_epoch=1, member_id=first.member_id), 9)
    again = talk.say(join_request(group, first.member_id), 9)
    second = other.receive()
    talk.note(request, 9, second)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)
    talk.say(beat(group, again), 4)
    talk.say(commit(group, {0: 1}, generation_id_or_member_epoch=2, member_id=first.member_id), 9)
    shares = {first.member_id: b"1", second.member_id: b"2", "nobody": b"3"}
    waiting = sync_request(group, second, shares={})
    other.send(waiting, 5)
    talk.say(sync_request(group, again, shares=shares), 5)
    talk.note(waiting, 5, other.receive())
    talk.say(join_request(group, second.member_id), 9, other)
    talk.say(sync_request(group, second, shares={}), 5, other)
    # A follower with other metadata.
    request = join_request(group, second.member_id, topics=["t", "u"])
    other.send(request, 9)
    until(lambda: talk.client.call(beat(group, again), 4).error_code != 0)
    third = talk.say(join_request(group, first.member_id), 9)
    talk.note(request, 9, other.receive())
    # The leader goes.
    talk.say(leave(group, (first.member_id, None)), 5)
    last = talk.say(join_request(group, second.member_id), 9, other)
    talk.say(beat(group, third), 4)
    talk.say(sync_request(group, last), 5, other)


@case
def protocols(talk: Talk, topic_id: UUID) -> None:
    group = "protocols"
    first = stable(talk, group, names=["range", "sticky"])
    other = talk.connect()
    talk.say(join_request(group, names=["roundrobin"]), 9, other)
    pending = talk.say(join_request(group, names=["sticky", "other"]), 9, other)
    request = join_request(group, pending.member_id, names=["sticky", "other"])
    other.send(request, 9)
    until(lambda: talk.client.call(beat(group, first), 4).error_code != 0)
    talk.say(join_request(group, first.member_id, names=["range", "sticky"]), 9)
    talk.note(request, 9, other.receive())


@case
def static_members(talk: Talk, topic_id: UUID) -> None:
    for version in (5, 8, 9):
        group = f"static-{version}"
        joined = stable(talk, group, version=version, group_instance_id="one")
        back = talk.say(join_request(group, group_instance_id="one"), version)
        talk.say(sync_request(group, back, group_instance_id="one"), 5)
        talk.say(beat(group, joined), 4)
        talk.say(beat(group, joined, group_instance_id="one"), 4)
        talk.say(beat(group, back, group_instance_id="one"), 4)
        talk.say(beat(group, back), 4)
        talk.say(beat(group, back, group_instance_id="two"), 4)
        talk.say(join_request(group, joined.member_id, group_instance_id="one"), version)
        talk.say(sync_request(group, joined, group_instance_id="one"), 5)
        who = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
        talk.say(commit(group, {0: 1}, group_instance_id="one", **who), 9)
        talk.say(DescribeGroupsRequest(groups=[group]), 6)
        talk.say(leave(group, (joined.member_id, "one")), 5)
        # Another set of protocols means a rebalance.
        changed = talk.say(join_request(group, group_instance_id="one", names=["sticky"]), version)
        talk.say(leave(group, ("", "one"), ("", "two")), 5)
        talk.say(beat(group, changed, group_instance_id="one"), 4)
        talk.say(DescribeGroupsRequest(groups=[group]), 6)


@case
def static_members_in_a_rebalance(talk: Talk, topic_id: UUID) -> None:
    group = "static-rebalance"
    joined = join(talk, group, group_instance_id="one")
    # In the middle of the rebalance: everybody joins again.
    back = talk.say(join_request(group, group_instance_id="one"), 9)
    talk.say(sync_request(group, joined, group_instance_id="one"), 5)
    talk.say(sync_request(group, back, group_instance_id="one"), 5)
    # Two that wait under the same name.
    other = talk.connect()
    waiting = join_request(group, back.member_id, group_instance_id="one", topics=["u"])
    pending = talk.say(join_request(group), 9, other)
    other.send(join_request(group, pending.member_id), 9)
    until(lambda: talk.client.call(beat(group, back, group_instance_id="one"), 4).error_code != 0)
    third = talk.say(join_request(group, group_instance_id="one"), 9)
    talk.note(waiting, 9, other.receive())
    talk.say(beat(group, third, group_instance_id="one"), 4)


def _wait_for_rebalance(talk: Talk, group: str, joined: Any, **changes: Any) -> None:
    until(lambda: talk.client.call(beat(group, joined, **changes), 4).error_code != 0)


@case
def sessions_that_end(talk: Talk, topic_id: UUID) -> None:
    group = "expired"
    first = stable(talk, group, session_timeout_ms=1000)
    # Held until the first one's session is over.
    second = join(talk, group)
    talk.say(beat(group, first, generation_id=2), 4)
    talk.say(sync_request(group, second), 5)
    static = "expired-static"
    first = stable(talk, static, group_instance_id="one", session_timeout_ms=1000)
    second = join(talk, static, group_instance_id="two")
    talk.say(beat(static, first, group_instance_id="one"), 4)


@case
def members_that_miss_a_rebalance(talk: Talk, topic_id: UUID) -> None:
    for static in (False, True):
        group = f"missed-{static}"
        times = {"rebalance_timeout_ms": 700, "session_timeout_ms": 60_000}
        names = [{"group_instance_id": n} if static else {} for n in ("one", "two")]
        first = stable(talk, group, **times, **names[0])
        other = talk.connect()
        if static:
            request = join_request(group, **times, **names[1])
        else:
            pending = talk.say(join_request(group, **times), 9, other)
            request = join_request(group, pending.member_id, **times)
        other.send(request, 9)
        _wait_for_rebalance(talk, group, first, **names[0])
        again = talk.say(join_request(group, first.member_id, **times, **names[0]), 9)
        second = other.receive()
        talk.note(request, 9, second)
        # The second does not sync in time.
        shares = {first.member_id: b"1", second.member_id: b"2"}
        talk.say(sync_request(group, again, shares=shares, **names[0]), 5)
        _wait_for_rebalance(talk, group, again, **names[0])
        talk.say(beat(group, again, **names[0]), 4)
        talk.say(sync_request(group, second, shares={}, **names[1]), 5, other)
        third = talk.say(join_request(group, first.member_id, **times, **names[0]), 9)
        talk.say(sync_request(group, third, **names[0]), 5)
        # The first does not join in time.
        last = join(talk, group, **times, **names[1])
        talk.say(DescribeGroupsRequest(groups=[group]), 6)
        talk.say(beat(group, third, **names[0]), 4)
        talk.say(sync_request(group, last, **names[1]), 5)


def listing(talk: Talk, request: ListGroupsRequest, version: int) -> None:
    """Without the groups of other cases, whose members may be on their way out."""
    response = talk.client.call(request, version)
    response.groups = [g for g in response.groups if g.group_id.startswith("described")]
    talk.note(request, version, response)


@case
def descriptions(talk: Talk, topic_id: UUID) -> None:
    group = "described"
    talk.say(commit("described-simple", {0: 1}), 9)
    pending = talk.say(join_request(group), 9)
    wait_for_group(talk, group)
    for version in range(7):
        talk.say(DescribeGroupsRequest(groups=[group]), version)
    joined = talk.say(join_request(group, pending.member_id), 9)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)
    talk.say(sync_request(group, joined), 5)
    for version in range(7):
        for wanted in (False, True) if version >= 3 else (False,):
            groups = [group, "nothing", "described-simple", ""]
            request = DescribeGroupsRequest(groups=groups, include_authorized_operations=wanted)
            talk.say(request, version)
    talk.say(DescribeGroupsRequest(groups=[]), 6)
    for version in range(6):
        listing(talk, ListGroupsRequest(), version)
    for states in (["stable"], ["STABLE", "x"], ["Empty"], ["x"]):
        for version in (4, 5):
            listing(talk, ListGroupsRequest(states_filter=states), version)
    for types in (["classic"], ["Classic"], ["consumer"], ["x"], ["share", "streams"]):
        listing(talk, ListGroupsRequest(types_filter=types), 5)


@case
def deletions(talk: Talk, topic_id: UUID) -> None:
    for version in range(4):
        group = f"deleted-{version}"
        joined = stable(talk, group)
        request = DeleteGroupsRequest(groups_names=[group, "nothing", "", group])
        talk.say(request, version)
        talk.say(leave(group, (joined.member_id, None)), 5)
        talk.say(commit(group, {0: 1}), 9)
        talk.say(DeleteGroupsRequest(groups_names=[group]), version)
        talk.say(DescribeGroupsRequest(groups=[group]), 6)
        talk.say(fetch(7, group), 7)
        talk.say(beat(group, joined), 4)
    talk.say(DeleteGroupsRequest(groups_names=[]), 3)


@case
def commits(talk: Talk, topic_id: UUID) -> None:
    unknown_id = UUID(int=topic_id.int ^ 1)
    for version in range(2, 11):
        group = f"commit-{version}"
        topic: str | UUID = topic_id if version >= 10 else "t"
        other: str | UUID = unknown_id if version >= 10 else "nothing"
        talk.say(commit(group, {0: 5, 1: 6}, topic), version)
        talk.say(commit(group, {0: 5, 9: 6}, topic), version)
        talk.say(commit(group, {0: 5}, other), version)
        talk.say(commit(group, {}, topic), version)
        talk.say(commit(group, {0: -1}, topic), version)
        talk.say(commit(group, {0: 1}, topic, metadata="x" * 4097), version)
        talk.say(commit(group, {0: 1}, topic, metadata="\U0001d11e" * 2049), version)
        talk.say(commit(group, {1: 1}, topic, metadata=None), version)
        talk.say(commit("", {0: 1}, topic), version)
        both = commit(group, {0: 7}, topic)
        both.topics += commit(group, {0: 8}, other).topics
        talk.say(both, version)
        talk.say(OffsetCommitRequest(group_id=group), version)
        who = {"generation_id_or_member_epoch": 1, "member_id": "nobody"}
        talk.say(commit(group, {0: 1}, topic, **who), version)
        talk.say(commit("nothing", {0: 1}, topic, **who), version)
        talk.say(commit("nothing", {9: 1}, topic, **who), version)
        joined = stable(talk, group)
        me = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
        talk.say(commit(group, {0: 11}, topic, **me), version)
        talk.say(commit(group, {0: 12}, topic), version)
        talk.say(commit(group, {0: 12}, topic, **who), version)
        talk.say(commit(group, {0: 12}, topic, **{**me, "member_id": ""}), version)
        for generation in (-1, 0, 2):
            changed = {**me, "generation_id_or_member_epoch": generation}
            talk.say(commit(group, {0: 13}, topic, **changed), version)
        if version >= 7:
            talk.say(commit(group, {0: 14}, topic, **me, group_instance_id="x"), version)
        talk.say(fetch(7, group), 7)


@case
def fetches(talk: Talk, topic_id: UUID) -> None:
    group = "fetch"
    talk.say(commit(group, {0: 5}), 9)
    talk.say(commit(group, {1: 6}, topic_id, metadata=None), 10)
    unknown_id = UUID(int=topic_id.int ^ 1)
    for version in range(1, 11):
        topic: str | UUID = topic_id if version >= 10 else "t"
        for name in (group, "nothing", ""):
            talk.say(fetch(version, name, topic), version)
            talk.say(fetch(version, name, topic, (1, 0, 9, 0)), version)
            other: str | UUID = unknown_id if version >= 10 else "unknown"
            talk.say(fetch(version, name, other), version)
            talk.say(fetch(version, name, topic, ()), version)
            if version >= 2:
                talk.say(fetch(version, name, None), version)
            if version >= 7:
                talk.say(fetch(version, name, topic, require_stable=True), version)
        if version >= 9:
            for member, epoch in (("nobody", 3), ("nobody", -1), ("", 0)):
                talk.say(
                    fetch(version, group, topic, member_id=member, member_epoch=epoch), version
                )
        if version >= 8:
            several = fetch(version, group, topic)
            several.groups += fetch(version, "nothing", None).groups
            talk.say(several, version)
            talk.say(OffsetFetchRequest(), version)


@case
def offset_deletions(talk: Talk, topic_id: UUID) -> None:
    group = "offsets"
    for name in ("nothing", ""):
        talk.say(delete_offsets(name, "t", 0), 0)
    talk.say(commit(group, {0: 5, 1: 6}), 9)
    talk.say(delete_offsets(group, "t", 0, 9, 0), 0)
    talk.say(delete_offsets(group, "nothing", 0), 0)
    talk.say(delete_offsets(group, "t"), 0)
    talk.say(fetch(7, group), 7)
    joined = stable(talk, group)
    talk.say(delete_offsets(group, "t", 1), 0)
    talk.say(leave(group, (joined.member_id, None)), 5)
    joined = join(talk, group, topics=["u"])
    talk.say(delete_offsets(group, "t", 1), 0)
    talk.say(fetch(7, group), 7)
    talk.say(leave(group, (joined.member_id, None)), 5)
    talk.say(join_request(group, protocol_type="connect"), 3)
    talk.say(delete_offsets(group, "t", 0), 0)


class _Producer:
    def __init__(self, talk: Talk, name: str) -> None:
        self.talk = talk
        self.name = name
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        # While markers of its last transaction are being written the answer is to try again.
        while (response := talk.client.call(request, 4)).error_code == 51:
            pass
        assert response.error_code == 0, response
        self.who = {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch}

    def add(self, group: str) -> None:
        self.talk.say(
            AddOffsetsToTxnRequest(transactional_id=self.name, group_id=group, **self.who), 3
        )

    def commit(
        self, group: str, offset: int, version: int, topic: str | UUID = "t", **changes: Any
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            topics=[
                TxnOffsetCommitRequest.Topic(
                    **{"name" if isinstance(topic, str) else "topic_id": topic},
                    partitions=[
                        TxnOffsetCommitRequest.Partition(
                            partition_index=p,
                            committed_offset=offset,
                            committed_metadata=changes.pop("metadata", None),
                        )
                        for p in changes.pop("partitions", (0,))
                    ],
                )
            ],
            **{**self.who, **changes},
        )
        self.talk.say(request, version)

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(transactional_id=self.name, committed=commit, **self.who)

        def ended() -> bool:
            response = self.talk.client.call(request, 3)
            return response.error_code == 0

        until(ended)


@contextmanager
def _producing(talk: Talk, name: str) -> Iterator[_Producer]:
    producer = _Producer(talk, name)
    yield producer
    producer.end(commit=False)


@case
def transactions(talk: Talk, topic_id: UUID) -> None:
    for version in range(5):
        group = f"txn-{version}"
        talk.say(commit(group, {0: 1}), 9)
        for outcome in (True, False):
            producer = _Producer(talk, group)
            producer.add(group)
            producer.commit(group, 5 if outcome else 6, version)
            for fetch_version in (6, 7, 9):
                talk.say(fetch(fetch_version, group), fetch_version)
                if fetch_version >= 7:
                    for topic in ("t", None):
                        request = fetch(fetch_version, group, topic, require_stable=True)
                        talk.say(request, fetch_version)
            producer.end(commit=outcome)
            until(
                lambda group=group: 88
                not in {
                    p.error_code
                    for t in talk.client.call(fetch(7, group, require_stable=True), 7).topics
                    for p in t.partitions
                }
            )
            talk.say(fetch(7, group, require_stable=True), 7)


@case
def transactions_refused(talk: Talk, topic_id: UUID) -> None:
    group = "txn-refused"
    unknown_id = UUID(int=topic_id.int ^ 1)
    with _producing(talk, group) as producer:
        producer.add(group)
        for version in range(7):
            topic: str | UUID = topic_id if version >= 6 else "t"
            other: str | UUID = unknown_id if version >= 6 else "nothing"
            producer.commit(group, 1, version, other)
            producer.commit(group, 1, version, topic, partitions=(0, 9))
            producer.commit(group, 1, version, topic, metadata="x" * 4097)
            producer.commit("", 1, version, topic)
            if version >= 3:
                who = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
                producer.commit(group, 1, version, topic, **who)
                producer.commit(group, 1, version, topic, member_id="nobody")
    with _producing(talk, group) as producer:
        producer.add(group)
        joined = stable(talk, group)
        me = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
        for version in (2, 3, 4):
            producer.commit(group, 1, version)
            if version >= 3:
                producer.commit(group, 1, version, **me)
                producer.commit(group, 1, version, **{**me, "member_id": "nobody"})
                producer.commit(group, 1, version, **{**me, "generation_id_or_member_epoch": 4})
                producer.commit(group, 1, version, **me, group_instance_id="x")
        talk.say(DeleteGroupsRequest(groups_names=[group]), 3)
