"""``source=journal``: its columns, and the reader that Spark sends to its tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, InputPartition

from krammar.journal import (
    Envelope,
    FileJournals,
    FrameError,
    JournalSpec,
    ReadCommittedIter,
    ReadUncommittedIter,
    UnknownJournalError,
)
from krammar.journal.journals import Frame, Reader
from krammar.spark.errors import MalformedRecordError, MissingDataError, OptionError
from krammar.spark.journal import rows_in
from krammar.spark.journal.committed import CommittedPart, Filter, Scan
from krammar.spark.journal.places import (
    AnyJournals,
    JournalPlace,
    number_and_name,
    partitions,
    topic_of,
)
from krammar.spark.journal.splits import boundary
from krammar.spark.options import Options
from krammar.spark.ranges import split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


def schema(options: Options) -> StructType:
    return rows_in.journal_schema(options)


def reader(options: Options, schema: StructType) -> JournalReader:
    return JournalReader(options)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "journals are read in batches, not as a stream")


@dataclass(frozen=True, slots=True)
class JournalTask:
    """The offsets of a journal that one task reads: ``begin``, up to but not including ``end``.

    Attributes:
        journal_id: the journal's id at planning time. A journal that was created again since has other messages
        whole: whether the task reads the whole journal
        part: which messages of a part of the journal are committed; None if the task reads the whole
            journal, or uncommitted messages too
        limit: the journal's end. If a task reads a part with uncommitted messages from files, ``begin``
            and ``end`` may be inside of a frame.
    """

    journal: str
    journal_id: UUID
    begin: int
    end: int
    whole: bool = True
    part: CommittedPart | None = None
    limit: int = 0


class JournalPartition(InputPartition):
    """A task, as Spark sends it to an executor."""

    def __init__(self, task: JournalTask) -> None:
        self.task = task


class JournalReader(DataSourceReader):
    """Reads the messages that journals have when the query is planned.

    If several tasks read the committed messages of a journal, the driver scans the journal first.
    """

    def __init__(self, options: Options) -> None:
        """Check the options.

        Raises:
            OptionError: an option does not fit journals, or files, or topics.
        """
        self.options = options
        self.place = JournalPlace.of(options)
        self.committed = (
            not options.given("kafka.isolation.level")
            or options["kafka.isolation.level"] == "read_committed"
        )
        if options["mode"] == "PERMISSIVE" and options.given("mode"):
            raise OptionError("mode", "source=journal needs DROPMALFORMED or FAILFAST")
        self.strict = options["mode"] == "FAILFAST"
        self.cls = rows_in.read_class(options)
        if self.place.is_files:
            for name in ("contentType", "maxRecordsPerPartition"):
                if options.given(name):
                    raise OptionError(name, "has no meaning for journals in files")
        elif options.given("splitBytes"):
            raise OptionError(
                "splitBytes", "is for journals in files; maxRecordsPerPartition is for topics"
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
        options = self.options
        with self.place.errors("planning"), self.place.open() as journals:
            whole = []
            for name in dict.fromkeys(spec.name for spec in self._select(journals)):
                journal_id = journals.journal_id(name)
                begin, end = journals.offsets(name)
                if begin < end:
                    whole.append(JournalTask(name, journal_id, begin, end, limit=end))
            most = options["splitBytes" if self.place.is_files else "maxRecordsPerPartition"]
            parts = split(whole, options["minPartitions"], most)
            tasks = [
                task
                for _, of_journal in groupby(parts, attrgetter("journal"))
                for task in self._tasks(journals, list(of_journal))
            ]
        return [JournalPartition(task) for task in tasks]

    def _select(self, journals: AnyJournals) -> list[JournalSpec]:
        options = self.options
        kind = options.check_selection()
        found: list[JournalSpec] = []
        if kind == "subscribe":
            for topic in options["subscribe"]:
                try:
                    of_topic = partitions(journals, topic)
                except UnknownJournalError:
                    of_topic = []
                if not of_topic:
                    raise MissingDataError(f"{self.place.name}: topic {topic!r} has no journals")
                found += of_topic
        elif isinstance(journals, FileJournals):
            if not journals.root.is_dir():
                raise MissingDataError(f"{journals.root} does not exist")
            found = journals.list()
            if kind is not None:
                pattern = options["subscribePattern"]
                found = [spec for spec in found if pattern.search(topic_of(spec.name))]
        elif kind is None:
            raise OptionError(
                "subscribe", "is missing: set it, or subscribePattern, or load a path"
            )
        else:
            for topic in self.place.topics(options):
                found += journals.list(topic)
        return sorted(found, key=lambda spec: number_and_name(spec.name))

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
        for envelope in ReadUncommittedIter(self._open(journals, parts[0], begin, end), self.cls):
            if marks and envelope.begin >= marks[-1]:
                scan.cut(envelope.begin)
                while marks and envelope.begin >= marks[-1]:
                    marks.pop()
            scan.add(envelope.begin, envelope.message.get_uuid())
        for found in scan.finish(end):
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
        task = partition.task
        doing = f"reading offsets {task.begin} to {task.end} of {task.journal}"
        with self.place.errors(doing), self.place.open() as journals:
            yield from rows_in.batches(self.options, self._messages(journals, task))

    def _messages(self, journals: AnyJournals, task: JournalTask) -> Iterator[Envelope]:
        part = task.part
        reader = self._open(journals, task, task.begin, task.end)
        if part is None and not task.whole and isinstance(journals, FileJournals):
            begin, end = self._boundaries(journals, task)
            if begin >= end:
                return
            reader = reader.between(begin, end)
        if task.whole and self.committed:
            with ReadCommittedIter(reader, self.cls) as committed:
                yield from committed
            return
        passes = None if part is None else Filter(part).passes
        with ReadUncommittedIter(reader, self.cls) as envelopes:
            for envelope in envelopes:
                if passes is None or passes(envelope.begin, envelope.message.get_uuid()):
                    yield envelope

    def _boundaries(self, journals: FileJournals, task: JournalTask) -> tuple[int, int]:
        spec = journals.spec(task.journal)
        folder = journals.folder(task.journal)
        first, last = (
            boundary(folder, spec.framing, self.cls, mark, task.limit)
            for mark in (task.begin, task.end)
        )
        return first, last

    def _open(self, journals: AnyJournals, task: JournalTask, begin: int, end: int) -> Reader:
        reader = journals.reader(task.journal, begin, end, journal_id=task.journal_id)
        return _Strict(reader, self.cls) if self.strict else reader


class _Strict:
    """Wraps a reader, and raises an error for the first frame that is not a message."""

    def __init__(self, reader: Reader, cls: type[Any]) -> None:
        self._reader = reader
        self._cls = cls
        self.spec = reader.spec

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
        unmarshal = self.spec.framing.unmarshal
        for begin, end, frame in frames:
            try:
                unmarshal(frame, self._cls)
            except FrameError as error:
                raise MalformedRecordError(
                    f"{self.spec.name}, offsets {begin} to {end}: {error}"
                ) from None
        return frames

    def between(self, begin: int, end: int) -> Reader:
        return _Strict(self._reader.between(begin, end), self._cls)

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> Reader:
        return self._reader.ranges(ranges)  # these frames were checked when they were read first

    def close(self) -> None:
        self._reader.close()
