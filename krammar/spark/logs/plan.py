"""Plans a read: finds the partitions below the paths, and splits their segments into tasks of bytes and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from krammar.logfiles.damage import UNFINISHED, DamageError
from krammar.logfiles.partition import PartitionFiles, PartitionFolder, partitions_in
from krammar.logfiles.segment import Segment
from krammar.logfiles.transactions import Aborted, Transactions, transactions_of
from krammar.spark.errors import DataLossError, MissingDataError
from krammar.spark.loss import check_offset
from krammar.spark.offsets import (
    EARLIEST,
    AtTimestamp,
    Bound,
    Earliest,
    Latest,
    Specific,
    TopicPartition,
    check_order,
    check_partitions,
    check_times,
    no_record_at,
)
from krammar.spark.option_table import Use
from krammar.spark.options import Options
from krammar.spark.pushdown import Wanted
from krammar.wire.errors import WireError

# The folders of one partition; there are several if the paths belong to several brokers.
Replicas = list[PartitionFolder]

# The most bytes of a log that one task reads, unless one batch is larger.
TASK_BYTES = 64 << 20


def find_partitions(paths: Sequence[str]) -> dict[TopicPartition, Replicas]:
    """Return the partitions in log dirs, by topic and number; a path may also be a partition's folder.

    Raises:
        MissingDataError: a path does not exist, is not a folder, or contains no partition.
    """
    found: dict[TopicPartition, Replicas] = {}
    for path in paths:
        try:
            folders = list(partitions_in(path))
        except FileNotFoundError:
            raise MissingDataError(f"{path} does not exist") from None
        except NotADirectoryError:
            raise MissingDataError(f"{path} is not a folder") from None
        if not folders:
            raise MissingDataError(
                f"{path} contains no partition's folder, such as orders-0; load a broker's log dir"
            )
        for folder in folders:
            found.setdefault(folder.key, []).append(folder)
    return found


def only_replica(replicas: Replicas) -> PartitionFolder:
    """Return the folder of a partition.

    Raises:
        MissingDataError: the partition has several folders. Nothing in them tells which replica is complete.
    """
    folder, *others = replicas
    if others:
        raise MissingDataError(
            f"{folder.topic}-{folder.partition} is in {folder.path} and in {others[0].path}; load one of"
            " them"
        )
    return folder


@dataclass(frozen=True, slots=True)
class LogTask:
    """The part of a segment that one task reads.

    Attributes:
        base: the segment's base offset
        size: the size of the segment's file at planning time, in bytes
        begin, end: positions: the task reads batches that begin at ``begin`` or later, and before ``end``
        first, last: offsets: the task returns records from ``first`` up to, not including, ``last``
        is_newest: whether the segment is the partition's last one, whose tail may be torn
        aborted: the aborted transactions in these offsets, for read_committed
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


def select(options: Options, found: Mapping[TopicPartition, Replicas]) -> list[PartitionFolder]:
    """Return the partitions that the options select; all partitions if they select none.

    Raises:
        OptionError: the options select partitions in several ways.
        MissingDataError: a topic or partition has no folder, or several.
    """
    options.check_selection()
    if options.given("assign"):
        assigned = options["assign"]
        missing = sorted(assigned - found.keys())
        if missing:
            raise MissingDataError(f"{missing[0][0]}-{missing[0][1]} has no folder below the paths")
        return [only_replica(found[key]) for key in sorted(assigned)]
    wanted: Callable[[str], object] = bool
    if options.given("subscribe"):
        topics = options["subscribe"]
        unknown = set(topics) - {topic for topic, _ in found}
        if unknown:
            raise MissingDataError(f"topic {min(unknown)!r} has no folder below the paths")
        wanted = topics.__contains__
    elif options.given("subscribePattern"):
        wanted = options["subscribePattern"].search
    return [only_replica(found[key]) for key in sorted(found) if wanted(key[0])]


def plan(options: Options, folders: list[PartitionFolder], wanted: Wanted) -> list[LogTask]:
    """Return the tasks, ordered by topic, partition and offset.

    Raises:
        OptionError: the options contradict each other or the partitions.
        MissingDataError: a folder was deleted, or no record is new enough for a requested timestamp.
        DataLossError: a log is damaged, or requested offsets do not exist.
    """
    starting, ending = options.starting(Use.READ), options.ending()
    known = {folder.key for folder in folders}
    check_partitions("startingOffsets", starting, known)
    check_partitions("endingOffsets", ending, known)
    check_times(starting, ending)
    tasks: list[LogTask] = []
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
) -> Iterator[LogTask]:
    try:
        log = PartitionFiles(folder, damaged=_planning_damage(options["failOnDataLoss"]))
    except FileNotFoundError:
        raise MissingDataError(f"{folder.path} was deleted while the read was planned") from None
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
        # The positions of batches are unknown, so the damaged part cannot be skipped.
        raise DataLossError(f"{log.name}: {error}") from None


def _planning_damage(fail: bool) -> Callable[[DamageError], None]:
    """Return a handler for damage that planning finds.

    It ignores most damage: the tasks find it again, and know whether it affects their records. With ``fail``, it
    raises damage after which the positions of batches are unknown.
    """

    def damaged(error: DamageError) -> None:
        if fail and error.size is None and error.damage not in UNFINISHED:
            raise error

    return damaged


def _resolve(log: PartitionFiles, bound: Bound, latest: int, strict: bool) -> int:
    if isinstance(bound, Earliest):
        return log.earliest
    if isinstance(bound, Latest):
        return latest
    if isinstance(bound, AtTimestamp):
        timestamp = bound.of(log.folder.key)
        found = log.offset_at(timestamp)
        if found is None and strict:
            raise no_record_at(log.name, timestamp)
        return latest if found is None else min(found, latest)
    assert isinstance(bound, Specific)  # groups exist only with brokers
    offset = bound.offsets[log.folder.key]
    if offset < 0:
        return log.earliest if offset == EARLIEST else latest
    return offset


def _within(log: PartitionFiles, first: int, last: int, latest: int, fail: bool) -> tuple[int, int]:
    """Return the requested range, limited to existing offsets.

    Raises:
        DataLossError: a requested offset does not exist, and ``fail`` is true.
    """
    for offset in (first, last):
        check_offset(log.name, offset, log.earliest, latest, fail)
    return max(first, log.earliest), min(last, latest)


def _plan_segment(
    log: PartitionFiles,
    base: int,
    first: int,
    last: int,
    wanted: Wanted,
    transactions: Transactions | None,
) -> Iterator[LogTask]:
    is_newest = base == log.bases[-1]
    with log.segment(base) as segment:
        begin = segment.position_before(first) if first > base else 0
        if wanted.timestamp.low > -1:
            if segment.latest_timestamp(is_newest=is_newest) < wanted.timestamp.low:
                return
            begin = max(begin, segment.position_of_time(wanted.timestamp.low))
        end = segment.size if is_newest and last >= log.latest else segment.position_after(last - 1)
        task = LogTask(
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


def _by_bytes(task: LogTask, size: int, segment: Segment | None = None) -> Iterator[LogTask]:
    """Split a task at batch boundaries into tasks of about ``size`` bytes."""
    if task.end - task.begin <= size:
        yield task
        return
    if segment is None:
        with _segment(task) as opened:
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


def _segment(task: LogTask) -> Segment:
    """Open the segment of a planned task. Its damage was reported before."""
    return Segment(task.folder, task.base, task.size, damaged=_planning_damage(fail=False))


def _boundaries(segment: Segment, task: LogTask) -> Iterator[tuple[int, int]]:
    """Yield last offset and position of batches in a task, from the index or else from all headers."""
    index = segment.indexes[0]
    if index:
        for key, position in zip(index.keys, index.values, strict=True):
            if task.begin < position < task.end:
                yield segment.base_offset + key, position
        return
    for header in segment.scan(task.begin, task.end):
        if header.position > task.begin:
            yield header.last_offset, header.position


def _by_offsets(task: LogTask, count: int) -> Iterator[LogTask]:
    """Split a task into tasks with at most ``count`` offsets each."""
    if task.last - task.first <= count:
        yield task
        return
    with _segment(task) as segment:
        # The offsets in the task's bytes; the segment may have more.
        first, last = task.last, task.first
        damage: list[DamageError] = []
        segment.damaged = damage.append
        for header in segment.scan(task.begin, task.end):
            low = header.base_offset if header.magic > 1 else task.first
            first, last = min(first, low), max(last, header.next_offset)
        if damage:  # a task must find it, and report it
            first, last = task.first, task.last
        first, last = max(first, task.first), min(last, task.last)
        for start in range(first, last, count):
            begin = max(task.begin, segment.position_before(start))
            yield replace(task, begin=begin, first=start, last=min(start + count, last))
