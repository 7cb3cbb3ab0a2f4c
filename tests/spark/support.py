"""Reading with Spark, and errors as they are seen through it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.logs_support import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# The driver's Python worker of a streaming source has to connect within ten seconds, for which Spark has no setting
# (PythonWorkerFactory.createSimpleWorker in Spark 4.3). It does not on a loaded machine.
TOO_SLOW = "Python worker failed to connect back"
STARTS = 10


def started(
    writer: DataStreamWriter, checkpoint: Path, until: Callable[[StreamingQuery], object]
) -> StreamingQuery:
    """Start a query and wait. Starts it again if its source's worker was too slow: no batch has run then.

    Args:
        writer: the query.
        checkpoint: its checkpoint location.
        until: waits for the query; its errors are raised.
    """
    for number in range(1, STARTS + 1):
        query = writer.start()
        try:
            until(query)
            break
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error) or number == STARTS:
                raise
            if not any((checkpoint / "offsets").glob("[0-9]*")):
                # A query that writes to memory refuses any checkpoint, even one without a batch.
                rmtree(checkpoint)
    return query


def load(spark: SparkSession, path: Path | list[Path], **options: object) -> DataFrame:
    """A log folder, or several; ``__`` in the name of an option is a dot."""
    reader = spark.read.format("krammar").option("source", "logs")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load([str(each) for each in path] if isinstance(path, list) else str(path))


def rows(frame: DataFrame) -> list[Row]:
    """All rows, in order of topic, partition and offset; times as milliseconds since 1970."""
    found = frame.selectExpr(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp)",
        "timestampType",
        "headers" if "headers" in frame.columns else "null",
    ).collect()
    result = [
        Row(
            _bytes(row[0]),
            _bytes(row[1]),
            *row[2:7],
            None if row[7] is None else tuple((h.key, _bytes(h.value)) for h in row[7]),
        )
        for row in found
    ]
    return sorted(result, key=lambda row: (row.topic, row.partition, row.offset))


def task_sizes(frame: DataFrame) -> list[int]:
    """The number of rows of each task that has some."""
    counts = frame.select(F.spark_partition_id().alias("task")).groupBy("task").count()
    return [row["count"] for row in counts.collect()]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def moment(milliseconds: int) -> str:
    """Return a time as a literal of SQL, in UTC."""
    when = _EPOCH + timedelta(milliseconds=milliseconds)
    return when.strftime("timestamp'%Y-%m-%d %H:%M:%S.%f+00:00'")


@contextmanager
def fails(text: str) -> Iterator[None]:
    """Whether Spark shows a text, which is taken literally, when something fails."""
    with pytest.raises(PySparkException, match=re.escape(text)):
        yield
