"""The reader of a stream of journals, for PySpark 4.2 and later; PySpark 4.1 cannot import this file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from krammar.spark.batches import join
from krammar.spark.errors import OptionError
from krammar.spark.journal.reading import read_rows
from krammar.spark.journal.rows_in import JournalRows
from krammar.spark.journal.stream.places import opened
from krammar.spark.journal.stream.planner import JournalStreamPlanner
from krammar.spark.journal.stream.positions import Json, positions_of, positions_to_json
from krammar.spark.journal.tasks import (
    JournalPartition,
    JournalQuery,
)
from krammar.spark.limits import default_limit
from krammar.spark.options import Options
from krammar.spark.ranges import combine

# Parts of journals share a task until they have this many records of topics, or bytes of files.
_SMALL_RECORDS = 1000
_SMALL_BYTES = 1 << 20


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the committed messages of journals, each in one micro-batch.

    The driver has one reader, which plans all micro-batches. Each task has a copy, which only reads.

    Raises:
        MissingDataError: a folder or a topic does not exist.
        DataLossError: messages are missing, and ``failOnDataLoss`` is true.
        MalformedRecordError: in mode FAILFAST, a frame is not a message.
        SparkSourceError: the journals cannot be read.
    """

    def __init__(self, options: Options) -> None:
        """Check the options.

        Raises:
            OptionError: an option does not fit journals, or files, or topics.
        """
        level = options.client.get("isolation.level", "read_committed")
        if level != "read_committed":
            raise OptionError(
                "kafka.isolation.level", "a stream of journals has committed messages only"
            )
        self._query = JournalQuery(options)
        self._query.check_selection()
        self._opened = ExitStack()
        self._opened_planner: JournalStreamPlanner | None = None

    # On the driver.

    @property
    def _planner(self) -> JournalStreamPlanner:
        if self._opened_planner is None:
            journals = self._opened.enter_context(opened(self._query))
            self._opened_planner = JournalStreamPlanner(self._query, journals)
        return self._opened_planner

    def initialOffset(self) -> Json:
        """Return the offset of a new query, which begins with the first message of each journal."""
        with self._query.place.errors("finding journals"):
            self._planner.check()
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._query.options)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._query.place.errors("finding journals"):
            self._planner.fix_end()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        before = positions_of(start)
        with self._query.place.errors("finding new messages"):
            end = self._planner.end(before, limits=not isinstance(limit, ReadAllAvailable))
        return start if end is before else positions_to_json(end)

    def partitions(self, start: Json, end: Json) -> list[JournalPartition]:
        query = self._query
        with query.place.errors("planning"):
            tasks = self._planner.tasks(positions_of(start), positions_of(end))
        options = query.options
        if any(map(options.given, ("minPartitions", "maxRecordsPerPartition", "splitBytes"))):
            return [JournalPartition([task]) for task in tasks]
        small = _SMALL_BYTES if query.place.is_files else _SMALL_RECORDS
        return [JournalPartition(group) for group in combine(tasks, small, lambda _: None)]

    def commit(self, end: Json) -> None:
        """Do nothing: the checkpoint has everything."""

    def stop(self) -> None:
        """Close the journals."""
        self._opened.close()

    # In a task.

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        if not isinstance(partition, JournalPartition):
            return  # if there are no tasks, Spark plans one with None
        query = self._query
        with query.place.errors(f"reading {partition}"), opened(query) as journals:
            rows = JournalRows(query.options)
            batches = (
                batch
                for task in partition.tasks
                for batch in read_rows(rows, journals.reader(task), query.cls, task.part)
            )
            yield from batches if len(partition.tasks) == 1 else join(batches)
