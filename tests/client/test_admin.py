"""Topics and their settings, groups and their offsets."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka_wire import ApiKey, ConfigSource

from krammar.broker import Broker
from krammar.client import At, Client, Committed, TopicPartition
from krammar.client.errors import (
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicException,
    NonEmptyGroup,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from tests.client.proxy import Proxy
from tests.support.waiting import PATIENCE


def test_topics(broker: Broker, client: Client) -> None:
    made = client.admin.create_topic("t", 3, configs={"retention.ms": "5000"})
    assert (made.name, len(made.partitions), made.internal) == ("t", 3, False)
    client.admin.create_topic("u")
    theirs = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
        timeout=PATIENCE
    )
    assert {name: len(t.partitions) for name, t in theirs.topics.items()} == {"t": 3, "u": 1}
    assert set(client.topics()) == {"t", "u"}
    assert client.topics(["t"])["t"] == made
    client.admin.create_partitions("t", 5)
    assert client.partitions("t") == [TopicPartition("t", i) for i in range(5)]
    client.admin.delete_topic("t")
    assert set(client.topics()) == {"u"}
    # One of the same name is another one.
    again = client.admin.create_topic("t", 1)
    assert again.topic_id != made.topic_id
    with client.producer() as producer:
        assert producer.send("t", b"x").result().offset == 0
    assert len(list(client.records("t"))) == 1


def test_where_replicas_go(broker: Broker, client: Client) -> None:
    made = client.admin.create_topic("t", assignments={0: [1], 1: [1]})
    assert [p.replicas for p in made.partitions.values()] == [[1], [1]]
    client.admin.create_partitions("t", 3, assignments=[[1]])
    assert len(client.partitions("t")) == 3


def test_what_is_refused(client: Client) -> None:
    admin = client.admin
    admin.create_topic("t", 2)
    with pytest.raises(TopicAlreadyExists, match="topic t"):
        admin.create_topic("t", 2)
    with pytest.raises(InvalidTopicException, match="topic no/topic"):
        admin.create_topic("no/topic", 1)
    with pytest.raises(InvalidReplicationFactor):
        admin.create_topic("u", 1, 3)
    with pytest.raises(InvalidConfig):
        admin.create_topic("u", 1, configs={"retention.ms": "long"})
    with pytest.raises(InvalidPartitions):
        admin.create_partitions("t", 1)
    with pytest.raises(UnknownTopicOrPartition):
        admin.delete_topic("u")
    with pytest.raises(OffsetOutOfRange):
        admin.delete_records({("t", 0): 5})
    admin.create_topic("v", 1, validate_only=True)
    assert set(client.topics()) == {"t"}


@pytest.mark.parametrize("key", [ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS])
def test_lost_answers(proxy: Proxy, behind: Broker, key: ApiKey) -> None:
    """If a response was lost, an existing or deleted topic is not an error."""
    with Client(behind.bootstrap_servers, retry_backoff_ms=1) as client:
        proxy.lose[key] = 1
        client.admin.create_topic("t", 1)
        client.admin.delete_topic("t")
        assert client.topics() == {}
        assert not +proxy.lose


def test_settings(client: Client) -> None:
    admin = client.admin
    admin.create_topic("t", 1, configs={"retention.ms": "5000"})
    configs = admin.topic_configs("t")
    assert configs["retention.ms"].value == "5000"
    assert configs["retention.ms"].source == ConfigSource.TOPIC_CONFIG
    assert not configs["retention.ms"].is_default
    assert configs["segment.bytes"].is_default
    admin.alter_topic_configs("t", {"retention.ms": None, "cleanup.policy": "compact"})
    configs = admin.topic_configs("t")
    assert configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "compact"
    with pytest.raises(InvalidConfig):
        admin.alter_topic_configs("t", {"retention.ms": "long"})
    with pytest.raises(UnknownTopicOrPartition):
        admin.alter_topic_configs("u", {"retention.ms": "5"})
    [node_id] = client.nodes()
    admin.alter_broker_configs(node_id, {"message.max.bytes": "5000"})
    assert admin.broker_configs(node_id)["message.max.bytes"].value == "5000"
    admin.alter_broker_configs(None, {"log.retention.ms": "60000"})
    assert admin.broker_configs(node_id)["log.retention.ms"].value == "60000"


def test_the_cluster(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        described = client.admin.describe_cluster()
        assert described.cluster_id == broker.cluster.cluster_id
        assert [(n.node_id, n.port) for n in described.nodes] == [(1, broker.port)]
        assert client.nodes() == {1: described.nodes[0]}
        client.admin.create_topic("t", 2)
        with client.producer() as producer:
            producer.send("t", bytes(1000), partition=0)
        [folder] = client.admin.log_dirs()
        assert (folder.node_id, folder.path, folder.error) == (1, str(tmp_path), None)
        assert folder.sizes[TopicPartition("t", 0)] > 1000
        assert folder.sizes[TopicPartition("t", 1)] == 0
        assert folder.total_bytes >= folder.usable_bytes > 0


def test_records_are_deleted(client: Client) -> None:
    client.admin.create_topic("t", 2)
    with client.producer() as producer:
        for i in range(20):
            producer.send("t", b"%d" % i, partition=i % 2)
    low = client.admin.delete_records({("t", 0): 4, ("t", 1): At.LATEST})
    assert low == {("t", 0): 4, ("t", 1): 10}
    assert [(at.partition, r.offset) for at, r in client.records("t")] == [
        (0, offset) for offset in range(4, 10)
    ]
    with pytest.raises(ValueError, match="t-0: offset -7 is negative"):
        client.admin.delete_records({("t", 0): -7})


def consumer_of(broker: Broker, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_offsets_of_groups(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 2)
    groups = client.groups
    assert groups.committed("g") == {}
    groups.commit("g", {("t", 0): 5, ("t", 1): Committed(7, 0, "note")})
    consumer = consumer_of(broker, "g")
    found = consumer.committed([confluent_kafka.TopicPartition("t", p) for p in (0, 1)], PATIENCE)
    assert [p.offset for p in found] == [5, 7]
    consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 6)], asynchronous=False)
    consumer.close()
    assert groups.committed("g") == {("t", 0): Committed(6), ("t", 1): Committed(7, 0, "note")}
    assert groups.committed("g", [("t", 1)], require_stable=True) == {
        ("t", 1): Committed(7, 0, "note")
    }
    assert groups.committed("g", []) == {}
    groups.delete_offsets("g", [("t", 1)])
    assert set(groups.committed("g")) == {("t", 0)}
    with pytest.raises(UnknownTopicOrPartition):
        groups.commit("g", {("nope", 0): 1})
    groups.delete("g")
    assert groups.committed("g") == {}
    with pytest.raises(GroupIdNotFound):
        groups.delete("g")


def test_groups_with_members(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 2)
    with client.producer() as producer:
        producer.send("t", b"x").result()
    client.groups.commit("other", {("t", 0): 1})
    consumer = consumer_of(broker, "g")
    consumer.subscribe(["t"])
    assert consumer.poll(PATIENCE) is not None
    listed = {g.group_id: g for g in client.groups.list()}
    assert (listed["g"].protocol_type, listed["g"].state) == ("consumer", "Stable")
    assert listed["other"].state == "Empty"
    assert [g.group_id for g in client.groups.list(states=["Empty"])] == ["other"]
    described = client.groups.describe("g")
    assert (described.state, described.protocol) == ("Stable", "range")
    [member] = described.members
    assert member.client_id == "rdkafka"
    with pytest.raises(UnknownMemberId):
        client.groups.commit("g", {("t", 0): 1})
    with pytest.raises(NonEmptyGroup):
        client.groups.delete("g")
    consumer.close()


@pytest.mark.parametrize("key", [ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.LIST_GROUPS])
def test_lost_answers_of_coordinators(proxy: Proxy, behind: Broker, key: ApiKey) -> None:
    with Client(behind.bootstrap_servers, retry_backoff_ms=1) as client:
        client.admin.create_topic("t", 1)
        proxy.lose[key] = 1
        client.groups.commit("g", {("t", 0): 5})
        assert client.groups.committed("g") == {("t", 0): Committed(5)}
        assert [g.group_id for g in client.groups.list()] == ["g"]
        assert not +proxy.lose
