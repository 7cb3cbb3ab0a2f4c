"""The records of each micro-batch, while queries, topics and brokers fail or change."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")

from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from krammar.broker import Broker
from krammar.client import Client
from krammar.logfiles.uuids import format_uuid
from krammar.spark import limits, undocumented
from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import BrokerError, DataLossError, OptionError, SparkSourceError
from krammar.spark.kafka.stream import limited
from krammar.spark.kafka.stream.reader import PlainStreamReader
from krammar.spark.offsets import of_json
from tests.spark.stream_support import Checkpoint, Query, by_partition, given, produce, records


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(str(broker.bootstrap_servers), retry_backoff_ms=10) as client:
        yield client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of two partitions; it is gone afterwards."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    client.admin.create_topic(name, 2)
    yield name
    if name in client.topics():
        client.admin.delete_topic(name)


# Looks again sooner than by default.
QUICK: dict[str, Any] = {"kafka__retry__backoff__ms": 10}
EARLIEST: dict[str, Any] = {**QUICK, "startingOffsets": "earliest"}
TOLERANT: dict[str, Any] = {**EARLIEST, "failOnDataLoss": False}


# Once each, over restarts.


@pytest.mark.parametrize("plain", [False, True])
def test_restarts_at_every_batch(broker: Broker, topic: str, plain: bool) -> None:
    """Each batch fails once before it is committed, and is read again as it was by a new process."""
    limits: dict[str, Any] = {} if plain else {"maxOffsetsPerTrigger": 7}
    checkpoint = Checkpoint()
    found = []
    for number in range(5):
        produce(broker, topic, {0: 3, 1: number})
        with Query(broker, checkpoint, plain=plain, subscribe=topic, **EARLIEST, **limits) as query:
            first = query.batch(fail=True)
        produce(broker, topic, {0: 2})
        with Query(broker, checkpoint, plain=plain, subscribe=topic, **EARLIEST, **limits) as query:
            again = query.batch()
            assert again == first
            found += again or []
    with Query(broker, checkpoint, plain=plain, subscribe=topic, **EARLIEST, **limits) as query:
        found += query.rest()
    assert sorted(found) == records(topic, 0, range(25)) + records(topic, 1, range(10))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("starting", [{}, {"startingTimestamp": 2**50}])
def test_a_first_batch_that_fails_at_the_latest_offsets(
    broker: Broker, client: Client, topic: str, starting: dict[str, Any], plain: bool
) -> None:
    """The checkpoint does not contain the start of the query, so later batches must not depend on it."""
    options = {**QUICK, "subscribe": topic, "startingOffsetsByTimestampStrategy": "latest"}
    options |= starting
    produce(broker, topic, {0: 4, 1: 1})
    checkpoint = Checkpoint()
    with Query(broker, checkpoint, plain=plain, **options) as query:
        query.reader.initialOffset()
        produce(broker, topic, {0: 3})
        assert query.batch(fail=True) == []
    produce(broker, topic, {0: 2})
    client.admin.create_partitions(topic, 3)
    produce(broker, topic, {2: 1})
    with Query(broker, checkpoint, plain=plain, **options) as query:
        assert query.batch(fail=True) == []
    with Query(broker, checkpoint, plain=plain, **options) as query:
        assert query.batch() == []
        found = query.batch()
        assert found == records(topic, 0, range(4, 9)) + records(topic, 2, range(1))
        assert query.batch() is None


def test_the_checkpoint_is_as_the_connector_s(broker: Broker, client: Client, topic: str) -> None:
    produce(broker, topic, {0: 12})
    checkpoint = Checkpoint([{topic: {"0": 5, "1": 0}}], 1)
    with Query(broker, checkpoint, subscribe=topic) as query:
        assert query.rest() == records(topic, 0, range(5, 12))
        ends = checkpoint.ends[-1]
        assert ends[topic] == {"0": 12, "1": 0}
        # The topic's id is a name without partitions, which the connector skips.
        known = client.topics([topic])[topic].topic_id
        assert ends.keys() == {topic, f"{topic}:{format_uuid(known)}"}
        assert of_json(ends) == {(topic, 0): 12, (topic, 1): 0}
        assert query.reader.reportLatestOffset() == {topic: {"0": 12, "1": 0}}


def test_offsets_are_in_order(broker: Broker, client: Client) -> None:
    """Spark compares their texts."""
    client.admin.create_topic("many", 12)
    with Query(broker, subscribe="many") as query:
        assert list(query.reader.initialOffset()["many"]) == [str(number) for number in range(12)]


# Where it is read.


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch may be read where it is planned."""
    monkeypatch.setattr(limited.SmallBatches, "first_batches", 0)


@pytest.mark.usefixtures("at_once")
def test_small_batches_are_read_where_they_are_planned(broker: Broker, topic: str) -> None:
    produce(broker, topic, {0: 12, 1: 5})
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        start = query.reader.initialOffset()
        end = query.reader.latestOffset(start, query.limit)
        kind = type(query.reader)
        [task] = query.reader.partitions(start, end)
        assert len(task.tasks) == 2
        found = records(topic, 0, range(12)) + records(topic, 1, range(5))
        assert sorted(query.passed(start, end) or []) == found
        # Spark takes only rows from a reader of the other class.
        assert type(query.reader) is kind
        assert query.passed(start, end) is None
        assert query.reader.reportLatestOffset() == {topic: end[topic]}


@pytest.mark.usefixtures("at_once")
def test_tasks_read_all_batches_if_spark_takes_no_rows(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a version of PySpark for which ``RowPassingReader`` was not written."""
    monkeypatch.setattr(undocumented, "PASSES_ROWS", False)
    produce(broker, topic, {0: 12})
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        start = query.reader.initialOffset()
        end = query.reader.latestOffset(start, query.limit)
        assert query.reader.partitions(start, end)
        assert query.passed(start, end) is None
        assert query.batch() == records(topic, 0, range(12))
        assert query.reader.reportLatestOffset() == {topic: end[topic]}


def test_first_batches_are_read_by_tasks(broker: Broker, topic: str) -> None:
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        start = query.reader.initialOffset()
        found = []
        for _ in range(4):
            produce(broker, topic, {0: 1})
            end = query.reader.latestOffset(start, query.limit)
            query.reader.partitions(start, end)
            found.append(query.passed(start, end) is not None)
            start = end
        assert found == [False, False, True, True]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("divided", ["minPartitions", "maxRecordsPerPartition"])
def test_options_for_the_size_of_tasks_make_tasks(broker: Broker, topic: str, divided: str) -> None:
    produce(broker, topic, {0: 2})
    with Query(broker, subscribe=topic, **EARLIEST, **{divided: 1}) as query:
        start = query.reader.initialOffset()
        end = query.reader.latestOffset(start, query.limit)
        assert query.reader.partitions(start, end)
        assert query.passed(start, end) is None


@pytest.mark.usefixtures("at_once")
def test_few_large_records_make_tasks(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a batch was too large, only batches with fewer offsets are tried."""
    monkeypatch.setattr(limited.SmallBatches, "most_bytes", 1000)
    produce(broker, topic, {0: 10}, b"v" * 200)
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        start = query.reader.initialOffset()
        found = []
        for following in (10, 9, 0):
            end = query.reader.latestOffset(start, query.limit)
            assert query.reader.partitions(start, end)
            found.append(query.passed(start, end) is not None)
            produce(broker, topic, {0: following})
            start = end
        assert found == [False, False, True]


@pytest.mark.usefixtures("at_once")
def test_a_large_record_makes_tasks_for_a_while(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited.SmallBatches, "most_bytes", 1000)
    produce(broker, topic, {0: 1}, b"v" * 2000)
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        start = query.reader.initialOffset()
        found = []
        for _ in range(4):
            end = query.reader.latestOffset(start, query.limit)
            assert query.reader.partitions(start, end)
            found.append(query.passed(start, end) is not None)
            produce(broker, topic, {0: 1})
            start = end
        assert found == [False, False, False, True]


@pytest.mark.usefixtures("at_once")
def test_the_most_offsets_that_are_read_where_they_are_planned(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited.SmallBatches, "most_offsets", 10)
    produce(broker, topic, {0: 10})
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        start = query.reader.initialOffset()
        found = []
        for following in (11, 0):
            end = query.reader.latestOffset(start, query.limit)
            query.reader.partitions(start, end)
            found.append(query.passed(start, end) is not None)
            produce(broker, topic, {0: following})
            start = end
        assert found == [True, False]


# Where it begins.


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 10),
        ({"startingOffsets": "latest"}, 10),
        ({"startingOffsets": "earliest"}, 2),
        ({"startingOffsets": '{"began": {"0": 4}}'}, 4),
        ({"startingOffsets": '{"began": {"0": -1}}'}, 10),
        ({"startingOffsets": '{"began": {"0": -2}}'}, 2),
        ({"startingTimestamp": 1_700_000_000_006}, 6),
        ({"startingOffsetsByTimestamp": '{"began": {"0": 1700000000007}}'}, 7),
        ({"startingTimestamp": 2**50, "startingOffsetsByTimestampStrategy": "latest"}, 10),
        ({"startingOffsets": '{"began": {"0": 1}}', "failOnDataLoss": False}, 2),
        ({"startingOffsets": '{"began": {"0": 99}}', "failOnDataLoss": False}, 10),
    ],
)
def test_beginning(broker: Broker, client: Client, options: dict[str, Any], first: int) -> None:
    if "began" not in client.topics():
        client.admin.create_topic("began", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(10):
            producer.produce("began", b"v", partition=0, timestamp=1_700_000_000_000 + number)
        assert producer.flush(PATIENCE) == 0
        client.admin.delete_records({("began", 0): 2})
    with Query(broker, subscribe="began", **options) as query:
        assert of_json(query.reader.initialOffset()) == {("began", 0): first}
        assert query.batch() == records("began", 0, range(first, 10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "x", "assign": '{"x": [0]}'}, "cannot be combined with subscribe"),
        ({"subscribe": "seven,nothing"}, "topic 'nothing' does not exist"),
        ({"assign": '{"seven": [0, 4]}'}, "partition seven-4 does not exist"),
        ({"subscribe": "seven", "startingOffsets": '{"seven": {"1": 1}}'}, "lacks seven-0"),
        (
            {"assign": '{"seven": [0]}', "startingOffsets": '{"s": {"0": 1}}'},
            "'startingOffsets': names the unknown s-0",
        ),
        (
            {"subscribe": "seven", "startingOffsets": '{"seven": {"0": 8}}'},
            "seven-0: offset 8 was requested, but the partition has offsets 0 to 7; failOnDataLoss=false",
        ),
        ({"subscribe": "seven", "startingTimestamp": 2**50}, "has no record at or after"),
    ],
)
def test_a_wrong_beginning(
    broker: Broker, client: Client, options: dict[str, Any], message: str
) -> None:
    if "seven" not in client.topics():
        client.admin.create_topic("seven", 1)
        produce(broker, "seven", {0: 7})
    with pytest.raises(SparkSourceError) as failure, Query(broker, **QUICK, **options) as query:
        query.reader.initialOffset()
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "is missing: set it, or subscribePattern, or assign"),
        ({"subscribe": "x", "maxTriggerDelay": "1m"}, "without minOffsetsPerTrigger"),
        ({"subscribe": "x", "endingOffsets": "latest"}, "has no meaning in readStream"),
        ({"source": "logs", "path": "/"}, "logs are read in batches, not as a stream"),
        ({"source": "frames", "path": "/"}, "frames are read in batches, not as a stream"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    servers = {} if "source" in options else {"kafka.bootstrap.servers": "localhost:1"}
    source = KrammarDataSource({**servers, **options})
    with pytest.raises(OptionError) as failure:
        source.streamReader(source.schema()).initialOffset()
    assert message in str(failure.value)


def test_limits_before_spark_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HAS_LIMITS", False)
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "x"}
    plain = KrammarDataSource(options)
    assert isinstance(plain.streamReader(plain.schema()), PlainStreamReader)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        source = KrammarDataSource({**options, name: "5"})
        with pytest.raises(OptionError, match=f"'{name}': needs PySpark 4.2 or later"):
            source.streamReader(source.schema()).initialOffset()


# How much a batch has.


def test_in_proportion_to_what_there_is(broker: Broker, client: Client, topic: str) -> None:
    client.admin.create_partitions(topic, 4)
    produce(broker, topic, {0: 100, 1: 50, 3: 1})
    with Query(broker, subscribe=topic, maxOffsetsPerTrigger=30, **EARLIEST) as query:
        assert query.limit == ReadMaxRows(30)
        assert by_partition(query.batch() or []) == {0: 19, 1: 9, 3: 1}
        client.admin.create_partitions(topic, 5)
        produce(broker, topic, {4: 60})
        assert by_partition(query.batch() or []) == {0: 13, 1: 6, 4: 9}
        # Trigger.Once has all that there is.
        assert by_partition(query.batch(once=True) or []) == {0: 68, 1: 35, 4: 51}


def test_at_least_so_many(broker: Broker, topic: str) -> None:
    options = {"subscribe": topic, "minOffsetsPerTrigger": 10, **EARLIEST}
    produce(broker, topic, {0: 4})
    with Query(broker, **options, maxTriggerDelay="1h") as query:
        assert query.limit == ReadMinRows(10)
        assert len(query.batch() or []) == 4  # the first one does not wait
        produce(broker, topic, {0: 4, 1: 5})
        assert query.batch() is None
        assert query.reader.reportLatestOffset() == {topic: {"0": 8, "1": 5}}
        produce(broker, topic, {1: 1})
        assert len(query.batch() or []) == 10
    with Query(broker, query.checkpoint, **options, maxTriggerDelay="0ms") as query:
        assert query.batch() is None
        produce(broker, topic, {0: 1})
        assert len(query.batch() or []) == 1
    options["minOffsetsPerTrigger"] = 5
    with Query(broker, query.checkpoint, **options, maxOffsetsPerTrigger=5) as query:
        assert query.limit == ReadMaxRows(5)
        produce(broker, topic, {0: 4, 1: 4})
        assert by_partition(query.batch() or []) == {0: 2, 1: 2}
        assert query.batch() is None  # four are left
        produce(broker, topic, {0: 8})
        assert by_partition(query.batch() or []) == {0: 4, 1: 1}
        assert len(query.batch(once=True) or []) == 7


def test_available_now(broker: Broker, topic: str) -> None:
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 4, "minOffsetsPerTrigger": 3, **EARLIEST}
    produce(broker, topic, {0: 10})
    with Query(broker, available_now=True, **options) as query:
        produce(broker, topic, {0: 5, 1: 5})
        sizes = []
        while (batch := query.batch()) is not None:
            sizes.append(len(batch))
            produce(broker, topic, {1: 1})
        assert sizes == [4, 4, 2]
    with Query(broker, query.checkpoint, available_now=True, **options) as query:
        assert len(query.rest()) == 13
    with Query(broker, query.checkpoint, available_now=True, **options) as query:
        assert query.batch() is None
    # A new query that begins at the end of the logs begins where this one would end.
    with Query(broker, available_now=True, subscribe=topic) as query:
        produce(broker, topic, {0: 1})
        assert query.rest() == []
        checkpoint = query.checkpoint
    with Query(broker, checkpoint, available_now=True, subscribe=topic) as query:
        assert query.rest() == [(topic, 0, 15)]


def test_the_largest_limits(broker: Broker, topic: str) -> None:
    """Longs, as in Spark's connector."""
    produce(broker, topic, {0: 5})
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxRecordsPerPartition"):
        with Query(broker, subscribe=topic, **EARLIEST, **{name: 2**63 - 1}) as query:
            assert len(query.batch() or []) == 5
    with Query(
        broker, subscribe=topic, kafkaConsumer__pollTimeoutMs=2**63 - 1, **EARLIEST
    ) as query:
        assert len(query.batch() or []) == 5


def test_more_tasks(broker: Broker, topic: str) -> None:
    produce(broker, topic, {0: 20, 1: 5})
    choices: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [20, 5]),
        ({"minPartitions": 5}, [5, 5, 5, 5, 5]),
        ({"maxRecordsPerPartition": 10}, [10, 10, 5]),
        ({"maxOffsetsPerTrigger": 5, "minPartitions": 5}, [1, 1, 1, 1, 1]),
    ]
    for options, counts in choices:
        with Query(broker, subscribe=topic, **EARLIEST, **options) as query:
            start = query.reader.initialOffset()
            tasks = query.reader.partitions(start, query.reader.latestOffset(start, query.limit))
            assert [task.count for partition in tasks for task in partition.tasks] == counts


# Transactions.


def test_transactions(broker: Broker, topic: str) -> None:
    common = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**common, "transactional.id": topic})
    producer.init_transactions(30)
    levels = ("read_uncommitted", "read_committed")
    queries = [
        Query(broker, subscribe=topic, kafka__isolation__level=level, **EARLIEST)
        for level in levels
    ]
    found: list[list[list[int]]] = [[], []]

    def step() -> None:
        for query, seen in zip(queries, found, strict=True):
            batch = query.batch()
            if batch is not None:
                seen.append([offset for _, _, offset in batch])

    for commit in (True, False):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"v", partition=0)
        producer.flush(PATIENCE)
        step()
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        step()
    for query in queries:
        query.reader.stop()
    # A marker has an offset too, but is no record. A new query begins with a batch in any case.
    assert found == [[[0, 1, 2], [], [4, 5, 6], []], [[], [0, 1, 2], []]]


# Partitions that come and go.


def test_new_partitions_and_topics(broker: Broker, client: Client) -> None:
    client.admin.create_topic("grow-a", 1)
    produce(broker, "grow-a", {0: 3})
    with Query(broker, subscribePattern="grow-.*", **QUICK) as query:
        assert query.batch() == []
        client.admin.create_partitions("grow-a", 2)
        client.admin.create_topic("grow-b", 1)
        client.admin.create_topic("other", 1)
        for topic, partition in (("grow-a", 1), ("grow-b", 0), ("other", 0)):
            produce(broker, topic, {partition: 2})
        produce(broker, "grow-a", {0: 1})
        expected = [
            ("grow-a", 0, 3),
            *records("grow-a", 1, range(2)),
            *records("grow-b", 0, range(2)),
        ]
        assert query.batch(fail=True) == expected
    with Query(broker, query.checkpoint, subscribePattern="grow-.*", **QUICK) as query:
        assert query.batch() == expected
        assert query.batch() is None


def test_a_pattern_that_matches_nothing_yet(broker: Broker, client: Client) -> None:
    with Query(broker, subscribePattern="later-.*") as query:
        assert query.batch() == []
        assert query.batch() is None
        client.admin.create_topic("later-x", 1)
        produce(broker, "later-x", {0: 2})
        assert query.batch() == records("later-x", 0, range(2))


def test_assigned_partitions(broker: Broker, topic: str) -> None:
    produce(broker, topic, {0: 2, 1: 3})
    with Query(broker, assign=json.dumps({topic: [1]}), **EARLIEST) as query:
        assert query.rest() == records(topic, 1, range(3))
        assert [of_json(end) for end in query.checkpoint.ends] == [{(topic, 1): 3}]


def test_another_choice_after_a_restart(broker: Broker, client: Client, topic: str) -> None:
    other = f"{topic}-other"
    client.admin.create_topic(other, 1)
    for name in (topic, other):
        produce(broker, name, {0: 2})
    with Query(broker, subscribe=f"{topic},{other}", **EARLIEST) as query:
        assert len(query.batch(fail=True) or []) == 4
    produce(broker, other, {0: 1})
    produce(broker, topic, {0: 1})
    # The batch that failed is read as it was planned.
    with Query(broker, query.checkpoint, subscribe=other, **EARLIEST) as query:
        assert len(query.batch() or []) == 4
        text = rf"subscribe {other} no longer selects them: {topic}-0 \(read up to offset 2\), {topic}-1"
        with pytest.raises(DataLossError, match=text):
            query.batch()
    with Query(broker, query.checkpoint, subscribe=other, **TOLERANT) as query:
        assert query.rest() == [(other, 0, 2)]
    with (
        Query(broker, query.checkpoint, subscribe=f"{other},nothing", **EARLIEST) as query,
        pytest.raises(SparkSourceError, match="topic 'nothing' does not exist"),
    ):
        query.batch()
    # A topic that is selected again counts as new.
    with Query(broker, query.checkpoint, subscribePattern=f"{topic}.*", **EARLIEST) as query:
        assert query.rest() == records(topic, 0, range(3))


def test_a_topic_that_vanishes_and_comes_back(broker: Broker, client: Client, topic: str) -> None:
    client.admin.create_topic("stays", 1)
    both = f"{topic},stays"
    for tolerant in (False, True):
        if topic not in client.topics():
            client.admin.create_topic(topic, 2)
        produce(broker, topic, {0: 2})
        with Query(broker, subscribe=both, **(TOLERANT if tolerant else EARLIEST)) as query:
            query.rest()
            client.admin.delete_topic(topic)
            produce(broker, "stays", {0: 1})
            if not tolerant:
                with pytest.raises(DataLossError, match=rf"{topic}-0 \(read up to offset 2\)"):
                    query.batch()
                continue
            assert [name for name, _, _ in query.batch() or []] == ["stays"]
            assert query.batch() is None
            client.admin.create_topic(topic, 1)
            produce(broker, topic, {0: 1})
            assert query.batch() == [(topic, 0, 0)]


# Topics that were deleted and created again.


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("count", [0, 3, 5, 9])
def test_a_recreated_topic(
    broker: Broker, client: Client, topic: str, count: int, restart: bool
) -> None:
    """The new topic has fewer, the same number of, or more records than were read from the old one."""
    produce(broker, topic, {0: 5})
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        assert len(query.rest()) == 5
        saved = Checkpoint(list(query.checkpoint.ends), query.checkpoint.committed)
        if restart:
            query.reader.stop()
            query = Query(broker, saved, subscribe=topic, **EARLIEST)
        client.admin.delete_topic(topic)
        client.admin.create_topic(topic, 2)
        produce(broker, topic, {0: count})
        with pytest.raises(
            DataLossError, match=f"{topic}-0: read up to offset 5, but .* created again"
        ):
            query.batch()
        query.reader.stop()
    # The error remains until the user accepts the loss.
    with (
        Query(broker, query.checkpoint, subscribe=topic, **EARLIEST) as query,
        pytest.raises(DataLossError, match="created again; failOnDataLoss=false"),
    ):
        query.batch()
    with Query(broker, query.checkpoint, subscribe=topic, **TOLERANT) as query:
        assert query.rest() == records(topic, 0, range(count))
        produce(broker, topic, {0: 1})
        assert query.rest() == [(topic, 0, count)]


def test_a_recreated_topic_with_a_limit(broker: Broker, client: Client, topic: str) -> None:
    produce(broker, topic, {0: 5, 1: 1})
    with Query(broker, subscribe=topic, maxOffsetsPerTrigger=4, **TOLERANT) as query:
        query.rest()
        client.admin.delete_topic(topic)
        client.admin.create_topic(topic, 2)
        produce(broker, topic, {0: 20, 1: 2})
        assert sorted(query.rest()) == records(topic, 0, range(20)) + records(topic, 1, range(2))


@pytest.mark.parametrize("again", [False, True])
def test_deleted_between_planning_and_reading(
    broker: Broker, client: Client, topic: str, again: bool
) -> None:
    """The end of the batch is beyond the end of the new topic that the driver knows. An offset alone does not show that."""
    produce(broker, topic, {0: 5})
    for options in (EARLIEST, TOLERANT):
        with Query(broker, subscribe=topic, **options) as query:
            start = query.reader.initialOffset()
            end = query.reader.latestOffset(start, ReadAllAvailable())
            [task] = query.reader.partitions(start, end)
            client.admin.delete_topic(topic)
            if again:
                client.admin.create_topic(topic, 2)
                produce(broker, topic, {0: 9})
            if options is EARLIEST:
                with pytest.raises(
                    DataLossError, match=f"{topic}-0.*deleted.*before they were read"
                ):
                    list(query.reader.read(task))
                with pytest.raises(
                    DataLossError, match=f"{topic}-0: deleted before offsets up to 4"
                ):
                    query.reader.partitions(start, end)
                client.admin.delete_topic(topic) if again else None
                client.admin.create_topic(topic, 2)
                produce(broker, topic, {0: 5})
                continue
            assert list(query.reader.read(task)) == []
            assert query.reader.partitions(start, end) == []
            query.checkpoint.ends.append(end)
            query.checkpoint.committed += 1
            assert query.rest() == records(topic, 0, range(9 if again else 0))


def test_a_batch_read_of_a_recreated_topic(broker: Broker, client: Client, topic: str) -> None:
    produce(broker, topic, {0: 5})
    source = KrammarDataSource(given(broker, {**QUICK, "subscribe": topic}))
    reader = source.reader(source.schema())
    [task] = reader.partitions()
    client.admin.delete_topic(topic)
    client.admin.create_topic(topic, 2)
    produce(broker, topic, {0: 5})
    with pytest.raises(
        DataLossError, match=f"{topic}-0, offsets 0 to 4: the topic was deleted and"
    ):
        list(reader.read(task))


# Offsets that are gone.


def test_retention(broker: Broker, client: Client, topic: str) -> None:
    produce(broker, topic, {0: 5})
    with Query(broker, subscribe=topic, **EARLIEST) as query:
        query.rest()
    produce(broker, topic, {0: 5})
    client.admin.delete_records({(topic, 0): 8})
    with (
        Query(broker, query.checkpoint, subscribe=topic, **EARLIEST) as query,
        pytest.raises(
            DataLossError,
            match=f"{topic}-0: offsets 5 to 7 were deleted before they were read; failOnDataLoss",
        ),
    ):
        query.batch()
    with Query(broker, query.checkpoint, subscribe=topic, **TOLERANT) as query:
        assert query.rest() == records(topic, 0, range(8, 10))


def test_a_new_partition_that_has_lost_records(broker: Broker, client: Client, topic: str) -> None:
    with Query(broker, assign=json.dumps({topic: [0]}), **EARLIEST) as query:
        query.rest()
    produce(broker, topic, {1: 5})
    client.admin.delete_records({(topic, 1): 2})
    with (
        Query(broker, query.checkpoint, subscribe=topic, **EARLIEST) as query,
        pytest.raises(
            DataLossError, match=f"{topic}-1: new, but its offsets before 2 are already deleted"
        ),
    ):
        query.batch()
    with Query(broker, query.checkpoint, subscribe=topic, **TOLERANT) as query:
        assert query.rest() == records(topic, 1, range(2, 5))


def test_a_log_that_was_cut(tmp_path: Path) -> None:
    """The rest of the log was read before, and is not read again."""
    ends = []
    with Broker.start(data_dir=tmp_path) as broker:
        port = broker.port
        for _ in range(5):
            produce(broker, "cut", {0: 1})
            ends.append((tmp_path / "cut-0" / f"{0:020}.log").stat().st_size)
        strict = Query(broker, subscribe="cut", **EARLIEST)
        tolerant = Query(broker, subscribe="cut", **TOLERANT)
        for query in (strict, tolerant):
            assert len(query.rest()) == 5
    with (tmp_path / "cut-0" / f"{0:020}.log").open("r+b") as log:
        log.truncate(ends[2])
    with Broker.start(data_dir=tmp_path, port=port) as broker, strict, tolerant:
        with pytest.raises(
            DataLossError, match="cut-0: read up to offset 5, but the log ends at off"
        ):
            strict.batch()
        assert tolerant.rest() == []
        produce(broker, "cut", {0: 2})
        assert tolerant.rest() == records("cut", 0, range(3, 5))


# Brokers that go away.


def test_one_client_over_restarts_of_the_broker(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        port = broker.port
        produce(broker, "calm", {0: 2})
        query = Query(broker, subscribe="calm", **EARLIEST)
        assert query.rest() == records("calm", 0, range(2))
        kept = query.reader.client
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(query.rest)
        with Broker.start(data_dir=tmp_path, port=port) as broker:
            assert waiting.result(PATIENCE) == []
            produce(broker, "calm", {0: 2})
            assert query.rest() == records("calm", 0, range(2, 4))
        assert query.reader.client is kept
        query.reader.stop()
        assert not kept.cluster.connections


def test_a_broker_that_stays_away() -> None:
    with Broker.start() as broker:
        address = str(broker.bootstrap_servers)
        produce(broker, "away", {0: 2})
        query = Query(broker, subscribe="away", kafka__default__api__timeout__ms=400, **EARLIEST)
        query.rest()
    with query, pytest.raises(BrokerError, match=f"finding new records, brokers {address}: .*"):
        query.batch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        port = taken.getsockname()[1]
        options = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "subscribe": "x"}
        options["kafka.default.api.timeout.ms"] = "300"
        source = KrammarDataSource(options)
        reader = source.streamReader(source.schema())
        with pytest.raises(
            BrokerError, match=f"brokers 127.0.0.1:{port}: no server can be reached"
        ):
            reader.initialOffset()
