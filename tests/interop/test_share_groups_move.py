"""Share groups in a folder that goes from our broker to Apache Kafka and back, and Kafka's answers about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_wire import (
    AlterShareGroupOffsetsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    ListGroupsRequest,
    ReadShareGroupStateRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    WriteShareGroupStateRequest,
)

from tests.broker.support import RawClient
from tests.interop.apache import ApacheKafka
from tests.interop.group_cases import make_topic, ready
from tests.interop.processes import Krammar
from tests.support.waiting import until

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.assignor.offload.enable": "false",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
GROUP = "workers"


def heartbeat(client: RawClient, member: str, epoch: int = 0, **changes: Any) -> Any:
    topics = ["t"] if epoch == 0 else None
    request = {"group_id": GROUP, "member_id": member, "member_epoch": epoch}
    return client.call(
        ShareGroupHeartbeatRequest(**request, **{"subscribed_topic_names": topics, **changes})
    )


def described(client: RawClient) -> Any:
    """The group with its members, and their partitions in order."""
    (group,) = client.call(ShareGroupDescribeRequest(group_ids=[GROUP])).groups
    found = group.to_dict()
    found["members"].sort(key=lambda member: member["member_id"])
    return found


def positions(client: RawClient) -> Any:
    """Start offset and lag of all partitions, or the error of the group."""
    asked = DescribeShareGroupOffsetsRequest.Group(group_id=GROUP, topics=None)
    (group,) = client.call(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    return group.error_code, {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    }


def state(client: RawClient, topic_id: Any, leader_epoch: int = 0) -> Any:
    """The stored state of the first partition."""
    kind = ReadShareGroupStateRequest
    partition = kind.PartitionData(partition=0, leader_epoch=leader_epoch)
    topics = [kind.ReadStateData(topic_id=topic_id, partitions=[partition])]
    response = client.call(kind(group_id=GROUP, topics=topics))
    return response.results[0].partitions[0].to_dict()


def acknowledge(client: RawClient, topic_id: Any, epoch: int, first: int, last: int) -> int:
    """Store that records are acknowledged, as the leader of the partition would."""
    kind = WriteShareGroupStateRequest
    partition = kind.PartitionData(
        partition=0,
        state_epoch=epoch,
        leader_epoch=-1,
        start_offset=-1,
        delivery_complete_count=last - first + 1,
        state_batches=[
            kind.StateBatch(
                first_offset=first, last_offset=last, delivery_state=2, delivery_count=1
            )
        ],
    )
    topics = [kind.WriteStateData(topic_id=topic_id, partitions=[partition])]
    code: int = client.call(kind(group_id=GROUP, topics=topics)).results[0].partitions[0].error_code
    return code


def alter(client: RawClient, name: str, number: int, start: int) -> Any:
    kind = AlterShareGroupOffsetsRequest
    partition = kind.Partition(partition_index=number, start_offset=start)
    topic = kind.Topic(topic_name=name, partitions=[partition])
    return client.call(kind(group_id=GROUP, topics=[topic]))


def test_there_and_back(kafka_jars: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ours = Krammar(folder, properties=SETTINGS)
    with ours:
        ready(ours.port)
        with RawClient(ours.port) as client:
            topic_id = make_topic(client, "t", 2)
            epochs = {member: heartbeat(client, member).member_epoch for member in "ab"}
            epochs["a"] = heartbeat(client, "a", epochs["a"]).member_epoch
            stored = state(client, topic_id)
            assert acknowledge(client, topic_id, stored["state_epoch"], 3, 5) == 0
            before = described(client), positions(client), state(client, topic_id)
    theirs = ApacheKafka(folder, properties=SETTINGS)
    with theirs:
        ready(theirs.port)
        with RawClient(theirs.port) as client:
            until(lambda: described(client)["error_code"] == 0)
            assert (described(client), positions(client), state(client, topic_id)) == before
            # Kafka continues with the members, and adds one.
            for member, epoch in epochs.items():
                assert heartbeat(client, member, epoch).error_code == 0
            joined = heartbeat(client, "c", rack_id="r")
            assert joined.error_code == 0
            for member in "abc":
                assert heartbeat(client, member, -1).error_code == 0
            assert alter(client, "t", 0, 7).error_code == 0
            until(lambda: positions(client)[1]["t", 0][0] == 7)
            after = described(client), positions(client)
    with ours:
        ready(ours.port)
        with RawClient(ours.port) as client:
            assert (described(client), positions(client)) == after
            assert state(client, topic_id, 9)["start_offset"] == 7
            assert len(heartbeat(client, "d").assignment.topic_partitions) == 1


def answers(port: int) -> list[Any]:
    """What a new broker answers to a story of requests, without ids that it chooses."""
    told: list[Any] = []
    with RawClient(port) as client:
        topic_id = make_topic(client, "t", 3)

        def note(response: Any) -> None:
            text = repr(response).replace(repr(topic_id), "TOPIC").replace(str(topic_id), "TOPIC")
            told.append(text)

        for wrong in (
            {"member_id": ""},
            {"group_id": ""},
            {"rack_id": ""},
            {"subscribed_topic_names": []},
            {"member_epoch": -2},
        ):
            request = {"group_id": GROUP, "member_id": "a", "subscribed_topic_names": ["t"]}
            # Kafka's response has no message.
            note(client.call(ShareGroupHeartbeatRequest(**{**request, **wrong})).error_code)
        note(heartbeat(client, "a", 3))
        note(heartbeat(client, "a", -1))
        # Kafka initializes the states after the first response, so the first epochs differ.
        epoch = heartbeat(client, "a").member_epoch

        def assigned() -> bool:
            nonlocal epoch
            epoch = heartbeat(client, "a", epoch).member_epoch
            return bool(described(client)["members"][0]["assignment"]["topic_partitions"])

        until(assigned)
        full = heartbeat(client, "a", epoch, subscribed_topic_names=["t"])
        note(full.assignment)
        note(positions(client))
        for member, wrong_epoch in (("a", epoch + 1), ("b", epoch), ("b", -1)):
            note(heartbeat(client, member, wrong_epoch).error_code)
        note(client.call(ListGroupsRequest(types_filter=["share"])))
        note(client.call(DescribeGroupsRequest(groups=[GROUP])))
        note(client.call(ShareGroupDescribeRequest(group_ids=["nobody"])))
        note(client.call(DeleteGroupsRequest(groups_names=[GROUP])))
        note(alter(client, "t", 0, 5))
        note(heartbeat(client, "a", -1))
        note(alter(client, "t", 0, 5))
        note(alter(client, "t", 9, 5))
        note(alter(client, "nothing", 0, 5))
        note(positions(client))
        named = DescribeShareGroupOffsetsRequest.Group(
            group_id="nobody",
            topics=[
                DescribeShareGroupOffsetsRequest.Topic(topic_name=name, partitions=[0])
                for name in ("t", "nothing")
            ],
        )
        note(client.call(DescribeShareGroupOffsetsRequest(groups=[named])))
        named.topics = None
        note(client.call(DescribeShareGroupOffsetsRequest(groups=[named])))
        kind = DeleteShareGroupOffsetsRequest
        for names in (["nothing"], ["t"], ["t"]):
            topics = [kind.Topic(topic_name=name) for name in names]
            note(client.call(kind(group_id=GROUP, topics=topics)))
        note(client.call(kind(group_id="nobody", topics=[kind.Topic(topic_name="t")])))
        note(positions(client))
        note(client.call(DeleteGroupsRequest(groups_names=[GROUP])))
        note(described(client))
    return told


def test_the_same_answers(kafka_jars: str, tmp_path: Path) -> None:
    found = []
    for kind in (Krammar, ApacheKafka):
        server: Any = kind(tmp_path / kind.__name__, properties=SETTINGS)
        with server:
            ready(server.port)
            found.append(answers(server.port))
    different = [
        f"{mine}\n  instead of {kafkas}"
        for mine, kafkas in zip(*found, strict=True)
        if mine != kafkas
    ]
    assert not different, "\n".join(different)
