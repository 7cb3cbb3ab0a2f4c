"""``source=kafka``: what librdkafka has written to a live broker, read by Spark."""

from __future__ import annotations

import json
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest

from krammar.spark.kafka.tasks import TaskReader
from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan

from krammar.broker import Broker
from krammar.client import Client, Reader
from krammar.spark import PUSHDOWN_SETTING
from krammar.spark.brokers import ClientPool
from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import BrokerError, DataLossError, OptionError, SparkSourceError
from krammar.spark.kafka.plan import Task
from krammar.spark.kafka.source import KafkaReader, schema
from krammar.spark.options import Options
from krammar.spark.ranges import combine, split
from tests.spark.logs_support import CODECS, FIRST_MS, STEP_MS, Folder, Row
from tests.spark.support import fails, moment, rows
from tests.spark.test_pushdown import at

HALF = FIRST_MS + 300 * STEP_MS


def load(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    """Read a broker's topics; ``__`` in the name of an option is a dot."""
    reader = spark.read.format("krammar").option("kafka.bootstrap.servers", servers(broker))
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def servers(broker: Broker) -> str:
    """Return the bootstrap address of a broker."""
    return str(broker.bootstrap_servers)


def planned(broker: Broker | str, *filters: Filter, **options: object) -> KafkaReader:
    """A reader without Spark, as tasks get it."""
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    given["kafka.bootstrap.servers"] = broker if isinstance(broker, str) else servers(broker)
    parsed = Options(given)
    reader = KafkaReader(parsed, schema(parsed))
    list(reader.pushFilters(list(filters)))
    copy: KafkaReader = pickle.loads(pickle.dumps(reader))
    return copy


def tasks(reader: KafkaReader) -> list[Task]:
    return [task for partition in reader.partitions() for task in partition.tasks]


def read(reader: KafkaReader) -> list[tuple[int, int]]:
    """Partition and offset of all rows, in the order of the tasks."""
    return [
        (partition, offset)
        for task in reader.partitions()
        for batch in reader.read(pickle.loads(pickle.dumps(task)))
        for partition, offset in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]


def without_headers(found: list[Row]) -> list[Row]:
    return [row._replace(headers=None) for row in found]


# Reads.


def test_every_codec_null_and_header(spark: SparkSession, live: Broker, folder: Folder) -> None:
    frame = load(spark, live, subscribePattern="codec-.*", includeHeaders=True)
    expected = sorted(
        (row for codec in CODECS for row in folder.rows[f"codec-{codec}"]),
        key=lambda row: (row.topic, row.partition, row.offset),
    )
    assert len(expected) == 1500
    assert rows(frame) == expected


def test_large_and_empty_values(spark: SparkSession, live: Broker, folder: Folder) -> None:
    """The limit for an answer is far below the size of one batch."""
    frame = load(spark, live, subscribe="sizes", kafka__max__partition__fetch__bytes=1000)
    assert rows(frame) == without_headers(folder.rows["sizes"])
    assert [len(row.value or b"") for row in folder.rows["sizes"]] == [0, 900_000, 1, 900_000]


def test_columns_are_those_of_log_folders(live: Broker) -> None:
    for given in ({}, {"includeHeaders": "true"}, {"decode": "OffsetCommitValue"}):
        logs = KrammarDataSource({"source": "logs", "path": "/", **given}).schema()
        assert (
            KrammarDataSource({"kafka.bootstrap.servers": servers(live), **given}).schema() == logs
        )


def test_decode(spark: SparkSession, live: Broker, folder: Folder) -> None:
    frame = load(spark, live, subscribe="__consumer_offsets", decode="OffsetCommitValue")
    found = frame.selectExpr("key.group", "key.topic", "key.partition", "value.offset").collect()
    offsets = {(row[0], row[1], row[2]): row[3] for row in found}
    # Other tests commit offsets of other groups.
    groups = {group for group, _, _ in folder.offsets}
    assert {key: each for key, each in offsets.items() if key[0] in groups} == folder.offsets
    corrupt = load(spark, live, subscribe="sizes", decode="TopicRecord", mode="FAILFAST")
    with fails("sizes-0, offset 0"):
        corrupt.collect()


def test_transactions(spark: SparkSession, live: Broker) -> None:
    common = {"bootstrap.servers": servers(live)}
    plain = Producer(common)
    open_one = Producer({**common, "transactional.id": "open"})
    producer = Producer({**common, "transactional.id": "done"})
    for each in (open_one, producer):
        each.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for part in range(3):
            producer.produce("deals", b"%d-%d" % (number, part), partition=0)
        producer.flush(PATIENCE)
        plain.produce("deals", b"plain-%d" % number, partition=0)
        plain.flush(PATIENCE)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
    open_one.begin_transaction()
    open_one.produce("deals", b"open", partition=0)
    open_one.flush(PATIENCE)
    plain.produce("deals", b"behind", partition=0)
    plain.flush(PATIENCE)

    def values(**options: object) -> list[bytes]:
        return [row.value or b"" for row in rows(load(spark, live, subscribe="deals", **options))]

    def entries(number: int) -> list[bytes]:
        return [*(b"%d-%d" % (number, part) for part in range(3)), b"plain-%d" % number]

    every = [value for number in range(4) for value in entries(number)] + [b"open", b"behind"]
    committed = [*entries(0), b"plain-1", *entries(2), b"plain-3"]
    try:
        assert values() == every
        assert values(kafka__isolation__level="read_committed") == committed
        # Tasks that begin and end in the midst of transactions.
        assert (
            values(kafka__isolation__level="read_committed", maxRecordsPerPartition=2) == committed
        )
    finally:
        open_one.abort_transaction(30)


# Which partitions and offsets.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"subscribe": "codec-none,sizes"},
            ["codec-none-0", "codec-none-1", "codec-none-2", "sizes-0"],
        ),
        ({"subscribePattern": "codec-.z$"}, []),
        ({"subscribePattern": " ize|^seg.*s$|__consumer_offsets"}, ["segments-0", "sizes-0"]),
        (
            {"assign": '{"codec-none": [2, 0], "sizes": [0]}'},
            ["codec-none-0", "codec-none-2", "sizes-0"],
        ),
    ],
)
def test_partitions(live: Broker, options: dict[str, str], expected: list[str]) -> None:
    assert [task.name for task in tasks(planned(live, **options))] == expected


@pytest.mark.parametrize(
    ("options", "begin", "end"),
    [
        ({}, 0, 600),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 0, 600),
        ({"startingOffsets": '{"segments": {"0": 13}}'}, 13, 600),
        ({"startingOffsets": '{"segments": {"0": -2}}'}, 0, 600),
        ({"endingOffsets": '{"segments": {"0": 17}}'}, 0, 17),
        ({"endingOffsets": '{"segments": {"0": -1}}'}, 0, 600),
        ({"startingTimestamp": HALF}, 300, 600),
        ({"startingTimestamp": HALF - 1, "startingOffsets": "earliest"}, 300, 600),
        ({"endingTimestamp": HALF + 1}, 0, 301),
        ({"startingOffsetsByTimestamp": f'{{"segments": {{"0": {HALF}}}}}'}, 300, 600),
        ({"endingOffsetsByTimestamp": f'{{"segments": {{"0": {HALF}}}}}'}, 0, 300),
        ({"endingTimestamp": 2 * HALF}, 0, 600),
    ],
)
def test_offsets(live: Broker, options: dict[str, object], begin: int, end: int) -> None:
    reader = planned(live, subscribe="segments", **options)
    assert tasks(reader) == [Task("segments", 0, begin, end)]
    assert read(reader) == [(0, offset) for offset in range(begin, end)]


def test_a_time_after_the_last_record(live: Broker) -> None:
    options = {"subscribe": "segments", "startingTimestamp": 2 * HALF}
    with pytest.raises(SparkSourceError, match="segments-0 has no record at or after"):
        planned(live, **options).partitions()
    assert not tasks(planned(live, **options, startingOffsetsByTimestampStrategy="latest"))


@pytest.mark.parametrize(("least", "most"), [(7, None), (None, 100), (7, 100), (1000, None)])
def test_more_tasks(live: Broker, least: int | None, most: int | None) -> None:
    options = {"subscribe": "codec-zstd,sizes"}
    if least is not None:
        options["minPartitions"] = str(least)
    if most is not None:
        options["maxRecordsPerPartition"] = str(most)
    reader = planned(live, **options)
    found = tasks(reader)
    assert len(found) >= min(least or 0, 304)
    assert all(task.count <= (most or 304) for task in found)
    expected = [(partition, offset) for partition in range(3) for offset in range(100)]
    assert read(reader) == [*expected, *((0, offset) for offset in range(4))]


def test_splitting_large_ranges_more_often() -> None:
    small, large = Task("t", 0, 5, 15), Task("t", 1, 0, 90)
    assert [task.count for task in split([small, large], 10, None)] == [10] * 10
    assert list(split([small, large], 2, None)) == [small, large]
    assert [task.count for task in split([small, large], None, 60)] == [10, 45, 45]
    assert [task.count for task in split([Task("t", 0, 0, 3)], 9, None)] == [1, 1, 1]
    # As Spark's own connector does it.
    parts = split([*(Task("t", n, 0, 120) for n in range(3)), Task("t", 3, 0, 3500)], 11, None)
    assert [task.count for task in parts] == [120, 120, 120, *[437] * 4, *[438] * 4]


# Filters.


@pytest.mark.parametrize(
    ("filters", "offsets", "most"),
    [
        ([], range(600), 1.1),
        ([EqualTo(("topic",), "nothing")], range(0), 0.0),
        ([EqualTo(("partition",), 3)], range(0), 0.0),
        ([GreaterThan(("offset",), 10**9)], range(0), 0.0),
        ([GreaterThanOrEqual(("timestamp",), at(594))], range(594, 600), 0.05),
        ([GreaterThanOrEqual(("timestamp",), at(5940))], range(0), 0.0),
        ([GreaterThan(("offset",), 300), LessThan(("offset",), 311)], range(301, 311), 0.2),
        ([In(("offset",), (3, 7))], range(3, 8), 0.2),
    ],
)
def test_bytes_that_are_fetched(
    live: Broker,
    folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    filters: list[Filter],
    offsets: range,
    most: float,
) -> None:
    readers: list[Reader] = []
    fetch = Client.fetch

    def remember(self: Client, *args: Any, **more: Any) -> Reader:
        readers.append(fetch(self, *args, **more))
        return readers[-1]

    monkeypatch.setattr(Client, "fetch", remember)
    assert read(planned(live, *filters, subscribe="segments")) == [(0, o) for o in offsets]
    fetched = sum(reader.bytes_fetched for reader in readers)
    total = sum(path.stat().st_size for path in (folder.path / "segments-0").glob("*.log"))
    assert fetched <= most * total
    if not filters:
        assert fetched >= total


@pytest.mark.parametrize("setting", ["true", "false"])
def test_filters_choose_the_same_rows(spark: SparkSession, live: Broker, setting: str) -> None:
    spark.conf.set(PUSHDOWN_SETTING, setting)
    try:
        frame = load(spark, live, subscribe="segments,codec-gzip")
        for condition, number in (
            ("topic = 'codec-gzip' and partition in (1, 2)", 200),
            (f"timestamp >= {moment(FIRST_MS + 298 * STEP_MS)}", 2 + 302),
            ("topic = 'segments' and offset in (1, 598, 600)", 2),
        ):
            assert frame.where(condition).count() == number
    finally:
        spark.conf.unset(PUSHDOWN_SETTING)


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "is missing: set it, or subscribePattern, or assign"),
        ({"subscribe": "x", "assign": '{"x": [0]}'}, "cannot be combined with subscribe"),
        ({"subscribe": "sizes,nothing"}, "topic 'nothing' does not exist"),
        ({"assign": '{"sizes": [0, 4]}'}, "partition sizes-4 does not exist"),
        ({"subscribe": "sizes", "startingOffsets": "latest"}, "cannot begin at the latest"),
        ({"subscribe": "sizes", "endingOffsets": '{"sizes": {"1": 1}}'}, "lacks sizes-0"),
        (
            {
                "subscribe": "sizes",
                "startingOffsets": '{"sizes": {"0": 2}}',
                "endingOffsets": '{"sizes": {"0": 1}}',
            },
            "sizes-0 begins at offset 2, but ends at 1",
        ),
        (
            {
                "subscribe": "sizes",
                "startingOffsetsByTimestamp": '{"sizes": {"0": 2}}',
                "endingOffsetsByTimestamp": '{"sizes": {"0": 1}}',
            },
            "sizes-0 begins at 2 ms, but ends at 1 ms",
        ),
        ({"subscribe": "sizes", "kafka__fetch_max_byte": 1}, 'did you mean "fetch.max.bytes"?'),
        ({"subscribe": "sizes", "kafka__isolation__level": "all"}, "needs one of"),
        ({"subscribe": "sizes", "kafka__security__protocol": "SASL_SSL"}, "kafka.sasl.mechanism"),
    ],
)
def test_wrong_options(live: Broker, options: dict[str, object], message: str) -> None:
    with pytest.raises(SparkSourceError) as failure:
        planned(live, **options).partitions()
    assert message in str(failure.value)


def test_no_servers() -> None:
    source = KrammarDataSource({"subscribe": "x"})
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers': is required"):
        source.reader(source.schema())


def test_spark_shows_the_error(spark: SparkSession, live: Broker) -> None:
    with fails("topic 'nothing' does not exist"):
        load(spark, live, subscribe="nothing").collect()


def test_a_server_that_cannot_be_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = {"subscribe": "x", "kafka__default__api__timeout__ms": 300}
        with pytest.raises(BrokerError, match=f"brokers {address}: no server can be reached"):
            planned(address, **options).partitions()


def test_a_login_that_is_refused() -> None:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with Broker.start(properties=properties) as broker:
        reader = planned(
            broker,
            subscribe="x",
            kafka__security__protocol="SASL_PLAINTEXT",
            kafka__sasl__mechanism="SCRAM-SHA-256",
            kafka__sasl__username="alice",
            kafka__sasl__password="not this one",
        )
        with pytest.raises(BrokerError, match=servers(broker)) as failure:
            reader.partitions()
    assert "not this one" not in str(failure.value)


def test_offsets_that_are_gone(live: Broker) -> None:
    """Before the query is planned, and after that."""
    with Client(servers(live)) as client:
        client.admin.create_topic("gone", 1)
        producer = Producer({"bootstrap.servers": servers(live)})
        for number in range(10):
            producer.produce("gone", b"%d" % number, partition=0)
        assert producer.flush(PATIENCE) == 0
        begin: dict[str, object] = {"startingOffsets": json.dumps({"gone": {"0": 0}})}
        strict = planned(live, subscribe="gone", **begin)
        tolerant = planned(live, subscribe="gone", failOnDataLoss="false", **begin)
        [early] = strict.partitions()
        client.admin.delete_records({("gone", 0): 4})
    with pytest.raises(DataLossError, match="gone-0: offset 0"):
        list(strict.read(early))
    assert sum(batch.num_rows for batch in tolerant.read(early)) == 6
    offsets = json.dumps({"gone": {"0": 2}})
    with pytest.raises(
        DataLossError, match="offset 2 was requested, but the partition has offsets 4 to 10"
    ):
        planned(live, subscribe="gone", startingOffsets=offsets).partitions()
    [task] = tasks(planned(live, subscribe="gone", startingOffsets=offsets, failOnDataLoss="false"))
    assert (task.begin, task.end) == (4, 10)


def test_a_batch_that_is_broken(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        with Client(servers(broker)) as client:
            client.admin.create_topic("torn", 1)
        producer = Producer({"bootstrap.servers": servers(broker)})
        for number in range(3):
            producer.produce("torn", b"v%d" % number * 20, partition=0)
            producer.flush(PATIENCE)
        log = tmp_path / "torn-0" / f"{0:020}.log"
        with log.open("r+b") as file:
            file.seek(log.read_bytes().index(b"v1v1"))
            file.write(b"X")
        with pytest.raises(DataLossError, match="torn-0"):
            read(planned(broker, subscribe="torn"))
        tolerant = planned(broker, subscribe="torn", failOnDataLoss="false")
        assert read(tolerant) == [(0, 0), (0, 2)]


def test_small_partitions_of_one_leader_share_a_task() -> None:
    parts = [Task("t", number, 0, count) for number, count in enumerate((5, 30, 20, 4, 40, 7))]

    def leader(task: Task) -> int:
        return task.partition % 2

    groups = combine(parts, 25, leader)
    assert [[task.partition for task in group] for group in groups] == [[0, 2], [1], [3, 5], [4]]
    assert combine(parts, 1, leader) == [[task] for task in parts]
    assert combine([], 25, leader) == []


def test_shared_task_has_all_rows_of_its_partitions_in_one_batch(live: Broker) -> None:
    options = {"subscribe": "codec-zstd,codec-none,sizes", "includeHeaders": True}
    reader = planned(live, **options)
    [task] = planned(live, **options, minRecordsPerPartition=10_000).partitions()
    [batch] = reader.read(pickle.loads(pickle.dumps(task)))
    alone = [
        row
        for each in planned(live, **options, minRecordsPerPartition=1).partitions()
        for found in reader.read(each)
        for row in found.to_pylist()
    ]
    assert sorted(batch.to_pylist(), key=_place) == sorted(alone, key=_place)
    assert len({_place(row) for row in alone}) == 604


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def test_first_responses_and_batches_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = ClientPool()
    monkeypatch.setattr(TaskReader, "clients", idle)
    with Broker.start() as broker:
        producer = Producer({"bootstrap.servers": servers(broker), "batch.size": 16_384})
        for _ in range(40_000):
            producer.produce("long", b"v" * 100)
        assert producer.flush(PATIENCE) == 0
        reader = planned(broker, subscribe="long")
        [task] = reader.partitions()
        counts = [batch.num_rows for batch in reader.read(task)]
        assert sum(counts) == 40_000
        assert counts[0] < 2048 < max(counts)
        assert len(idle) == 1
        # Spark needs no more rows: a response in flight is not waited for.
        batches = reader.read(task)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert len(idle) == 0
