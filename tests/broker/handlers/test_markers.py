"""WriteTxnMarkers: an administrator ends a transaction in a partition, which its coordinator does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_wire import ErrorCode, WriteTxnMarkersRequest

from krammar.broker import Broker
from krammar.broker.cluster import OFFSETS_TOPIC
from krammar.testing import KafkaCluster
from tests.broker.requests import batch, create_topic, fetch, produce, produce_request
from tests.broker.support import RawClient
from tests.broker.transactions.support import (
    Producer,
    Where,
    committed_offset,
    find_coordinators,
    producers,
)


def markers(
    producer_id: int,
    epoch: int,
    *partitions: Where,
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest.WritableTxnMarker:
    """One marker for partitions."""
    kind = WriteTxnMarkersRequest
    return kind.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            kind.WritableTxnMarkerTopic(
                name=name, partition_indexes=[index for topic, index in partitions if topic == name]
            )
            for name in dict.fromkeys(topic for topic, _ in partitions)
        ],
    )


def write(client: RawClient, *all_markers: Any, version: int = 2) -> dict[Any, str]:
    """Send markers; the name of the error of each producer and partition."""
    response = client.call(WriteTxnMarkersRequest(markers=list(all_markers)), version)
    return {
        (marker.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code).name
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker that lets old clients write where they like, so that transactions can hang."""
    properties = {"transaction.partition.verification.enable": False}
    with Broker.start(properties=properties) as broker:
        yield broker


@pytest.fixture
def hanging(client: RawClient) -> int:
    """The id of a producer with an open transaction in ``t`` that no coordinator knows."""
    create_topic(client, "t", 2)
    sent = batch(b"hangs", producer_id=77, producer_epoch=3, base_sequence=0, is_transactional=True)
    response = client.call(produce_request("t", sent, transactional_id="id"), 11)
    assert response.responses[0].partition_responses[0].error_code == 0
    return 77


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [False, True])
def test_a_hanging_transaction_ends(
    client: RawClient, hanging: int, version: int, commit: bool
) -> None:
    assert produce(client, "t", batch(b"behind it")).error_code == 0
    assert fetch(client, "t").last_stable_offset == 0
    marker = markers(hanging, 3, ("t", 0), commit=commit, coordinator_epoch=5)
    assert write(client, marker, version=version) == {(hanging, "t", 0): "NONE"}
    found = fetch(client, "t", isolation_level=1)
    assert (found.last_stable_offset, found.high_watermark) == (3, 3)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    assert aborted == ([] if commit else [(hanging, 0)])
    (producer,) = producers(client, "t").active_producers
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, 5)


def test_what_is_refused(client: RawClient, hanging: int) -> None:
    assert write(client, markers(hanging, 2, ("t", 0))) == {
        (hanging, "t", 0): "INVALID_PRODUCER_EPOCH"
    }
    assert write(client, markers(hanging, 3, ("t", 2), ("missing", 0))) == {
        (hanging, "t", 2): "UNKNOWN_TOPIC_OR_PARTITION",
        (hanging, "missing", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert fetch(client, "t").last_stable_offset == 0
    assert write(client, markers(hanging, 3, ("t", 0), coordinator_epoch=5)) == {
        (hanging, "t", 0): "NONE"
    }
    assert write(client, markers(hanging, 3, ("t", 0), coordinator_epoch=4)) == {
        (hanging, "t", 0): "TRANSACTION_COORDINATOR_FENCED"
    }


def test_several_markers(client: RawClient, hanging: int) -> None:
    assert write(client) == {}
    assert write(client, markers(hanging, 3), markers(5, 0)) == {}
    first = markers(hanging, 3, ("t", 1), ("t", 0), ("t", 1))
    second = markers(5, 0, ("t", 0))
    assert write(client, first, second) == {
        (hanging, "t", 0): "NONE",
        (hanging, "t", 1): "NONE",
        (5, "t", 0): "NONE",
    }
    # One record, and one marker of each producer; the second partition has one marker.
    assert fetch(client, "t").high_watermark == 3
    assert fetch(client, "t", partition=1).high_watermark == 1


def test_offsets_of_a_group(client: RawClient, broker: Broker) -> None:
    create_topic(client, "t")
    find_coordinators(client)
    partition = broker.call(broker.topics.coordinating_partition, OFFSETS_TOPIC, "group")
    for commit, offset in ((False, -1), (True, 9)):
        producer = Producer(client, f"commit {commit}").begun()
        assert producer.commit_offset("group", "t", 9) == 0
        assert committed_offset(client, "group", "t") == -1
        marker = markers(producer.id, producer.epoch + 1, (OFFSETS_TOPIC, partition), commit=commit)
        assert set(write(client, marker).values()) == {"NONE"}
        assert committed_offset(client, "group", "t") == offset


def test_only_the_leader_writes() -> None:
    with KafkaCluster.start(nodes=2, topics={"t": 1}) as cluster:
        found = {}
        for number, address in enumerate(cluster.bootstrap_servers.split(","), 1):
            with RawClient(int(address.rpartition(":")[2])) as client:
                (found[number],) = write(client, markers(5, 0, ("t", 0))).values()
        leader = cluster.leader("t", 0)
        assert found == {leader: "NONE", 3 - leader: "NOT_LEADER_OR_FOLLOWER"}
