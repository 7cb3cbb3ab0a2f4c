"""Nodes that are killed, refuse connections, or lose a coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka_wire import (
    CreateTopicsRequest,
    ErrorCode,
    FindCoordinatorRequest,
    HeartbeatRequest,
    MetadataRequest,
)

from krammar.broker import Cluster
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start() as cluster:
        topic = CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=1, replication_factor=3
        )
        with client_of(cluster, 1) as client:
            response = client.call(CreateTopicsRequest(topics=[topic]), 7)
            assert response.topics[0].error_code == 0
        yield cluster


def client_of(cluster: Cluster, node: int) -> RawClient:
    return RawClient(cluster.nodes[node].addresses["PLAINTEXT"][1])


def test_a_killed_node_stays_leader_until_that_is_noticed(cluster: Cluster) -> None:
    leader = cluster.leader("orders", 0)
    other = leader % 3 + 1
    with client_of(cluster, leader) as client:
        client.call(MetadataRequest(topics=None), 9)
        cluster.kill_node(leader)
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)
    with pytest.raises(ConnectionRefusedError):
        client_of(cluster, leader)
    with client_of(cluster, other) as client:
        response = client.call(MetadataRequest(topics=None), 9)
        assert leader in [each.node_id for each in response.brokers]
        assert response.topics[0].partitions[0].leader_id == leader
        cluster.kill_node(leader)  # it does nothing more
        cluster.stop_node(leader)
        assert (
            client.call(MetadataRequest(topics=None), 9).topics[0].partitions[0].leader_id != leader
        )
    cluster.start_node(leader)
    with client_of(cluster, leader) as client:
        assert client.call(MetadataRequest(topics=None), 9).brokers


def test_a_killed_node_starts_again(cluster: Cluster) -> None:
    leader = cluster.leader("orders", 0)
    cluster.kill_node(leader)
    cluster.start_node(leader)
    assert cluster.leader("orders", 0) == leader
    with client_of(cluster, leader) as client:
        assert client.call(MetadataRequest(topics=None), 9).brokers


def test_a_producer_outlives_a_killed_leader(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE) == 0
    leader = cluster.leader("orders", 0)
    cluster.kill_node(leader)
    producer.produce("orders", b"two")
    cluster.stop_node(leader)
    assert producer.flush(PATIENCE) == 0


def test_connections_are_refused_until_the_network_heals(cluster: Cluster) -> None:
    with client_of(cluster, 2) as client:
        client.call(MetadataRequest(topics=None), 9)
        cluster.refuse_connections(2)
        with pytest.raises(ConnectionRefusedError):
            client_of(cluster, 2)
        assert client.call(MetadataRequest(topics=None), 9).brokers
    cluster.heal()
    with client_of(cluster, 2) as client:
        assert client.call(MetadataRequest(topics=None), 9).brokers


def test_a_node_that_refuses_connections_can_be_cut_off_too(cluster: Cluster) -> None:
    cluster.refuse_connections(2)
    cluster.partition_from("nodes", 2)
    cluster.heal()
    with client_of(cluster, 2) as client:
        brokers = client.call(MetadataRequest(topics=None), 9).brokers
        assert 2 in [each.node_id for each in brokers]


@pytest.mark.parametrize("end", ["kill_node", "stop_node"])
def test_no_dead_node_accepts_connections_when_the_network_heals(
    cluster: Cluster, end: str
) -> None:
    cluster.refuse_connections(2)
    getattr(cluster, end)(2)
    cluster.heal()
    with pytest.raises(ConnectionRefusedError):
        client_of(cluster, 2)


@pytest.mark.parametrize(("kind", "key_type"), [("group", 0), ("transaction", 1)])
def test_a_coordinator_moves(cluster: Cluster, kind: str, key_type: int) -> None:
    find = FindCoordinatorRequest(key="g", key_type=key_type)
    with client_of(cluster, 1) as client:
        before = client.call(find, 2).node_id
        assert cluster.coordinator("g", kind) == before  # type: ignore[arg-type]
        to = before % 3 + 1
        cluster.move_coordinator("g", to, kind)  # type: ignore[arg-type]
        assert client.call(find, 2).node_id == to
        assert cluster.coordinator("g", kind) == to  # type: ignore[arg-type]
    if kind == "group":
        with client_of(cluster, before) as client:
            beat = client.call(HeartbeatRequest(group_id="g"), 4)
            assert beat.error_code == ErrorCode.NOT_COORDINATOR


def test_what_does_not_exist(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="the cluster has no node 9"):
        cluster.kill_node(9)
    with pytest.raises(ValueError, match="the cluster has no node 9"):
        cluster.refuse_connections(9)
    with pytest.raises(ValueError, match="No such topic as __consumer_offsets"):
        cluster.move_coordinator("g", 1)
    with pytest.raises(ValueError, match="coordinate a group or a transaction, not a 'topic'"):
        cluster.coordinator("g", "topic")  # type: ignore[arg-type]
