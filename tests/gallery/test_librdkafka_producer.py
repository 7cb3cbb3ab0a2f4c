"""Bugs of librdkafka's producer."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import ErrorCode

from krammar.testing import KafkaBroker, KafkaCluster
from tests.gallery.confluent import Sent, producer
from tests.support.waiting import PATIENCE


def test_a_lost_answer_is_not_fatal(kafka_broker: KafkaBroker) -> None:
    """librdkafka 3584: after a lost request, OUT_OF_ORDER_SEQUENCE_NUMBER stopped an idempotent producer."""
    kafka_broker.create_topic("orders")
    lost = kafka_broker.faults.on("Produce").nth(2).delay(200, of="request").drop("before")
    refused = kafka_broker.faults.on("Produce").after(lost).once()
    refused.delay(200, of="request").answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sender, sent = producer(kafka_broker.bootstrap_servers, batch_num_messages=1), Sent()
    sender.produce("orders", b"zero", on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    for value in (b"one", b"two", b"three"):
        sender.produce("orders", value, on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    refused.expect()
    assert sent.failed == {}
    values = [record.value for record in kafka_broker.records("orders")]
    assert values == [b"zero", b"one", b"two", b"three"]


def test_a_record_reported_as_delivered_is_not_stored(kafka_broker: KafkaBroker) -> None:
    """KAFKA-14359, open: a partition accepts any first sequence, so the second batch hides the lost first one.

    librdkafka regards a batch that may be stored as stored when a later one is.
    """
    kafka_broker.create_topic("orders")
    lost = kafka_broker.faults.on("Produce").once().delay(200, of="request").drop("before")
    refused = kafka_broker.faults.on("Produce").after(lost).once()
    refused.delay(200, of="request").answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sender, sent = producer(kafka_broker.bootstrap_servers, batch_num_messages=1), Sent()
    for value in (b"one", b"two", b"three"):
        sender.produce("orders", value, on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    refused.expect()
    assert sent.stored == [b"one", b"two", b"three"]
    # Open: librdkafka 2.16.0 says that all three are stored.
    assert [record.value for record in kafka_broker.records("orders")] == [b"two", b"three"]


def test_a_leader_without_an_epoch_is_followed(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 4796: a rolling upgrade took the epochs out of Metadata, and the leader was never found."""
    kafka_cluster.create_topic("orders", 1)
    # Old nodes name no leader with an error (KIP-951), so that clients have to ask for metadata.
    kafka_cluster.faults.on("ApiVersions").offer({"Produce": "3-9"})
    for node in (1, 2):
        kafka_cluster.move_leader("orders", 0, to=node)
    sender, sent = producer(kafka_cluster.bootstrap_servers, message_timeout_ms=5000), Sent()
    sender.produce("orders", b"one", on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    old = kafka_cluster.faults.on("Metadata", versions="7-")
    old.change("response.topics[*].partitions[*].leader_epoch", -1)
    kafka_cluster.move_leader("orders", 0, to=1)
    sender.produce("orders", b"two", on_delivery=sent)
    sender.flush(PATIENCE)
    assert sent.stored == [b"one", b"two"]
    old.expect()


def test_a_topic_created_again_on_another_node(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 4898, open: epochs of the new topic begin at 0, so the producer stays at the old leader."""
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    admin.create_topics([NewTopic("orders", 1, replica_assignment=[[1, 2]])])["orders"].result()
    kafka_cluster.move_leader("orders", 0, to=2)  # leader epoch 1
    sender, sent = producer(kafka_cluster.bootstrap_servers, message_timeout_ms=3000), Sent()
    sender.produce("orders", b"one", on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    admin.delete_topics(["orders"])["orders"].result()
    admin.create_topics([NewTopic("orders", 1, replica_assignment=[[1, 2]])])["orders"].result()
    sender.produce("orders", b"two", on_delivery=sent)
    sender.flush(PATIENCE)
    # Open: librdkafka 2.16.0 asks node 2 until the record times out.
    assert kafka_cluster.leader("orders", 0) == 1
    assert sent.failed == {b"two": "_MSG_TIMED_OUT"}
    assert kafka_cluster.records("orders") == []


def test_an_epoch_bump_repeats_records_of_another_partition(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 4953, open: an error on one partition bumps the epoch, which duplicates what another has."""
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    admin.create_topics([NewTopic("orders", 2, replica_assignment=[[1], [2]])])["orders"].result()
    faults = kafka_cluster.faults
    # The delay lets the client send more before it gets the error.
    moved = faults.on("Produce", node=1).nth(2).delay(300).answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    lost = faults.on("Produce", node=2).nth(2).delay(3000).drop("after")
    sender, sent = producer(kafka_cluster.bootstrap_servers, batch_num_messages=1), Sent()
    for partition in (0, 1):
        sender.produce("orders", b"first", partition=partition, on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    sender.produce("orders", b"kept once?", partition=1, on_delivery=sent)
    for value in (b"a", b"b", b"c"):
        sender.produce("orders", value, partition=0, on_delivery=sent)
    assert sender.flush(PATIENCE) == 0
    moved.expect()
    lost.expect()
    # Open: librdkafka 2.16.0 sends the second record of partition 1 again, with the new epoch.
    values = [record.value for record in kafka_cluster.records("orders", partition=1)]
    assert values == [b"first", b"kept once?", b"kept once?"]
