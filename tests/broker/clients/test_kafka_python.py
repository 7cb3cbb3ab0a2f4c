"""Unmodified kafka-python."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
    errors,
)
from kafka.admin import ConfigResource, OffsetSpec

from krammar.testing import KafkaBroker as Broker
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.kafka_broker(
    {"auto.create.topics.enable": "false", "group.min.session.timeout.ms": "200"}
)
T0 = TopicPartition("t", 0)


@pytest.fixture
def admin(kafka_broker: Broker) -> Iterator[KafkaAdminClient]:
    with contextlib.closing(
        KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap_servers)
    ) as client:
        yield client


def create(admin: KafkaAdminClient, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics(
        {name: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}}
    )


@contextlib.contextmanager
def producer(broker: Broker, **settings: Any) -> Iterator[KafkaProducer]:
    client = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0, **settings)
    try:
        yield client
    finally:
        client.close(timeout=PATIENCE)


def deliver(broker: Broker, topic: str, values: Sequence[bytes | None], **options: Any) -> None:
    """Produces values and waits for the acknowledgements."""
    with producer(broker) as to:
        for future in [to.send(topic, value, **options) for value in values]:
            future.get(timeout=PATIENCE)


@contextlib.contextmanager
def consumer(broker: Broker, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    client = KafkaConsumer(
        **{
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 50,
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 30_000,
            "max_poll_interval_ms": 60_000,
            **settings,
        },
    )
    # A leader that joins before it knows the partitions assigns none, and joins again when it learns of them. If a poll
    # ends before the response to SyncGroup, the assignment is lost for good (kafka-python 3.0.12).
    for topic in topics:
        client.partitions_for_topic(topic)
    if topics:
        client.subscribe(topics)
    try:
        yield client
    finally:
        client.close()


def read(source: KafkaConsumer, count: int) -> list[Any]:
    """The next ``count`` records."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        for records in source.poll(10_000, max_records=count - len(found)).values():
            found += records
    return found


def values(records: Sequence[Any]) -> list[bytes | None]:
    return [record.value for record in records]


def poll_until(condition: Callable[[], bool], *polled: KafkaConsumer) -> None:
    """Poll consumers in turn until a condition holds."""
    until(condition, after=lambda: [one.poll(20) for one in polled])


# --- produce and consume


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were(
    kafka_broker: Broker, admin: KafkaAdminClient, codec: str | None
) -> None:
    create(admin, "t")
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]] = [
        (b"key-%d" % at, b"value-%d" % at * 20, [], 1_700_000_000_000 + at) for at in range(50)
    ]
    sent += [
        (None, b"no key", [], 1),
        (b"no value", None, [], 2),
        (b"", b"", [("", b"")], 4),
        (b"\xff\x00", b"\x00" * 900_000, [("h", b"1"), ("h", b"2")], 5),
        ("schlüssel".encode(), b"x", [("ключ", "値".encode())], 1_790_000_000_000),
    ]
    with producer(kafka_broker, compression_type=codec) as to:
        futures = [
            to.send("t", value, key=key, headers=headers, timestamp_ms=timestamp)
            for key, value, headers, timestamp in sent
        ]
        offsets = [future.get(timeout=PATIENCE).offset for future in futures]
    assert offsets == list(range(len(sent)))
    with consumer(kafka_broker, "t") as source:
        got = read(source, len(sent))
    assert [(one.key, one.value, list(one.headers), one.timestamp) for one in got] == sent
    assert [one.offset for one in got] == offsets


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(kafka_broker: Broker, admin: KafkaAdminClient, acks: int | str) -> None:
    create(admin, "t")
    settings = {} if acks == "all" else {"enable_idempotence": False}
    with producer(kafka_broker, acks=acks, **settings) as to:
        for at in range(50):
            to.send("t", b"%d" % at)
        to.flush(PATIENCE)
    with consumer(kafka_broker, "t") as source:
        assert values(read(source, 50)) == [b"%d" % at for at in range(50)]


def test_many_records_in_order(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", 2)
    with producer(kafka_broker) as to:
        for at in range(2000):
            to.send("t", b"%d" % at, partition=at % 2)
        to.flush(PATIENCE)
    with consumer(kafka_broker, "t") as source:
        found: dict[int, list[int]] = {0: [], 1: []}
        for record in read(source, 2000):
            found[record.partition].append(int(record.value))
    assert found == {part: list(range(part, 2000, 2)) for part in range(2)}


def test_too_large_a_value_is_refused(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", max_message_bytes="2000")
    with producer(kafka_broker) as to, pytest.raises(errors.MessageSizeTooLargeError):
        to.send("t", b"x" * 3000).get(timeout=PATIENCE)


def test_unknown_topic(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    unknown = (errors.KafkaTimeoutError, errors.UnknownTopicOrPartitionError)
    with producer(kafka_broker, max_block_ms=500) as to, pytest.raises(unknown):
        to.send("nobody", b"x").get(timeout=PATIENCE)
    assert "nobody" not in admin.list_topics()


@pytest.mark.kafka_broker({"num.partitions": "3"})
def test_topics_come_by_themselves(kafka_broker: Broker) -> None:
    with producer(kafka_broker) as to:
        assert to.send("new", b"x").get(timeout=PATIENCE).offset == 0
        assert to.partitions_for("new") == {0, 1, 2}


# --- transactions


def test_transactions_are_seen_whole_or_not_at_all(
    kafka_broker: Broker, admin: KafkaAdminClient
) -> None:
    create(admin, "t", 2)
    with producer(kafka_broker, transactional_id="tx") as to:
        to.init_transactions()
        for number in range(4):
            to.begin_transaction()
            for partition in (0, 1):
                to.send("t", b"%d" % number, partition=partition)
            to.flush(PATIENCE)
            if number % 2:
                to.abort_transaction()
            else:
                to.commit_transaction()
    with consumer(kafka_broker, "t", isolation_level="read_committed") as source:
        assert sorted(values(read(source, 4))) == [b"0", b"0", b"2", b"2"]
        # The markers too have been passed.
        poll_until(lambda: source.position(T0) == 8, source)
    with consumer(kafka_broker, isolation_level="read_uncommitted") as source:
        source.assign([T0])
        assert values(read(source, 4)) == [b"0", b"1", b"2", b"3"]


def test_consume_transform_produce(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "in")
    create(admin, "out")
    deliver(kafka_broker, "in", [b"%d" % at for at in range(30)])
    at = TopicPartition("in", 0)
    with (
        producer(kafka_broker, transactional_id="tx") as to,
        consumer(kafka_broker, "in", isolation_level="read_committed") as source,
    ):
        to.init_transactions()
        done = turn = 0
        while done < 30:
            turn += 1
            records = read(source, 10)
            to.begin_transaction()
            for record in records:
                to.send("out", b"out " + record.value)
            offsets = {at: OffsetAndMetadata(records[-1].offset + 1, "", -1)}
            to.send_offsets_to_transaction(offsets, source.group_metadata())
            if turn == 2:
                to.abort_transaction()
                source.seek(at, done)
            else:
                to.commit_transaction()
                done += 10
            assert source.committed(at) == done
    with consumer(kafka_broker, "out", group_id="h", isolation_level="read_committed") as source:
        assert values(read(source, 30)) == [b"out %d" % number for number in range(30)]


def test_a_second_producer_fences_the_first(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    with producer(kafka_broker, transactional_id="tx") as first:
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"first").get(timeout=PATIENCE)
        with producer(kafka_broker, transactional_id="tx") as second:
            second.init_transactions()
            with pytest.raises((errors.ProducerFencedError, errors.InvalidProducerEpochError)):
                first.commit_transaction()
            second.begin_transaction()
            second.send("t", b"second")
            second.commit_transaction()
    with consumer(kafka_broker, "t", isolation_level="read_committed") as source:
        assert values(read(source, 1)) == [b"second"]


# --- consumers


def test_seek_positions_and_watermarks(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    deliver(kafka_broker, "t", [b"%d" % at for at in range(100)])
    with consumer(kafka_broker) as source:
        source.assign([T0])
        assert source.beginning_offsets([T0]) == {T0: 0}
        assert source.end_offsets([T0]) == {T0: 100}
        source.seek(T0, 60)
        assert values(read(source, 2)) == [b"60", b"61"]
        assert source.position(T0) == 62
        assert source.highwater(T0) == 100
        source.seek_to_beginning(T0)
        assert values(read(source, 1)) == [b"0"]
        source.seek_to_end(T0)
        assert source.position(T0) == 100
        deliver(kafka_broker, "t", [b"fresh"])
        assert values(read(source, 1)) == [b"fresh"]
        # Out of range: auto_offset_reset applies.
        source.seek(T0, 5000)
        assert values(read(source, 1)) == [b"0"]


def test_offsets_for_times(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    with producer(kafka_broker) as to:
        for at in range(20):
            to.send("t", b"x", timestamp_ms=1_700_000_000_000 + at * 1000).get(timeout=PATIENCE)
    with consumer(kafka_broker) as source:
        for timestamp, offset in {0: 0, 1_700_000_000_001: 1, 1_700_000_019_000: 19}.items():
            found = source.offsets_for_times({T0: timestamp})[T0]
            assert (found.offset, found.timestamp) == (
                offset,
                1_700_000_000_000 + offset * 1000,
            )
        assert source.offsets_for_times({T0: 1_700_000_019_001}) == {T0: None}


def test_pause_and_resume(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", 2)
    with consumer(kafka_broker) as source:
        source.assign([T0, TopicPartition("t", 1)])
        source.pause(T0)
        deliver(kafka_broker, "t", [b"paused"], partition=0)
        deliver(kafka_broker, "t", [b"a", b"b"], partition=1)
        assert values(read(source, 2)) == [b"a", b"b"]
        source.resume(T0)
        assert values(read(source, 1)) == [b"paused"]


def test_committed_offsets(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    deliver(kafka_broker, "t", [b"%d" % at for at in range(10)])
    with consumer(kafka_broker, "t") as source:
        assert source.committed(T0) is None
        read(source, 4)
        source.commit()
        assert source.committed(T0) == 4
        source.commit({T0: OffsetAndMetadata(6, "said so", -1)})
        found = source.committed(T0, metadata=True)
        assert (found.offset, found.metadata) == (6, "said so")
    with consumer(kafka_broker, "t") as source:
        assert values(read(source, 4)) == [b"6", b"7", b"8", b"9"]


# --- groups


class Group:
    """Consumers, each in its own thread: if a poll is too short, a consumer drops its request to join
    and starts again."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.changed = threading.Condition()
        self.members: list[Member] = []

    def join(self) -> None:
        """Add a member."""
        member = Member(self)
        self.members.append(member)
        member.start()

    def leave(self) -> None:
        """Close the oldest member."""
        member = self.members.pop(0)
        member.stop.set()
        member.join(PATIENCE)
        assert not member.is_alive()

    def close(self) -> None:
        while self.members:
            self.leave()

    def sizes(self) -> list[int]:
        """Return the number of partitions of each member; no partition may have two members."""
        owned = [member.partitions for member in self.members]
        if len(set().union(*owned)) != sum(map(len, owned)):
            return []
        return sorted(map(len, owned))

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), self.sizes()


class Member(threading.Thread):
    def __init__(self, group: Group) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.stop = threading.Event()
        self.partitions: frozenset[int] = frozenset()
        self.values: list[bytes | None] = []

    def run(self) -> None:
        # A poll can end during a rebalance, see above. The broker removes the member after this time, and it joins again.
        with consumer(self.group.broker, "t", max_poll_interval_ms=10_000) as source:
            while not self.stop.is_set():
                polled = source.poll(200)
                with self.group.changed:
                    self.partitions = frozenset(at.partition for at in source.assignment())
                    for records in polled.values():
                        self.values += values(records)
                    self.group.changed.notify_all()


def test_three_members_join_and_leave(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", 6)
    with contextlib.closing(Group(kafka_broker)) as group:
        for sizes in ([6], [3, 3], [2, 2, 2]):
            group.join()
            group.wait(lambda sizes=sizes: group.sizes() == sizes)
        wanted = []
        for partition in range(6):
            wanted.append(b"%d" % partition)
            deliver(kafka_broker, "t", wanted[-1:], partition=partition)
        group.wait(lambda: sorted(value for one in group.members for value in one.values) == wanted)
        for sizes in ([3, 3], [6]):
            group.leave()
            group.wait(lambda sizes=sizes: group.sizes() == sizes)


CRASHING = """
import sys
from kafka import KafkaConsumer
source = KafkaConsumer(
    bootstrap_servers=sys.argv[1], group_id="g", session_timeout_ms=6000,
    heartbeat_interval_ms=50, max_poll_interval_ms=10_000, enable_auto_commit=False,
)
source.partitions_for_topic("t")  # as in consumer()
source.subscribe(["t"])
while True:
    source.poll(1000)
"""


def test_a_member_that_crashes_is_replaced(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", 6)
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(contextlib.closing(Group(kafka_broker)))
        group.join()
        group.join()
        group.wait(lambda: group.sizes() == [3, 3])
        crashing = subprocess.Popen(
            [sys.executable, "-c", CRASHING, kafka_broker.bootstrap_servers]
        )
        stack.callback(crashing.wait)
        stack.callback(crashing.kill)
        group.wait(lambda: group.sizes() == [2, 2] or crashing.poll() is not None)
        assert crashing.poll() is None
        crashing.kill()
        crashing.wait(PATIENCE)
        group.wait(lambda: group.sizes() == [3, 3])


# --- admin


def test_topics_are_made_grown_and_deleted(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", 2, cleanup_policy="compact")
    assert "t" in admin.list_topics()
    with pytest.raises(errors.TopicAlreadyExistsError):
        create(admin, "t")
    admin.create_partitions({"t": 5})
    [topic] = admin.describe_topics(["t"])
    assert [one["partition_index"] for one in topic["partitions"]] == [0, 1, 2, 3, 4]
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({"t": 3})
    with pytest.raises(errors.InvalidTopicError):
        create(admin, "no such name!")
    admin.delete_topics(["t"])
    assert "t" not in admin.list_topics()
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["t"])


def test_records_are_deleted(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    deliver(kafka_broker, "t", [b"%d" % at for at in range(20)])
    admin.delete_records({T0: 7})
    with consumer(kafka_broker, "t") as source:
        assert source.beginning_offsets([T0]) == {T0: 7}
        assert values(read(source, 1)) == [b"7"]
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({T0: 21})


def test_configs(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t", retention_ms="5000")

    def described() -> dict[str, Any]:
        found = admin.describe_configs([ConfigResource("TOPIC", "t")], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"]["t"].items()}

    assert described()["retention.ms"] == "5000"
    assert described()["cleanup.policy"] == "delete"
    changes = {"max.message.bytes": "4000", "retention.ms": ("DELETE", None)}
    admin.alter_configs([ConfigResource("TOPIC", "t", changes)])
    found = described()
    assert (found["max.message.bytes"], found["retention.ms"]) == ("4000", "604800000")
    admin.alter_configs([ConfigResource("TOPIC", "t", {"retention.ms": "777"})], incremental=False)
    assert described()["retention.ms"] == "777"
    admin.reset_configs([ConfigResource("TOPIC", "t", {"retention.ms": None})])
    assert described()["retention.ms"] == "604800000"
    node = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    found = admin.describe_configs([ConfigResource("BROKER", node)], config_filter="all")
    assert found["broker"][node]["auto.create.topics.enable"]["value"] == "false"


def test_cluster_and_log_dirs(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    deliver(kafka_broker, "t", [b"x" * 1000])
    cluster = admin.describe_cluster()
    [node] = cluster["brokers"]
    assert (node["host"], node["port"]) == (kafka_broker.host, kafka_broker.port)
    assert cluster["controller_id"] == node["broker_id"]
    [found] = admin.describe_log_dirs()
    [directory] = found["log_dirs"]
    sizes = {
        (topic["name"], one["partition_index"]): one["partition_size"]
        for topic in directory["topics"]
        for one in topic["partitions"]
    }
    assert 1000 < sizes["t", 0] < 1200


def test_offsets_are_listed(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    with producer(kafka_broker) as to:
        for timestamp in (3000, 9000, 5000):
            to.send("t", b"x", timestamp_ms=timestamp).get(timeout=PATIENCE)
    for spec, offset in [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 3),
        (OffsetSpec.MAX_TIMESTAMP, 1),
        (4000, 1),
    ]:
        assert admin.list_partition_offsets({T0: spec})[T0].offset == offset


def test_groups(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    deliver(kafka_broker, "t", [b"%d" % at for at in range(10)])
    with consumer(kafka_broker, "t", client_id="reader") as source:
        read(source, 5)
        source.commit()
        [group] = admin.list_groups()
        assert (group["group_id"], group["protocol_type"], group["group_state"]) == (
            "g",
            "consumer",
            "Stable",
        )
        described = admin.describe_groups(["g"])["g"]
        assert described["group_state"] == "Stable"
        assert [one["client_id"] for one in described["members"]] == ["reader"]
        assert admin.list_group_offsets({"g": None})["g"][T0].offset == 5
        assert admin.delete_groups(["g"])["g"] != "OK"
    assert admin.describe_groups(["g"])["g"]["group_state"] == "Empty"
    admin.alter_group_offsets("g", {T0: OffsetAndMetadata(2, "", -1)})
    assert admin.list_group_offsets({"g": [T0]})["g"][T0].offset == 2
    admin.reset_group_offsets("g", {T0: OffsetSpec.LATEST})
    assert admin.list_group_offsets({"g": [T0]})["g"][T0].offset == 10
    admin.delete_group_offsets("g", [T0])
    assert T0 not in admin.list_group_offsets({"g": None})["g"]
    admin.delete_groups(["g"])
    assert admin.list_groups() == []


def test_transactions_are_described(kafka_broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin, "t")
    with producer(kafka_broker, transactional_id="tx") as to:
        to.init_transactions()
        to.begin_transaction()
        to.send("t", b"x").get(timeout=PATIENCE)
        [[listed]] = admin.list_transactions().values()
        assert listed.transactional_id == "tx"
        described = admin.describe_transactions(["tx"])["tx"]
        assert described.producer_id == listed.producer_id
        assert described.topic_partitions == {T0}
        [state] = admin.describe_producers([T0])[T0].active_producers
        assert (state.producer_id, state.current_transaction_start_offset) == (
            listed.producer_id,
            0,
        )
        to.commit_transaction()
