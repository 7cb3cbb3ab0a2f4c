"""``source=logs``: columns, and the reader that Spark sends to its tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from krammar.spark.errors import OptionError
from krammar.spark.logs.folders import find_partitions
from krammar.spark.logs.plan import Task, plan, select
from krammar.spark.logs.read import read_task
from krammar.spark.options import Options
from krammar.spark.pushdown import FilteringReader
from krammar.spark.rows import Rows
from krammar.spark.schema import arrow_schema, record_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


def schema(options: Options) -> StructType:
    return record_schema(options["includeHeaders"])


def reader(options: Options, schema: StructType) -> LogReader:
    return LogReader(options, schema)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "logs are read in batches, not as a stream")


class LogPartition(InputPartition):
    """A task, as Spark hands it to an executor."""

    def __init__(self, task: Task) -> None:
        self.task = task


class LogReader(FilteringReader):
    """Reads log folders: one task a segment or less."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__()
        self.options = options
        self.schema = schema

    def partitions(self) -> list[LogPartition]:
        """Raises OptionError, MissingDataError and DataLossError."""
        paths = paths_of(self.options)
        # Both are checked before folders are looked at.
        folders = select(self.options, find_partitions(paths))
        return [LogPartition(task) for task in plan(self.options, folders, self.wanted)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Raises DataLossError."""
        if not isinstance(partition, LogPartition):
            return  # Spark plans one task with None where there are none
        task = partition.task
        rows = Rows(arrow_schema(self.schema), task.topic, task.partition)
        for timestamp_type, batch in read_task(
            task,
            fail_on_data_loss=self.options["failOnDataLoss"],
            min_timestamp=self.wanted.timestamp.low,
        ):
            yield rows.build(batch, timestamp_type)


def paths_of(options: Options) -> list[str]:
    """What was given to ``load``. Raises OptionError."""
    if options.given("path"):
        return [options["path"]]
    if not options.given("paths"):
        raise OptionError("path", f"is needed for source={options.source}: load(path)")
    try:
        paths = json.loads(options["paths"])
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths:
        raise OptionError("paths", "needs a list of paths")
    return [str(path) for path in paths]
