"""The reader of a stream for PySpark 4.2 and later, which has limits; PySpark 4.1 cannot import this file."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from krammar.spark import undocumented
from krammar.spark.kafka.plan import Task
from krammar.spark.kafka.stream.position import Json, StreamPosition
from krammar.spark.kafka.stream.reader import KafkaStreamReader
from krammar.spark.kafka.tasks import KafkaPartition
from krammar.spark.limits import default_limit
from krammar.spark.offsets import offsets_to_json
from krammar.spark.options import Options
from krammar.spark.undocumented import RowPassingReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# After a batch with too many bytes, so many batches at most are not tried.
_MOST_UNTRIED = 64


class LimitedStreamReader(KafkaStreamReader, RowPassingReader, SupportsTriggerAvailableNow):
    """Reader with limits, Trigger.AvailableNow, and the latest offsets in the query's progress. It reads small batches
    where they are planned, if PySpark accepts their rows."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._small = SmallBatches(options)

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        tasks = self.planned(start, end)
        rows = self._small.rows(tasks, self.read) if undocumented.PASSES_ROWS else None
        self.pass_rows(rows)
        if rows is None:
            return self.assigned(tasks)
        return [KafkaPartition(tasks)]  # which Spark reads if it has lost the rows

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        # Spark calls ``commit`` when it has planned another batch, so not for the last one. But it
        # asks where the next batch ends only after all batches before it are finished.
        self.commit(start)
        return self.end(
            StreamPosition.of_json(start), limits=not isinstance(limit, ReadAllAvailable)
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:
        with self.broker_errors("finding new records"):
            self.planner.fix_end()

    def reportLatestOffset(self) -> Json | None:
        latest = self.planner.latest
        return None if latest is None else offsets_to_json(latest)


class SmallBatches:
    """Reads the small batches of a query where they are planned, instead of in tasks.

    A task in Python takes Spark longer than all the rest of a small batch, and longer than the tasks of a source in Java.

    Attributes:
        most_offsets: of a batch that is read where it is planned
        most_bytes: of its Arrow data
        first_batches: how many batches of a query are not: they would wait half a second for
            imports, which Spark's workers may have done for an earlier query
    """

    most_offsets = 10_000
    most_bytes = 1 << 20
    first_batches = 2

    def __init__(self, options: Options) -> None:
        given = map(options.given, ("minPartitions", "maxRecordsPerPartition"))
        self._divided = any(given)  # options set the size of tasks
        self._planned = 0
        self._small_offsets = self.most_offsets
        self._untried = 0  # how many of the next batches with more offsets are not tried
        self._pause = 1  # how many were not tried after the last batch with too many bytes

    def rows(
        self, tasks: list[Task], read: Callable[[KafkaPartition], Generator[pa.RecordBatch]]
    ) -> list[pa.RecordBatch] | None:
        """Return the rows of a small batch, or None for a batch that tasks are to read."""
        self._planned += 1
        offsets = sum(task.count for task in tasks)
        if (
            self._divided
            or self._planned <= self.first_batches
            or not 0 < offsets <= self.most_offsets
        ):
            return None
        if self._untried and offsets > self._small_offsets:
            self._untried -= 1
            return None
        rows, size = [], 0
        with closing(read(KafkaPartition(tasks))) as batches:
            for batch in batches:
                rows.append(batch)
                size += batch.nbytes
                if size > self.most_bytes:
                    # Fewer offsets are tried at once, others after more and more batches.
                    self._small_offsets = offsets - 1
                    self._untried = self._pause = min(2 * self._pause, _MOST_UNTRIED)
                    return None
        self._pause = 1
        return rows
