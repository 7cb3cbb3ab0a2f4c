"""Several nodes in one process, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ElectLeadersRequest,
    ErrorCode,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    ProduceRequest,
)

from krammar.broker import Broker, Cluster
from krammar.broker.topics import TOPIC
from krammar.wire.batches import Record, encode_batch
from tests import samples
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start(nodes=3) as cluster:
        yield cluster


def call(cluster: Cluster, node: int, request: Any, version: int | None = None) -> Any:
    """The response of one node."""
    with RawClient(cluster.nodes[node].addresses["PLAINTEXT"][1]) as client:
        return client.call(request, version)


def create(cluster: Cluster, name: str = "orders", partitions: int = 3, factor: int = 3) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor
    )
    answer = call(cluster, 1, CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == 0, answer


def metadata(cluster: Cluster, node: int, topic: str = "orders") -> Any:
    return call(cluster, node, MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]))


def produce(cluster: Cluster, node: int, *, acks: int = -1, version: int = 12) -> Any:
    """The response for ``orders-0``, and the whole one."""
    data = ProduceRequest.PartitionProduceData(
        index=0, records=encode_batch([Record(value=b"one")])
    )
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=[data])],
    )
    answer = call(cluster, node, request, version)
    return answer.responses[0].partition_responses[0], answer


def test_leaders_are_spread_over_the_nodes(cluster: Cluster) -> None:
    create(cluster, partitions=6)
    answer = metadata(cluster, 2)
    assert [broker.node_id for broker in answer.brokers] == [1, 2, 3]
    assert len({broker.port for broker in answer.brokers}) == 3
    leaders = [partition.leader_id for partition in answer.topics[0].partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    for partition in answer.topics[0].partitions:
        assert sorted(partition.replica_nodes) == sorted(partition.isr_nodes) == [1, 2, 3]
        assert partition.replica_nodes[0] == partition.leader_id
        assert partition.offline_replicas == []


def test_only_the_leader_accepts_records_and_only_replicas_serve_them(cluster: Cluster) -> None:
    create(cluster, factor=2)
    leader = cluster.leader("orders", 0)
    (other,) = {1, 2, 3} - set(cluster.partition("orders", 0).replicas)
    refused, answer = produce(cluster, other)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == leader
    port = cluster.nodes[leader].addresses["PLAINTEXT"][1]
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(leader, port)]
    assert produce(cluster, leader)[0].error_code == 0

    topic_id = metadata(cluster, 1).topics[0].topic_id
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(
        max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])]
    )
    answer = call(cluster, other, fetch)
    refused = answer.responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (leader, 0)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(leader, port)]
    assert call(cluster, leader, fetch).responses[0].partitions[0].records


@pytest.mark.parametrize("version", range(3, 13))
def test_versions_without_leaders_are_refused_by_other_nodes(
    cluster: Cluster, version: int
) -> None:
    create(cluster)
    leader = cluster.leader("orders", 0)
    refused, answer = produce(cluster, leader % 3 + 1, version=version)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.node_id for each in answer.node_endpoints] == [leader] * (version >= 10)


def test_a_stopped_node_loses_its_leaders_and_gets_no_more_requests(cluster: Cluster) -> None:
    create(cluster)
    leader = cluster.leader("orders", 0)
    cluster.stop_node(leader)
    with pytest.raises(ConnectionRefusedError):
        metadata(cluster, leader)
    answer = metadata(cluster, leader % 3 + 1)
    assert leader not in [broker.node_id for broker in answer.brokers]
    partition = answer.topics[0].partitions[0]
    assert partition.leader_id in set(partition.isr_nodes) - {leader}
    assert partition.offline_replicas == [leader]
    assert partition.leader_epoch == 1
    port = cluster.nodes[leader].addresses["PLAINTEXT"][1]
    cluster.start_node(leader)
    assert cluster.nodes[leader].addresses["PLAINTEXT"][1] == port
    partition = metadata(cluster, leader).topics[0].partitions[0]
    assert sorted(partition.isr_nodes) == [1, 2, 3] and partition.offline_replicas == []
    assert partition.leader_id != leader


def test_a_partition_without_replicas_in_sync_has_no_leader(cluster: Cluster) -> None:
    create(cluster, factor=1)
    only = cluster.leader("orders", 0)
    cluster.stop_node(only)
    partition = metadata(cluster, only % 3 + 1).topics[0].partitions[0]
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert partition.isr_nodes == [only]
    cluster.start_node(only)
    assert cluster.leader("orders", 0) == only
    assert cluster.partition("orders", 0).leader_epoch == 2


def test_a_leader_moves(cluster: Cluster) -> None:
    create(cluster)
    leader = cluster.leader("orders", 0)
    to = leader % 3 + 1
    cluster.move_leader("orders", 0, to=to)
    assert metadata(cluster, 1).topics[0].partitions[0].leader_id == to
    assert produce(cluster, leader)[0].current_leader.leader_epoch == 1
    assert produce(cluster, to)[0].error_code == 0


def test_too_few_replicas_in_sync_refuse_records(cluster: Cluster) -> None:
    create(cluster, partitions=1)
    cluster.call(lambda: cluster.topics.set_configs(TOPIC, "orders", {"min.insync.replicas": "2"}))
    others = [node for node in (1, 2, 3) if node != cluster.leader("orders", 0)]
    cluster.stop_node(others[0])
    leader = cluster.leader("orders", 0)
    assert produce(cluster, leader)[0].error_code == 0
    cluster.stop_node(others[1])
    assert produce(cluster, leader)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(cluster, leader, acks=1)[0].error_code == 0
    cluster.start_node(others[1])
    assert produce(cluster, leader)[0].error_code == 0


@pytest.mark.parametrize("key_type", [0, 1])
def test_coordinators_are_spread_over_the_nodes(cluster: Cluster, key_type: int) -> None:
    keys = [f"key-{number}" for number in range(30)]
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
    found = call(cluster, 1, request).coordinators
    assert {each.node_id for each in found} == {1, 2, 3}
    key, node = found[0].key, found[0].node_id
    other = node % 3 + 1
    if key_type == 0:
        ask: Any = HeartbeatRequest(group_id=key, member_id="m", generation_id=1)
        at_home, version = ErrorCode.UNKNOWN_MEMBER_ID, 4
    else:
        ask = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=1000)
        at_home, version = ErrorCode.NONE, 5
    assert call(cluster, other, ask, version).error_code == ErrorCode.NOT_COORDINATOR
    assert call(cluster, node, ask, version).error_code == at_home
    cluster.stop_node(node)
    (moved,) = call(
        cluster, other, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    ).coordinators
    assert moved.node_id not in (-1, node)
    assert call(cluster, moved.node_id, ask, version).error_code == at_home


def test_errors_say_what_is_wrong(cluster: Cluster) -> None:
    create(cluster)
    with pytest.raises(ValueError, match="no node 4, only 1, 2, 3"):
        cluster.stop_node(4)
    with pytest.raises(ValueError, match="No such topic as nowhere"):
        cluster.leader("nowhere", 0)
    with pytest.raises(ValueError, match="No such partition as orders-9"):
        cluster.move_leader("orders", 9, to=1)
    cluster.stop_node(2)
    with pytest.raises(ValueError, match=r"node 2 cannot lead orders-0: .*start_node\(2\)"):
        cluster.move_leader("orders", 0, to=2)
    with pytest.raises(ValueError, match="at least one node, not 0"):
        Cluster.start(nodes=0)


def test_a_node_that_clients_cannot_reach(cluster: Cluster) -> None:
    create(cluster)
    leader = cluster.leader("orders", 0)
    cluster.partition_from("clients", leader)
    with RawClient(cluster.nodes[leader].addresses["PLAINTEXT"][1]) as client:
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.call(MetadataRequest(topics=[]))
        # The other nodes still see it.
        assert len(metadata(cluster, leader % 3 + 1).brokers) == 3
        assert cluster.leader("orders", 0) == leader
        cluster.heal()
        client.socket.settimeout(PATIENCE)
        with pytest.raises(ConnectionError):
            client.receive()
    assert produce(cluster, leader)[0].error_code == 0


def test_a_node_that_the_others_cannot_reach(cluster: Cluster) -> None:
    create(cluster)
    leader = cluster.leader("orders", 0)
    other = leader % 3 + 1
    cluster.partition_from("nodes", leader)
    seen = metadata(cluster, other)
    assert leader not in [broker.node_id for broker in seen.brokers]
    moved = seen.topics[0].partitions[0]
    assert moved.leader_id != leader and moved.offline_replicas == [leader]
    # The node itself does not know about the move.
    stale = metadata(cluster, leader)
    assert [broker.node_id for broker in stale.brokers] == [1, 2, 3]
    assert stale.topics[0].partitions[0].leader_id == leader
    assert stale.topics[0].partitions[0].leader_epoch < moved.leader_epoch
    refused = produce(cluster, leader)[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Clients that receive the old leader again would never ask another node.
    assert refused.current_leader.leader_id == -1
    assert produce(cluster, moved.leader_id)[0].error_code == 0
    cluster.heal()
    assert metadata(cluster, leader).topics[0].partitions[0].leader_id == moved.leader_id
    assert sorted(cluster.partition("orders", 0).isr) == [1, 2, 3]


def test_an_isolated_node_stops_and_starts(cluster: Cluster) -> None:
    create(cluster)
    cluster.partition_from("nodes", 2)
    cluster.start_node(2)  # still isolated
    assert sorted(cluster.partition("orders", 0).isr) == [1, 3]
    cluster.stop_node(2)
    cluster.heal()
    assert sorted(cluster.partition("orders", 0).isr) == [1, 3]
    cluster.start_node(2)
    assert len(metadata(cluster, 2).brokers) == 3
    with pytest.raises(ValueError, match=r'from "clients" or from "nodes", not from .*moon'):
        cluster.partition_from("moon", 2)  # type: ignore[arg-type]


def elect(cluster: Cluster, kind: int) -> Any:
    topics = [ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
    running = min(cluster.cluster.running)
    return call(cluster, running, request).replica_election_results[0].partition_result[0]


def test_elections(cluster: Cluster) -> None:
    create(cluster)
    preferred = cluster.leader("orders", 0)
    cluster.stop_node(preferred)
    assert elect(cluster, 0).error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(cluster, 1).error_code == ErrorCode.ELECTION_NOT_NEEDED
    cluster.start_node(preferred)
    assert cluster.leader("orders", 0) != preferred
    assert elect(cluster, 0).error_code == 0
    assert cluster.leader("orders", 0) == preferred
    assert elect(cluster, 0).error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election(cluster: Cluster) -> None:
    create(cluster, factor=2)
    first, second = cluster.partition("orders", 0).replicas
    cluster.stop_node(second)
    cluster.stop_node(first)
    assert cluster.partition("orders", 0).isr == [first]
    assert elect(cluster, 1).error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.start_node(second)
    assert cluster.leader("orders", 0) == -1  # it was not in sync
    assert elect(cluster, 1).error_code == 0
    assert (cluster.leader("orders", 0), cluster.partition("orders", 0).isr) == (second, [second])


def reassign(cluster: Cluster, replicas: list[int] | None, *, allow: bool = True) -> Any:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=0, replicas=replicas
    )
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(
        name="orders", partitions=[partition]
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[topic], allow_replication_factor_change=allow
    )
    running = min(cluster.cluster.running)
    return call(cluster, running, request).responses[0].partitions[0]


def reassignments(cluster: Cluster) -> list[tuple[list[int], list[int], list[int]]]:
    answer = call(cluster, min(cluster.cluster.running), ListPartitionReassignmentsRequest())
    return [
        (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


def test_reassignment_of_replicas(cluster: Cluster) -> None:
    create(cluster, factor=1)
    old = cluster.leader("orders", 0)
    new, third = (node for node in (1, 2, 3) if node != old)
    assert reassign(cluster, [new, third], allow=False).error_code == (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert reassign(cluster, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(cluster, [new, third]).error_code == 0
    found = cluster.partition("orders", 0)
    assert (found.leader, found.replicas, sorted(found.isr)) == (
        new,
        [new, third],
        sorted([new, third]),
    )
    assert found.leader_epoch == 1
    assert reassignments(cluster) == []
    assert produce(cluster, new)[0].error_code == 0


def test_a_reassignment_waits_for_a_stopped_node(cluster: Cluster) -> None:
    create(cluster, factor=1)
    old = cluster.leader("orders", 0)
    new = old % 3 + 1
    cluster.stop_node(new)
    for _ in range(2):
        assert reassign(cluster, [new]).error_code == 0
        assert cluster.leader("orders", 0) == old
        assert reassignments(cluster) == [([new, old], [new], [old])]
        assert reassign(cluster, None).error_code == 0
        assert reassignments(cluster) == []
        assert cluster.partition("orders", 0).replicas == [old]
    reassign(cluster, [new])
    cluster.start_node(new)
    assert reassignments(cluster) == []
    assert cluster.partition("orders", 0).replicas == [new]
    assert cluster.leader("orders", 0) == new


def test_replicas_that_the_cluster_cannot_provide(cluster: Cluster) -> None:
    for factor, assignments, code in (
        (4, None, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, [1, 4], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, [3, 1], ErrorCode.NONE),
    ):
        topic = CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=1, replication_factor=factor
        )
        if assignments is not None:
            topic.num_partitions = -1
            topic.assignments = [
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=0, broker_ids=assignments
                )
            ]
        answer = call(cluster, 1, CreateTopicsRequest(topics=[topic])).topics[0]
        assert answer.error_code == code
    assert answer.replication_factor == 2
    assert cluster.partition("orders", 0).replicas == [3, 1]


def test_leaders_and_replicas_survive_a_restart(tmp_path: Path) -> None:
    with Cluster.start(nodes=3, data_dir=tmp_path) as cluster:
        create(cluster)
        cluster.move_leader("orders", 0, to=cluster.leader("orders", 0) % 3 + 1)
        before = cluster.partition("orders", 0)
        cluster.stop_node(2)
    with Cluster.start(nodes=3, data_dir=tmp_path) as cluster:
        after = cluster.partition("orders", 0)
        assert after.replicas == before.replicas
        assert sorted(after.isr) == [1, 2, 3]
        assert after.leader_epoch >= before.leader_epoch
        assert produce(cluster, after.leader)[0].error_code == 0
    # One node serves all partitions of the folder.
    with Broker.start(data_dir=tmp_path) as broker:
        assert {each.leader for each in broker.cluster.topics["orders"].partitions.values()} == {1}


@pytest.mark.parametrize("sample", samples.blocks("docs/cluster.md"))
def test_the_samples_of_the_page(tmp_path: Path, sample: str) -> None:
    samples.run_python(tmp_path, sample)
