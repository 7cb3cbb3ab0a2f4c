"""Consumer groups in a folder that goes from our broker to Apache Kafka and back, while their members live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_wire import ConsumerGroupDescribeRequest, ConsumerProtocolAssignment

from tests.broker.support import RawClient
from tests.interop.apache import ApacheKafka
from tests.interop.consumer_group_cases import ALL, A, B, C, heartbeat, joining
from tests.interop.group_cases import (
    Talk,
    commit,
    fetch,
    join,
    join_request,
    make_topic,
    ready,
    sync_request,
)
from tests.interop.processes import Krammar

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
GROUPS = ["static", "mixed"]


def described(client: RawClient) -> list[Any]:
    response = client.call(ConsumerGroupDescribeRequest(group_ids=GROUPS), 1).to_dict()
    for group in response["groups"]:
        assert group["error_code"] == 0, group
        group["members"].sort(key=lambda member: member["member_id"])
    return sorted(response["groups"], key=lambda group: str(group["group_id"]))


def offsets(client: RawClient) -> Any:
    return client.call(fetch(9, "static", "t"), 9).to_dict()


def test_there_and_back(kafka_jars: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ours = Krammar(folder, properties=SETTINGS)
    with ours:
        ready(ours.port)
        talk = Talk(ours.port)
        client = talk.client
        topic_id = make_topic(client, "t", 2)
        client.call(joining("static", A, instance_id="i"), 1)
        client.call(joining("static", B), 1)
        client.call(heartbeat("static", A, 2, instance_id="i"), 1)
        client.call(heartbeat("static", A, 2, instance_id="i", owned=(topic_id, (0,))), 1)
        response = client.call(
            commit("static", {0: 5}, member_id=A, generation_id_or_member_epoch=3), 9
        )
        assert response.topics[0].partitions[0].error_code == 0
        client.call(heartbeat("static", A, -2, instance_id="i"), 1)
        # A classic group that a new member upgrades, in the middle of the move of a partition.
        joined = join(talk, "mixed")
        share = ConsumerProtocolAssignment(version=3).encode()
        client.call(sync_request("mixed", joined, shares={joined.member_id: share}), 5)
        assert client.call(joining("mixed", C), 1).member_epoch == 2
        before = described(client), offsets(client)
        talk.close()
    theirs = ApacheKafka(folder, properties=SETTINGS)
    with theirs:
        ready(theirs.port)
        with RawClient(theirs.port) as client:
            assert (described(client), offsets(client)) == before
            # Kafka continues with the members.
            assert client.call(heartbeat("static", B, 3), 1).error_code == 0
            returned = client.call(joining("static", C, instance_id="i"), 1)
            assert (returned.error_code, len(returned.assignment.topic_partitions)) == (0, 1)
            again = client.call(join_request("mixed", joined.member_id), 9)
            assert again.error_code == 0
            client.call(heartbeat("mixed", C, 2, owned=(topic_id, ALL)), 1)
            assert client.call(sync_request("mixed", again), 5).error_code in (0, 27)
            after = described(client), offsets(client)
            epochs = {m["member_id"]: m["member_epoch"] for m in after[0][1]["members"]}
    with ours:
        ready(ours.port)
        with RawClient(ours.port) as client:
            assert (described(client), offsets(client)) == after
            assert (
                client.call(heartbeat("static", C, epochs[C], instance_id="i"), 1).error_code == 0
            )
            assert client.call(heartbeat("static", B, epochs[B]), 1).error_code == 0
