"""The tasks of a read: which bytes of which segments, and which of their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from krammar.spark.errors import DataLossError, MissingDataError
from krammar.spark.logs.folders import PartitionFolder
from krammar.spark.logs.partition import PartitionLog
from krammar.spark.logs.segment import Segment
from krammar.spark.logs.transactions import Aborted, Transactions, transactions_of
from krammar.spark.offsets import (
    EARLIEST,
    AtTimestamp,
    Bound,
    Earliest,
    Latest,
    TopicPartition,
    check_order,
    check_partitions,
    check_times,
)
from krammar.spark.options import Options, Use
from krammar.spark.pushdown import Wanted
from krammar.wire.errors import WireError

# Bytes of a log that one task reads at most, or one batch.
TASK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """A stretch of a segment.

    ``size``            of the segment's file when it was planned, in bytes
    ``begin``, ``end``  positions: batches that begin at or behind the one and before the other
    ``first``, ``last`` offsets of records: from the one to before the other
    ``is_newest``       whether the segment is the partition's last, whose tail may be torn
    """

    topic: str
    partition: int
    folder: str
    base: int
    size: int
    begin: int
    end: int
    first: int
    last: int
    is_newest: bool
    aborted: tuple[Aborted, ...] = ()


def select(
    options: Options, folders: Mapping[TopicPartition, PartitionFolder]
) -> list[PartitionFolder]:
    """The partitions that the options ask for; all of them without subscribe, subscribePattern and
    assign. Raises OptionError and MissingDataError."""
    options.check_selection()
    if options.given("assign"):
        assigned = options["assign"]
        missing = sorted(assigned - folders.keys())
        if missing:
            raise MissingDataError(f"{missing[0][0]}-{missing[0][1]} has no folder there")
        return [folders[key] for key in sorted(assigned)]
    wanted: Callable[[str], object] = bool
    if options.given("subscribe"):
        topics = options["subscribe"]
        unknown = set(topics) - {topic for topic, _ in folders}
        if unknown:
            raise MissingDataError(f"topic {min(unknown)!r} has no folder there")
        wanted = topics.__contains__
    elif options.given("subscribePattern"):
        wanted = options["subscribePattern"].search
    return [folders[key] for key in sorted(folders) if wanted(key[0])]


def plan(options: Options, folders: list[PartitionFolder], wanted: Wanted) -> list[Task]:
    """The tasks, in order of topic, partition and offset.

    Raises OptionError, MissingDataError, and DataLossError for logs that are damaged.
    """
    starting, ending = options.starting(Use.READ), options.ending()
    known = {folder.key for folder in folders}
    check_partitions("startingOffsets", starting, known)
    check_partitions("endingOffsets", ending, known)
    check_times(starting, ending)
    tasks: list[Task] = []
    for folder in folders:
        if wanted.has(*folder.key):
            tasks.extend(_plan_partition(options, folder, starting, ending, wanted))
    at_least = options["minPartitions"]
    if at_least is not None and 0 < len(tasks) < at_least:
        total = sum(task.end - task.begin for task in tasks)
        tasks = [part for task in tasks for part in _by_bytes(task, max(total // at_least, 1))]
    at_most = options["maxRecordsPerPartition"]
    if at_most is not None:
        tasks = [part for task in tasks for part in _by_offsets(task, at_most)]
    return tasks


def _plan_partition(
    options: Options, folder: PartitionFolder, starting: Bound, ending: Bound, wanted: Wanted
) -> Iterator[Task]:
    log = PartitionLog(folder, tolerant=not options["failOnDataLoss"])
    try:
        transactions = None
        latest = log.latest
        if options["kafka.isolation.level"] == "read_committed":
            transactions = transactions_of(log)
            latest = transactions.stable_end
        strict = options["startingOffsetsByTimestampStrategy"] == "error"
        first = _resolve(log, starting, latest, strict)
        last = _resolve(log, ending, latest, False)
        check_order(*folder.key, first, last)
        first, last = _within(log, first, last, latest, options["failOnDataLoss"])
        first = max(first, wanted.offset.low)
        last = min(last, wanted.offset.high + 1)
        for base, begin, end in log.between(first, last):
            yield from _plan_segment(log, base, begin, end, wanted, transactions)
    except (WireError, OSError) as error:
        # Without knowing where batches begin there is nothing to leave out but all of it.
        raise DataLossError(f"{log.name}: {error}") from None


def _resolve(log: PartitionLog, bound: Bound, latest: int, strict: bool) -> int:
    if isinstance(bound, Earliest):
        return log.earliest
    if isinstance(bound, Latest):
        return latest
    if isinstance(bound, AtTimestamp):
        timestamp = bound.of(log.folder.key)
        found = log.offset_at(timestamp)
        if found is None and strict:
            raise MissingDataError(
                f"{log.name} has no record at or after {timestamp} ms since 1970;"
                " startingOffsetsByTimestampStrategy=latest begins at its end then"
            )
        return latest if found is None else min(found, latest)
    offset = bound.offsets[log.folder.key]
    if offset < 0:
        return log.earliest if offset == EARLIEST else latest
    return offset


def _within(log: PartitionLog, first: int, last: int, latest: int, fail: bool) -> tuple[int, int]:
    """The offsets that there are. Raises DataLossError if some are not, and ``fail``."""
    if fail:
        for offset in (first, last):
            if not log.earliest <= offset <= latest:
                raise DataLossError(
                    f"{log.name}: offset {offset} is asked for, but there are {log.earliest} to"
                    f" {latest}; failOnDataLoss=false reads what is there"
                )
    return max(first, log.earliest), min(last, latest)


def _plan_segment(
    log: PartitionLog,
    base: int,
    first: int,
    last: int,
    wanted: Wanted,
    transactions: Transactions | None,
) -> Iterator[Task]:
    is_newest = base == log.bases[-1]
    with log.segment(base) as segment:
        begin = segment.position_before(first) if first > base else 0
        if wanted.timestamp.low > -1:
            if segment.latest_timestamp(is_newest=is_newest) < wanted.timestamp.low:
                return
            begin = max(begin, segment.position_of_time(wanted.timestamp.low))
        end = (
            segment.size if is_newest and last >= log.latest else segment.position_behind(last - 1)
        )
        task = Task(
            log.folder.topic,
            log.folder.partition,
            log.folder.path,
            base,
            segment.size,
            begin,
            end,
            first,
            last,
            is_newest,
            transactions.within(first, last) if transactions else (),
        )
        if begin < end:
            yield from _by_bytes(task, TASK_BYTES, segment)


def _by_bytes(task: Task, size: int, segment: Segment | None = None) -> Iterator[Task]:
    """A task cut where batches begin, into tasks of about ``size`` bytes."""
    if task.end - task.begin <= size:
        yield task
        return
    if segment is None:
        with Segment(task.folder, task.base, task.size) as opened:
            yield from _by_bytes(task, size, opened)
        return
    begin = task.begin
    for last_offset, position in _boundaries(segment, task):
        if position - begin >= size and segment.is_at(last_offset, position):
            yield replace(task, begin=begin, end=position)
            begin = position
        if last_offset >= task.last:
            break
    yield replace(task, begin=begin)


def _boundaries(segment: Segment, task: Task) -> Iterator[tuple[int, int]]:
    """Last offset and position of batches in a task, by the index or else by all headers."""
    offsets, positions = segment.offset_index()
    if offsets:
        for offset, position in zip(offsets, positions, strict=True):
            if task.begin < position < task.end:
                yield offset, position
        return
    for header in segment.headers(task.begin, task.end):
        if header.position > task.begin:
            yield header.last_offset, header.position


def _by_offsets(task: Task, count: int) -> Iterator[Task]:
    """A task cut into such that have ``count`` offsets at most."""
    if task.last - task.first <= count:
        yield task
        return
    with Segment(task.folder, task.base, task.size) as segment:
        # Which offsets are in these bytes: those of the segment may be more.
        first, last = task.last, task.first
        for header in segment.headers(task.begin, task.end):
            low = header.base_offset if header.magic > 1 else task.first
            first, last = min(first, low), max(last, header.next_offset)
        first, last = max(first, task.first), min(last, task.last)
        for start in range(first, last, count):
            begin = max(task.begin, segment.position_before(start))
            yield replace(task, begin=begin, first=start, last=min(start + count, last))
