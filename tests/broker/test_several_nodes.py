"""Several nodes in one process, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_wire import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    ErrorCode,
    FetchRequest,
    FetchRequestTopic,
    FetchRequestTopicPartition,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataRequestTopic,
    ProduceRequest,
    ProduceRequestTopicData,
    ProduceRequestTopicDataPartitionData,
)

from krammar.broker import Cluster
from krammar.wire.batches import Record, encode_batch
from tests.broker.support import RawClient


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start(nodes=3) as cluster:
        yield cluster


def call(cluster: Cluster, node: int, request: Any, version: int | None = None) -> Any:
    """The response of one node."""
    with RawClient(cluster.nodes[node].addresses["PLAINTEXT"][1]) as client:
        return client.call(request, version)


def create(cluster: Cluster, name: str = "orders", partitions: int = 3, factor: int = 3) -> None:
    topic = CreateTopicsRequestTopic(
        name=name, num_partitions=partitions, replication_factor=factor
    )
    answer = call(cluster, 1, CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == 0, answer


def metadata(cluster: Cluster, node: int, topic: str = "orders") -> Any:
    return call(cluster, node, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))


def produce(cluster: Cluster, node: int, *, acks: int = -1, version: int = 12) -> Any:
    """The response for ``orders-0``, and the whole one."""
    data = ProduceRequestTopicDataPartitionData(
        index=0, records=encode_batch([Record(value=b"one")])
    )
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[ProduceRequestTopicData(name="orders", partition_data=[data])],
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


def test_only_the_leader_accepts_records_and_fetches(cluster: Cluster) -> None:
    create(cluster)
    leader = cluster.leader("orders", 0)
    other = leader % 3 + 1
    refused, answer = produce(cluster, other)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_id == leader
    port = cluster.nodes[leader].addresses["PLAINTEXT"][1]
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(leader, port)]
    assert produce(cluster, leader)[0].error_code == 0

    topic_id = metadata(cluster, 1).topics[0].topic_id
    partition = FetchRequestTopicPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(
        max_wait_ms=0, topics=[FetchRequestTopic(topic_id=topic_id, partitions=[partition])]
    )
    answer = call(cluster, other, fetch)
    refused = answer.responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (leader, 0)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(leader, port)]
    assert call(cluster, leader, fetch).responses[0].partitions[0].records


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
    cluster.call(
        lambda: cluster.topics.set_configs(
            cluster.cluster.topics["orders"], {"min.insync.replicas": "2"}
        )
    )
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
