"""Nodes that are added to a running cluster, and removed from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import ErrorCode, MetadataRequest

from krammar.broker import Broker, BrokerError, Cluster
from krammar.testing import KafkaCluster
from tests.broker.requests import batch, produce_request
from tests.broker.support import RawClient
from tests.ports import free_port
from tests.support.waiting import PATIENCE


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def process(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def cluster(process: bool) -> Iterator[KafkaCluster]:
    with KafkaCluster.start(nodes=2, topics={"orders": 4}, process=process) as cluster:
        yield cluster


def ports(cluster: KafkaCluster) -> list[int]:
    return [int(each.rpartition(":")[2]) for each in cluster.bootstrap_servers.split(",")]


def listed(cluster: KafkaCluster) -> list[int]:
    """The nodes that Metadata lists."""
    with RawClient(ports(cluster)[0]) as client:
        return [each.node_id for each in client.call(MetadataRequest(topics=[]), 9).brokers]


def test_a_new_node_serves_clients(cluster: KafkaCluster) -> None:
    producer = Producer({**cluster.clients.confluent_kafka, "client.id": "shop"})
    seen = cluster.faults.on("Produce", node=3).observe()
    assert cluster.add_node() == 3
    assert listed(cluster) == [1, 2, 3]
    cluster.move_leader("orders", 0, to=3)
    producer.produce("orders", b"one", partition=0)
    assert producer.flush(PATIENCE) == 0
    seen.expect()
    assert [record.value for record in cluster.produced_by("shop")] == [b"one"]
    assert any(" Produce v" in line for line in cluster.requests())
    admin = AdminClient(cluster.clients.confluent_kafka)
    admin.create_topics([NewTopic("new", 3, 3)])["new"].result()
    assert sorted(cluster.partition("new", 0).replicas) == [1, 2, 3]
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.clients.confluent_kafka, **group})
    consumer.subscribe(["orders"])
    assert consumer.poll(PATIENCE).value() == b"one"
    cluster.move_coordinator("g", to=3)
    consumer.commit(asynchronous=False)
    assert cluster.groups["g"].offsets == {("orders", 0): 1}
    consumer.close()


def test_a_node_that_is_removed(cluster: KafkaCluster) -> None:
    third = cluster.add_node()
    for partition in range(4):
        cluster.move_leader("orders", partition, to=third)
    port = ports(cluster)[-1]
    cluster.remove_node(third)
    assert listed(cluster) == [1, 2]
    assert len(ports(cluster)) == 2
    with pytest.raises(ConnectionRefusedError):
        RawClient(port)
    for partition in range(4):
        found = cluster.partition("orders", partition)
        assert sorted(found.replicas) == sorted(found.isr) == [1, 2]
        assert found.leader in (1, 2)
    with pytest.raises(ValueError, match="the cluster has no node 3, only 1, 2"):
        cluster.start_node(third)
    assert cluster.add_node() == 4
    cluster.remove_node(2)
    assert listed(cluster) == [1, 4]
    assert sorted(cluster.partition("orders", 0).replicas) == [1, 4]
    cluster.restart()
    assert listed(cluster) == [1, 4]


def test_a_partition_whose_last_replica_is_removed(cluster: KafkaCluster) -> None:
    admin = AdminClient(cluster.clients.confluent_kafka)
    admin.create_topics([NewTopic("single", 2, 1)])["single"].result()
    cluster.remove_node(2)
    for partition in range(2):
        found = cluster.partition("single", partition)
        assert (found.leader, found.replicas) == (1, [1])
    assert cluster.partition("orders", 0).replicas == [1]


def test_what_is_refused(process: bool, cluster: KafkaCluster) -> None:
    with pytest.raises(ValueError, match="node 1 cannot be removed, because it is the first"):
        cluster.remove_node(1)
    with pytest.raises(ValueError, match="the cluster has no node 9"):
        cluster.remove_node(9)
    with (
        KafkaCluster.start(nodes=1, process=process) as small,
        pytest.raises(ValueError, match="was started with one node has no others"),
    ):
        small.add_node()


def test_consecutive_ports_and_one_that_is_taken(tmp_path: Path) -> None:
    port = free_port()
    with Cluster.start(nodes=2, port=port, data_dir=tmp_path) as cluster:
        assert cluster.add_node() == 3
        assert cluster.bootstrap_servers.endswith(f":{port + 2}")
        with Broker.start(port=port + 3), pytest.raises(BrokerError, match="cannot listen on"):
            cluster.add_node()
        assert list(cluster.nodes) == [1, 2, 3]
        assert cluster.metrics.value("kafka_server_brokertopicmetrics_messagesin_total") == 0


def test_a_new_node_enforces_the_quotas_that_there_are(cluster: KafkaCluster) -> None:
    cluster.set_quotas(client_id="*", producer_byte_rate=1)
    cluster.add_node()
    cluster.move_leader("orders", 0, to=3)
    with RawClient(ports(cluster)[2]) as client:
        produced = client.call(produce_request("orders", batch(bytes(100))), 12)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert produced.throttle_time_ms > 0
