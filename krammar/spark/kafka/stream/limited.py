"""The reader of a stream for PySpark 4.2 and later, which has limits; PySpark 4.1 cannot import this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from krammar.spark.kafka.stream import planned_rows
from krammar.spark.kafka.stream.planned_rows import RowPassingReader
from krammar.spark.kafka.stream.reader import Json, KafkaStreamReader, offsets_of
from krammar.spark.kafka.stream.small import SmallBatches
from krammar.spark.kafka.tasks import KafkaPartition
from krammar.spark.offsets import offsets_to_json
from krammar.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LimitedStreamReader(KafkaStreamReader, RowPassingReader, SupportsTriggerAvailableNow):
    """Reader with limits, Trigger.AvailableNow, and the latest offsets in the query's progress. It reads small batches
    where they are planned, if PySpark accepts their rows."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._small = SmallBatches(options)

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        tasks = self.planned(start, end)
        rows = self._small.rows(tasks, self.read) if planned_rows.PASSES_ROWS else None
        self.pass_rows(rows)
        if rows is None:
            return self.assigned(tasks)
        return [KafkaPartition(tasks)]  # which Spark reads if it has lost the rows

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        # Spark calls ``commit`` when it has planned another batch, so not for the last one. But it
        # asks where the next batch ends only after all batches before it are finished.
        self.commit(start)
        return self.end(offsets_of(start), limits=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        # No limit expresses both options. ``latestOffset`` reads their values from the options anyway.
        if self.options.given("maxOffsetsPerTrigger"):
            return ReadMaxRows(self.options["maxOffsetsPerTrigger"])
        if self.options.given("minOffsetsPerTrigger"):
            return ReadMinRows(self.options["minOffsetsPerTrigger"])
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with self.broker_errors("finding new records"):
            self.planner.fix_end()

    def reportLatestOffset(self) -> Json | None:
        latest = self.planner.latest
        return None if latest is None else offsets_to_json(latest)
