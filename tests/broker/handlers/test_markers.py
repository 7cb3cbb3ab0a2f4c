"""WriteTxnMarkers: an administrator ends a transaction in a partition, which its coordinator does not know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from krammar.broker import Broker
from krammar.broker.cluster import OFFSETS_TOPIC
from krammar.testing import KafkaCluster
from tests.broker.markers import markers, write
from tests.broker.requests import batch, create_topic, fetch, produce, produce_request
from tests.broker.support import RawClient
from tests.broker.transactions.support import (
    Producer,
    committed_offset,
    find_coordinators,
    producers,
)


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
    for identity in ((hanging, -1), (-1, 3)):
        assert set(write(client, markers(*identity, ("t", 0))).values()) == {"UNKNOWN_SERVER_ERROR"}
    assert fetch(client, "t").high_watermark == 1
    assert write(client, markers(hanging, 3, ("t", 0), coordinator_epoch=5)) == {
        (hanging, "t", 0): "NONE"
    }
    assert write(client, markers(hanging, 3, ("t", 0), coordinator_epoch=4)) == {
        (hanging, "t", 0): "TRANSACTION_COORDINATOR_FENCED"
    }


def test_the_epoch_ends_with_its_transaction(client: RawClient, hanging: int) -> None:
    """As of transaction.version 2. Without an open transaction, the marker is a repeated one."""
    marker = markers(hanging, 3, ("t", 0), transaction_version=2)
    assert [*write(client, marker).values()] == ["INVALID_PRODUCER_EPOCH"]
    for transaction_version in (1, 2):
        marker = markers(hanging, 3, ("t", 0), transaction_version=transaction_version)
        assert [*write(client, marker).values()] == ["NONE"]
    marker = markers(hanging, 3, ("t", 0), transaction_version=-1)
    assert [*write(client, marker).values()] == ["UNKNOWN_SERVER_ERROR"]


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
