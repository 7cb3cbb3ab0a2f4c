"""``source=journal``: its columns, and the readers that Spark requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, InputPartition

from krammar.journal import (
    FileJournals,
    JournalSpec,
    ReadCommittedIter,
)
from krammar.journal.journals import Frame, Reader
from krammar.spark.batches import join
from krammar.spark.errors import OptionError
from krammar.spark.journal.committed import Scan
from krammar.spark.journal.frame_columns import FramesInColumns
from krammar.spark.journal.places import AnyJournals
from krammar.spark.journal.reading import read_rows, read_runs
from krammar.spark.journal.rows_in import JournalRows, journal_schema
from krammar.spark.journal.splits import boundary
from krammar.spark.journal.tasks import (
    FILE_CHUNK,
    JournalPartition,
    JournalQuery,
    JournalTask,
)
from krammar.spark.options import Options
from krammar.spark.ranges import split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


def schema(options: Options) -> StructType:
    return journal_schema(options)


def reader(options: Options, schema: StructType) -> JournalReader:
    return JournalReader(options)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream.

    Raises:
        OptionError: PySpark is too old, or an option does not fit journals, or files, or topics.
    """
    # Batches need none of the modules that this function imports.
    from krammar.spark.limits import HAS_LIMITS, check_limits

    if not HAS_LIMITS:
        raise OptionError(
            "source",
            "streams of journals need PySpark 4.2 or later, which passes where a batch begins",
        )
    check_limits(options)
    from krammar.spark.journal.stream.reader import JournalStreamReader

    return JournalStreamReader(options)


class JournalReader(DataSourceReader):
    """Reads the messages that journals have when the query is planned.

    If several tasks read the committed messages of a journal, the driver scans the journal first.
    """

    def __init__(self, options: Options) -> None:
        """Check the options.

        Raises:
            OptionError: an option does not fit journals, or files, or topics.
        """
        self.query = JournalQuery(options)
        if options.given("failOnDataLoss"):
            raise OptionError(
                "failOnDataLoss",
                "is for streams of journals; a batch reads the messages that exist",
            )
        self.committed = (
            not options.given("kafka.isolation.level")
            or options["kafka.isolation.level"] == "read_committed"
        )

    # On the driver.

    def partitions(self) -> list[JournalPartition]:
        """Plan the tasks.

        Raises:
            OptionError: the options select no journals.
            MissingDataError: a folder does not exist, or a topic has no journals.
            MalformedRecordError: in mode FAILFAST, a frame that the driver scanned is not a message.
            SparkSourceError: the journals cannot be read.
        """
        query = self.query
        with query.place.errors("planning"), query.place.open() as journals:
            whole = []
            for spec in query.select(journals):
                journal_id = journals.journal_id(spec.name)
                begin, end = journals.offsets(spec.name)
                if begin < end:
                    whole.append(JournalTask(spec.name, journal_id, begin, end, limit=end))
            parts = split(whole, query.options["minPartitions"], query.most)
            tasks = [
                task
                for _, of_journal in groupby(parts, attrgetter("journal"))
                for task in self._tasks(journals, list(of_journal))
            ]
        return [JournalPartition([task]) for task in tasks]

    def _tasks(self, journals: AnyJournals, parts: list[JournalTask]) -> Iterator[JournalTask]:
        """Yield the tasks of a journal that is split into these parts."""
        if len(parts) == 1:
            yield from parts
            return
        if not self.committed:
            for part in parts:
                yield replace(part, whole=False)
            return
        begin, end = parts[0].begin, parts[-1].end
        marks = [part.begin for part in parts[:0:-1]]
        scan = Scan(begin)
        reader = FramesInColumns(self._open(journals, parts[0], begin, end))
        for run in read_runs(reader, self.query.cls):
            rest = run
            while marks and rest.last >= marks[-1]:
                before, rest = rest.split(marks[-1])
                if before is not None:
                    scan.add_run(before)
                scan.cut(rest.begin)
                while marks and rest.begin >= marks[-1]:
                    marks.pop()
            scan.add_run(rest)
        for found in scan.take():
            yield replace(parts[0], begin=found.begin, end=found.end, whole=False, part=found)

    # In a task.

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            MalformedRecordError: in mode FAILFAST, a frame is not a message.
            SparkSourceError: the journal cannot be read.
        """
        if not isinstance(partition, JournalPartition):
            return  # if there are no tasks, Spark plans one with None
        place = self.query.place
        (task,) = partition.tasks
        with place.errors(f"reading {partition}"), place.open() as journals:
            yield from self._rows(journals, task)

    def _rows(self, journals: AnyJournals, task: JournalTask) -> Iterator[pa.RecordBatch]:
        rows = JournalRows(self.query.options)
        reader = self._open(journals, task, task.begin, task.end)
        if task.part is None and not task.whole and isinstance(journals, FileJournals):
            begin, end = self._boundaries(journals, task)
            if begin >= end:
                return
            reader = reader.between(begin, end)
        if task.whole and self.committed:
            with ReadCommittedIter(reader, self.query.cls) as committed:
                yield from rows.of_envelopes(committed)
        else:
            frames = FramesInColumns(reader)
            yield from join(read_rows(rows, frames, self.query.cls, task.part))

    def _boundaries(self, journals: FileJournals, task: JournalTask) -> tuple[int, int]:
        spec = journals.spec(task.journal)
        folder = journals.folder(task.journal)
        first, last = (
            boundary(folder, spec.framing, self.query.cls, mark, task.limit)
            for mark in (task.begin, task.end)
        )
        return first, last

    def _open(self, journals: AnyJournals, task: JournalTask, begin: int, end: int) -> Reader:
        name, journal_id = task.journal, task.journal_id
        reader: Reader
        if isinstance(journals, FileJournals):
            reader = journals.reader(
                name, begin, end, journal_id=journal_id, chunk_bytes=FILE_CHUNK
            )
        else:
            reader = journals.reader(name, begin, end, journal_id=journal_id)
        return _Strict(reader, self.query) if self.query.is_strict else reader


class _Strict:
    """Wraps a reader, and raises an error for the first frame that is not a message."""

    def __init__(self, reader: Reader, query: JournalQuery) -> None:
        self._reader = reader
        self._query = query
        self.spec: JournalSpec = reader.spec

    @property
    def journal_id(self) -> UUID:
        return self._reader.journal_id

    @property
    def offset(self) -> int:
        return self._reader.offset

    @offset.setter
    def offset(self, value: int) -> None:
        self._reader.offset = value

    def read(self) -> list[Frame]:
        """Read the next frames.

        Raises:
            MalformedRecordError: a frame is not a message.
        """
        frames = self._reader.read()
        self._query.check_frames(self.spec, frames)
        return frames

    def between(self, begin: int, end: int) -> Reader:
        return _Strict(self._reader.between(begin, end), self._query)

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> Reader:
        return self._reader.ranges(ranges)  # these frames were checked when they were read first

    def close(self) -> None:
        self._reader.close()
