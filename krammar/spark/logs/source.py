"""``source=logs``: its columns, and the reader that Spark sends to its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from krammar.spark.decoding import rows_of, schema_of
from krammar.spark.errors import OptionError
from krammar.spark.logs.folders import find_partitions
from krammar.spark.logs.plan import Task, plan, select
from krammar.spark.logs.read import read_task
from krammar.spark.options import Options
from krammar.spark.paths import paths_of
from krammar.spark.pushdown import FilteringReader
from krammar.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


def schema(options: Options) -> StructType:
    return schema_of(options)


def reader(options: Options, schema: StructType) -> LogReader:
    return LogReader(options, schema)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "logs are read in batches, not as a stream")


class LogPartition(InputPartition):
    """A task, as Spark sends it to an executor."""

    def __init__(self, task: Task) -> None:
        self.task = task


class LogReader(FilteringReader):
    """Reads log folders, with one or more tasks per segment."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__()
        self.options = options
        self.schema = schema

    def partitions(self) -> list[LogPartition]:
        """Plan the tasks; see ``krammar.spark.logs.plan``.

        Raises:
            OptionError: the options contradict each other or the partitions.
            MissingDataError: a path, a partition or a requested timestamp does not exist.
            DataLossError: a log is damaged, or requested offsets do not exist.
        """
        folders = select(self.options, find_partitions(paths_of(self.options)))
        return [LogPartition(task) for task in plan(self.options, folders, self.wanted)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            DataLossError: a batch is corrupt or a file is missing, and ``failOnDataLoss`` is true.
        """
        if not isinstance(partition, LogPartition):
            return  # if there are no tasks, Spark plans one with None
        task = partition.task
        rows = rows_of(self.options, arrow_schema(self.schema), task.topic, task.partition)
        for timestamp_type, batch in read_task(
            task,
            fail_on_data_loss=self.options["failOnDataLoss"],
            min_timestamp=self.wanted.timestamp.low,
        ):
            built = rows.build(batch, timestamp_type)
            if built.num_rows:
                yield built
