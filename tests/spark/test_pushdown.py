"""Filters: fewer bytes are read, and the rows are the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
)

from krammar.spark import PUSHDOWN_SETTING, register, undocumented
from krammar.spark.logs.source import LogReader, schema
from krammar.spark.options import Options
from tests.spark.logs_support import FIRST_MS, STEP_MS, Folder
from tests.spark.support import load, moment, rows


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN_SETTING, "true")
    yield spark
    spark.conf.unset(PUSHDOWN_SETTING)


def at(number: int) -> datetime:
    """Return the timestamp of a record."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=FIRST_MS + number * STEP_MS)


@pytest.mark.parametrize(
    ("filters", "most"),
    [
        ([], 1.1),
        ([EqualTo(("topic",), "nothing")], 0.0),
        ([EqualTo(("partition",), 3)], 0.0),
        ([GreaterThan(("offset",), 10**9)], 0.01),
        ([GreaterThanOrEqual(("timestamp",), at(594))], 0.1),
        ([GreaterThanOrEqual(("timestamp",), at(5940))], 0.01),
        ([GreaterThan(("offset",), 300), LessThan(("offset",), 311)], 0.1),
        ([In(("offset",), (3, 7))], 0.1),
    ],
)
def test_bytes_that_are_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, filters: list[Filter], most: float
) -> None:
    partition = folder.path / "segments-0"
    read = 0
    pread = os.pread

    def counting(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(fd, size, position)
        read += len(data)
        return data

    options = Options({"source": "logs", "path": str(partition)})
    reader = LogReader(options, schema(options))
    assert list(reader.pushFilters(filters)) == filters  # Spark applies all of them again
    monkeypatch.setattr(os, "pread", counting)
    for task in reader.partitions():
        for _ in reader.read(task):
            pass
    total = sum(path.stat().st_size for path in partition.glob("*.log"))
    assert read <= most * total
    if not filters:
        assert read >= total


def test_segments_that_are_not_wanted_are_not_touched(
    pushdown: SparkSession, folder: Folder, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder.path / "segments-0", tmp_path / "segments-0"))
    for log in sorted(copy.glob("*.log"))[:-1]:
        log.write_bytes(b"\xff" * log.stat().st_size)
    frame = load(pushdown, tmp_path).where(f"timestamp >= {moment(FIRST_MS + 598 * STEP_MS)}")
    assert rows(frame) == folder.rows["segments"][598:]
    frame = load(pushdown, tmp_path).where("offset >= 598 and topic = 'segments'")
    assert rows(frame) == folder.rows["segments"][598:]


@pytest.mark.parametrize(
    ("condition", "number"),
    [
        ("topic = 'codec-gzip' and partition = 1", 100),
        ("topic in ('codec-gzip', 'codec-none') and partition in (0, 2)", 400),
        ("topic like 'codec-z%'", 300),
        ("topic = 'segments' and offset between 7 and 9", 3),
        ("topic = 'segments' and offset in (599, 600)", 1),
        (f"topic = 'segments' and timestamp > {moment(FIRST_MS + STEP_MS)}", 598),
        (f"topic = 'segments' and timestamp <= {moment(FIRST_MS + STEP_MS)}", 2),
        (f"topic = 'segments' and timestamp = {moment(FIRST_MS + STEP_MS)}", 1),
        (f"topic = 'segments' and not timestamp > {moment(FIRST_MS)}", 1),
        ("topic = 'segments' and (offset = 1 or offset = 5 or value is null)", 2),
    ],
)
def test_filters_choose_the_same_rows(
    pushdown: SparkSession, folder: Folder, condition: str, number: int
) -> None:
    assert load(pushdown, folder.path).where(condition).count() == number


def test_without_it_filters_choose_the_same_rows(spark: SparkSession, folder: Folder) -> None:
    frame = load(spark, folder.path).where("topic = 'segments' and offset between 7 and 9")
    assert rows(frame) == folder.rows["segments"][7:10]


def test_register_turns_it_on(spark: SparkSession, folder: Folder) -> None:
    register(spark)
    assert spark.conf.get(PUSHDOWN_SETTING) == "false"
    register(spark, pushdown=True)
    try:
        assert spark.conf.get(PUSHDOWN_SETTING) == "true"
        assert load(spark, folder.path, subscribe="sizes").count() == 4
    finally:
        spark.conf.unset(PUSHDOWN_SETTING)


def test_all_records_are_read_if_spark_might_reject_the_reader(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a version of PySpark for which ``PushFilters`` was not written."""
    filters: list[Filter] = [EqualTo(("topic",), "nothing")]
    options = Options({"source": "logs", "path": str(folder.path), "subscribe": "sizes"})
    for takes in (True, False):
        monkeypatch.setattr(undocumented, "TAKES_FILTERS", takes)
        reader = LogReader(options, schema(options))
        # PySpark 4.1 to 4.3 see no difference, and accept the reader while push-down is off.
        assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
        assert list(reader.pushFilters(filters)) == filters
        assert bool(reader.partitions()) is not takes


def test_a_timestamp_that_python_does_not_have(pushdown: SparkSession, folder: Folder) -> None:
    """PySpark makes a datetime of a pushed-down value before a source sees it. docs/spark-options.md says so."""
    everything = load(pushdown, folder.path, source="logs")
    late = everything.filter("timestamp > timestamp'290000-01-01'")
    with pytest.raises(PySparkException, match="OverflowError"):
        late.count()
    pushdown.conf.unset(PUSHDOWN_SETTING)
    assert late.count() == 0
