"""``readStream`` of ``source=kafka``: which offsets a micro-batch has, and what has become of them.

Spark keeps the offsets that a batch ends at, nothing else. They are enough to read a batch again as it
was, also in a new process:

- A partition that only the end has is new, and read from its earliest offset.
- One that only the start has is gone.
- An end before the start says that the log has been cut, or that the topic was deleted and made anew;
  ids of topics and leader epochs tell which. A new log is read from its earliest offset. Where it is
  longer than the old one had been read, the first batch of it ends before the start all the same, and
  the next one has the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader

from krammar.client import At, Client, Topic, TopicPartition
from krammar.client.errors import UnknownTopicOrPartition
from krammar.client.metadata import NO_ID
from krammar.spark.errors import MissingDataError, OptionError
from krammar.spark.kafka.plan import Ends, Task, is_chosen, matching, named_topics
from krammar.spark.kafka.settled import settled
from krammar.spark.kafka.source import KafkaPartition, TaskReader
from krammar.spark.loss import lost
from krammar.spark.offsets import check_partitions, of_json, to_json
from krammar.spark.options import Options, Use
from krammar.spark.ranges import split

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    _HAS_LIMITS = True
except ImportError:  # before PySpark 4.2
    _HAS_LIMITS = False

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]


def reader_of(options: Options, schema: StructType) -> KafkaStreamReader:
    """The reader for this version of PySpark. Raises OptionError."""
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
class _Look:
    """What brokers have told: ``ends`` of partitions, their ``topics``, and the names of topics that are
    ``missing``."""

    ends: Offsets
    topics: Mapping[str, Topic]
    missing: Set[str]

    def topic_id(self, at: TopicPartition) -> UUID:
        return self.topics[at.topic].topic_id


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is known of the batch that comes next: its ``end``, the partitions that begin ``anew`` in it,
    and whether it is the first batch of all, ``again``."""

    end: Offsets
    anew: Set[TopicPartition]
    again: bool = False


class KafkaStreamReader(TaskReader, DataSourceStreamReader):
    """What is the same for all versions of PySpark. The driver has one, with one client for all its
    batches, and each task another one, which only reads.

    All methods raise OptionError, MissingDataError, DataLossError and BrokerError.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._client: Client | None = None
        self._fail: bool = options["failOnDataLoss"]
        # Where a new query begins, and which partitions had nothing behind that.
        self._initial: Offsets | None = None
        self._empty: Set[TopicPartition] = frozenset()
        self._begun = False
        self._batch: _Batch | None = None
        # Ids of the topics that offsets belong to.
        self._ids: dict[str, UUID] = {}
        # Ends for Trigger.AvailableNow.
        self._fixed: _Look | None = None
        self._latest: Offsets | None = None
        self._last_trigger: float | None = None
        self._told: set[str] = set()

    # What Spark calls.

    def initialOffset(self) -> Json:
        """Where a new query begins. Spark asks for it twice, so that it must not move meanwhile."""
        if self._initial is None:
            with self.broker_errors("finding where to begin"):
                self._initial = self._begin()
        return to_json(self._initial)

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        """The tasks of a batch."""
        first, last = _offsets(start), _offsets(end)
        self._begun = True
        if first == last:
            return []
        with self.broker_errors("planning"):
            tasks = self._plan(first, last)
        options = self.options
        parts = split(tasks, options["minPartitions"], options["maxRecordsPerPartition"])
        return [KafkaPartition(task) for task in parts]

    def stop(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def client(self) -> Client:
        """One for all batches; it connects anew where connections break."""
        if self._client is None:
            self._client = Client(self.settings)
        return self._client

    # Beginning.

    def _begin(self) -> Offsets:
        look = self._fixed or self._look({})
        if missing := self._missing(look):
            raise MissingDataError(f"there is no such {missing[0]}")
        chosen = sorted(look.ends)
        bound = self.options.starting(Use.READ_STREAM)
        check_partitions("startingOffsets", bound, set(chosen))
        ends = Ends(self.client, chosen, look.ends)
        strict = self.options["startingOffsetsByTimestampStrategy"] == "error"
        result = {}
        for at, offset in ends.resolve(bound, strict).items():
            low, high = ends.earliest[at], ends.latest[at]
            if not low <= offset <= high:
                text = f"{at}: offset {offset} is asked for, but there are {low} to {high}"
                lost(text, self._fail)
            result[at] = min(max(offset, low), high)
        self._empty = {at for at in chosen if result[at] == look.ends[at]}
        return result

    # Looking.

    def _look(self, start: Mapping[TopicPartition, int]) -> _Look:
        """What the options choose now. Where that lacks something of ``start``, brokers are asked again."""
        return self._see(
            named_topics(self.options), lambda topics: matching(self.options, topics), start
        )

    def _see(
        self,
        names: list[str] | None,
        choose: Callable[[Mapping[str, Topic]], list[TopicPartition]],
        known: Mapping[TopicPartition, int],
    ) -> _Look:
        cluster = self.client.cluster

        def attempt() -> _Look:
            deadline = cluster.deadline("finding partitions")
            topics, missing = {}, set()
            for topic in cluster.refresh(names, deadline, auto_create=False):
                if topic.error is None:
                    topics[topic.name] = topic
                elif isinstance(topic.error, UnknownTopicOrPartition):
                    missing.add(topic.name)
                elif names is not None or is_chosen(self.options, topic):
                    raise topic.error
            return _Look(self._at(choose(topics), At.LATEST), topics, missing)

        def look() -> _Look:
            # A topic that is deleted between the two requests fails the second one.
            return cluster.retrying(cluster.deadline("finding the ends of logs"), attempt)

        def doubtful(found: _Look) -> bool:
            return any(
                at not in found.ends or (found.ends[at] < offset and not self._is_other(found, at))
                for at, offset in known.items()
            )

        return settled(self.client, look, doubtful)

    def _at(self, partitions: list[TopicPartition], place: At) -> Offsets:
        found = self.client.list_offsets(dict.fromkeys(partitions, int(place)))
        return {at: offset.offset for at, offset in found.items()}

    def _missing(self, look: _Look, start: Set[TopicPartition] = frozenset()) -> list[str]:
        """What the options name, is not there, and is not in ``start`` either."""
        known = {at.topic for at in start}
        if not self.options.given("assign"):
            return [f"topic: {name}" for name in sorted(look.missing - known)]
        assigned = {TopicPartition(*at) for at in self.options["assign"]}
        return [f"partition: {at}" for at in sorted(assigned - look.ends.keys() - start)]

    def _is_other(self, look: _Look, at: TopicPartition) -> bool:
        """Whether a topic is known not to be the one that the offsets belong to."""
        known = self._ids.get(at.topic, NO_ID)
        return known != NO_ID and known != look.topic_id(at)

    def _is_anew(self, look: _Look, at: TopicPartition, start: int, end: int) -> bool:
        """Whether a log that was read up to ``start`` has been deleted and made anew."""
        if self._ids.get(at.topic, NO_ID) != NO_ID:
            return start > 0 and self._is_other(look, at)
        # After a restart the id is not known. Logs are cut when another leader takes over, so one whose
        # first leader is still there has not been.
        return end < start and look.topics[at.topic].partitions[at.partition].leader_epoch == 0

    # The end of a batch.

    def _end(self, start: Offsets, limits: bool) -> Offsets:
        """Where the batch from ``start`` ends. Without ``limits`` it has everything."""
        with self.broker_errors("finding new records"):
            return self._find_end(start, limits)

    def _find_end(self, start: Offsets, limits: bool) -> Offsets:
        look = self._now(start)
        self._latest = look.ends
        ends = dict(look.ends)
        both = start.keys() & ends.keys()
        anew = {at for at in both if self._is_anew(look, at, start[at], ends[at])}
        begins = {at: start[at] for at in both - anew}
        others = sorted(ends.keys() - begins.keys())
        # Where new partitions begin need not be known yet, unless they are to have their share.
        if others and (limits or anew):
            begins.update(self._at(others, At.EARLIEST))
        for at in anew:
            if ends[at] >= start[at] > begins[at]:
                ends[at] = start[at] - 1
        if start == self._initial and not self._begun:
            # Where the first batch begins is kept nowhere. What was the end of a log then is another one
            # now, if the batch has to be read again; so it has nothing of these.
            ends.update((at, start[at]) for at in self._empty & ends.keys())
        if limits:
            limited = self._limit(begins, ends)
            if limited is None:
                return start
            ends = limited
        self._begun = True
        self._ids.update((at.topic, look.topic_id(at)) for at in ends)
        self._batch = _Batch(ends, anew)
        return ends

    def _now(self, start: Offsets) -> _Look:
        """What can be read after ``start``."""
        fixed = self._fixed
        if fixed is None:
            look = self._look(start)
        elif all(at in fixed.ends and fixed.ends[at] >= start[at] for at in start):
            look = fixed
        else:  # these were asked for before the start was known
            look = self._fixed = self._look(start)
        for missing in self._missing(look, start.keys()):
            if self._fail:
                raise MissingDataError(f"there is no such {missing}")
            if missing not in self._told:
                self._told.add(missing)
                lost(f"there is no such {missing}", False)
        return look

    def _limit(self, begins: Offsets, ends: Offsets) -> Offsets | None:
        """The ends with ``maxOffsetsPerTrigger``; None where there are not enough records yet."""
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
        # In proportion to what there is to be read, but something of each.
        return ends | {
            at: begins[at] + min(size, max(1, most * size // total)) for at, size in sizes.items()
        }

    # The tasks of a batch.

    def _plan(self, start: Offsets, end: Offsets) -> list[Task]:
        again = self._batch is None and start == self._initial
        if self._batch is not None and self._batch.end == end:
            again = self._batch.again
        # The first batch after a restart is one that was planned before it. If it is the first of all,
        # where it began has been found anew, and that may lie behind its end, see ``_find_end``.
        if gone := [] if again else sorted(start.keys() - end.keys()):
            read = ", ".join(f"{at} (read up to offset {start[at]})" for at in gone)
            lost(f"gone, or no longer chosen by {self._selection()}: {read}", self._fail)
        wanted = {
            at: offset
            for at, offset in sorted(end.items())
            if start.get(at) != offset and not (again and at in start and offset < start[at])
        }
        look = self._see(
            sorted({at.topic for at in wanted}),
            lambda topics: [
                at
                for at in wanted
                if at.topic in topics and at.partition in topics[at.topic].partitions
            ],
            wanted,
        )
        if self._batch is None or self._batch.end != end:
            both = wanted.keys() & start.keys() & look.ends.keys()
            anew = {at for at in both if self._is_anew(look, at, start[at], end[at])}
            self._batch = _Batch(end, anew, again)
        earliest = self._at(sorted(look.ends), At.EARLIEST)
        tasks = []
        for at, offset in wanted.items():
            if at not in look.ends or self._ids.setdefault(
                at.topic, look.topic_id(at)
            ) != look.topic_id(at):
                lost(f"{at}: deleted before offsets up to {offset - 1} were read", self._fail)
                continue
            first = self._first(at, start.get(at), offset, earliest[at])
            last = look.ends[at]
            if first is not None and offset > last:
                text = f"{at}: offsets {last} to {offset - 1} are gone, the log ends before"
                lost(text, self._fail)
            if first is not None and first < min(offset, last):
                tasks.append(Task(*at, first, min(offset, last), look.topic_id(at)))
        return tasks

    def _first(self, at: TopicPartition, start: int | None, end: int, earliest: int) -> int | None:
        """The offset that reading begins at; None where there is nothing to be read."""
        if start is None:
            if earliest > 0:
                text = f"{at}: new, but begins at offset {earliest}: those before are gone"
                lost(text, self._fail)
            return earliest
        if self._batch is not None and at in self._batch.anew:
            text = f"{at}: read up to offset {start}, but the topic was deleted and made anew"
            lost(text, self._fail)
            return earliest
        if end < start:
            text = f"{at}: read up to offset {start}, but the log ends at offset {end}: it was cut"
            lost(f"{text}, or the topic was deleted and made anew", self._fail)
            return None
        if start < earliest:
            lost(f"{at}: offsets {start} to {earliest - 1} are gone", self._fail)
        return max(start, earliest)

    def _selection(self) -> str:
        kind = str(self.options.check_selection())
        return f"{kind} {self.options.text(kind)}"


def _offsets(found: Json) -> Offsets:
    return {TopicPartition(*at): offset for at, offset in of_json(found).items()}


class PlainStreamReader(KafkaStreamReader):
    """Before PySpark 4.2: batches have all that there is."""

    _position: Offsets | None = None

    def latestOffset(self) -> Json:  # type: ignore[override]
        # Spark does not tell the start, and asks for the end of the first batch before its beginning.
        if self._position is None:
            self._position = _offsets(self.initialOffset())
        return to_json(self._end(self._position, False))

    def partitions(self, start: Json, end: Json) -> list[KafkaPartition]:
        result = super().partitions(start, end)
        self._position = _offsets(end)
        return result


if _HAS_LIMITS:

    class LimitedStreamReader(KafkaStreamReader, SupportsTriggerAvailableNow):
        """Since PySpark 4.2: with limits, Trigger.AvailableNow, and the newest offsets in progress."""

        def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
            limits = not isinstance(limit, ReadAllAvailable)
            return to_json(self._end(_offsets(start), limits))

        def getDefaultReadLimit(self) -> ReadLimit:
            # There is no limit that says both; whichever comes back, the options tell what it stands for.
            if self.options.given("maxOffsetsPerTrigger"):
                return ReadMaxRows(self.options["maxOffsetsPerTrigger"])
            if self.options.given("minOffsetsPerTrigger"):
                return ReadMinRows(self.options["minOffsetsPerTrigger"])
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:
            with self.broker_errors("finding new records"):
                self._fixed = self._look({})

        def reportLatestOffset(self) -> Json | None:
            return None if self._latest is None else to_json(self._latest)
