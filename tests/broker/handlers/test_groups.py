"""Groups over sockets, in every version of every request."""

from __future__ import annotations

import time
from functools import partial

import pytest
from kafka_wire import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CoordinatorType,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ErrorCode,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)

from krammar.broker import Broker
from krammar.broker.groups.group import Group
from krammar.broker.topics import java_hash
from tests.broker.groups.support import (
    GROUP,
    heartbeat_request,
    join,
    join_request,
    leave_request,
    stable_member,
    sync_request,
)
from tests.broker.support import RawClient


@pytest.mark.parametrize(
    ("kind", "version"),
    [(CoordinatorType.GROUP, version) for version in range(7)]
    + [(CoordinatorType.TRANSACTION, version) for version in range(1, 7)],
)
def test_the_coordinator_is_this_broker(
    broker: Broker, client: RawClient, version: int, kind: CoordinatorType
) -> None:
    keys = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    request = FindCoordinatorRequest(key_type=kind, **keys)  # type: ignore[arg-type]
    response = client.call(request, version)
    found = response.coordinators if version >= 4 else [response]
    assert [c.key for c in response.coordinators] == (["a", "b"] if version >= 4 else [])
    for coordinator in found:
        assert coordinator.error_code == ErrorCode.NONE
        assert (coordinator.host, coordinator.port) == (broker.host, broker.port)
        assert coordinator.node_id == broker.config.node_id
    name = "__transaction_state" if kind else "__consumer_offsets"
    assert broker.call(lambda: broker.cluster.topics[name].internal)


def test_the_protocols_of_a_group_are_limited(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance sends all members to the leader."""
    monkeypatch.setattr(Group, "largest", 1000)

    def protocol(size: int) -> JoinGroupRequest.Protocol:
        return JoinGroupRequest.Protocol(name="range", metadata=bytes(size))

    assert join(client, protocols=[protocol(1000)]).error_code == ErrorCode.INVALID_REQUEST
    first = join(client, protocols=[protocol(400)], rebalance_timeout_ms=100)
    assert first.error_code == 0
    refused = join(client, protocols=[protocol(400)], rebalance_timeout_ms=100)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    # A member does not count twice.
    again = join_request(first.member_id, protocols=[protocol(500)])
    assert client.call(again, 9).error_code == 0


# A group, a topic id and a partition.
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAABQ:0"


@pytest.mark.parametrize(
    ("version", "key"), [(3, SHARE_KEY), (4, SHARE_KEY), (6, "a"), (6, "a:b:0"), (6, ":AAAA:0")]
)
def test_share_partitions_are_only_found_by_valid_keys(
    client: RawClient, version: int, key: str
) -> None:
    keys = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    request = FindCoordinatorRequest(key_type=CoordinatorType.SHARE, **keys)  # type: ignore[arg-type]
    response = client.call(request, version)
    (found,) = response.coordinators if version >= 4 else [response]
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_the_coordinator_of_a_share_partition(broker: Broker, client: RawClient) -> None:
    request = FindCoordinatorRequest(key_type=CoordinatorType.SHARE, coordinator_keys=[SHARE_KEY])
    (found,) = client.call(request, 6).coordinators
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.NONE, 1, broker.port)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("readers", 1080410128),
        ("öß€", 251683),
        ("\U0001d11e", 1772394),
        ("polygenelubricants", -2147483648),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_groups_are_placed_where_kafka_places_them() -> None:
    with Broker.start(properties={"offsets.topic.num.partitions": "7"}) as broker:
        place = partial(broker.topics.coordinating_partition, "__consumer_offsets")
        assert java_hash("consumers") == -421004483
        assert place("readers") == 1080410128 % 7
        assert place("consumers") == 421004483 % 7
        assert place("polygenelubricants") == 0


@pytest.mark.parametrize("version", range(10))
def test_joining_in_each_version(client: RawClient, version: int) -> None:
    request = join_request()
    first = client.call(request, version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.protocol_name == (None if version >= 7 else "")
        first = client.call(join_request(first.member_id), version)
    assert first.error_code == ErrorCode.NONE
    assert first.generation_id == 1
    assert first.leader == first.member_id
    assert first.protocol_name == "range"
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert [m.member_id for m in first.members] == [first.member_id]
    assert first.members[0].metadata == request.protocols[0].metadata


@pytest.mark.parametrize("version", range(6))
def test_syncing_in_each_version(client: RawClient, version: int) -> None:
    joined = join(client)
    response = client.call(sync_request(joined, {joined.member_id: b"share"}), version)
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"share")
    assert response.protocol_name == ("range" if version >= 5 else None)


def test_sync_from_version_5_on_must_name_the_protocol(client: RawClient) -> None:
    joined = join(client)
    request = sync_request(joined, {joined.member_id: b"share"}, protocol_name=None)
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.call(request, 5).error_code == code
    assert client.call(request, 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_in_each_version(client: RawClient, version: int) -> None:
    joined = stable_member(client)
    request = heartbeat_request(joined)
    assert client.call(request, version).error_code == ErrorCode.NONE
    request.generation_id += 1
    assert client.call(request, version).error_code == ErrorCode.ILLEGAL_GENERATION
    request.member_id = "nobody"
    assert client.call(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request.group_id = "nothing"
    assert client.call(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request.group_id = ""
    assert client.call(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_in_each_version(client: RawClient, version: int) -> None:
    joined = stable_member(client)
    for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        response = client.call(leave_request(joined, version), version)
        if version < 3:
            assert response.error_code == code
        else:
            assert response.error_code == ErrorCode.NONE
            assert [m.error_code for m in response.members] == [code]
            assert response.members[0].member_id == joined.member_id
    (group,) = client.call(DescribeGroupsRequest(groups=[GROUP]), 5).groups
    assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize("version", [2, 5])
def test_leaving_a_group_that_is_not_there(client: RawClient, version: int) -> None:
    request = leave_request(JoinGroupResponse(member_id="m"), version)
    request.group_id = "nothing"
    response = client.call(request, version)
    found = response if version < 3 else response.members[0]
    assert found.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request.group_id = ""
    assert client.call(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
@pytest.mark.parametrize("version", [0, 6, 9])
def test_joins_that_are_refused(
    client: RawClient, version: int, changes: dict[str, object], code: ErrorCode
) -> None:
    response = client.call(join_request(**changes), version)
    assert response.error_code == code
    assert response.generation_id == -1


def test_requests_about_groups_that_are_not_there(client: RawClient) -> None:
    sync = SyncGroupRequest(
        group_id="nothing", member_id="m", protocol_type="consumer", protocol_name="range"
    )
    assert client.call(sync).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    sync.group_id = ""
    assert client.call(sync).error_code == ErrorCode.INVALID_GROUP_ID
    heartbeat = HeartbeatRequest(group_id="nothing", member_id="m")
    assert client.call(heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_makes_the_first_join_again(broker: Broker, client: RawClient) -> None:
    first = stable_member(client)
    with RawClient(broker.port) as other:
        second = other.call(join_request())
        other.send(join_request(second.member_id))
        # Its JoinGroup is held until the first has joined: that one learns of it by a heartbeat.
        while client.call(heartbeat_request(first)).error_code == ErrorCode.NONE:
            pass
        code = client.call(heartbeat_request(first)).error_code
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        again = client.call(join_request(first.member_id))
        joined = other.receive()
        assert again.generation_id == joined.generation_id == 2
        assert again.leader == joined.leader == first.member_id
        shares = {m.member_id: m.member_id.encode() for m in again.members}
        assert set(shares) == {first.member_id, second.member_id}
        other.send(sync_request(joined))
        assert client.call(sync_request(again, shares)).assignment == first.member_id.encode()
        assert other.receive().assignment == second.member_id.encode()


def test_a_member_that_crashes_is_out_after_its_session() -> None:
    with Broker.start(properties={"group.min.session.timeout.ms": "1"}) as broker:
        with RawClient(broker.port) as gone:
            first = stable_member(gone, session_timeout_ms=1000)
        with RawClient(broker.port) as client:
            joined = join(client)
            assert joined.generation_id == 2
            assert [m.member_id for m in joined.members] == [joined.member_id]
            request = heartbeat_request(first, generation_id=2)
            assert client.call(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_closes_while_it_waits_does_no_harm(
    broker: Broker, client: RawClient
) -> None:
    first = stable_member(client)
    with RawClient(broker.port) as other:
        second = other.call(join_request())
        other.send(join_request(second.member_id))
        while client.call(heartbeat_request(first)).error_code == ErrorCode.NONE:
            pass
    again = client.call(join_request(first.member_id))
    assert len(again.members) == 2
    shares = {m.member_id: b"x" for m in again.members}
    assert client.call(sync_request(again, shares)).error_code == ErrorCode.NONE


def test_a_static_member_keeps_its_place_over_a_new_connection(
    broker: Broker, client: RawClient
) -> None:
    with RawClient(broker.port) as before:
        first = stable_member(before, group_instance_id="one")
    back = client.call(join_request(group_instance_id="one"))
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, 1)
    assert (back.skip_assignment, back.leader) == (True, back.member_id)
    sync = client.call(sync_request(back, group_instance_id="one"))
    assert sync.assignment == first.member_id.encode()
    fenced = heartbeat_request(first, group_instance_id="one")
    assert client.call(fenced).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_administrators_remove_static_members(client: RawClient) -> None:
    stable_member(client, group_instance_id="one")
    request = LeaveGroupRequest(
        group_id=GROUP,
        members=[
            LeaveGroupRequest.MemberIdentity(
                member_id="", group_instance_id="one", reason="told to"
            ),
            LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="two"),
        ],
    )
    response = client.call(request, 5)
    assert [m.error_code for m in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


@pytest.mark.parametrize("version", range(7))
def test_describing_in_each_version(client: RawClient, version: int) -> None:
    joined = stable_member(client, group_instance_id="one")
    request = DescribeGroupsRequest(
        groups=[GROUP, "nothing"], include_authorized_operations=version >= 3
    )
    group, absent = client.call(request, version).groups
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (joined.member_id, "test")
    assert member.client_host == "/127.0.0.1"
    assert member.group_instance_id == ("one" if version >= 4 else None)
    assert member.member_metadata == join_request().protocols[0].metadata
    assert member.member_assignment == joined.member_id.encode()
    assert group.authorized_operations == (0b1101_0100_1000 if version >= 3 else -(2**31))
    assert absent.group_state == "Dead"
    if version >= 6:
        assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert absent.error_message == "Group nothing not found."
    else:
        assert absent.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_listing_in_each_version(client: RawClient, version: int) -> None:
    assert client.call(ListGroupsRequest(), version).groups == []
    joined = stable_member(client)
    (group,) = client.call(ListGroupsRequest(), version).groups
    assert (group.group_id, group.protocol_type) == (GROUP, "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        for states, found in ((["stable"], 1), (["Empty", "Dead"], 0), (["Odd"], 0)):
            request = ListGroupsRequest(states_filter=states)
            assert len(client.call(request, version).groups) == found
    if version >= 5:
        for types, found in ((["Classic"], 1), (["consumer", "share"], 0)):
            request = ListGroupsRequest(types_filter=types)
            assert len(client.call(request, version).groups) == found
    client.call(leave_request(joined))
    assert client.call(ListGroupsRequest(states_filter=["Empty"]), 5).groups[0].group_id == GROUP


@pytest.mark.parametrize("version", range(4))
def test_deleting_in_each_version(client: RawClient, version: int) -> None:
    joined = stable_member(client)
    request = DeleteGroupsRequest(groups_names=[GROUP, "nothing"])
    results = {r.group_id: r.error_code for r in client.call(request, version).results}
    assert results == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "nothing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    client.call(leave_request(joined))
    results = {r.group_id: r.error_code for r in client.call(request, version).results}
    assert results[GROUP] == ErrorCode.NONE
    assert client.call(ListGroupsRequest()).groups == []
    assert client.call(heartbeat_request(joined)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_listing_does_not_make_the_internal_topic(broker: Broker, client: RawClient) -> None:
    client.call(ListGroupsRequest())
    client.call(DescribeGroupsRequest(groups=[GROUP]))
    client.call(DeleteGroupsRequest(groups_names=[GROUP]))
    assert not broker.call(lambda: list(broker.cluster.topics))


LONG = "x" * 32768


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": [JoinGroupRequest.Protocol(name="ö" * 16384, metadata=b"")]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_names_that_cannot_be_written_down(
    client: RawClient, changes: dict[str, object], code: ErrorCode
) -> None:
    assert client.call(join_request(**changes), 9).error_code == code
    fitting = join_request(
        group_id=LONG[1:],
        group_instance_id=LONG[1:],
        protocols=[JoinGroupRequest.Protocol(name=LONG[1:], metadata=b"")],
    )
    assert client.call(fitting, 9).error_code == ErrorCode.NONE


def test_the_longest_name_of_a_client(broker: Broker) -> None:
    with RawClient(broker.port, client_id="ö" * 16383) as client:
        assert stable_member(client, version=5).error_code == ErrorCode.NONE


def test_a_consumer_group_that_could_not_be_written_has_no_timers() -> None:
    """Otherwise the session of its only member would end, and replace the group that exists by then."""
    session = 0.3
    settings = {
        "group.consumer.session.timeout.ms": str(int(session * 1000)),
        "group.consumer.min.session.timeout.ms": "1",
        "group.consumer.heartbeat.interval.ms": "10",
        "group.consumer.min.heartbeat.interval.ms": "1",
        "message.max.bytes": "10000",
    }
    with Broker.start(properties=settings) as broker, RawClient(broker.port) as client:

        def beat(epoch: int, *topics: str) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=epoch,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=[*topics],
                topic_partitions=[] if epoch == 0 else None,
            )
            response: ConsumerGroupHeartbeatResponse = client.call(request, 1)
            return response

        assert beat(0, *("t" * 200 + str(number) for number in range(100))).error_code
        epoch = beat(0, "t").member_epoch
        end = time.monotonic() + 3 * session
        while time.monotonic() < end:
            response = beat(epoch, "t")
            assert response.error_code == ErrorCode.NONE
            epoch = response.member_epoch
