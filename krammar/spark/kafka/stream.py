"""``readStream`` of ``source=kafka``: plans the offsets of micro-batches, and detects lost records.

Spark's checkpoint stores only the offsets at which each batch ends. They suffice to read a batch again
unchanged, also in a new process:

- A partition that only the end contains is new. It is read from its earliest offset.
- A partition that only the start contains was deleted.
- If the end is before the start, the log was truncated, or the topic was deleted and created again. Topic
  ids and leader epochs tell which. The log of a recreated topic is read from its earliest offset. If it
  is already longer than the part of the old log that was read, its first batch still ends before the
  start, and the next batch contains the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader

from krammar.client import At, Client, Topic, TopicPartition
from krammar.client.errors import UnknownTopicOrPartition
from krammar.client.metadata import NO_ID
from krammar.spark.errors import MissingDataError, OptionError
from krammar.spark.kafka.group import GroupCommits
from krammar.spark.kafka.plan import (
    Ends,
    Task,
    is_chosen,
    matching,
    missing_partition,
    missing_topic,
    named_topics,
)
from krammar.spark.kafka.recheck import recheck
from krammar.spark.kafka.tasks import KafkaPartition, TaskReader
from krammar.spark.loss import check_offset, report_loss
from krammar.spark.offsets import check_partitions, of_json, offsets_to_json
from krammar.spark.options import Options, Use

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    _HAS_LIMITS = True
except ImportError:  # before PySpark 4.2
    _HAS_LIMITS = False

# A batch is planned right after its end was computed.
_RECENT_SECONDS = 1.0

# The most offsets, and bytes of Arrow, of a batch that is read where it is planned; and how many batches of a query
# are not: they would wait half a second for imports, which Spark's workers may have done for an earlier query. After a
# batch with too many bytes, so many batches at most are not tried.
_SMALL_OFFSETS = 10_000
_SMALL_BYTES = 1 << 20
_FIRST_BATCHES = 2
_MOST_UNTRIED = 64

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]


def reader_of(options: Options, schema: StructType) -> KafkaStreamReader:
    """Return the reader for the installed version of PySpark.

    Raises:
        OptionError: an option needs a newer PySpark, or options contradict each other.
    """
    named_topics(options)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if options.given(name) and not _HAS_LIMITS:
            raise OptionError(name, "needs PySpark 4.2 or later")
    if options.given("maxTriggerDelay") and not options.given("minOffsetsPerTrigger"):
        raise OptionError("maxTriggerDelay", "has no meaning without minOffsetsPerTrigger")
    most, least = options["maxOffsetsPerTrigger"], options["minOffsetsPerTrigger"]
    if most is not None and least is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger={most}"
        )
    if _HAS_LIMITS:
        return LimitedStreamReader(options, schema)
    return PlainStreamReader(options, schema)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the brokers reported: the ``ends`` of partitions, their ``topics``, and the names of topics
    that are ``missing``; ``taken`` is the time, by ``time.monotonic``."""

    ends: Offsets
    topics: Mapping[str, Topic]
    missing: Set[str]
    taken: float

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.taken < _RECENT_SECONDS

    def topic_id(self, at: TopicPartition) -> UUID:
        return self.topics[at.topic].topic_id


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is known about the next batch.

    ``end``          the offsets at which it ends
    ``recreated``    partitions of topics that were deleted and created again since the previous batch
    ``is_repeated``  whether it is the query's first batch, read again after a restart
    ``snapshot``     the state of the brokers that the end was computed from; None after a restart
    """

    end: Offsets
    recreated: Set[TopicPartition]
    is_repeated: bool = False
    snapshot: _Snapshot | None = None


class KafkaStreamReader(TaskReader, DataSourceStreamReader):
    """The part that is common to all versions of PySpark.

    The driver has one reader, with one client for all batches. Each task has a copy, which only reads.

    Raises:
        OptionError: the options contradict each other or the partitions.
        MissingDataError: a topic, a partition or a requested timestamp does not exist.
        DataLossError: records are missing, and ``failOnDataLoss`` is true.
        BrokerError: the brokers cannot be asked or read.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._client: Client | None = None
        self._fail: bool = options["failOnDataLoss"]
        # Where a new query begins, and the partitions that had no records after that.
        self._initial: Offsets | None = None
        self._empty: Set[TopicPartition] = frozenset()
        self._begun = False
        self._batch: _Batch | None = None
        # Ids of the topics that offsets belong to.
        self._ids: dict[str, UUID] = {}
        # Ends for Trigger.AvailableNow.
        self._fixed: _Snapshot | None = None
        self._latest: Offsets | None = None
        self._last_trigger: float | None = None
        group = options["commitGroup"]
        self._commits = None if group is None else GroupCommits(group)
        # Missing topics and partitions that a warning has reported.
        self._warned: set[str] = set()

    # Methods that Spark calls.

    def initialOffset(self) -> Json:
        """Return where a new query begins. Spark asks twice and expects the same answer."""
        if self._initial is None:
            with self.broker_errors("finding the starting offsets"):
                self._initial = self._begin()
        return offsets_to_json(self._initial)

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        """Plan the tasks of a batch."""
        return self._assigned(self._tasks(start, end))

    def commit(self, end: Json) -> None:
        """Commit the end of a finished batch to the group of the option ``commitGroup``."""
        if self._commits is not None:
            self._commits.commit(self.client, _offsets(end))

    def stop(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def client(self) -> Client:
        """The client for all batches; it reconnects if a connection breaks."""
        if self._client is None:
            self._client = Client(self.settings)
        return self._client

    # The start of the query.

    def _begin(self) -> Offsets:
        snapshot = self._fixed or self._selected({})
        if missing := self._missing(snapshot):
            raise MissingDataError(missing[0])
        chosen = sorted(snapshot.ends)
        bound = self.options.starting(Use.READ_STREAM)
        check_partitions("startingOffsets", bound, set(chosen))
        ends = Ends(self.client, chosen, snapshot.ends)
        strict = self.options["startingOffsetsByTimestampStrategy"] == "error"
        result = {}
        for at, offset in ends.resolve(bound, strict).items():
            low, high = ends.earliest[at], ends.latest[at]
            check_offset(str(at), offset, low, high, self._fail)
            result[at] = min(max(offset, low), high)
        self._empty = {at for at in chosen if result[at] == snapshot.ends[at]}
        return result

    # The state of the brokers.

    def _selected(self, start: Mapping[TopicPartition, int]) -> _Snapshot:
        """Return the partitions that the options select now; see ``_snapshot``."""
        return self._snapshot(
            named_topics(self.options), lambda topics: matching(self.options, topics), start
        )

    def _snapshot(
        self,
        names: list[str] | None,
        choose: Callable[[Mapping[str, Topic]], list[TopicPartition]],
        known: Mapping[TopicPartition, int],
    ) -> _Snapshot:
        """Ask the brokers for topics and ends, and again while the answer lacks ``known`` offsets.

        Args:
            names: the topics to ask for; None means all.
            choose: returns the partitions whose ends are needed.
            known: offsets that existed before.
        """
        cluster = self.client.cluster

        def attempt() -> _Snapshot:
            deadline = cluster.deadline("finding partitions")
            taken = time.monotonic()
            topics, missing = {}, set()
            for topic in cluster.refresh(names, deadline, auto_create=False):
                if topic.error is None:
                    topics[topic.name] = topic
                elif isinstance(topic.error, UnknownTopicOrPartition):
                    missing.add(topic.name)
                elif names is not None or is_chosen(self.options, topic):
                    raise topic.error
            return _Snapshot(self._at(choose(topics), At.LATEST), topics, missing, taken)

        def ask() -> _Snapshot:
            # If a topic is deleted between the two requests, the second one fails.
            return cluster.retrying(cluster.deadline("finding the ends of logs"), attempt)

        def is_doubtful(found: _Snapshot) -> bool:
            return any(
                at not in found.ends or (found.ends[at] < offset and not self._is_other(found, at))
                for at, offset in known.items()
            )

        return recheck(self.client, ask, is_doubtful)

    def _at(self, partitions: list[TopicPartition], place: At) -> Offsets:
        found = self.client.list_offsets(dict.fromkeys(partitions, int(place)))
        return {at: offset.offset for at, offset in found.items()}

    def _missing(self, snapshot: _Snapshot, start: Set[TopicPartition] = frozenset()) -> list[str]:
        """Describe what the options name, but neither the brokers nor ``start`` have."""
        known = {at.topic for at in start}
        if not self.options.given("assign"):
            return [missing_topic(name) for name in sorted(snapshot.missing - known)]
        assigned = {TopicPartition(*at) for at in self.options["assign"]}
        return [missing_partition(at) for at in sorted(assigned - snapshot.ends.keys() - start)]

    def _is_other(self, snapshot: _Snapshot, at: TopicPartition) -> bool:
        """Return whether a topic certainly differs from the one that the offsets belong to."""
        known = self._ids.get(at.topic, NO_ID)
        return known != NO_ID and known != snapshot.topic_id(at)

    def _is_recreated(self, snapshot: _Snapshot, at: TopicPartition, start: int, end: int) -> bool:
        """Return whether a topic that was read up to ``start`` was deleted and created again."""
        if self._ids.get(at.topic, NO_ID) != NO_ID:
            return start > 0 and self._is_other(snapshot, at)
        # After a restart the id is not known. A log is only truncated when the leader changes, so a log that
        # still has its first leader was not truncated.
        return end < start and snapshot.topics[at.topic].partitions[at.partition].leader_epoch == 0

    # The end of a batch.

    def _end(self, start: Offsets, limits: bool) -> Offsets:
        """Return where the batch from ``start`` ends; without ``limits`` at the end of the logs."""
        with self.broker_errors("finding new records"):
            return self._find_end(start, limits)

    def _find_end(self, start: Offsets, limits: bool) -> Offsets:
        snapshot = self._after(start)
        self._latest = snapshot.ends
        ends = dict(snapshot.ends)
        both = start.keys() & ends.keys()
        recreated = {at for at in both if self._is_recreated(snapshot, at, start[at], ends[at])}
        begins = {at: start[at] for at in both - recreated}
        others = sorted(ends.keys() - begins.keys())
        # The beginnings of new partitions are needed only to compute their share of a limited batch.
        if others and (limits or recreated):
            begins.update(self._at(others, At.EARLIEST))
        for at in recreated:
            if ends[at] >= start[at] > begins[at]:
                ends[at] = start[at] - 1
        if start == self._initial and not self._begun:
            # The start of the first batch is not stored anywhere. If the batch is read again after a restart,
            # "latest" is another offset. So the batch gets no records of partitions that began at their end.
            ends.update((at, start[at]) for at in self._empty & ends.keys())
        if limits:
            limited = self._limit(begins, ends)
            if limited is None:
                return start
            ends = limited
        self._begun = True
        self._ids.update((at.topic, snapshot.topic_id(at)) for at in ends)
        self._batch = _Batch(ends, recreated, snapshot=snapshot)
        return ends

    def _after(self, start: Offsets) -> _Snapshot:
        """Return what can be read after ``start``."""
        fixed = self._fixed
        if fixed is None:
            snapshot = self._selected(start)
        elif all(at in fixed.ends and fixed.ends[at] >= start[at] for at in start):
            snapshot = fixed
        else:  # the ends were fixed before the start was known
            snapshot = self._fixed = self._selected(start)
        for missing in self._missing(snapshot, start.keys()):
            if self._fail:
                raise MissingDataError(missing)
            if missing not in self._warned:
                self._warned.add(missing)
                report_loss(missing, False)
        return snapshot

    def _limit(self, begins: Offsets, ends: Offsets) -> Offsets | None:
        """Apply the limits per trigger: return the ends, or None if there are too few records yet."""
        sizes = {at: ends[at] - begin for at, begin in begins.items() if ends[at] > begin}
        total = sum(sizes.values())
        if self.options.given("minOffsetsPerTrigger") and self._fixed is None:
            now = time.monotonic()
            delay = self.options["maxTriggerDelay"] / 1000
            waiting = self._last_trigger is not None and now - self._last_trigger < delay
            if waiting and total < self.options["minOffsetsPerTrigger"]:
                return None
            self._last_trigger = now
        most = self.options["maxOffsetsPerTrigger"]
        if most is None:
            return ends
        # In proportion to the size of each partition, but at least one offset of each.
        return ends | {
            at: begins[at] + min(size, max(1, most * size // total)) for at, size in sizes.items()
        }

    # The tasks of a batch.

    def _tasks(self, start: Json, end: Json) -> list[Task]:
        first, last = _offsets(start), _offsets(end)
        self._begun = True
        if first == last:
            return []
        with self.broker_errors("planning"):
            return self._plan(first, last)

    def _assigned(self, tasks: list[Task]) -> list[KafkaPartition]:
        with self.broker_errors("planning"):
            return self.assign(self.client, tasks)

    def _plan(self, start: Offsets, end: Offsets) -> list[Task]:
        is_repeated = self._batch is None and start == self._initial
        if self._batch is not None and self._batch.end == end:
            is_repeated = self._batch.is_repeated
        # The first batch after a restart was planned before it. If it is the query's first batch, its start
        # was computed again, and may be after its end; see ``_find_end``.
        if gone := [] if is_repeated else sorted(start.keys() - end.keys()):
            read = ", ".join(f"{at} (read up to offset {start[at]})" for at in gone)
            report_loss(
                f"partitions were deleted, or {self._selection()} no longer selects them: {read}",
                self._fail,
            )
        wanted = {
            at: offset
            for at, offset in sorted(end.items())
            if start.get(at) != offset and not (is_repeated and at in start and offset < start[at])
        }
        snapshot, earliest = self._state(end, wanted)
        if self._batch is None or self._batch.end != end:
            both = wanted.keys() & start.keys() & snapshot.ends.keys()
            recreated = {at for at in both if self._is_recreated(snapshot, at, start[at], end[at])}
            self._batch = _Batch(end, recreated, is_repeated)
        tasks = []
        for at, offset in wanted.items():
            if at not in snapshot.ends or self._ids.setdefault(
                at.topic, snapshot.topic_id(at)
            ) != snapshot.topic_id(at):
                report_loss(
                    f"{at}: deleted before offsets up to {offset - 1} were read", self._fail
                )
                continue
            first = self._first(at, start.get(at), offset, earliest[at])
            last = snapshot.ends[at]
            if first is not None and offset > last:
                text = f"{at}: offsets {last} to {offset - 1} do not exist any more: the log was truncated"
                report_loss(text, self._fail)
            if first is not None and first < min(offset, last):
                tasks.append(Task(*at, first, min(offset, last), snapshot.topic_id(at)))
        return tasks

    def _state(self, end: Offsets, wanted: Offsets) -> tuple[_Snapshot, Offsets]:
        """Return the state of the brokers, and the earliest offsets of the wanted partitions.

        A state that this end was just computed from is used again, once. Later deletions are noticed when
        the tasks are read.
        """
        if self._batch is not None and self._batch.end == end:
            snapshot = self._batch.snapshot
            self._batch = replace(self._batch, snapshot=None)
            if snapshot is not None and snapshot.is_recent:
                with suppress(UnknownTopicOrPartition):  # deleted meanwhile
                    return snapshot, self._at(sorted(wanted), At.EARLIEST)
        snapshot = self._existing(wanted)
        return snapshot, self._at(sorted(snapshot.ends), At.EARLIEST)

    def _existing(self, wanted: Offsets) -> _Snapshot:
        """Ask the brokers for those of the wanted partitions that exist."""
        return self._snapshot(
            sorted({at.topic for at in wanted}),
            lambda topics: [
                at
                for at in wanted
                if at.topic in topics and at.partition in topics[at.topic].partitions
            ],
            wanted,
        )

    def _first(self, at: TopicPartition, start: int | None, end: int, earliest: int) -> int | None:
        """Return the offset at which reading begins, or None if there is nothing to read."""
        if start is None:
            if earliest > 0:
                text = f"{at}: new, but its offsets before {earliest} are already deleted"
                report_loss(text, self._fail)
            return earliest
        if self._batch is not None and at in self._batch.recreated:
            text = f"{at}: read up to offset {start}, but the topic was deleted and created again"
            report_loss(text, self._fail)
            return earliest
        if end < start:
            text = f"{at}: read up to offset {start}, but the log ends at offset {end}: it was truncated"
            report_loss(f"{text}, or the topic was deleted and created again", self._fail)
            return None
        if start < earliest:
            text = f"{at}: offsets {start} to {earliest - 1} were deleted before they were read"
            report_loss(text, self._fail)
        return max(start, earliest)

    def _selection(self) -> str:
        kind = str(self.options.check_selection())
        return f"{kind} {self.options.text(kind)}"


def _offsets(found: Json) -> Offsets:
    return {TopicPartition(*at): offset for at, offset in of_json(found).items()}


class PlainStreamReader(KafkaStreamReader):
    """Reader for PySpark before 4.2: each batch contains all new records."""

    _position: Offsets | None = None

    def latestOffset(self) -> Json:  # type: ignore[override]
        # Spark passes no start, and asks for the end of the first batch before its beginning.
        if self._position is None:
            self._position = _offsets(self.initialOffset())
        return offsets_to_json(self._end(self._position, False))

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        result = super().partitions(start, end)
        self._position = _offsets(end)
        return result


if _HAS_LIMITS:

    class LimitedStreamReader(KafkaStreamReader, SupportsTriggerAvailableNow):
        """Reader for PySpark 4.2 and later: with limits, Trigger.AvailableNow, and the latest
        offsets in the query's progress.

        A small batch is read where it is planned. A task in Python takes Spark longer than all the rest of such
        a batch, and longer than the tasks of a source in Java.
        """

        def __init__(self, options: Options, schema: StructType) -> None:
            super().__init__(options, schema)
            self._planned = 0
            self._small_offsets = _SMALL_OFFSETS
            self._untried = 0  # how many of the next batches with more offsets are not tried
            self._pause = 1  # how many were not tried after the last batch with too many bytes
            self._small_batch: list[pa.RecordBatch] = []

        def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
            tasks = self._tasks(start, end)
            rows = self._small(tasks)
            if rows is None:
                self.__class__ = LimitedStreamReader
                return self._assigned(tasks)
            self._small_batch = rows
            self.__class__ = _ReaderWithRows
            return [KafkaPartition(tasks)]  # which Spark reads if it has lost the rows

        def _small(self, tasks: list[Task]) -> list[pa.RecordBatch] | None:
            """Return the rows of a small batch.

            None for other batches, for the first ones of a query, and if options set the size of tasks.
            """
            self._planned += 1
            offsets = sum(task.count for task in tasks)
            divided = map(self.options.given, ("minPartitions", "maxRecordsPerPartition"))
            if self._planned <= _FIRST_BATCHES or any(divided):
                return None
            if not 0 < offsets <= _SMALL_OFFSETS:
                return None
            if self._untried and offsets > self._small_offsets:
                self._untried -= 1
                return None
            rows, size = [], 0
            with closing(self.read(KafkaPartition(tasks))) as batches:
                for batch in batches:
                    rows.append(batch)
                    size += batch.nbytes
                    if size > _SMALL_BYTES:
                        # Fewer offsets are tried at once, others after more and more batches.
                        self._small_offsets = offsets - 1
                        self._untried = self._pause = min(2 * self._pause, _MOST_UNTRIED)
                        return None
            self._pause = 1
            return rows

        def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
            # Spark calls ``commit`` when it has planned another batch, so not for the last one. But it
            # asks where the next batch ends only after all batches before it are finished.
            self.commit(start)
            limits = not isinstance(limit, ReadAllAvailable)
            return offsets_to_json(self._end(_offsets(start), limits))

        def getDefaultReadLimit(self) -> ReadLimit:
            # No limit expresses both options. ``latestOffset`` reads their values from the options anyway.
            if self.options.given("maxOffsetsPerTrigger"):
                return ReadMaxRows(self.options["maxOffsetsPerTrigger"])
            if self.options.given("minOffsetsPerTrigger"):
                return ReadMinRows(self.options["minOffsetsPerTrigger"])
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            with self.broker_errors("finding new records"):
                self._fixed = self._selected({})

        def reportLatestOffset(self) -> Json | None:
            return None if self._latest is None else offsets_to_json(self._latest)

    class _ReaderWithRows(LimitedStreamReader, _SimpleStreamReaderWrapper):
        """A reader between ``partitions`` and ``getCache``, which Spark calls next.

        Spark takes rows only from readers of the class that wraps a ``SimpleDataSourceStreamReader``, and keeps
        them as a block, so that the batch needs no task in Python. Such a reader has no limits and reports no
        latest offsets; therefore a reader is of this class for no other call.
        """

        def getCache(self, start: Json, end: Json) -> Iterator[pa.RecordBatch]:
            self.__class__ = LimitedStreamReader  # type: ignore[assignment]
            rows, self._small_batch = self._small_batch, []
            return iter(rows)
