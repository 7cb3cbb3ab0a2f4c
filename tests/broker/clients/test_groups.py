"""Consumers of librdkafka in groups of both protocols while members and the broker come and go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import ConsumerGroupHeartbeatRequest

from krammar.broker import Broker
from krammar.broker.groups.classic_group import ClassicGroup
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE, until

PARTITIONS = 6
_NEW_GENERATION = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
)
CLASSIC = {
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 30_000,
    "heartbeat.interval.ms": 20,
}
COOPERATIVE = CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER = {"group.protocol": "consumer"}
RANGE = CONSUMER | {"group.remote.assignor": "range"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    # So that members hear of a new assignment at once.
    with Broker.start(properties={"group.consumer.heartbeat.interval.ms": "20"}) as broker:
        yield broker


def settings(broker: Broker, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        **changes,
    }


def generation_of(broker: Broker) -> int:
    """Return the generation of the classic group ``g``, or the epoch of the consumer group."""
    group: Any = broker.call(broker.groups.find, "g")
    return group.generation if isinstance(group, ClassicGroup) else group.group_epoch


def make_topic(broker: Broker, name: str = "t") -> None:
    admin = AdminClient(settings(broker))
    futures = admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    futures[name].result(PATIENCE)


def produce(broker: Broker, numbers: range) -> None:
    producer = Producer(settings(broker, **{"linger.ms": 0}))
    for number in numbers:
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE) == 0


class Reader:
    """A member that commits each record immediately after it gets it."""

    def __init__(
        self, broker: Broker, protocol: dict[str, Any], topics: str = "t", **changes: Any
    ) -> None:
        self.consumer = Consumer(
            settings(
                broker,
                **{
                    "group.id": "g",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    **protocol,
                    **changes,
                },
            )
        )
        self.consumer.subscribe([topics])

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
        deadline = time.monotonic() + PATIENCE
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

    @property
    def places(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}


def read_until(condition: Callable[[], bool], readers: list[Reader], seen: Counter[int]) -> None:
    """Let readers poll in turn until a condition holds. ``seen`` counts the numbers that they read."""

    def poll() -> None:
        for reader in readers:
            number = reader.read()
            if number is not None:
                seen[number] += 1

    until(condition, after=poll, state=lambda: [reader.places for reader in readers])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def is_shared(readers: list[Reader]) -> bool:
    """Return whether each partition has one reader, and each reader has a partition."""
    parts = [reader.partitions for reader in readers]
    return sum(map(len, parts)) == PARTITIONS == len(set().union(*parts)) and all(parts)


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(CLASSIC, id="range", marks=pytest.mark.sweep),
        pytest.param(COOPERATIVE, id="cooperative-sticky"),
        pytest.param(CONSUMER, id="consumer uniform"),
        pytest.param(RANGE, id="consumer range", marks=pytest.mark.sweep),
    ],
)
def test_every_record_is_read_once_while_members_come_and_go(
    broker: Broker, stack: ExitStack, protocol: dict[str, Any]
) -> None:
    make_topic(broker)
    readers: list[Reader] = []
    seen: Counter[int] = Counter()
    total = 0

    # One more, one more, one more; one less, one less.
    for change in (1, 1, 1, -1, -1):
        produce(broker, range(total, total + 60))
        total += 60
        if change > 0:
            readers.append(Reader(broker, protocol))
            stack.callback(readers[-1].consumer.close)
        else:
            readers.pop(0).consumer.close()
        read_until(lambda total=total: is_shared(readers) and seen.total() >= total, readers, seen)
    assert seen == Counter(range(total))


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
@pytest.mark.parametrize("static", [False, True])
def test_a_group_goes_on_when_the_broker_has_restarted(
    tmp_path: Path, stack: ExitStack, static: bool, protocol: dict[str, Any]
) -> None:
    """Members and offsets are in the log: no member joins again, and no record is delivered twice."""
    with Broker.start(data_dir=tmp_path) as broker:
        port = broker.port
        make_topic(broker)
        produce(broker, range(60))
        names = [{"group.instance.id": f"i{n}"} if static else {} for n in range(2)]
        readers = [Reader(broker, protocol, **name) for name in names]
        for reader in readers:
            stack.callback(reader.consumer.close)
        seen: Counter[int] = Counter()
        read_until(
            lambda: len(seen) == 60 and [len(r.partitions) for r in readers] == [3, 3],
            readers,
            seen,
        )
        generation = generation_of(broker)
    before = [reader.partitions for reader in readers]
    with Broker.start(data_dir=tmp_path, port=port) as broker:
        produce(broker, range(60, 120))
        read_until(lambda: len(seen) == 120, readers, seen)
        assert seen == Counter(range(120))
        assert [reader.partitions for reader in readers] == before
        assert generation_of(broker) == generation
        stack.close()


def test_committed_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        make_topic(broker)
        produce(broker, range(60))
        reader = Reader(broker, CLASSIC)
        seen: Counter[int] = Counter()
        read_until(lambda: len(seen) >= 30, [reader], seen)
        reader.consumer.close()
    with Broker.start(data_dir=tmp_path) as broker:
        reader = Reader(broker, CLASSIC)
        everywhere = [TopicPartition("t", n) for n in range(PARTITIONS)]
        committed = reader.consumer.committed(everywhere, PATIENCE)
        assert sum(max(one.offset, 0) for one in committed) == seen.total()
        read_until(lambda: len(seen) == 60, [reader], seen)
        reader.consumer.close()
    assert seen == Counter(range(60))


def test_a_pattern_finds_new_topics(broker: Broker, stack: ExitStack) -> None:
    pytest.importorskip("re2")
    for name in ("t", "other"):
        make_topic(broker, name)
    readers = [Reader(broker, CONSUMER, "^t.*") for _ in range(2)]
    for reader in readers:
        stack.callback(reader.consumer.close)
    seen: Counter[int] = Counter()

    def read(*names: str) -> bool:
        both = readers[0].places, readers[1].places
        return not both[0] & both[1] and both[0] | both[1] == {
            (name, number) for name in names for number in range(PARTITIONS)
        }

    read_until(lambda: read("t"), readers, seen)
    make_topic(broker, "t2")
    read_until(lambda: read("t", "t2"), readers, seen)


def test_a_pattern_that_cannot_be_compiled_is_reported(broker: Broker, stack: ExitStack) -> None:
    pytest.importorskip("re2")
    reader = Reader(broker, CONSUMER, "^a**")
    stack.callback(reader.consumer.close)
    error = until(lambda: reader.consumer.poll(0.1)).error()
    assert error is not None
    assert "INVALID_REGULAR_EXPRESSION" in str(error) or "regular expression" in error.str()


def test_a_static_member_returns_to_its_partitions(broker: Broker, stack: ExitStack) -> None:
    make_topic(broker)
    readers = [Reader(broker, CONSUMER, **{"group.instance.id": f"i{n}"}) for n in range(2)]
    seen: Counter[int] = Counter()
    read_until(lambda: is_shared(readers), readers, seen)
    before = [reader.partitions for reader in readers]
    epoch = generation_of(broker)
    readers[0].consumer.close()
    readers[0] = Reader(broker, CONSUMER, **{"group.instance.id": "i0"})
    read_until(lambda: is_shared(readers), readers, seen)
    assert [reader.partitions for reader in readers] == before
    assert generation_of(broker) == epoch
    for reader in readers:
        reader.consumer.close()


def test_a_member_that_is_gone_loses_its_partitions(broker: Broker, stack: ExitStack) -> None:
    make_topic(broker)
    readers = [Reader(broker, CONSUMER) for _ in range(2)]
    for reader in readers:
        stack.callback(reader.consumer.close)
    seen: Counter[int] = Counter()
    read_until(lambda: is_shared(readers), readers, seen)
    # A member that joined once and says nothing more.
    silent = "00000000-0000-0000-0000-000000000001"
    with RawClient(broker.port) as client:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=silent,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        response = client.call(request)
        assert response.error_code == 0
        read_until(lambda: sum(len(r.partitions) for r in readers) == 4, readers, seen)
    broker.call(broker.timers.advance, 44_000)
    heartbeats = time.monotonic() + 0.1
    read_until(lambda: time.monotonic() > heartbeats, readers, seen)
    assert broker.call(lambda: silent in broker.groups.find("g").members)
    broker.call(broker.timers.advance, 2_000)
    read_until(lambda: is_shared(readers), readers, seen)
    assert broker.call(lambda: silent not in broker.groups.find("g").members)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(CLASSIC, id="range", marks=pytest.mark.sweep),
        pytest.param(COOPERATIVE, id="cooperative-sticky"),
    ],
)
def test_a_group_moves_to_the_other_protocol_and_back(
    broker: Broker, stack: ExitStack, first: dict[str, Any]
) -> None:
    make_topic(broker)
    readers: list[Reader] = []
    seen: Counter[int] = Counter()
    total = 0

    def replaced(protocol: dict[str, Any] | None, kind: str) -> None:
        """Replace the oldest reader, or start the first ones; then read all new records once."""
        nonlocal total
        produce(broker, range(total, total + 60))
        total += 60
        if protocol is not None:
            readers.append(Reader(broker, protocol))
            stack.callback(readers[-1].consumer.close)
        if protocol is None or len(readers) > 2:
            readers.pop(0).consumer.close()
        read_until(lambda: is_shared(readers) and len(seen) == total, readers, seen)
        assert broker.call(lambda: broker.groups.find("g").kind) == kind

    for protocol, kind in (
        (first, "classic"),
        (first, "classic"),
        (CONSUMER, "consumer"),
        (CONSUMER, "consumer"),
        (first, "consumer"),
        (first, "classic"),
    ):
        replaced(protocol, kind)
    assert set(seen) == set(range(total))
    committed = readers[0].consumer.committed(
        [TopicPartition("t", n) for n in range(PARTITIONS)], PATIENCE
    )
    assert sum(one.offset for one in committed) == total


def test_a_consumer_group_is_described(broker: Broker, stack: ExitStack) -> None:
    make_topic(broker)
    reader = Reader(broker, CONSUMER, **{"group.instance.id": "i", "client.id": "c"})
    stack.callback(reader.consumer.close)
    read_until(lambda: is_shared([reader]), [reader], Counter())
    admin = AdminClient(settings(broker))
    (listed,) = (
        admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(PATIENCE).valid
    )
    assert (listed.group_id, listed.state) == ("g", ConsumerGroupState.STABLE)
    assert not admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(PATIENCE).valid
    group = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE)
    assert (group.type, group.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert group.partition_assignor == "uniform"
    (member,) = group.members
    assert (member.client_id, member.group_instance_id) == ("c", "i")
    assert {one.partition for one in member.assignment.topic_partitions} == set(range(PARTITIONS))
