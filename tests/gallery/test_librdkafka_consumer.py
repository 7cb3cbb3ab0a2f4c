"""Bugs of librdkafka's consumer."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_wire import ErrorCode

from krammar.testing import KafkaBroker, KafkaCluster
from tests.gallery.confluent import consumer, poll_until, producer, read
from tests.support.waiting import PATIENCE


def _fill(servers: str, *values: bytes, topic: str = "orders") -> None:
    sender = producer(servers)
    for value in values:
        sender.produce(topic, value)
    assert sender.flush(PATIENCE) == 0


def test_positions_are_validated_once_for_each_leader(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 4425: two changes of the leader in short order led to endless OffsetForLeaderEpoch requests."""
    kafka_cluster.create_topic("orders", 1)
    kafka_cluster.move_leader("orders", 0, to=1)
    _fill(kafka_cluster.bootstrap_servers, b"one")
    with consumer(kafka_cluster.bootstrap_servers) as reader:
        reader.assign([TopicPartition("orders", 0)])
        assert read(reader, 1) == [b"one"]
        failed = kafka_cluster.faults.on("OffsetForLeaderEpoch").once()
        failed.answer(ErrorCode.KAFKA_STORAGE_ERROR)
        asked = kafka_cluster.faults.on("OffsetForLeaderEpoch", name="asked").delay(0)
        kafka_cluster.move_leader("orders", 0, to=2)
        assert poll_until(reader.poll, lambda: failed.fired == 1)
        kafka_cluster.move_leader("orders", 0, to=3)
        _fill(kafka_cluster.bootstrap_servers, b"two")
        assert read(reader, 1) == [b"two"]
        assert asked.fired <= 5  # 2.2.0 sends hundreds


def test_a_fenced_epoch_does_not_stop_listing_offsets(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 4620: a ListOffsets request was repeated with an old epoch."""
    kafka_cluster.create_topic("orders", 1)
    _fill(kafka_cluster.bootstrap_servers, b"one")
    fenced = kafka_cluster.faults.on("ListOffsets", versions="4-").times(2)
    fenced.answer(ErrorCode.FENCED_LEADER_EPOCH)
    with consumer(kafka_cluster.bootstrap_servers) as reader:
        reader.subscribe(["orders"])
        assert read(reader, 1) == [b"one"]
    fenced.expect(times=2)


def test_a_truncated_offset_leads_to_a_reset(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 5158: an offset that is read from the group is not validated, so truncation leads to a reset."""
    kafka_cluster.create_topic("orders", 1)
    kafka_cluster.move_leader("orders", 0, to=1)
    for numbers in (range(7), range(7, 10)):  # two batches
        _fill(kafka_cluster.bootstrap_servers, *(b"%d" % n for n in numbers))
    with consumer(kafka_cluster.bootstrap_servers) as reader:
        reader.subscribe(["orders"])
        assert len(read(reader, 10)) == 10
        reader.commit(asynchronous=False)
    assert kafka_cluster.unclean_election("orders", 0, lose=3) == 7
    asked = kafka_cluster.faults.on("OffsetForLeaderEpoch").delay(0)
    with consumer(kafka_cluster.bootstrap_servers) as reader:
        reader.subscribe(["orders"])
        first = read(reader, 1)
    # librdkafka 2.16.0 reads all again. A consumer that validates the offset begins at 7.
    assert (first, asked.fired) == ([b"0"], 0)


def test_a_coordinator_is_found_again_with_assign(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 2791: a consumer with assign() did not look for the new coordinator of its group."""
    kafka_cluster.create_topic("orders", 1)
    _fill(kafka_cluster.bootstrap_servers, b"one", b"two")
    with consumer(kafka_cluster.bootstrap_servers) as reader:
        reader.assign([TopicPartition("orders", 0)])
        assert len(read(reader, 2)) == 2
        reader.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
        described = admin.describe_consumer_groups(["g"])["g"].result()
        kafka_cluster.stop_node(described.coordinator.id)
        reader.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    assert kafka_cluster.groups["g"].offsets == {("orders", 0): 2}


def test_a_commit_during_a_rebalance_does_not_stop_reading(kafka_broker: KafkaBroker) -> None:
    """librdkafka 2933: REBALANCE_IN_PROGRESS for a commit left the consumer without fetches."""
    kafka_broker.create_topic("orders", 1)
    _fill(kafka_broker.bootstrap_servers, b"one")
    with consumer(kafka_broker.bootstrap_servers, heartbeat_interval_ms=200) as reader:
        reader.subscribe(["orders"])
        assert read(reader, 1) == [b"one"]
        commit = (
            kafka_broker.faults.on("OffsetCommit").answer(ErrorCode.REBALANCE_IN_PROGRESS).times(3)
        )
        beat = kafka_broker.faults.on("Heartbeat").answer(ErrorCode.REBALANCE_IN_PROGRESS).once()
        reader.commit(asynchronous=True)
        assert poll_until(reader.poll, lambda: commit.fired >= 1 and beat.fired == 1)
        _fill(kafka_broker.bootstrap_servers, b"two")
        values: list[bytes] = []  # "one" may come again: its offset is not committed
        assert poll_until(lambda _: values.extend(read(reader, 1)), lambda: b"two" in values)


def test_a_member_joins_again_when_the_coordinator_moved(kafka_cluster: KafkaCluster) -> None:
    """librdkafka 2944: NOT_COORDINATOR for JoinGroup was repeated at the same node after a rolling update."""
    kafka_cluster.create_topic("orders", 1)
    _fill(kafka_cluster.bootstrap_servers, b"one")
    moved = kafka_cluster.faults.on("JoinGroup").answer(ErrorCode.NOT_COORDINATOR).times(2)
    with consumer(kafka_cluster.bootstrap_servers) as reader:
        reader.subscribe(["orders"])
        assert read(reader, 1) == [b"one"]
    moved.expect(times=2)
