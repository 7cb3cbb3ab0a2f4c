"""Share groups (KIP-932): members, assignments, administration, start offsets, and their records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    AlterShareGroupOffsetsRequest,
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    CreatePartitionsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupStateRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    ErrorCode,
    FeatureUpdateType,
    IncrementalAlterConfigsRequest,
    InitializeShareGroupStateRequest,
    ListGroupsRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    UpdateFeaturesRequest,
    WriteShareGroupStateRequest,
)

from krammar.broker import Broker
from krammar.broker.groups.assignors import assign_shared
from krammar.logfiles.internal_topics import decode_record
from tests.broker.groups.support import (
    commit_request,
    heartbeat_request,
    join,
    join_request,
    leave_request,
    stable_member,
)
from tests.broker.groups.support import fetch as fetch_offsets
from tests.broker.requests import batch, create_topic, produce
from tests.broker.support import RawClient
from tests.support.waiting import until

GROUP = "workers"
OFFSETS = "__consumer_offsets"


def heartbeat(client: RawClient, member: str = "m", epoch: int = 0, **changes: Any) -> Any:
    """Send a heartbeat; a member that joins subscribes to the topic t."""
    topics = ["t"] if epoch == 0 else None
    request = {"group_id": GROUP, "member_id": member, "member_epoch": epoch}
    request |= {"subscribed_topic_names": topics, **changes}
    return client.call(ShareGroupHeartbeatRequest(**request))


def places(response: Any) -> list[tuple[UUID, list[int]]] | None:
    """Return the assignment of a heartbeat."""
    assignment = response.assignment
    if assignment is None:
        return None
    return [(each.topic_id, each.partitions) for each in assignment.topic_partitions]


def describe(client: RawClient, group: str = GROUP) -> Any:
    """Describe a share group."""
    (found,) = client.call(ShareGroupDescribeRequest(group_ids=[group])).groups
    return found


def positions(client: RawClient, group: str = GROUP, version: int = 1) -> dict[Any, Any]:
    """Return start offset and lag of all partitions with a position."""
    asked = DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=None)
    (found,) = client.call(DescribeShareGroupOffsetsRequest(groups=[asked]), version).groups
    assert found.error_code == ErrorCode.NONE
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in found.topics
        for each in topic.partitions
    }


@pytest.fixture
def topic(client: RawClient) -> UUID:
    """The id of the topic t, with three partitions."""
    return create_topic(client, "t", 3)


# -- members


def test_a_member_joins_stays_and_leaves(client: RawClient, topic: UUID) -> None:
    joined = heartbeat(client)
    assert joined.error_code == ErrorCode.NONE
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("m", 2, 200)
    assert places(joined) == [(topic, [0, 1, 2])]
    again = heartbeat(client, epoch=joined.member_epoch)
    assert (again.error_code, again.member_epoch, places(again)) == (ErrorCode.NONE, 2, None)
    left = heartbeat(client, epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.NONE, "m", -1)
    assert describe(client).group_state == "Empty"


def test_a_full_heartbeat_gets_the_assignment(client: RawClient, topic: UUID) -> None:
    epoch = heartbeat(client).member_epoch
    again = heartbeat(client, epoch=epoch, subscribed_topic_names=["t"])
    assert (again.member_epoch, places(again)) == (epoch, [(topic, [0, 1, 2])])


def test_members_divide_the_partitions(client: RawClient, topic: UUID) -> None:
    first = heartbeat(client, "a")
    second = heartbeat(client, "b")
    assert len(places(second) or ()) == 1
    moved = heartbeat(client, "a", first.member_epoch)
    assert moved.member_epoch == second.member_epoch == first.member_epoch + 1
    both = [
        each.partitions for each in (moved, second) for each in each.assignment.topic_partitions
    ]
    assert sorted(number for numbers in both for number in numbers) == [0, 1, 2]
    # The response with the new epoch may have been lost.
    assert heartbeat(client, "a", first.member_epoch).error_code == ErrorCode.NONE


def test_members_share_partitions_if_there_are_too_few(client: RawClient) -> None:
    topic = create_topic(client, "t", 1)
    for member in "abc":
        assert places(heartbeat(client, member)) == [(topic, [0])]
    assert {m.member_id for m in describe(client).members} == {"a", "b", "c"}


def test_a_topic_that_appears_is_assigned(client: RawClient) -> None:
    joined = heartbeat(client)
    assert places(joined) == []
    topic = create_topic(client, "t", 2)
    found = heartbeat(client, epoch=joined.member_epoch)
    assert (found.member_epoch, places(found)) == (joined.member_epoch + 1, [(topic, [0, 1])])
    client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]), 6)
    gone = heartbeat(client, epoch=found.member_epoch)
    assert places(gone) == []


def test_new_partitions_are_read_from_their_beginning(client: RawClient, topic: UUID) -> None:
    epoch = heartbeat(client).member_epoch
    new = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)
    client.call(CreatePartitionsRequest(topics=[new], timeout_ms=1000))
    assert places(heartbeat(client, epoch=epoch)) == [(topic, [0, 1, 2, 3])]
    starts = {where[1]: start for where, (start, _) in positions(client).items()}
    assert starts == {0: -1, 1: -1, 2: -1, 3: 0}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_heartbeats(client: RawClient, changes: dict[str, Any], code: ErrorCode) -> None:
    response = heartbeat(client, **changes)
    assert response.error_code == code
    assert response.error_message
    assert client.call(ListGroupsRequest()).groups == []


def test_members_are_fenced(client: RawClient, topic: UUID) -> None:
    epoch = heartbeat(client).member_epoch
    for wrong in (epoch + 1, epoch - 1):
        assert heartbeat(client, epoch=wrong).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert heartbeat(client, "other", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(client, "other", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(client).member_epoch == epoch  # it joins again


def test_a_group_can_be_full() -> None:
    properties = {"group.share.max.size": "1"}
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        assert heartbeat(client, "a").error_code == ErrorCode.NONE
        refused = heartbeat(client, "b")
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "maximum capacity of 1 members" in refused.error_message
        assert heartbeat(client, "a").error_code == ErrorCode.NONE


def test_sessions_end_by_the_clock(broker: Broker, client: RawClient, topic: UUID) -> None:
    epoch = heartbeat(client, "a").member_epoch
    broker.advance_clock(44_000, members=True)
    heartbeat(client, "b")
    broker.advance_clock(2_000, members=True)
    until(lambda: [m.member_id for m in describe(client).members] == ["b"])
    assert heartbeat(client, "a", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_settings_of_the_group(client: RawClient, broker: Broker) -> None:
    changes = {"share.heartbeat.interval.ms": "7000", "share.session.timeout.ms": "50000"}
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32,
        resource_name=GROUP,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=value)
            for name, value in changes.items()
        ],
    )
    (altered,) = client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert altered.error_code == ErrorCode.NONE
    assert heartbeat(client).heartbeat_interval_ms == 7000
    broker.advance_clock(49_000, members=True)
    assert describe(client).members
    broker.advance_clock(2_000, members=True)
    until(lambda: not describe(client).members)
    asked = DescribeConfigsRequest.DescribeConfigsResource(resource_type=32, resource_name=GROUP)
    (found,) = client.call(DescribeConfigsRequest(resources=[asked])).results
    assert {each.name: each.value for each in found.configs}.items() >= changes.items()
    resource.configs[0].value = "20000"
    (refused,) = client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert refused.error_code == ErrorCode.INVALID_CONFIG


def test_assignments_wait_for_their_interval() -> None:
    properties = {"group.share.assignment.interval.ms": "1000"}
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        assert len(places(heartbeat(client, "a")) or ()) == 1
        waiting = heartbeat(client, "b")
        assert places(waiting) == []
        broker.advance_clock(1000)
        assert len(places(heartbeat(client, "b", waiting.member_epoch)) or ()) == 1


def test_the_feature_can_be_off(client: RawClient, topic: UUID) -> None:
    def level() -> dict[str, int]:
        response = client.call(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4
        )
        return {each.name: each.max_version_level for each in response.finalized_features}

    assert "share.version" not in level()
    heartbeat(client)
    assert level()["share.version"] == 1
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="share.version",
        max_version_level=0,
        upgrade_type=FeatureUpdateType.UNSAFE_DOWNGRADE,
    )
    client.call(UpdateFeaturesRequest(feature_updates=[update]))
    assert "share.version" not in level()
    assert heartbeat(client).error_code == ErrorCode.UNSUPPORTED_VERSION


# -- other kinds of groups


def test_a_share_group_is_no_other_group(client: RawClient, topic: UUID) -> None:
    heartbeat(client)
    assert client.call(join_request(group_id=GROUP)).error_code == 23
    joined = join(client)
    beat = heartbeat_request(joined, group_id=GROUP)
    assert client.call(beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leaving = leave_request(joined)
    leaving.group_id = GROUP
    assert client.call(leaving).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="c",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    refused = client.call(consumer)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group workers is not a consumer group."
    (described,) = client.call(DescribeGroupsRequest(groups=[GROUP])).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == "Group workers is not a classic group."


def test_another_group_is_no_share_group(client: RawClient) -> None:
    stable_member(client)
    refused = heartbeat(client, group_id="readers")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group readers is not a share group."
    described = describe(client, "readers")
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(client, "nobody").error_message == "Group nobody not found."


def test_a_share_group_commits_no_offsets(client: RawClient, topic: UUID) -> None:
    heartbeat(client)
    request = commit_request({0: 5}, group_id=GROUP)
    (answer,) = client.call(request, 9).topics
    assert {each.error_code for each in answer.partitions} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert fetch_offsets(client, 7, None, group=GROUP) == {}


# -- administration


def test_listing(client: RawClient, topic: UUID) -> None:
    heartbeat(client)
    stable_member(client)

    def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
        groups = client.call(ListGroupsRequest(**filters)).groups
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in groups]

    ours = (GROUP, "share", "Stable", "share")
    assert ours in listed()
    assert listed(types_filter=["Share"]) == [ours]
    assert listed(types_filter=["share"], states_filter=["Empty"]) == []


def test_describing(client: RawClient, topic: UUID) -> None:
    heartbeat(client, rack_id="r1")
    found = describe(client)
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert found.group_epoch == found.assignment_epoch == 2
    (member,) = found.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r1", 2)
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name) == (topic, "t")
    assert assigned.partitions == [0, 1, 2]


def test_deleting(client: RawClient, broker: Broker, topic: UUID) -> None:
    def delete() -> int:
        (result,) = client.call(DeleteGroupsRequest(groups_names=[GROUP])).results
        code: int = result.error_code
        return code

    heartbeat(client)
    assert delete() == ErrorCode.NON_EMPTY_GROUP
    heartbeat(client, epoch=-1)
    assert broker.call(broker.share_states.read_summary, GROUP, topic, 0) is not None
    assert delete() == ErrorCode.NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.call(broker.share_states.read_summary, GROUP, topic, 0) is None


def test_groups_without_members_do_not_expire(client: RawClient, broker: Broker) -> None:
    create_topic(client, "t")
    heartbeat(client)
    heartbeat(client, epoch=-1)
    broker.call(broker.groups.offsets.expire)
    assert describe(client).group_state == "Empty"


# -- start offsets


def alter(client: RawClient, *offsets: tuple[str, int, int], group: str = GROUP) -> Any:
    """Change start offsets; each is a topic, a partition and an offset."""
    topics = [
        AlterShareGroupOffsetsRequest.Topic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequest.Partition(partition_index=number, start_offset=start)
            ],
        )
        for name, number, start in offsets
    ]
    return client.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics))


def test_positions_of_a_group(client: RawClient) -> None:
    create_topic(client, "t")
    produce(client, "t", batch(b"1", b"2", b"3"))
    heartbeat(client)
    assert positions(client) == {("t", 0): (-1, -1)}
    refused = alter(client, ("t", 0, 1))
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(client, epoch=-1)
    altered = alter(client, ("t", 0, 1))
    assert altered.error_code == ErrorCode.NONE
    assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert positions(client) == {("t", 0): (1, 2)}
    assert positions(client, version=0) == {("t", 0): (1, -1)}


def test_positions_of_a_group_that_does_not_exist_yet(client: RawClient, topic: UUID) -> None:
    response = alter(client, ("t", 2, 7), ("t", 9, 0), ("nothing", 0, 0))
    codes = [each.error_code for t in response.responses for each in t.partitions]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.NONE, unknown, unknown]
    assert positions(client) == {("t", 2): (7, -7)}
    assert describe(client).group_state == "Empty"
    assert places(heartbeat(client)) == [(topic, [0, 1, 2])]


@pytest.mark.parametrize("offsets", [[], [("t", 9, 0), ("nothing", 0, 0)]])
def test_no_positions_create_no_group(
    client: RawClient, topic: UUID, offsets: list[tuple[str, int, int]]
) -> None:
    assert alter(client, *offsets).error_code == ErrorCode.NONE
    assert client.call(ListGroupsRequest(types_filter=["share"])).groups == []


def test_positions_of_topics_by_name(client: RawClient, topic: UUID) -> None:
    asked = DescribeShareGroupOffsetsRequest.Group(
        group_id=GROUP,
        topics=[
            DescribeShareGroupOffsetsRequest.Topic(topic_name=name, partitions=[0])
            for name in ("t", "nothing")
        ],
    )
    (found,) = client.call(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    known, unknown = found.topics
    assert (known.topic_id, known.partitions[0].start_offset) == (topic, -1)
    assert (unknown.partitions[0].error_code, unknown.partitions[0].start_offset) == (0, -1)
    asked = DescribeShareGroupOffsetsRequest.Group(group_id=GROUP, topics=None)
    (found,) = client.call(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    assert (found.error_code, found.topics) == (ErrorCode.NONE, [])


def test_deleting_positions(client: RawClient, topic: UUID) -> None:
    def delete(*names: str) -> Any:
        topics = [DeleteShareGroupOffsetsRequest.Topic(topic_name=name) for name in names]
        return client.call(DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics))

    assert delete("t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    create_topic(client, "other")
    heartbeat(client)
    assert delete("t").error_code == ErrorCode.NON_EMPTY_GROUP
    heartbeat(client, epoch=-1)
    response = delete("t", "nothing", "other")
    assert {each.topic_name: each.error_code for each in response.responses} == {
        "t": ErrorCode.NONE,
        "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "other": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert positions(client) == {}
    assert places(heartbeat(client)) == [(topic, [0, 1, 2])]


# -- requests between brokers


def test_states_over_the_network(client: RawClient, topic: UUID) -> None:
    def call(kind: Any, data: str, **fields: Any) -> Any:
        partition = kind.PartitionData(partition=1, **fields)
        topics = [getattr(kind, data)(topic_id=topic, partitions=[partition])]
        response = client.call(kind(group_id=GROUP, topics=topics))
        (result,) = response.results
        assert result.topic_id == topic
        (found,) = result.partitions
        assert found.partition == 1
        return found

    initialize = InitializeShareGroupStateRequest
    done = call(initialize, "InitializeStateData", state_epoch=3, start_offset=10)
    assert done.error_code == ErrorCode.NONE
    batches = [
        WriteShareGroupStateRequest.StateBatch(
            first_offset=10, last_offset=12, delivery_state=2, delivery_count=1
        )
    ]
    written = call(
        WriteShareGroupStateRequest,
        "WriteStateData",
        state_epoch=3,
        leader_epoch=0,
        start_offset=-1,
        delivery_complete_count=3,
        state_batches=batches,
    )
    assert written.error_code == ErrorCode.NONE
    read = call(ReadShareGroupStateRequest, "ReadStateData", leader_epoch=5)
    assert (read.state_epoch, read.start_offset) == (3, 10)
    (found,) = read.state_batches
    assert (found.first_offset, found.last_offset, found.delivery_state) == (10, 12, 2)
    fenced = call(ReadShareGroupStateRequest, "ReadStateData", leader_epoch=4)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    summary = call(ReadShareGroupStateSummaryRequest, "ReadStateSummaryData", leader_epoch=5)
    assert (summary.start_offset, summary.delivery_complete_count) == (10, 3)
    assert (summary.state_epoch, summary.leader_epoch) == (3, 5)
    deleted = call(DeleteShareGroupStateRequest, "DeleteStateData")
    assert deleted.error_code == ErrorCode.NONE
    read = call(ReadShareGroupStateRequest, "ReadStateData", leader_epoch=0)
    assert (read.start_offset, read.state_batches) == (-1, [])


# -- records


def records_of(broker: Broker) -> Iterator[tuple[str, Any]]:
    """Yield kind and value of the records of share groups."""
    log = broker.call(broker.logs.get, OFFSETS, 0)
    assert log is not None
    for record in broker.call(lambda: [r for each in log.reader.batches() for r in each]):
        decoded = decode_record(OFFSETS, record.key, record.value)
        assert decoded is not None
        yield decoded.kind, decoded.value


def test_groups_survive_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topic = create_topic(client, "t", 3)
        epochs = [heartbeat(client, member).member_epoch for member in "ab"]
        kinds = {kind for kind, _ in records_of(broker)}
        assert kinds == {
            "ShareGroupMetadata",
            "ShareGroupMemberMetadata",
            "ShareGroupTargetAssignmentMetadata",
            "ShareGroupTargetAssignmentMember",
            "ShareGroupCurrentMemberAssignment",
            "ShareGroupStatePartitionMetadata",
        }
        before = describe(client)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert describe(client) == before
        assert positions(client).keys() == {("t", number) for number in range(3)}
        first = heartbeat(client, "a", epochs[0])
        assert len((places(first) or [(topic, [])])[0][1]) in (1, 2)
        broker.advance_clock(46_000, members=True)
        until(lambda: describe(client).group_state == "Empty")


def test_a_deleted_group_leaves_no_record(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        heartbeat(client)
        heartbeat(client, epoch=-1)
        client.call(DeleteGroupsRequest(groups_names=[GROUP]))
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert describe(client).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert client.call(ListGroupsRequest()).groups == []


# -- the assignor


@pytest.mark.parametrize("seed", range(30))
def test_assignments_are_balanced_complete_and_sticky(seed: int) -> None:
    draw = random.Random(seed)
    topics = [UUID(int=n) for n in range(draw.randrange(1, 4))]
    counts = {topic: draw.randrange(1, 9) for topic in topics}
    current: dict[str, set[tuple[UUID, int]]] = {}
    for _ in range(6):
        members = [f"m{n}" for n in range(draw.randrange(1, 12))]
        wanted = {topic for topic in topics if draw.random() < 0.8} or {topics[0]}
        subscriptions = dict.fromkeys(members, frozenset(wanted))
        found = assign_shared(subscriptions, counts, current)
        every = {(topic, n) for topic in wanted for n in range(counts[topic])}
        assert set().union(*found.values()) == every
        sizes = [len(each) for each in found.values()]
        assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
        readers = [sum(place in each for each in found.values()) for place in every]
        assert max(readers) - min(readers) <= 1
        assert assign_shared(subscriptions, counts, found) == found
        current = found


def test_members_only_get_topics_that_they_subscribe_to() -> None:
    first, second = UUID(int=1), UUID(int=2)
    subscriptions = {"a": {first}, "b": {first, second}, "c": set()}
    found = assign_shared(subscriptions, {first: 4, second: 3}, {})
    assert {place[0] for place in found["a"]} == {first}
    assert found["c"] == set()
    assert len(found["a"] | found["b"]) == 7
