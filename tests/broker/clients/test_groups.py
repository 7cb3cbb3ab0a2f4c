"""Consumers of librdkafka in a group while members and the broker come and go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from krammar.broker import Broker

# Far more than any operation here needs.
LIMIT = 60.0
PARTITIONS = 6
_NEW_GENERATION = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)


def settings(broker: Broker, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        **changes,
    }


def make_topic(broker: Broker) -> None:
    admin = AdminClient(settings(broker))
    futures = admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    futures["t"].result(LIMIT)


def produce(broker: Broker, numbers: range) -> None:
    producer = Producer(settings(broker, **{"linger.ms": 0}))
    for number in numbers:
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(LIMIT) == 0


class Reader:
    """A member that commits every record as soon as it has it."""

    def __init__(self, broker: Broker, strategy: str, **changes: Any) -> None:
        self.consumer = Consumer(
            settings(
                broker,
                **{
                    "group.id": "g",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "partition.assignment.strategy": strategy,
                    "session.timeout.ms": 30_000,
                    "heartbeat.interval.ms": 20,
                    **changes,
                },
            )
        )
        self.consumer.subscribe(["t"])

    def read(self) -> int | None:
        message = self.consumer.poll(0.01)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            # The broker is away for a moment.
            assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
            return None
        self.commit(message)
        return int(message.value() or b"")

    def commit(self, message: Message) -> None:
        """Commit, again if a new generation begins just then: the partition is still ours, as only
        polling gives it up."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                (stored,) = self.consumer.commit(message, asynchronous=False) or []
            except KafkaException as error:
                if error.args[0].code() not in _NEW_GENERATION or time.monotonic() > deadline:
                    raise
            else:
                assert stored.error is None
                return

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}


def read_until(condition: Callable[[], bool], readers: list[Reader], seen: Counter[int]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        for reader in readers:
            number = reader.read()
            if number is not None:
                seen[number] += 1


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_every_record_is_read_once_while_members_come_and_go(
    broker: Broker, stack: ExitStack, strategy: str
) -> None:
    make_topic(broker)
    readers: list[Reader] = []
    seen: Counter[int] = Counter()
    total = 0

    def shared() -> bool:
        parts = [reader.partitions for reader in readers]
        return sum(map(len, parts)) == PARTITIONS and all(parts)

    # One more, one more, one more; one less, one less.
    for change in (1, 1, 1, -1, -1):
        produce(broker, range(total, total + 60))
        total += 60
        if change > 0:
            readers.append(Reader(broker, strategy))
            stack.callback(readers[-1].consumer.close)
        else:
            readers.pop(0).consumer.close()
        read_until(lambda total=total: shared() and seen.total() >= total, readers, seen)
    assert seen == Counter(range(total))


@pytest.mark.parametrize("static", [False, True])
def test_a_group_goes_on_when_the_broker_has_restarted(
    tmp_path: Path, stack: ExitStack, static: bool
) -> None:
    """Members and offsets are in the log: no member joins again, and no record is delivered twice."""
    with Broker.start(data_dir=tmp_path) as broker:
        port = broker.port
        make_topic(broker)
        produce(broker, range(60))
        names = [{"group.instance.id": f"i{n}"} if static else {} for n in range(2)]
        readers = [Reader(broker, "range", **name) for name in names]
        for reader in readers:
            stack.callback(reader.consumer.close)
        seen: Counter[int] = Counter()
        read_until(
            lambda: len(seen) == 60 and [len(r.partitions) for r in readers] == [3, 3],
            readers,
            seen,
        )
        generation = broker.call(lambda: broker.groups.find("g").generation)
    before = [reader.partitions for reader in readers]
    with Broker.start(data_dir=tmp_path, port=port) as broker:
        produce(broker, range(60, 120))
        read_until(lambda: len(seen) == 120, readers, seen)
        assert seen == Counter(range(120))
        assert [reader.partitions for reader in readers] == before
        assert broker.call(lambda: broker.groups.find("g").generation) == generation
        stack.close()


def test_committed_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        make_topic(broker)
        produce(broker, range(60))
        reader = Reader(broker, "range")
        seen: Counter[int] = Counter()
        read_until(lambda: len(seen) >= 30, [reader], seen)
        reader.consumer.close()
    with Broker.start(data_dir=tmp_path) as broker:
        reader = Reader(broker, "range")
        everywhere = [TopicPartition("t", n) for n in range(PARTITIONS)]
        committed = reader.consumer.committed(everywhere, LIMIT)
        assert sum(max(one.offset, 0) for one in committed) == seen.total()
        read_until(lambda: len(seen) == 60, [reader], seen)
        reader.consumer.close()
    assert seen == Counter(range(60))
