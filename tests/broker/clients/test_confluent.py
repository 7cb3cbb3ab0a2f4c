"""Unmodified librdkafka, through confluent-kafka."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from krammar.testing import KafkaBroker as Broker
from tests.support.waiting import PATIENCE, until

# Short sessions, so that the death of a member is noticed soon.
SHORT_SESSIONS = {"group.min.session.timeout.ms": "200"}

pytestmark = pytest.mark.kafka_broker({"auto.create.topics.enable": "false", **SHORT_SESSIONS})


@pytest.fixture
def admin(kafka_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})


def result(futures: Any) -> Any:
    """The result of an admin call with one future, or the results of all futures by key."""
    found = {key: future.result(PATIENCE) for key, future in futures.items()}
    return next(iter(found.values())) if len(found) == 1 else found


def create(admin: AdminClient, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    result(admin.create_topics([topic]))


def producer(broker: Broker, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 1,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def consumer(broker: Broker, group: str = "g", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "heartbeat.interval.ms": 50,
            "session.timeout.ms": 30_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def deliver(
    to: Producer, topic: str, values: Sequence[bytes | str | None], **options: Any
) -> list[Message]:
    """Produces values; their messages with offsets, as the delivery reports brought them."""
    reports: list[tuple[KafkaError | None, Message]] = []
    for value in values:
        to.produce(
            topic,
            value,
            on_delivery=lambda error, message: reports.append((error, message)),
            **options,
        )
    assert to.flush(PATIENCE) == 0
    assert [error for error, _ in reports] == [None] * len(values)
    return [message for _, message in reports]


def read(source: Consumer, count: int) -> list[Message]:
    """The next ``count`` messages."""
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages"
        for message in source.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def read_to_end(source: Consumer, topic: str, partition: int = 0) -> list[bytes | None]:
    """All visible records of a partition. ``source`` needs ``enable_partition_eof``."""
    source.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found = []
    while (message := until(lambda: source.poll(0.2))).error() is None:
        found.append(message.value())
    assert message.error().code() == KafkaError._PARTITION_EOF
    return found


def poll_until(condition: Callable[[], bool], *polled: Consumer) -> list[Message]:
    """Poll consumers in turn until a condition holds. Returns the messages."""
    found = []

    def poll() -> None:
        for one in polled:
            message = one.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)

    until(condition, after=poll)
    return found


def until_end(source: Consumer) -> None:
    """Polls until a partition has no more. ``source`` needs ``enable_partition_eof``."""
    error = until(lambda: source.poll(0.2)).error()
    assert error is not None and error.code() == KafkaError._PARTITION_EOF


# --- produce and consume


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were(
    kafka_broker: Broker, admin: AdminClient, codec: str
) -> None:
    create(admin, "t")
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]] = [
        (b"key-%d" % at, b"value-%d" % at * 20, None, 1_700_000_000_000 + at) for at in range(100)
    ]
    sent += [
        (None, b"no key", None, 1),
        (b"no value", None, [], 2),
        (None, None, None, 3),
        (b"", b"", [("", b"")], 4),
        (b"\xff\x00", b"\x00" * 70_000, [("h", b"1"), ("h", b"2"), ("null", None)], 5),
        ("schlüssel".encode(), b"x", [("ключ", "値".encode())], 1_790_000_000_000),
    ]
    to = producer(kafka_broker, compression_type=codec)
    reports = []
    for key, value, headers, timestamp in sent:
        to.produce(
            "t",
            value,
            key,
            headers=headers,
            timestamp=timestamp,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    assert to.flush(PATIENCE) == 0
    assert all(error is None for error, _ in reports)
    assert [message.offset() for _, message in reports] == list(range(len(sent)))
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        got = read(source, len(sent))
    assert [(one.key(), one.value(), one.headers() or None, one.timestamp()[1]) for one in got] == [
        (key, value, headers or None, timestamp) for key, value, headers, timestamp in sent
    ]
    assert [one.offset() for one in got] == list(range(len(sent)))
    assert {one.timestamp()[0] for one in got} == {TIMESTAMP_CREATE_TIME}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_large_values(kafka_broker: Broker, admin: AdminClient, codec: str) -> None:
    create(admin, "t")
    large = [bytes([at]) * 900_000 for at in range(4)]
    to = producer(kafka_broker, compression_type=codec)
    deliver(to, "t", large)
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        assert values(read(source, 4)) == large


def test_too_large_a_value_is_refused(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", max_message_bytes="2000")
    to = producer(kafka_broker)
    errors = []
    to.produce("t", b"x" * 3000, on_delivery=lambda error, _: errors.append(error))
    assert to.flush(PATIENCE) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert deliver(to, "t", [b"x" * 1000])[0].offset() == 0


def test_only_the_invalid_records_of_a_batch_are_blamed(
    kafka_broker: Broker, admin: AdminClient
) -> None:
    create(admin, "t", cleanup_policy="compact")
    # Only a flush or a full batch ends the wait, so all records are in one batch.
    to = producer(kafka_broker, linger_ms=200_000, batch_num_messages=6)
    reports: dict[int, KafkaError] = {}
    for at, key in enumerate([b"a", None, b"b", None, None, b"c"]):
        to.produce(
            "t",
            b"v",
            key,
            on_delivery=lambda error, _, at=at: reports.setdefault(at, error),
        )
    assert to.flush(PATIENCE) == 0
    blamed = [at for at in sorted(reports) if reports[at].code() == KafkaError.INVALID_RECORD]
    assert blamed == [1, 3, 4]
    assert {reports[at].code() for at in (0, 2, 5)} == {KafkaError._INVALID_DIFFERENT_RECORD}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(kafka_broker: Broker, admin: AdminClient, acks: int | str) -> None:
    create(admin, "t")
    deliver(producer(kafka_broker, acks=acks), "t", [b"%d" % at for at in range(50)])
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        assert values(read(source, 50)) == [b"%d" % at for at in range(50)]


def test_many_records_in_order(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 3)
    to = producer(kafka_broker, enable_idempotence=True)
    for at in range(20_000):
        to.produce("t", b"%d" % at, partition=at % 3)
        to.poll(0)
    assert to.flush(PATIENCE) == 0
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for message in read(source, 20_000):
            found[message.partition()].append(int(message.value()))
    assert found == {part: list(range(part, 20_000, 3)) for part in range(3)}


def test_keys_choose_partitions(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 4)
    to = producer(kafka_broker)
    for turn in range(3):
        for key in range(20):
            to.produce("t", b"%d" % turn, b"%d" % key)
    assert to.flush(PATIENCE) == 0
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        where: dict[bytes, list[int]] = {}
        for message in read(source, 60):
            where.setdefault(message.key(), []).append(message.partition())
    assert all(len(found) == 3 and len(set(found)) == 1 for found in where.values())
    assert len({found[0] for found in where.values()}) == 4


def test_log_append_time(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    [report] = deliver(producer(kafka_broker), "t", [b"x"], timestamp=1)
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        [message] = read(source, 1)
    assert message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
    assert before <= message.timestamp()[1] <= time.time_ns() // 1_000_000
    assert report.timestamp() == message.timestamp()


def test_unknown_topic(kafka_broker: Broker) -> None:
    to = producer(kafka_broker, topic_metadata_propagation_max_ms=100)
    errors = []
    to.produce("nobody", b"x", on_delivery=lambda error, _: errors.append(error))
    assert to.flush(PATIENCE) == 0
    assert errors[0].code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._MSG_TIMED_OUT,
    )
    metadata = to.list_topics("nobody", PATIENCE)
    assert metadata.topics["nobody"].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["nobody"])
        message = until(lambda: source.poll(0.2))
        assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "nobody" not in to.list_topics(timeout=PATIENCE).topics


@pytest.mark.kafka_broker({"num.partitions": "3"})
def test_topics_come_by_themselves(kafka_broker: Broker) -> None:
    to = producer(kafka_broker)
    deliver(to, "new", [b"x"])
    assert len(to.list_topics("new", PATIENCE).topics["new"].partitions) == 3


# --- idempotent and transactional producers


def test_idempotent_producer(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    to = producer(kafka_broker, enable_idempotence=True, linger_ms=0)
    wanted = [b"%d" % at for at in range(3000)]
    for turn in range(3):
        deliver(to, "t", wanted[turn * 1000 : turn * 1000 + 1000])
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        assert values(read(source, 3000)) == wanted


def test_transactions_are_seen_whole_or_not_at_all(
    kafka_broker: Broker, admin: AdminClient
) -> None:
    create(admin, "a")
    create(admin, "b", 2)
    to = producer(kafka_broker, transactional_id="tx")
    to.init_transactions(PATIENCE)
    for number in range(6):
        to.begin_transaction()
        for topic, partition in (("a", 0), ("b", 0), ("b", 1)):
            to.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 1:
            assert to.flush(PATIENCE) == 0
            to.abort_transaction(PATIENCE)
        else:
            to.commit_transaction(PATIENCE)
    kept = [b"0", b"2", b"3", b"5"]
    settings = {"isolation_level": "read_committed", "enable_partition_eof": True}
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        assert read_to_end(source, "a") == kept
        assert read_to_end(source, "b", 0) == kept
        assert read_to_end(source, "b", 1) == kept
    settings["isolation_level"] = "read_uncommitted"
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        assert read_to_end(source, "b", 1) == [b"%d" % number for number in range(6)]


def test_an_open_transaction_holds_back_what_is_behind_it(
    kafka_broker: Broker, admin: AdminClient
) -> None:
    create(admin, "t")
    plain = producer(kafka_broker)
    deliver(plain, "t", [b"before"])
    to = producer(kafka_broker, transactional_id="tx")
    to.init_transactions(PATIENCE)
    to.begin_transaction()
    to.produce("t", b"inside")
    assert to.flush(PATIENCE) == 0
    deliver(plain, "t", [b"behind"])
    settings = {"isolation_level": "read_committed", "enable_partition_eof": True}
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        assert read_to_end(source, "t") == [b"before"]
        assert source.get_watermark_offsets(TopicPartition("t", 0), PATIENCE) == (0, 1)
        to.commit_transaction(PATIENCE)
        assert read_to_end(source, "t") == [b"before", b"inside", b"behind"]


def test_consume_transform_produce(kafka_broker: Broker, admin: AdminClient) -> None:
    """One transaction contains output and offsets. Every third one is aborted, and repeated from the
    committed offsets."""
    create(admin, "in")
    create(admin, "out")
    deliver(producer(kafka_broker), "in", [b"%d" % at for at in range(100)])
    to = producer(kafka_broker, transactional_id="tx")
    to.init_transactions(PATIENCE)
    with contextlib.closing(consumer(kafka_broker, isolation_level="read_committed")) as source:
        source.subscribe(["in"])
        done = turn = 0
        while done < 100:
            turn += 1
            messages = read(source, 10)
            to.begin_transaction()
            for message in messages:
                to.produce("out", b"out " + message.value())
            position = source.position([TopicPartition("in", 0)])
            to.send_offsets_to_transaction(position, source.consumer_group_metadata(), PATIENCE)
            if turn % 3 == 0:
                to.abort_transaction(PATIENCE)
                source.seek(TopicPartition("in", 0, done))
            else:
                to.commit_transaction(PATIENCE)
                done += 10
            [committed] = source.committed([TopicPartition("in", 0)], PATIENCE)
            assert committed.offset == done
    settings = {"isolation_level": "read_committed", "enable_partition_eof": True}
    with contextlib.closing(consumer(kafka_broker, "other", **settings)) as source:
        assert read_to_end(source, "out") == [b"out %d" % at for at in range(100)]


def test_a_second_producer_fences_the_first(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    first = producer(kafka_broker, transactional_id="tx")
    first.init_transactions(PATIENCE)
    first.begin_transaction()
    first.produce("t", b"first")
    assert first.flush(PATIENCE) == 0
    second = producer(kafka_broker, transactional_id="tx")
    second.init_transactions(PATIENCE)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    second.begin_transaction()
    second.produce("t", b"second")
    second.commit_transaction(PATIENCE)
    settings = {"isolation_level": "read_committed", "enable_partition_eof": True}
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        assert read_to_end(source, "t") == [b"second"]


@pytest.mark.kafka_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
def test_a_transaction_that_takes_too_long_is_aborted(kafka_broker: Broker) -> None:
    to = producer(kafka_broker, transactional_id="tx", transaction_timeout_ms=1000)
    to.init_transactions(PATIENCE)
    to.begin_transaction()
    to.produce("t", b"late")
    assert to.flush(PATIENCE) == 0
    deliver(producer(kafka_broker), "t", [b"plain"])
    with contextlib.closing(consumer(kafka_broker, isolation_level="read_committed")) as source:
        source.assign([TopicPartition("t", 0, 0)])
        assert values(read(source, 1)) == [b"plain"]
    with pytest.raises(KafkaException):
        to.commit_transaction(PATIENCE)


# --- consumers


def test_watermarks_seek_and_position(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    deliver(producer(kafka_broker), "t", [b"%d" % at for at in range(100)])
    at = TopicPartition("t", 0)
    with contextlib.closing(consumer(kafka_broker, enable_partition_eof=True)) as source:
        assert source.get_watermark_offsets(at, PATIENCE) == (0, 100)
        source.assign([TopicPartition("t", 0, 60)])
        assert values(read(source, 2)) == [b"60", b"61"]
        assert source.position([at])[0].offset == 62
        source.seek(TopicPartition("t", 0, 7))
        assert values(read(source, 2)) == [b"7", b"8"]
        source.seek(TopicPartition("t", 0, OFFSET_BEGINNING))
        assert values(read(source, 1)) == [b"0"]
        source.seek(TopicPartition("t", 0, OFFSET_END))
        until_end(source)
        deliver(producer(kafka_broker), "t", [b"fresh"])
        assert values(read(source, 1)) == [b"fresh"]
        assert source.get_watermark_offsets(at, cached=True) == (0, 101)


def test_offsets_for_times(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    to = producer(kafka_broker)
    for at in range(50):
        deliver(to, "t", [b"x"], timestamp=1_700_000_000_000 + at * 1000)
    wanted = {0: 0, 1_700_000_000_000: 0, 1_700_000_000_001: 1, 1_700_000_049_000: 49}
    with contextlib.closing(consumer(kafka_broker)) as source:
        for timestamp, offset in wanted.items():
            [found] = source.offsets_for_times([TopicPartition("t", 0, timestamp)], PATIENCE)
            assert found.offset == offset
        [found] = source.offsets_for_times([TopicPartition("t", 0, 1_700_000_049_001)], PATIENCE)
        assert found.offset == OFFSET_END


def test_pause_and_resume(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 2)
    to = producer(kafka_broker)
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
        source.pause([TopicPartition("t", 0)])
        deliver(to, "t", [b"paused"], partition=0)
        deliver(to, "t", [b"a", b"b"], partition=1)
        assert values(read(source, 2)) == [b"a", b"b"]
        source.resume([TopicPartition("t", 0)])
        assert values(read(source, 1)) == [b"paused"]


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_where_a_group_begins(kafka_broker: Broker, admin: AdminClient, reset: str) -> None:
    create(admin, "t")
    deliver(producer(kafka_broker), "t", [b"old"])
    settings = {"auto_offset_reset": reset, "enable_partition_eof": True}
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        source.subscribe(["t"])
        if reset == "error":
            message = until(lambda: source.poll(0.2))
            assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
            return
        if reset == "latest":
            until_end(source)
            deliver(producer(kafka_broker), "t", [b"new"])
        assert values(read(source, 1)) == [b"old" if reset == "earliest" else b"new"]


def test_committed_offsets(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 2)
    deliver(producer(kafka_broker), "t", [b"%d" % at for at in range(10)], partition=0)
    both = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with contextlib.closing(consumer(kafka_broker)) as source:
        assert [one.offset for one in source.committed(both, PATIENCE)] == [OFFSET_INVALID] * 2
        source.subscribe(["t"])
        messages = read(source, 6)
        source.commit(message=messages[3], asynchronous=False)
        assert [one.offset for one in source.committed(both, PATIENCE)] == [4, OFFSET_INVALID]
        source.commit(asynchronous=False)
        assert source.committed(both[:1], PATIENCE)[0].offset == 6
        wanted = TopicPartition("t", 1, 0, metadata="said so")
        source.commit(offsets=[wanted], asynchronous=False)
        [found] = source.committed(both[1:], PATIENCE)
        assert (found.offset, found.metadata) == (0, "said so")
    with contextlib.closing(consumer(kafka_broker)) as source:
        source.subscribe(["t"])
        assert values(read(source, 4)) == [b"6", b"7", b"8", b"9"]


def test_automatic_commit(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    deliver(producer(kafka_broker), "t", [b"%d" % at for at in range(10)])
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 50}
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        source.subscribe(["t"])
        read(source, 5)
        at = TopicPartition("t", 0)
        until(lambda: source.committed([at], PATIENCE)[0].offset >= 5)
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        source.subscribe(["t"])
        assert values(read(source, 5)) == [b"5", b"6", b"7", b"8", b"9"]


# --- groups


class Member:
    """A consumer of the group, with the partitions that it was assigned and lost."""

    def __init__(self, broker: Broker, topics: Sequence[str] = ("t",), **settings: Any) -> None:
        self.events: list[tuple[str, frozenset[int]]] = []
        self.consumer = consumer(broker, **settings)
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda _, found: self._event("assigned", found),
            on_revoke=lambda _, found: self._event("revoked", found),
            on_lost=lambda _, found: self._event("lost", found),
        )

    def _event(self, what: str, found: Sequence[TopicPartition]) -> None:
        self.events.append((what, frozenset(one.partition for one in found)))

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def shared(members: Sequence[Member], count: int) -> Callable[[], bool]:
    """Return whether ``count`` partitions are evenly distributed over the members, none of them twice."""

    def check() -> bool:
        owned = [one.partitions for one in members]
        sizes = [len(one) for one in owned]
        everything = set().union(*owned)
        return (
            everything == set(range(count)) and sum(sizes) == count and max(sizes) - min(sizes) <= 1
        )

    return check


STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_three_members_join_and_leave(
    kafka_broker: Broker, admin: AdminClient, strategy: str
) -> None:
    create(admin, "t", 6)
    to = producer(kafka_broker)
    settings = {"partition_assignment_strategy": strategy}
    with contextlib.ExitStack() as stack:
        members: list[Member] = []
        for _ in range(3):
            members.append(Member(kafka_broker, **settings))
            stack.callback(members[-1].close)
            poll_until(shared(members, 6), *(one.consumer for one in members))
        for partition in range(6):
            deliver(to, "t", [b"%d" % partition], partition=partition)
        found: list[bytes | None] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < 6:
            assert time.monotonic() < deadline, f"{len(found)} of 6 messages"
            for one in members:
                owned = one.partitions
                for message in one.consumer.consume(10, 0.02):
                    assert message.error() is None and message.partition() in owned
                    found.append(message.value())
        assert sorted(found) == [b"%d" % partition for partition in range(6)]
        while len(members) > 1:
            members.pop(0).close()
            poll_until(shared(members, 6), *(one.consumer for one in members))
        if strategy == "cooperative-sticky":
            # The one that stayed has never given up everything.
            kept = [event for event in members[0].events if event[0] == "assigned"]
            assert sum(len(partitions) for _, partitions in kept) == 6
            assert all(event[0] == "assigned" for event in members[0].events)


CRASHING = """
import sys
from confluent_kafka import Consumer
source = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "g", "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 50, "enable.auto.commit": False, "log_level": 0,
    "partition.assignment.strategy": sys.argv[2],
})
source.subscribe(["t"], on_assign=lambda _, found: print(len(found), flush=True))
while True:
    source.poll(1)
"""


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_that_crashes_is_replaced(
    kafka_broker: Broker, admin: AdminClient, strategy: str
) -> None:
    create(admin, "t", 6)
    deliver(producer(kafka_broker), "t", [b"x"])
    settings = {"partition_assignment_strategy": strategy}
    with contextlib.ExitStack() as stack:
        members = [Member(kafka_broker, **settings) for _ in range(2)]
        for one in members:
            stack.callback(one.close)
        poll_until(shared(members, 6), *(one.consumer for one in members))
        crashing = subprocess.Popen(
            [sys.executable, "-c", CRASHING, kafka_broker.bootstrap_servers, strategy],
            stdout=subprocess.PIPE,
        )
        stack.callback(crashing.wait)
        stack.callback(crashing.kill)
        polled = [one.consumer for one in members]
        poll_until(lambda: [len(one.partitions) for one in members] == [2, 2], *polled)
        crashing.kill()
        crashing.wait(PATIENCE)
        poll_until(shared(members, 6), *polled)


def test_static_members_come_back_to_what_was_theirs(
    kafka_broker: Broker, admin: AdminClient
) -> None:
    """One that is away for less than its session causes no rebalance."""
    create(admin, "t", 4)
    deliver(producer(kafka_broker), "t", [b"x"])
    with contextlib.ExitStack() as stack:
        first = Member(kafka_broker, group_instance_id="first")
        second = Member(kafka_broker, group_instance_id="second")
        stack.callback(first.close)
        poll_until(shared([first, second], 4), first.consumer, second.consumer)
        mine, theirs = first.partitions, second.partitions
        events = len(first.events)
        # It does not leave: static members never do.
        second.close()
        second = Member(kafka_broker, group_instance_id="second")
        stack.callback(second.close)
        poll_until(lambda: second.partitions == theirs, second.consumer, first.consumer)
        assert first.partitions == mine
        assert len(first.events) == events
        # A member with the same instance id replaces the other, which is fenced.
        third = Member(kafka_broker, group_instance_id="second")
        stack.callback(third.close)
        poll_until(lambda: third.partitions == theirs, third.consumer, first.consumer)

        def is_fenced() -> bool:
            message = second.consumer.poll(0.1)
            error = None if message is None else message.error()
            return error is not None and error.code() == KafkaError._FATAL

        until(is_fenced)
        assert first.partitions == mine


def test_new_partitions_are_given_to_members(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 2)
    settings = {"topic_metadata_refresh_interval_ms": 100}
    with contextlib.closing(Member(kafka_broker, **settings)) as member:
        poll_until(shared([member], 2), member.consumer)
        result(admin.create_partitions([NewPartitions("t", 5)]))
        poll_until(shared([member], 5), member.consumer)


def test_subscription_by_pattern(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "log-a")
    create(admin, "other")
    settings = {"topic_metadata_refresh_interval_ms": 100}
    with contextlib.closing(Member(kafka_broker, ["^log-.*"], **settings)) as member:
        source = member.consumer
        poll_until(lambda: {one.topic for one in source.assignment()} == {"log-a"}, source)
        create(admin, "log-b")
        poll_until(lambda: {one.topic for one in source.assignment()} == {"log-a", "log-b"}, source)


# --- admin


def test_topics_are_made_and_deleted(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 3, cleanup_policy="compact", retention_ms="1234")
    topic = admin.list_topics(timeout=PATIENCE).topics["t"]
    assert sorted(topic.partitions) == [0, 1, 2]
    node = kafka_broker.config.node_id
    assert {one.leader for one in topic.partitions.values()} == {node}
    assert {tuple(one.isrs) for one in topic.partitions.values()} == {(node,)}
    with pytest.raises(KafkaException) as caught:
        create(admin, "t")
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    result(admin.delete_topics(["t"]))
    assert "t" not in admin.list_topics(timeout=PATIENCE).topics
    with pytest.raises(KafkaException) as caught:
        result(admin.delete_topics(["t"]))
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    # A new topic with the same name is empty.
    create(admin, "t")
    assert deliver(producer(kafka_broker), "t", [b"x"])[0].offset() == 0


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("n" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("t", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 1, config={"nonsense": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("t", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("t", 1, 1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:9] if isinstance(value, NewTopic) else "",
)
def test_topics_that_cannot_be(
    kafka_broker: Broker, admin: AdminClient, topic: NewTopic, code: int
) -> None:
    with pytest.raises(KafkaException) as caught:
        result(admin.create_topics([topic]))
    assert caught.value.args[0].code() == code
    assert topic.topic not in admin.list_topics(timeout=PATIENCE).topics


def test_only_validated(kafka_broker: Broker, admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic("t", 1, 1)], validate_only=True))
    assert "t" not in admin.list_topics(timeout=PATIENCE).topics
    create(admin, "t", 2)
    result(admin.create_partitions([NewPartitions("t", 4)], validate_only=True))
    assert len(admin.list_topics(timeout=PATIENCE).topics["t"].partitions) == 2


def test_partitions_are_added(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 2)
    result(admin.create_partitions([NewPartitions("t", 4)]))
    assert len(admin.list_topics(timeout=PATIENCE).topics["t"].partitions) == 4
    assert deliver(producer(kafka_broker), "t", [b"x"], partition=3)[0].offset() == 0
    with pytest.raises(KafkaException) as caught:
        result(admin.create_partitions([NewPartitions("t", 3)]))
    assert caught.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_records_are_deleted(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    deliver(producer(kafka_broker), "t", [b"%d" % at for at in range(20)])
    at = TopicPartition("t", 0)
    deleted = result(admin.delete_records([TopicPartition("t", 0, 7)]))
    assert deleted.low_watermark == 7
    with contextlib.closing(consumer(kafka_broker, enable_partition_eof=True)) as source:
        assert source.get_watermark_offsets(at, PATIENCE) == (7, 20)
        assert read_to_end(source, "t") == [b"%d" % number for number in range(7, 20)]
        assert (
            result(admin.delete_records([TopicPartition("t", 0, OFFSET_END)])).low_watermark == 20
        )
        assert source.get_watermark_offsets(at, PATIENCE) == (20, 20)
        assert read_to_end(source, "t") == []
    with pytest.raises(KafkaException) as caught:
        result(admin.delete_records([TopicPartition("t", 0, 21)]))
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_configs_of_topics(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", retention_ms="5000")
    resource = ConfigResource(ResourceType.TOPIC, "t")
    found = result(admin.describe_configs([resource]))
    assert found["retention.ms"].value == "5000"
    assert not found["retention.ms"].is_default
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].is_default
    assert len(found) >= 25
    changes = [
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("max.message.bytes", "4000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    result(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, "t", incremental_configs=changes)]
        )
    )
    found = result(admin.describe_configs([resource]))
    assert found["retention.ms"].value == "604800000"
    assert found["max.message.bytes"].value == "4000"
    assert sorted(found["cleanup.policy"].value.split(",")) == ["compact", "delete"]
    result(
        admin.alter_configs(
            [ConfigResource(ResourceType.TOPIC, "t", set_config={"retention.ms": "777"})]
        )
    )
    found = result(admin.describe_configs([resource]))
    assert found["retention.ms"].value == "777"
    # Settings that are not listed return to their defaults.
    assert found["max.message.bytes"].is_default
    bad = ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)
    with pytest.raises(KafkaException) as caught:
        result(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[bad])]
            )
        )
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    with pytest.raises(KafkaException) as caught:
        result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "nobody")]))
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configs_of_the_broker(kafka_broker: Broker, admin: AdminClient) -> None:
    node = str(kafka_broker.config.node_id)
    found = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, node)]))
    assert found["auto.create.topics.enable"].value == "false"
    assert found["log.retention.hours"].value == "168"
    assert found["node.id"].is_read_only


def test_configs_of_groups(kafka_broker: Broker, admin: AdminClient) -> None:
    change = ConfigEntry(
        "consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[change])
    result(admin.incremental_alter_configs([group]))
    found = result(admin.describe_configs([ConfigResource(ResourceType.GROUP, "g")]))
    assert found["consumer.session.timeout.ms"].value == "50000"
    assert not found["consumer.session.timeout.ms"].is_default


def test_cluster_and_topics_are_described(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 2)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE)
    [node] = cluster.nodes
    assert (node.host, node.port) == (kafka_broker.host, kafka_broker.port)
    assert cluster.controller.id == node.id
    assert cluster.cluster_id == admin.list_topics(timeout=PATIENCE).cluster_id
    assert cluster.authorized_operations
    topics = admin.describe_topics(TopicCollection(["t"]), include_authorized_operations=True)
    found = result(topics)
    assert [one.id for one in found.partitions] == [0, 1]
    assert {one.leader.id for one in found.partitions} == {node.id}
    assert not found.is_internal
    assert found.authorized_operations
    assert str(found.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    with pytest.raises(KafkaException) as caught:
        result(admin.describe_topics(TopicCollection(["nobody"])))
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_offsets_are_listed(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    to = producer(kafka_broker)
    for timestamp in (3000, 9000, 5000):
        deliver(to, "t", [b"x"], timestamp=timestamp)
    at = TopicPartition("t", 0)
    for spec, offset in [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(4000), 1),
        (OffsetSpec.for_timestamp(9001), -1),
    ]:
        assert result(admin.list_offsets({at: spec})).offset == offset
    to = producer(kafka_broker, transactional_id="tx")
    to.init_transactions(PATIENCE)
    to.begin_transaction()
    to.produce("t", b"open")
    assert to.flush(PATIENCE) == 0
    for level, offset in [
        (IsolationLevel.READ_UNCOMMITTED, 4),
        (IsolationLevel.READ_COMMITTED, 3),
    ]:
        found = result(admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=level))
        assert found.offset == offset
    to.abort_transaction(PATIENCE)


@contextlib.contextmanager
def group_with_a_member(broker: Broker, name: str) -> Iterator[Consumer]:
    with contextlib.closing(consumer(broker, name, client_id="reader")) as source:
        source.subscribe(["t"])
        read(source, 5)
        source.commit(asynchronous=False)
        yield source


def test_groups_are_listed_described_and_deleted(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t")
    deliver(producer(kafka_broker), "t", [b"%d" % at for at in range(10)])
    with group_with_a_member(kafka_broker, "mine") as source:
        listed = admin.list_consumer_groups().result(PATIENCE)
        assert not listed.errors
        [group] = listed.valid
        assert (group.group_id, group.state, group.type, group.is_simple_consumer_group) == (
            "mine",
            ConsumerGroupState.STABLE,
            ConsumerGroupType.CLASSIC,
            False,
        )
        described = result(admin.describe_consumer_groups(["mine"]))
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        [member] = described.members
        assert member.client_id == "reader"
        assert member.member_id == source.memberid()
        assert "127.0.0.1" in member.host
        assert [(one.topic, one.partition) for one in member.assignment.topic_partitions] == [
            ("t", 0)
        ]
        assert described.coordinator.port == kafka_broker.port
        with pytest.raises(KafkaException) as caught:
            result(admin.delete_consumer_groups(["mine"]))
        assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        altered = result(
            admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions("mine", [TopicPartition("t", 0, 1)])]
            )
        )
        [partition] = altered.topic_partitions
        assert partition.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    described = result(admin.describe_consumer_groups(["mine"]))
    assert described.state == ConsumerGroupState.EMPTY
    states = {ConsumerGroupState.STABLE}
    assert not admin.list_consumer_groups(states=states).result(PATIENCE).valid
    result(admin.delete_consumer_groups(["mine"]))
    assert not admin.list_consumer_groups().result(PATIENCE).valid
    with pytest.raises(KafkaException) as caught:
        result(admin.delete_consumer_groups(["mine"]))
    assert caught.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_groups_are_listed_and_altered(kafka_broker: Broker, admin: AdminClient) -> None:
    create(admin, "t", 2)
    deliver(producer(kafka_broker), "t", [b"%d" % at for at in range(10)], partition=0)
    with group_with_a_member(kafka_broker, "mine"):
        pass

    def listed() -> dict[int, int]:
        found = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("mine")]))
        return {one.partition: one.offset for one in found.topic_partitions}

    assert listed()[0] == 5
    changed = [TopicPartition("t", 0, 2), TopicPartition("t", 1, 0)]
    altered = result(
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("mine", changed)])
    )
    assert all(one.error is None for one in altered.topic_partitions)
    assert listed() == {0: 2, 1: 0}
    with contextlib.closing(consumer(kafka_broker, "mine")) as source:
        source.subscribe(["t"])
        assert values(read(source, 1)) == [b"2"]


def test_metadata_of_a_deleted_topic_ends_its_consumers(
    kafka_broker: Broker, admin: AdminClient
) -> None:
    """A consumer of a deleted topic gets an error, and can continue with another topic."""
    create(admin, "t")
    create(admin, "stays")
    to = producer(kafka_broker)
    deliver(to, "t", [b"x"])
    settings = {"topic_metadata_refresh_interval_ms": 100}
    with contextlib.closing(consumer(kafka_broker, **settings)) as source:
        source.subscribe(["t", "stays"])
        read(source, 1)
        result(admin.delete_topics(["t"]))
        deliver(to, "stays", [b"still here"])

        def is_found() -> bool:
            message = source.poll(0.2)
            return message is not None and not message.error() and message.value() == b"still here"

        until(is_found)
