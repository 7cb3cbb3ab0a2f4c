"""Brokers that report less than a stream has read: its checkpoint stays as it was, so that a restart loses nothing.

Spark stores the end of a micro-batch before the batch is planned. What could be a loss is decided before that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from kafka_wire import ErrorCode, ListOffsetsResponse, MetadataResponse

from krammar.broker import Broker
from krammar.client import Client
from krammar.spark.errors import BrokerError, DataLossError, SparkSourceError
from krammar.spark.offsets import of_json
from tests.spark.stream_support import Checkpoint, Query, produce, records

# Brokers are asked again sooner than by default.
COMMON: dict[str, Any] = {"kafka__retry__backoff__ms": 10, "startingOffsets": "earliest"}
LOSSES = {"strict": True, "tolerant": False}


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of two partitions; it is gone afterwards."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    client.admin.create_topic(name, 2)
    yield name
    client.admin.delete_topic(name)


# Answers that lack what was read.


def unknown_topic(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []


def no_topics(response: MetadataResponse) -> None:
    """Say that the broker has no topics at all."""
    response.topics = []


def fewer_partitions(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.partitions = [p for p in topic.partitions if p.partition_index == 0]


def lower_ends(response: ListOffsetsResponse) -> None:
    """Halve all ends."""
    for topic in response.topics:
        for partition in topic.partitions:
            partition.offset //= 2  # beginnings are 0


MISSING: list[Callable[[Any], None]] = [unknown_topic, no_topics, fewer_partitions]
LESS = [*MISSING, lower_ends]


@contextmanager
def answers(
    broker: Broker, less: Callable[[Any], None], times: int | None = None
) -> Iterator[None]:
    """Let the broker give such answers, for ever or a number of times."""
    rule = broker.faults.on("ListOffsets" if less is lower_ends else "Metadata")
    if times is not None:
        rule = rule.times(times)
    rule.call(lambda response, _: less(response), of="response")
    try:
        yield
        assert rule.fired
    finally:
        broker.faults.remove(rule)


def selection(kind: str, topic: str) -> dict[str, Any]:
    if kind == "assign":
        return {kind: json.dumps({topic: [0, 1]})}
    return {kind: f"^{topic}$" if kind == "subscribePattern" else topic}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("less", LESS)
@pytest.mark.parametrize("kind", ["subscribe", "subscribePattern", "assign"])
def test_a_moment(
    broker: Broker, topic: str, kind: str, less: Callable[[Any], None], plain: bool
) -> None:
    """What passes is waited for, also in the first batch after a restart."""
    produce(broker, topic, {0: 4, 1: 6})
    options = {**COMMON, **selection(kind, topic)}
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, plain=plain, **options) as query:
        assert len(query.rest()) == 10
        produce(broker, topic, {0: 1, 1: 2})
        with answers(broker, less, times=2):
            found = query.rest()
        assert found + query.rest() == [(topic, 0, 4), (topic, 1, 6), (topic, 1, 7)]
    if plain:
        return  # PySpark 4.1 does not pass the start of the first batch after a restart
    produce(broker, topic, {1: 1})
    with answers(broker, less, times=2), Query(broker, checkpoint, **options) as query:
        found = query.rest()
        assert found + query.rest() == [(topic, 1, 8)]


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("less", LESS)
@pytest.mark.parametrize("kind", ["subscribe", "subscribePattern", "assign"])
def test_a_whole_run(
    broker: Broker,
    topic: str,
    kind: str,
    less: Callable[[Any], None],
    loss: str,
    available_now: bool,
) -> None:
    """A run that finds less than was read stores nothing of that, and the next one has the new records only."""
    produce(broker, topic, {0: 4, 1: 6})
    options = {**COMMON, **selection(kind, topic), "failOnDataLoss": LOSSES[loss]}
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, available_now=available_now, **options) as query:
        assert len(query.rest()) == 10
    stored = list(checkpoint.ends)
    with (
        answers(broker, less),
        Query(broker, checkpoint, available_now=available_now, **options) as query,
    ):
        if less in MISSING and LOSSES[loss]:
            gone = rf"{topic}-1 \(read up to offset 6\).*; failOnDataLoss=false"
            with pytest.raises(DataLossError, match=gone):
                query.batch()
        else:
            assert query.batch() is None
    assert checkpoint.ends == stored
    produce(broker, topic, {0: 1, 1: 2})
    with Query(broker, checkpoint, available_now=available_now, **options) as query:
        assert query.rest() == [(topic, 0, 4), (topic, 1, 6), (topic, 1, 7)]


def test_absent_partitions_do_not_delay_others(broker: Broker, topic: str, client: Client) -> None:
    """They are asked for repeatedly once. A run with availableNow still ends where the logs ended when it began."""
    options = {**COMMON, "subscribePattern": f"^{topic}", "failOnDataLoss": False}
    gone = f"{topic}-gone"
    client.admin.create_topic(gone, 1)
    for name in (topic, gone):
        produce(broker, name, {0: 6})
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, **options) as query:
        assert len(query.rest()) == 12
    client.admin.delete_topic(gone)
    produce(broker, topic, {0: 6})
    with Query(broker, checkpoint, available_now=True, maxOffsetsPerTrigger=2, **options) as query:
        requests = []
        asked = broker.faults.on("Metadata").call(lambda *_: None)
        while (batch := query.batch()) is not None:
            assert len(batch) == 2
            requests.append(asked.matched)
            produce(broker, topic, {0: 1})
        broker.faults.remove(asked)
    assert len(requests) == 3
    assert requests[2] - requests[1] <= 2 < requests[0]
    assert of_json(checkpoint.ends[-1]) == {(topic, 0): 12, (topic, 1): 0, (gone, 0): 6}


@pytest.mark.parametrize("count", [None, 3])
def test_another_cluster(broker: Broker, topic: str, count: int | None) -> None:
    """It has no such topic, or a shorter one. A start with the right brokers continues."""
    produce(broker, topic, {0: 5})
    options = {**COMMON, "subscribe": topic}
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, **options) as query:
        assert len(query.rest()) == 5
    stored = list(checkpoint.ends)
    with Broker.start(properties={"auto.create.topics.enable": "false"}) as wrong:
        if count is not None:
            with Client(wrong.bootstrap_servers) as other:
                other.admin.create_topic(topic, 2)
            produce(wrong, topic, {0: count})
        for _ in range(2):
            with Query(wrong, checkpoint, **options) as query, pytest.raises(DataLossError):
                query.batch()
    assert checkpoint.ends == stored
    produce(broker, topic, {0: 2})
    with Query(broker, checkpoint, **options) as query:
        assert query.rest() == records(topic, 0, range(5, 7))


def test_another_selection_by_mistake(broker: Broker, topic: str) -> None:
    produce(broker, topic, {0: 5, 1: 5})
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, subscribe=topic, **COMMON) as query:
        assert len(query.rest()) == 10
    stored = list(checkpoint.ends)
    with (
        Query(broker, checkpoint, assign=json.dumps({topic: [0]}), **COMMON) as query,
        pytest.raises(DataLossError, match="no longer selects them"),
    ):
        query.batch()
    assert checkpoint.ends == stored
    produce(broker, topic, {1: 1})
    with Query(broker, checkpoint, subscribe=topic, **COMMON) as query:
        assert query.rest() == [(topic, 1, 5)]


# Logs that have what was read, and report a lower end.


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("same_run", [False, True])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_read_committed_later(
    broker: Broker, topic: str, outcome: str, same_run: bool, loss: str
) -> None:
    """What was read without isolation is after the last stable offset. The query waits until that has passed it."""
    options = {**COMMON, "subscribe": topic, "failOnDataLoss": LOSSES[loss]}
    committed = {**options, "kafka__isolation__level": "read_committed"}
    common = {"bootstrap.servers": broker.bootstrap_servers}
    transactional = Producer({**common, "transactional.id": topic})
    transactional.init_transactions(PATIENCE)
    produce(broker, topic, {0: 3})
    transactional.begin_transaction()
    transactional.produce(topic, b"v", partition=0)
    assert transactional.flush(PATIENCE) == 0
    produce(broker, topic, {0: 2})
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, **options) as query:
        assert len(query.rest()) == 6
    stored = list(checkpoint.ends)
    query = Query(broker, checkpoint, **committed)
    assert query.batch() is None
    produce(broker, topic, {0: 1})
    assert query.batch() is None
    if not same_run:
        query.reader.stop()
        query = Query(broker, checkpoint, **committed)
    assert checkpoint.ends == stored
    getattr(transactional, f"{outcome}_transaction")(PATIENCE)
    assert query.rest() == [(topic, 0, 6)]
    query.reader.stop()


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_new_leader_whose_followers_lag(broker: Broker, topic: str, level: str) -> None:
    """Its high watermark is lower than the one of the old leader, but its log is not. A planned batch has all records."""
    produce(broker, topic, {0: 4})
    options = {**COMMON, "subscribe": topic, "kafka__isolation__level": level}
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, **options) as query:
        assert len(query.rest()) == 4
        produce(broker, topic, {0: 4})
        assert query.batch(fail=True) == records(topic, 0, range(4, 8))
    with answers(broker, lower_ends), Query(broker, checkpoint, **options) as query:
        assert query.batch() == records(topic, 0, range(4, 8))
        assert query.batch() is None
    produce(broker, topic, {0: 1})
    with Query(broker, checkpoint, **options) as query:
        assert query.rest() == [(topic, 0, 8)]


# Offsets that brokers refuse although they have them.


@pytest.mark.parametrize("loss", LOSSES)
def test_a_refused_offset(broker: Broker, topic: str, loss: str) -> None:
    """Fetch refuses an offset that the log has: as a new leader does for a moment."""
    produce(broker, topic, {0: 4})
    options = {**COMMON, "subscribe": topic, "failOnDataLoss": LOSSES[loss]}
    rule = broker.faults.on("Fetch", topic=topic).times(2).answer(ErrorCode.OFFSET_OUT_OF_RANGE)
    with Query(broker, **options) as query:
        assert query.rest() == records(topic, 0, range(4))
    assert rule.fired == 2
    broker.faults.remove(rule)


@pytest.mark.parametrize("unknown_ends", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_offset_that_stays_refused(
    broker: Broker, topic: str, loss: str, unknown_ends: bool
) -> None:
    """The log has the offset, or cannot be asked for its ends: nothing is lost, and the next run reads it."""
    produce(broker, topic, {0: 4})
    options = {
        **COMMON,
        "subscribe": topic,
        "failOnDataLoss": LOSSES[loss],
        "minPartitions": 1,  # tasks read
        "kafka__default__api__timeout__ms": 500,
    }
    checkpoint = Checkpoint()
    query = Query(broker, checkpoint, **options)
    end = query.reader.latestOffset(query.reader.initialOffset(), query.limit)
    checkpoint.ends.append(end)
    [task] = query.reader.partitions(query.reader.initialOffset(), end)
    faults = broker.faults
    rules = [faults.on("Fetch", topic=topic).answer(ErrorCode.OFFSET_OUT_OF_RANGE)]
    if unknown_ends:
        rules.append(faults.on("ListOffsets").answer(ErrorCode.LEADER_NOT_AVAILABLE))
    with query, pytest.raises(BrokerError, match=f"{topic}-0: offset 0"):
        list(query.reader.read(task))
    for rule in rules:
        faults.remove(rule)
    with Query(broker, checkpoint, **options) as query:
        assert query.rest() == records(topic, 0, range(4))


# Checkpoints of other sources.


@pytest.mark.parametrize(
    "offset",
    [
        0,
        "text",
        None,
        [1],
        {"logOffset": 3},
        {"topic": [1]},
        {"topic": {"zero": 1}},
        {"topic": {"0": "1"}},
        {"topic": {"0": None}},
        {"topic": {"0": True}},
    ],
)
def test_another_source(broker: Broker, topic: str, offset: Any) -> None:
    with Query(broker, subscribe=topic, **COMMON) as query:
        calls: list[Callable[[], object]] = [
            lambda: query.reader.latestOffset(offset, query.limit),
            lambda: query.reader.partitions(offset, {topic: {"0": 0}}),
            lambda: query.reader.partitions({topic: {"0": 0}}, offset),
        ]
        for call in calls:
            with pytest.raises(SparkSourceError) as failure:
                call()
            assert f"the checkpoint has the offset {json.dumps(offset)}" in str(failure.value)
            assert '{"topic": {"partition": number}}' in str(failure.value)
