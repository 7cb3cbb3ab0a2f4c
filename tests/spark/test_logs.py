"""``source=logs`` against what consumers have read from the broker that wrote the folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from krammar.broker import Broker
from krammar.broker.log.environment import Environment
from krammar.broker.log.manager import LogManager
from krammar.spark.logs.plan import find_partitions, only_replica
from tests.spark.logs_support import CODECS, FIRST_MS, STEP_MS, Folder, Row, consume
from tests.spark.support import fails, load, rows, task_sizes


def without_headers(expected: list[Row]) -> list[Row]:
    return [row._replace(headers=None) for row in expected]


def test_columns_are_those_of_the_kafka_connector(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path, includeHeaders=True)
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    assert frame.schema == StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            StructField("headers", ArrayType(header)),
        ]
    )
    assert load(spark, folder.path).columns == frame.columns[:-1]


def test_every_codec(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path, subscribePattern="codec-.*", includeHeaders=True)
    expected = [row for codec in sorted(CODECS) for row in folder.rows[f"codec-{codec}"]]
    assert rows(frame) == expected
    assert len(expected) == 300 * len(CODECS)


def test_empty_and_large_values_without_headers(spark: SparkSession, folder: Folder) -> None:
    assert rows(load(spark, folder.path, subscribe="sizes")) == without_headers(
        folder.rows["sizes"]
    )


def test_a_partition_folder_alone_and_several_paths(spark: SparkSession, folder: Folder) -> None:
    expected = [row for row in without_headers(folder.rows["codec-none"]) if row.partition != 1]
    paths = [folder.path / "codec-none-0", folder.path / "codec-none-2"]
    assert rows(load(spark, paths)) == expected


def test_assign(spark: SparkSession, folder: Folder) -> None:
    assign = json.dumps({"codec-lz4": [2], "codec-zstd": [0]})
    expected = [row for row in folder.rows["codec-lz4"] if row.partition == 2]
    expected += [row for row in folder.rows["codec-zstd"] if row.partition == 0]
    assert rows(load(spark, folder.path, assign=assign)) == without_headers(expected)


def test_offsets_of_each_partition(spark: SparkSession, folder: Folder) -> None:
    topic = "codec-gzip"
    starting = {topic: {"0": 10, "1": -2, "2": 99}}
    ending = {topic: {"0": 20, "1": 5, "2": -1}}
    frame = load(
        spark,
        folder.path,
        subscribe=topic,
        startingOffsets=json.dumps(starting),
        endingOffsets=json.dumps(ending),
    )
    bounds = {0: (10, 20), 1: (0, 5), 2: (99, 100)}
    expected = [
        row
        for row in folder.rows[topic]
        if bounds[row.partition][0] <= row.offset < bounds[row.partition][1]
    ]
    assert rows(frame) == without_headers(expected)


def test_timestamps(spark: SparkSession, folder: Folder) -> None:
    low, high = FIRST_MS + 100 * STEP_MS - 1, FIRST_MS + 130 * STEP_MS
    frame = load(
        spark, folder.path, subscribe="segments", startingTimestamp=low, endingTimestamp=high
    )
    expected = [row for row in folder.rows["segments"] if low <= row.timestamp_ms < high]
    assert len(expected) == 30
    assert rows(frame) == expected


def test_timestamps_of_each_partition_go_before_offsets(
    spark: SparkSession, folder: Folder
) -> None:
    at = FIRST_MS + 400 * STEP_MS
    frame = load(
        spark,
        folder.path,
        subscribe="segments",
        startingOffsetsByTimestamp=json.dumps({"segments": {"0": at}}),
        startingOffsets="earliest",
    )
    assert rows(frame) == [row for row in folder.rows["segments"] if row.timestamp_ms >= at]


def test_a_time_behind_the_last_record(spark: SparkSession, folder: Folder) -> None:
    late = FIRST_MS + 10_000 * STEP_MS
    options = {"subscribe": "segments", "startingTimestamp": late}
    with fails(f"segments-0 has no record at or after {late} ms"):
        load(spark, folder.path, **options).collect()
    frame = load(spark, folder.path, startingOffsetsByTimestampStrategy="latest", **options)
    assert rows(frame) == []


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_transactions(spark: SparkSession, folder: Folder, level: str) -> None:
    expected = (folder.committed if level == "read_committed" else folder.rows)["ledger"]
    frame = load(spark, folder.path, subscribe="ledger", kafka__isolation__level=level)
    assert rows(frame) == expected
    assert any(b"abort" in (row.value or b"") for row in expected) == (level == "read_uncommitted")


@pytest.mark.parametrize("lost", ["*.txnindex", "*.snapshot", "*.index"])
def test_transactions_without_indexes(
    spark: SparkSession, folder: Folder, tmp_path: Path, lost: str
) -> None:
    copy = tmp_path / "ledger-0"
    shutil.copytree(folder.path / "ledger-0", copy)
    for file in copy.glob(lost):
        file.unlink()
    if lost == "*.txnindex":
        for file in copy.glob("*.snapshot"):
            file.unlink()
    frame = load(spark, copy, kafka__isolation__level="read_committed")
    assert rows(frame) == folder.committed["ledger"]


DAMAGED_INDEXES = {
    "five zeros behind": lambda data: data + bytes(5),
    "cut off": lambda data: data[:-5],
    "entries in the wrong order": lambda data: data[34:] + data[:34],
    "of an unknown version": lambda data: b"\0\1" + data[2:],
}


@pytest.mark.parametrize("damage", DAMAGED_INDEXES)
def test_a_damaged_transaction_index_is_judged_as_the_broker_judges_it(
    spark: SparkSession, folder: Folder, tmp_path: Path, damage: str
) -> None:
    copy = Path(shutil.copytree(folder.path, tmp_path / "copy"))
    [index] = (copy / "ledger-0").glob("*.txnindex")
    assert len(index.read_bytes()) == 2 * 34
    index.write_bytes(DAMAGED_INDEXES[damage](index.read_bytes()))
    expected = folder.committed["ledger"]
    for fail in (True, False):
        frame = load(
            spark,
            copy,
            subscribe="ledger",
            kafka__isolation__level="read_committed",
            failOnDataLoss=fail,
        )
        assert rows(frame) == expected
    with Broker.start(data_dir=copy) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        found = consume(AdminClient(servers), servers, ["ledger"], "read_committed")
    assert found["ledger"] == expected


def test_folders_are_partitions_to_the_broker_as_well(tmp_path: Path) -> None:
    names = [
        *("orders-0", "orders-10", "a.b_c-1-2", "x" * 249 + "-0", "orders-2147483647"),
        "orders--1",  # of the topic "orders-"
        *("orders-007", "orders-00", "orders", "orders-", "or ders-0", "-0", "0"),
        *("x" * 250 + "-0", "orders-0.tmp", "orders-1-delete", "orders-1." + "a" * 32 + "-stray"),
    ]
    for name in names:
        segment = tmp_path / name / f"{0:020}.log"
        segment.parent.mkdir()
        segment.touch()
    manager = LogManager([tmp_path], Environment())
    manager.close()
    found = find_partitions([str(tmp_path)])
    paths = {key: Path(only_replica(replicas).path) for key, replicas in found.items()}
    assert paths == manager.folders[0].partitions
    assert sorted(path.name for path in paths.values()) == sorted(names[:6])


def test_a_segment_is_a_task_or_several(spark: SparkSession, folder: Folder) -> None:
    segments = len(list((folder.path / "segments-0").glob("*.log")))
    assert segments > 5
    frame = load(spark, folder.path, subscribe="segments")
    assert len(task_sizes(frame)) == segments
    assert rows(frame) == folder.rows["segments"]

    more = load(spark, folder.path, subscribe="segments", minPartitions=20)
    assert len(task_sizes(more)) >= 20
    assert rows(more) == folder.rows["segments"]

    short = load(spark, folder.path, subscribe="segments", maxRecordsPerPartition=60)
    assert max(task_sizes(short)) == 60
    assert rows(short) == folder.rows["segments"]
