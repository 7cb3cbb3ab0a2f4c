"""A cluster in a test: its answers stay the same while leaders and coordinators move."""

from __future__ import annotations

import contextlib

import pytest
from confluent_kafka import Consumer, Producer

from krammar.broker import ConfigError
from krammar.testing import KafkaBroker, KafkaCluster
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("process", [False, True], ids=["in-process", "process"])
def test_answers_survive_a_node(process: bool) -> None:
    settings = {"topics": {"orders": 3}, "sasl": "scram", "tls": True, "process": process}
    with KafkaCluster.start(**settings) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        assert sorted(cluster.leader("orders", at) for at in range(3)) == [1, 2, 3]
        producer = Producer({**cluster.clients.confluent_kafka, "client.id": "shop"})

        def produce(value: bytes) -> None:
            for partition in range(3):
                producer.produce("orders", value, partition=partition)
            assert producer.flush(PATIENCE) == 0

        produce(b"one")
        cluster.stop_node(2)
        assert 2 not in {cluster.leader("orders", at) for at in range(3)}
        assert all(2 not in cluster.partition("orders", at).isr for at in range(3))
        produce(b"two")
        values = [record.value for record in cluster.records("orders")]
        assert values == [b"one", b"two"] * 3
        produced = [record.value for record in cluster.produced_by("shop")]
        assert produced == [b"one"] * 3 + [b"two"] * 3

        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        for group in ("a", "b", "c"):  # they have different coordinators
            consumer = Consumer({**cluster.clients.confluent_kafka, **settings, "group.id": group})
            with contextlib.closing(consumer):
                consumer.subscribe(["orders"])
                for _ in range(6):
                    assert consumer.poll(PATIENCE) is not None
                consumer.commit(asynchronous=False)
        cluster.start_node(2)
        cluster.partition_from("nodes", 3)
        assert all(3 not in cluster.partition("orders", at).isr for at in range(3))
        cluster.heal()
        assert all(3 in cluster.partition("orders", at).isr for at in range(3))
        cluster.move_leader("orders", 0, to=2)
        assert cluster.leader("orders", 0) == 2
        assert sorted(cluster.groups) == ["a", "b", "c"]
        offsets = {("orders", at): 2 for at in range(3)}
        assert all(group.offsets == offsets for group in cluster.groups.values())
    assert repr(cluster) == "<KafkaCluster stopped>"


@pytest.mark.parametrize("nodes", [0, -1, "3", True, None])
def test_wrong_numbers_of_nodes(nodes: object) -> None:
    with pytest.raises(ConfigError, match=r"nodes: .* is not a number of nodes from 1 on"):
        KafkaCluster.start(nodes=nodes)  # type: ignore[arg-type]


@pytest.mark.parametrize("process", [False, True], ids=["in-process", "process"])
def test_other_mistakes(process: bool) -> None:
    with pytest.raises(ConfigError, match='node: unknown keyword; did you mean "nodes"'):
        KafkaCluster.start(node=3)
    with pytest.raises(ConfigError, match="nodes: a broker has one; use KafkaCluster"):
        KafkaBroker.start(nodes=3)
    with KafkaCluster.start(nodes=2, process=process) as cluster:
        with pytest.raises(ValueError, match="the cluster has no node 3, only 1, 2"):
            cluster.stop_node(3)
        with pytest.raises(ValueError, match="no node 7"):
            cluster.start_node(7)


@pytest.mark.parametrize("process", [False, True], ids=["in-process", "process"])
def test_produced_records_are_known_after_a_network_partition(process: bool) -> None:
    with KafkaCluster.start(topics={"orders": 1}, process=process) as cluster:
        first = cluster.leader("orders", 0)
        other = first % 3 + 1
        cluster.partition_from("nodes", other)
        cluster.heal()
        cluster.move_leader("orders", 0, to=other)
        producer = Producer({**cluster.clients.confluent_kafka, "client.id": "shop"})
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0
        assert [record.value for record in cluster.produced_by("shop")] == [b"one"]
