"""The journals of a stream where they are: which of them exist, their offsets, and their frames."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Set
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import pyarrow.compute as pc

from krammar.client import At, Client, TopicPartition
from krammar.journal import FileJournals, JournalSpec, UnknownJournalError
from krammar.journal.file_reader import FileReader
from krammar.spark.batches import join
from krammar.spark.brokers import CLIENTS
from krammar.spark.errors import MissingDataError
from krammar.spark.journal.frame_columns import ColumnReader, FrameColumns
from krammar.spark.journal.places import topic_of
from krammar.spark.journal.stream.positions import Positions
from krammar.spark.journal.tasks import FILE_CHUNK, JournalQuery, JournalTask
from krammar.spark.kafka.plan import Task, selects
from krammar.spark.kafka.read import read_tasks
from krammar.spark.kafka.stream.position import StreamPosition
from krammar.spark.kafka.stream.snapshots import StreamSnapshots
from krammar.spark.kafka.topic_ids import is_same_topic
from krammar.spark.loss import report_loss


class JournalRange(NamedTuple):
    """The offsets that a journal has: ``first``, up to but not including ``end``."""

    journal_id: UUID
    first: int
    end: int


class StreamedJournals(Protocol):
    """The journals that the options of a stream select.

    Raises:
        MissingDataError: a folder or a topic that the options name does not exist.
        DataLossError: messages are missing, and ``failOnDataLoss`` is true.
        JournalError, ClientError, OSError: the journals cannot be read.
    """

    def ranges(self, known: Positions, absent: Set[str] = frozenset()) -> dict[str, JournalRange]:
        """Return the offsets of the journals that exist, by name.

        Args:
            known: positions that existed before. Brokers that lack one are asked again.
            absent: journals among the known ones that did not exist any more.
        """

    def reader(self, task: JournalTask) -> ColumnReader:
        """Return a reader of the frames of a task. It reports frames that do not exist any more."""


@contextmanager
def opened(query: JournalQuery) -> Iterator[StreamedJournals]:
    """Open the journals of a stream."""
    settings = query.place.settings
    if settings is None:
        with query.place.open() as journals:
            assert isinstance(journals, FileJournals)
            yield _Files(query, journals)
    else:
        with CLIENTS.borrow(settings) as client:
            yield _Topics(query, client)


class _Files:
    """Journals in files."""

    def __init__(self, query: JournalQuery, journals: FileJournals) -> None:
        self._query = query
        self._journals = journals

    def ranges(self, known: Positions, absent: Set[str] = frozenset()) -> dict[str, JournalRange]:
        journals = self._journals
        found = {}
        for spec in self._query.select(journals):
            try:
                journal_id = journals.journal_id(spec.name)
                found[spec.name] = JournalRange(journal_id, *journals.offsets(spec.name))
            except UnknownJournalError:
                continue  # it was just deleted
        return found

    def reader(self, task: JournalTask) -> ColumnReader:
        return _FileFrames(self._query, self._journals, task)


class _FileFrames:
    """Reads the frames of a task from files, and reports those that were deleted."""

    def __init__(self, query: JournalQuery, journals: FileJournals, task: JournalTask) -> None:
        self.spec = JournalSpec(task.journal)
        self._offset = task.begin
        self._query = query
        self._journals = journals
        self._task = task
        self._reader: FileReader | None = None
        try:
            self._reader = journals.reader(
                task.journal,
                task.begin,
                task.end,
                journal_id=task.journal_id,
                chunk_bytes=FILE_CHUNK,
            )
            self.spec = self._reader.spec
        except UnknownJournalError as error:
            self._report(f"were not read: {error}")

    def read(self) -> FrameColumns | None:
        if self._reader is None:
            return None
        try:
            block = self._reader.read_block()
            begin = self._task.end if block is None else block.begin
            # Bytes can also be missing because a power cut made writers skip offsets.
            if begin > self._offset and self._journals.offsets(self.spec.name)[0] > self._offset:
                self._report(f"up to {begin} were deleted before they were read")
        except UnknownJournalError as error:
            self._report(f"were not read: {error}")
            return None
        if block is None:
            self._offset = begin
            return None
        self._offset = begin + block.ends[-1]
        columns = FrameColumns.of_block(block)
        if self._query.is_strict:
            self._query.check_frames(self.spec, columns.rows())
        return columns

    def _report(self, text: str) -> None:
        report_loss(f"{self._task.journal}: offsets from {self._offset} {text}", self._query.fails)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class _Topics:
    """Journals in topics."""

    def __init__(self, query: JournalQuery, client: Client) -> None:
        self._query = query
        self._client = client
        self._snapshots = StreamSnapshots(query.options, client)

    def ranges(self, known: Positions, absent: Set[str] = frozenset()) -> dict[str, JournalRange]:
        partitions = {_partition_of(journal): at for journal, at in known.items()}
        options, snapshots = self._query.options, self._snapshots
        gone = set(map(_partition_of, absent))
        offsets = {at: found.offset for at, found in partitions.items() if selects(options, at)}
        ids = {at.topic: found.journal_id for at, found in partitions.items()}
        snapshot = snapshots.selected(StreamPosition(offsets, ids), gone)
        if missing := snapshots.missing(snapshot, partitions.keys()):
            raise MissingDataError(missing[0])
        firsts = snapshots.at(sorted(snapshot.ends), At.EARLIEST)
        return {
            f"{at.topic}/{at.partition}": JournalRange(snapshot.topic_id(at), firsts[at], end)
            for at, end in sorted(snapshot.ends.items())
        }

    def reader(self, task: JournalTask) -> ColumnReader:
        place, fail = self._query.place, self._query.fails
        spec = JournalSpec(task.journal, place.content_type)
        records = Task(*_partition_of(task.journal), task.begin, task.end, task.journal_id)
        exists = is_same_topic(self._client, records, fail)
        batches = read_tasks(
            self._client, [records] if exists else [], fail_on_data_loss=fail, with_headers=False
        )
        return _TopicFrames(self._query, spec, batches)


class _TopicFrames:
    """Reads the frames of a task from the records of a topic."""

    def __init__(self, query: JournalQuery, spec: JournalSpec, batches: Generator[Any]) -> None:
        self.spec = spec
        self._query = query
        self._batches = batches
        # A response has a thousand records of 1 kB. Calls of Arrow for so few take longer than joining them.
        self._joined = join(batch.select(["offset", "value"]) for _, _, batch in batches)

    def read(self) -> FrameColumns | None:
        for batch in self._joined:
            offsets, values = batch.column("offset"), batch.column("value")
            columns = FrameColumns(offsets, pc.add(offsets, 1), pc.fill_null(values, b""))
            if self._query.is_strict:
                self._query.check_frames(self.spec, columns.rows())
            return columns
        return None

    def close(self) -> None:
        self._batches.close()


def _partition_of(journal: str) -> TopicPartition:
    return TopicPartition(topic_of(journal), int(journal.rpartition("/")[2]))
