"""The tasks of a read: which offsets of which partitions. Made on the driver, by asking the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from krammar.client import At, Client, OffsetAt, Topic, TopicPartition
from krammar.client.errors import UnknownTopicOrPartition
from krammar.client.metadata import NO_ID
from krammar.spark.errors import MissingDataError, OptionError
from krammar.spark.loss import lost
from krammar.spark.offsets import (
    EARLIEST,
    AtTimestamp,
    Bound,
    Earliest,
    Latest,
    check_order,
    check_partitions,
    check_times,
)
from krammar.spark.options import Options, Use
from krammar.spark.pushdown import Wanted
from krammar.spark.ranges import split


@dataclass(frozen=True, slots=True)
class Task:
    """Offsets of a partition, from ``begin`` to before ``end``.

    ``topic_id`` is the topic's when the task was planned, the null uuid where brokers have none: a
    topic that was deleted and made anew since has other records at these offsets.
    """

    topic: str
    partition: int
    begin: int
    end: int
    topic_id: UUID = field(default=NO_ID, compare=False)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def count(self) -> int:
        return self.end - self.begin


def select(options: Options, client: Client) -> list[TopicPartition]:
    """The partitions that the options ask for, in order. Internal topics have to be named: a pattern
    does not find them. Raises OptionError, MissingDataError and ClientError."""
    names = named_topics(options)
    try:
        topics = client.topics(names)
    except UnknownTopicOrPartition as error:
        raise MissingDataError(f"there is no such topic: {error}") from None
    found = matching(options, topics)
    if options.given("assign") and (missing := sorted(set(options["assign"]) - set(found))):
        raise MissingDataError(f"there is no partition {TopicPartition(*missing[0])}")
    return found


def named_topics(options: Options) -> list[str] | None:
    """The topics that the options name; None where a pattern chooses them. Raises OptionError."""
    kind = options.check_selection()
    if kind is None:
        raise OptionError("subscribe", "or subscribePattern or assign is needed")
    if kind == "subscribePattern":
        return None
    chosen = options[kind]
    return sorted({topic for topic, _ in chosen} if kind == "assign" else set(chosen))


def is_chosen(options: Options, topic: Topic) -> bool:
    """Whether the options ask for (some of) a topic that they name or that there is."""
    if not options.given("subscribePattern"):
        return True
    return not topic.internal and options["subscribePattern"].search(topic.name) is not None


def matching(options: Options, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """The partitions of these topics that the options ask for, in order."""
    found = sorted(
        TopicPartition(name, index)
        for name, topic in topics.items()
        if is_chosen(options, topic)
        for index in topic.partitions
    )
    return [at for at in found if at in options["assign"]] if options.given("assign") else found


def plan(
    options: Options, client: Client, partitions: list[TopicPartition], wanted: Wanted
) -> list[Task]:
    """The tasks, in order of topic, partition and offset.

    Raises OptionError, MissingDataError, DataLossError for offsets that are gone, and ClientError.
    """
    starting, ending = options.starting(Use.READ), options.ending()
    check_partitions("startingOffsets", starting, set(partitions))
    check_partitions("endingOffsets", ending, set(partitions))
    check_times(starting, ending)
    chosen = [at for at in partitions if wanted.has(*at)]
    ends = Ends(client, chosen)
    strict = options["startingOffsetsByTimestampStrategy"] == "error"
    firsts = ends.resolve(starting, strict)
    lasts = ends.resolve(ending, False)
    at_time: Mapping[TopicPartition, OffsetAt] = {}
    if wanted.timestamp.low > -1:
        at_time = client.list_offsets(dict.fromkeys(chosen, wanted.timestamp.low))
    tasks = []
    for at in chosen:
        check_order(*at, firsts[at], lasts[at])
        first, last = ends.within(at, firsts[at], lasts[at], options["failOnDataLoss"])
        first, last = max(first, wanted.offset.low), min(last, wanted.offset.high + 1)
        if at in at_time:
            found = at_time[at].offset
            # All records before the first that is as late are earlier.
            first = last if found < 0 else max(first, found)
        if first < last:
            tasks.append(Task(*at, first, last, client.cluster.metadata.topics[at.topic].topic_id))
    return list(split(tasks, options["minPartitions"], options["maxRecordsPerPartition"]))


class Ends:
    """Where partitions begin and end, the latter with read_committed at the first open transaction.
    ``latest`` is where they end, if that has been asked for before."""

    def __init__(
        self,
        client: Client,
        partitions: list[TopicPartition],
        latest: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.client = client
        self.earliest = self._at(dict.fromkeys(partitions, int(At.EARLIEST)))
        self.latest = latest or self._at(dict.fromkeys(partitions, int(At.LATEST)))

    def _at(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: found.offset for at, found in self.client.list_offsets(wanted).items()}

    def resolve(self, bound: Bound, strict: bool) -> dict[TopicPartition, int]:
        """The offset that a bound is in each partition. With ``strict`` a time after the last record
        is a MissingDataError, else it is the end."""
        if isinstance(bound, Earliest):
            return self.earliest
        if isinstance(bound, Latest):
            return self.latest
        result = {}
        if isinstance(bound, AtTimestamp):
            times = {at: bound.of(at) for at in self.latest}
            for at, offset in self._at(times).items():
                if offset < 0 and strict:
                    raise MissingDataError(
                        f"{at} has no record at or after {times[at]} ms since 1970;"
                        " startingOffsetsByTimestampStrategy=latest begins at its end then"
                    )
                result[at] = self.latest[at] if offset < 0 else min(offset, self.latest[at])
            return result
        for at in self.latest:
            offset = bound.offsets[at]
            if offset < 0:
                offset = (self.earliest if offset == EARLIEST else self.latest)[at]
            result[at] = offset
        return result

    def within(self, at: TopicPartition, first: int, last: int, fail: bool) -> tuple[int, int]:
        """The offsets that there are. Raises DataLossError if some are not, and ``fail``."""
        earliest, latest = self.earliest[at], self.latest[at]
        for offset in (first, last):
            if earliest <= offset <= latest:
                continue
            lost(f"{at}: offset {offset} is asked for, but there are {earliest} to {latest}", fail)
        return max(first, earliest), min(last, latest)
