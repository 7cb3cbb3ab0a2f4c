"""The tasks of ``source=journal``, and the options that they need, for batches and streams."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from krammar.journal import (
    FileJournals,
    FrameError,
    JournalSpec,
    UnknownJournalError,
)
from krammar.journal.journals import Frame
from krammar.spark.errors import MalformedRecordError, MissingDataError, OptionError
from krammar.spark.journal import rows_in
from krammar.spark.journal.committed import CommittedPart
from krammar.spark.journal.places import (
    AnyJournals,
    JournalPlace,
    number_and_name,
    partitions,
    topic_of,
)
from krammar.spark.options import Options

# How many bytes of a file are read at a time. Handling few frames as columns is not faster than one by one.
FILE_CHUNK = 4 << 20


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
    """What one Spark task reads: parts of journals, one after the other."""

    def __init__(self, tasks: list[JournalTask]) -> None:
        self.tasks = tasks

    def __str__(self) -> str:
        first = self.tasks[0]
        others = f" and {len(self.tasks) - 1} other parts" if len(self.tasks) > 1 else ""
        return f"offsets {first.begin} to {first.end} of {first.journal}{others}"


class JournalQuery:
    """The options of a query, checked: which journals it reads, and how. It is sent to the tasks.

    Attributes:
        cls: the class of the messages
        is_strict: whether a frame that is not a message fails the query; readers call ``check_frames`` then
        fails: whether messages that do not exist any more fail the query
    """

    def __init__(self, options: Options) -> None:
        """Check the options.

        Raises:
            OptionError: an option does not fit journals, or files, or topics.
        """
        self.options = options
        self.place = JournalPlace.of(options)
        if options["mode"] == "PERMISSIVE" and options.given("mode"):
            raise OptionError("mode", "source=journal needs DROPMALFORMED or FAILFAST")
        self.is_strict = options["mode"] == "FAILFAST"
        self.fails: bool = options["failOnDataLoss"]
        self.cls = rows_in.read_class(options)
        if self.place.is_files:
            for name in ("contentType", "maxRecordsPerPartition"):
                if options.given(name):
                    raise OptionError(name, "has no meaning for journals in files")
        elif options.given("splitBytes"):
            raise OptionError(
                "splitBytes", "is for journals in files; maxRecordsPerPartition is for topics"
            )

    @property
    def most(self) -> int | None:
        """The approximate maximum size of a task: bytes of files, or records of topics."""
        name = "splitBytes" if self.place.is_files else "maxRecordsPerPartition"
        most: int | None = self.options[name]
        return most

    def select(self, journals: AnyJournals) -> list[JournalSpec]:
        """Return the journals that the options select, ordered by topic and number.

        Raises:
            OptionError: the options select no journals.
            MissingDataError: a folder does not exist, or a topic has no journals.
            JournalError, ClientError: the journals cannot be listed.
        """
        options = self.options
        kind = self.check_selection()
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
        else:
            for topic in self.place.topics(options):
                found += journals.list(topic)
        names = {spec.name: spec for spec in found}
        return sorted(names.values(), key=lambda spec: number_and_name(spec.name))

    def check_selection(self) -> str | None:
        """Return which option selects journals; None if all journals of a folder are read.

        Raises:
            OptionError: no journals are selected, or in several ways.
        """
        kind = self.options.check_selection()
        if kind is None and not self.place.is_files:
            raise OptionError(
                "subscribe", "is missing: set it, or subscribePattern, or load a path"
            )
        return kind

    def check_frames(self, spec: JournalSpec, frames: list[Frame]) -> None:
        """Raise MalformedRecordError for the first frame that is not a message."""
        unmarshal = spec.framing.unmarshal
        for begin, end, frame in frames:
            try:
                unmarshal(frame, self.cls)
            except FrameError as error:
                raise MalformedRecordError(
                    f"{spec.name}, offsets {begin} to {end}: {error}"
                ) from None
