"""Plans a read on the driver: asks the brokers for offsets, and splits them into tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from krammar.client import At, Client, OffsetAt, Topic, TopicPartition
from krammar.client.committed import Committed
from krammar.client.errors import UnknownTopicOrPartition
from krammar.client.metadata import NO_ID
from krammar.spark.errors import MissingDataError, OptionError
from krammar.spark.loss import check_offset
from krammar.spark.offsets import (
    EARLIEST,
    AtTimestamp,
    Bound,
    Earliest,
    Latest,
    OfGroup,
    Specific,
    check_order,
    check_partitions,
    check_times,
    no_record_at,
)
from krammar.spark.option_table import Use
from krammar.spark.options import Options
from krammar.spark.pushdown import Wanted


@dataclass(frozen=True, slots=True)
class Task:
    """The offsets of a partition that one task reads: ``begin``, up to but not including ``end``.

    ``topic_id`` is the topic's id at planning time, or the null UUID if the brokers have no topic ids. If the
    topic is deleted and created again later, these offsets have other records, and the id differs.

    ``from_earliest`` means that the partition is read from its earliest offset, whatever it is when the task begins.
    """

    topic: str
    partition: int
    begin: int
    end: int
    topic_id: UUID = field(default=NO_ID, compare=False)
    from_earliest: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The partition as messages show it: ``orders-0``."""
        return f"{self.topic}-{self.partition}"

    @property
    def count(self) -> int:
        return self.end - self.begin


def select(options: Options, client: Client) -> list[TopicPartition]:
    """Return the partitions that the options select, sorted.

    A pattern never matches internal topics; ``subscribe`` and ``assign`` can name them.

    Raises:
        OptionError: no partitions are selected, or in several ways.
        MissingDataError: a topic or partition does not exist.
        ClientError: the brokers cannot be asked.
    """
    names = named_topics(options)
    try:
        topics = client.topics(names)
    except UnknownTopicOrPartition as error:
        raise MissingDataError(missing_topic(error.detail)) from None
    found = matching(options, topics)
    if options.given("assign") and (missing := sorted(set(options["assign"]) - set(found))):
        raise MissingDataError(missing_partition(TopicPartition(*missing[0])))
    return found


def missing_topic(name: str) -> str:
    """Return the message for a topic that the options name and that does not exist."""
    return f"topic {name!r} does not exist; create it, or correct the options"


def missing_partition(at: TopicPartition) -> str:
    """Return the message for a partition that ``assign`` names and that does not exist."""
    return f"partition {at} does not exist; correct the option assign"


def deleted_topic(task: Task, created_again: bool) -> str:
    """Return the message for a topic that was deleted after a task was planned."""
    again = " and created again" if created_again else ""
    offsets = f"offsets {task.begin} to {task.end - 1}"
    return f"{task.name}, {offsets}: the topic was deleted{again} before they were read"


def named_topics(options: Options) -> list[str] | None:
    """Return the topics that the options name, or None if a pattern selects them.

    Raises:
        OptionError: no topics are selected, or in several ways.
    """
    kind = options.check_selection()
    if kind is None:
        raise OptionError("subscribe", "is missing: set it, or subscribePattern, or assign")
    if kind == "subscribePattern":
        return None
    chosen = options[kind]
    return sorted({topic for topic, _ in chosen} if kind == "assign" else set(chosen))


def is_chosen(options: Options, topic: Topic) -> bool:
    """Return whether the options select an existing topic, or some of its partitions."""
    if not options.given("subscribePattern"):
        return True
    return not topic.internal and options["subscribePattern"].search(topic.name) is not None


def selects(options: Options, at: TopicPartition) -> bool:
    """Return whether the options select a partition, whether it exists or not."""
    if options.given("assign"):
        return at in options["assign"]
    if options.given("subscribe"):
        return at.topic in options["subscribe"]
    return options["subscribePattern"].search(at.topic) is not None


def matching(options: Options, topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return the partitions of these topics that the options select, sorted."""
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
    """Return one task per partition that has records, ordered by topic and partition.

    Raises:
        OptionError: the options contradict each other or the partitions.
        MissingDataError: no record is new enough for a requested timestamp.
        DataLossError: requested offsets do not exist, and ``failOnDataLoss`` is true.
        ClientError: the brokers cannot be asked.
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
            # All records before the first one that is new enough are older.
            first = last if found < 0 else max(first, found)
        if first < last:
            topic_id = client.cluster.metadata.topics[at.topic].topic_id
            tasks.append(Task(*at, first, last, topic_id, ends.begins_at_earliest(starting, at)))
    return tasks


class Ends:
    """The earliest and the latest offset of partitions.

    With read_committed, the latest offset is the start of the first open transaction. ``latest`` passes
    latest offsets that the caller already knows.
    """

    def __init__(
        self,
        client: Client,
        partitions: list[TopicPartition],
        latest: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.client = client
        self.earliest = self._at(dict.fromkeys(partitions, int(At.EARLIEST)))
        self.latest = latest or self._at(dict.fromkeys(partitions, int(At.LATEST)))
        self._committed: Mapping[TopicPartition, Committed] = {}  # of a group that was resolved

    def _at(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: found.offset for at, found in self.client.list_offsets(wanted).items()}

    def resolve(self, bound: Bound, strict: bool) -> dict[TopicPartition, int]:
        """Return the offset of a bound in each partition.

        Args:
            strict: if no record is at or after a timestamp, raise MissingDataError; otherwise the
                latest offset is used.
        """
        if isinstance(bound, Earliest):
            return self.earliest
        if isinstance(bound, Latest):
            return self.latest
        result = {}
        if isinstance(bound, AtTimestamp):
            times = {at: bound.of(at) for at in self.latest}
            for at, offset in self._at(times).items():
                if offset < 0 and strict:
                    raise no_record_at(str(at), times[at])
                result[at] = self.latest[at] if offset < 0 else min(offset, self.latest[at])
            return result
        if isinstance(bound, OfGroup):
            committed = self.client.groups.committed(bound.group, list(self.latest))
            self._committed = committed
            if self.latest and not committed:
                raise MissingDataError(
                    f"group {bound.group!r} has committed no offsets of the selected partitions "
                    "(check the option startingGroup)"
                )
            return self.earliest | {at: found.offset for at, found in committed.items()}
        for at in self.latest:
            offset = bound.offsets[at]
            if offset < 0:
                offset = (self.earliest if offset == EARLIEST else self.latest)[at]
            result[at] = offset
        return result

    def begins_at_earliest(self, bound: Bound, at: TopicPartition) -> bool:
        """Return whether a resolved bound means the earliest offset of a partition, and not a number."""
        if isinstance(bound, Specific):
            return bound.offsets[at] == EARLIEST
        return isinstance(bound, Earliest) or (
            isinstance(bound, OfGroup) and at not in self._committed
        )

    def within(self, at: TopicPartition, first: int, last: int, fail: bool) -> tuple[int, int]:
        """Return the requested range, limited to existing offsets.

        Raises:
            DataLossError: a requested offset does not exist, and ``fail`` is true.
        """
        earliest, latest = self.earliest[at], self.latest[at]
        check_offset(str(at), first, earliest, latest, fail)
        check_offset(str(at), last, earliest, latest, fail)
        return max(first, earliest), min(last, latest)
