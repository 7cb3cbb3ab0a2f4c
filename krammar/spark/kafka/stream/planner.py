"""The offsets and tasks of micro-batches, and lost records.

Spark's checkpoint stores only the position at which each batch ends: offsets, and the ids of their topics. They suffice
to read a batch again unchanged, also in a new process:

- A partition that only the end contains is new. It is read from its earliest offset.
- A partition that only the start contains was deleted.
- If the end has another id, the topic was deleted and created again. Its log is read from its earliest offset.
- If the end is before the start, the log was truncated. Without ids, the topic may also have been created again, and
  the leader epoch tells which.

Spark stores an end before it plans the tasks. An end that lacks a partition, or is lower, is therefore only returned if
the loss is certain or the user has accepted losses: a restart then continues where the last batch has ended.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from krammar.client import At, Client, TopicPartition
from krammar.client.errors import UnknownTopicOrPartition
from krammar.spark.errors import MissingDataError
from krammar.spark.kafka.plan import Ends, Task, selects
from krammar.spark.kafka.stream.position import Offsets, StreamPosition
from krammar.spark.kafka.stream.snapshots import StreamSnapshot, StreamSnapshots
from krammar.spark.limits import TriggerLimits
from krammar.spark.loss import check_offset, report_loss
from krammar.spark.offsets import check_partitions
from krammar.spark.option_table import Use
from krammar.spark.options import Options


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is known about the next batch.

    Attributes:
        end: where it ends
        recreated: partitions of topics that were deleted and created again since the previous batch
        is_repeated: whether it is the query's first batch, read again after a restart
        snapshot: the state of the brokers that the end was computed from; None after a restart
    """

    end: StreamPosition
    recreated: Set[TopicPartition]
    is_repeated: bool = False
    snapshot: StreamSnapshot | None = None


class StreamPlanner:
    """Computes where the micro-batches of a query end, and plans their tasks. The driver has one for all batches.

    Raises:
        OptionError: the options contradict the partitions.
        MissingDataError: a topic, a partition or a requested timestamp does not exist.
        DataLossError: records are missing, and ``failOnDataLoss`` is true.
        ClientError: the brokers cannot be asked.
    """

    def __init__(self, options: Options, client: Client) -> None:
        self.latest: Offsets | None = None  # the newest ends of the logs
        self._options = options
        self._client = client
        self._snapshots = StreamSnapshots(options, client)
        self._fail: bool = options["failOnDataLoss"]
        # Where a new query begins, and the partitions that had no records after that.
        self._initial: StreamPosition | None = None
        self._empty: Set[TopicPartition] = frozenset()
        self._begun = False
        self._batch: _Batch | None = None
        # Ends for Trigger.AvailableNow.
        self._fixed: StreamSnapshot | None = None
        self._limits = TriggerLimits(options)
        # Missing topics and partitions that a warning has reported.
        self._warned: set[str] = set()
        # Partitions that were read and do not exist any more, although the options select them.
        self._absent: set[TopicPartition] = set()
        # The ids of topics, for positions without: where the query begins, and those that Kafka's connector has stored.
        self._ids: dict[str, UUID] = {}

    def initial(self) -> StreamPosition:
        """Return where a new query begins: the same at each call."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial

    def fix_end(self) -> None:
        """Let the query end at the current ends of the logs."""
        self._fixed = self._snapshots.selected(StreamPosition({}))

    def _begin(self) -> StreamPosition:
        snapshot = self._fixed or self._snapshots.selected(StreamPosition({}))
        if missing := self._snapshots.missing(snapshot):
            raise MissingDataError(missing[0])
        chosen = sorted(snapshot.ends)
        bound = self._options.starting(Use.READ_STREAM)
        check_partitions("startingOffsets", bound, set(chosen))
        ends = Ends(self._client, chosen, snapshot.ends)
        strict = self._options["startingOffsetsByTimestampStrategy"] == "error"
        result = {}
        for at, offset in ends.resolve(bound, strict).items():
            low, high = ends.earliest[at], ends.latest[at]
            check_offset(str(at), offset, low, high, self._fail)
            result[at] = min(max(offset, low), high)
        self._empty = {at for at in chosen if result[at] == snapshot.ends[at]}
        self._ids = snapshot.ids_of(result)
        # If there are no records yet, this is also where the first batch ends, which Spark stores.
        return StreamPosition(result, self._ids)

    # The end of a batch.

    def end(self, start: StreamPosition, limits: bool) -> StreamPosition:
        """Return where the batch from ``start`` ends; without ``limits`` at the end of the logs."""
        known = StreamPosition(start.offsets, {**self._ids, **start.ids})
        snapshot = self._after(known)
        self.latest = snapshot.ends
        ends, offsets = dict(snapshot.ends), start.offsets
        both = offsets.keys() & ends.keys()
        recreated = {
            at for at in both if self._snapshots.is_recreated(snapshot, at, known, ends[at])
        }
        begins = {at: offsets[at] for at in both - recreated}
        # The beginnings of new partitions are needed only to compute their share of a limited batch.
        if limits and (others := sorted(ends.keys() - begins.keys())):
            begins.update(self._snapshots.at(others, At.EARLIEST))
        if self._fail:
            self._check_ends(known, snapshot, recreated)
        if start == self._initial and not self._begun:
            # The start of the first batch is not stored anywhere. If the batch is read again after a restart,
            # "latest" is another offset. So the batch gets no records of partitions that began at their end.
            ends.update((at, offsets[at]) for at in self._empty & ends.keys())
        if limits:
            limited = self._limit(begins, ends)
            if limited is None:
                return start
            ends = limited
        self._begun = True
        absent = {at: offsets[at] for at in self._absent}
        self._ids = snapshot.ids_of(ends)
        ids = {at.topic: known.ids[at.topic] for at in absent if at.topic in known.ids}
        end = StreamPosition(ends | absent, ids | self._ids)
        if not end.extends(start):
            end = start
        self._batch = _Batch(end, recreated, snapshot=snapshot)
        return end

    def _check_ends(
        self, start: StreamPosition, snapshot: StreamSnapshot, recreated: Set[TopicPartition]
    ) -> None:
        """Raise DataLossError for a log that ends before ``start`` or belongs to another topic."""
        for at, offset in sorted(start.offsets.items()):
            end = snapshot.ends.get(at, offset)
            if end < offset or at in recreated:
                report_loss(_lower_end(at, offset, end, created_again=at in recreated), True)

    def _after(self, start: StreamPosition) -> StreamSnapshot:
        """Return what can be read after ``start``."""
        known = {at: offset for at, offset in start.offsets.items() if selects(self._options, at)}
        position = StreamPosition(known, start.ids)
        fixed = self._fixed
        if fixed is None:
            snapshot = self._snapshots.selected(position, self._absent)
        elif all(
            fixed.ends[at] >= offset if at in fixed.ends else at in self._absent
            for at, offset in known.items()
        ):
            snapshot = fixed
        else:  # the ends were fixed before the start was known
            snapshot = self._fixed = self._snapshots.selected(position, self._absent)
        self._note_absent(start, snapshot)
        for missing in self._snapshots.missing(snapshot, start.offsets.keys()):
            if self._fail:
                raise MissingDataError(missing)
            if missing not in self._warned:
                self._warned.add(missing)
                report_loss(missing, False)
        return snapshot

    def _note_absent(self, start: StreamPosition, snapshot: StreamSnapshot) -> None:
        """Report partitions that were read and that the brokers do not have.

        With ``failOnDataLoss=false``, those that the options still select keep their offsets, in case that they return; not those of a topic that was created again with fewer partitions.
        """
        gone = sorted(start.offsets.keys() - snapshot.ends.keys())
        if gone and self._fail:
            report_loss(self._gone(gone, start.offsets), True)
        absent = [
            at
            for at in gone
            if selects(self._options, at)
            and not (at.topic in snapshot.topics and snapshot.is_other(at, start))
        ]
        if new := [at for at in absent if at not in self._absent]:
            report_loss(self._gone(new, start.offsets), False)
        self._absent = set(absent)

    def _gone(self, partitions: list[TopicPartition], start: Offsets) -> str:
        kind = str(self._options.check_selection())
        read = ", ".join(f"{at} (read up to offset {start[at]})" for at in partitions)
        return f"partitions were deleted, or {kind} {self._options.text(kind)} no longer selects them: {read}"

    def _limit(self, begins: Offsets, ends: Offsets) -> Offsets | None:
        """Apply the limits per trigger: return the ends, or None if there are too few records yet."""
        sizes = {at: ends[at] - begin for at, begin in begins.items() if ends[at] > begin}
        if self._fixed is None and self._limits.waits(sum(sizes.values())):
            return None
        return ends | {at: begins[at] + share for at, share in self._limits.shares(sizes).items()}

    # The tasks of a batch.

    def tasks(self, start: StreamPosition, end: StreamPosition) -> list[Task]:
        """Plan the tasks of a batch."""
        self._begun = True
        return [] if start == end else self._plan(start, end)

    def _plan(self, start: StreamPosition, end: StreamPosition) -> list[Task]:
        offsets = start.offsets
        is_repeated = self._batch is None and start == self._initial
        recreated: Set[TopicPartition] = frozenset() if is_repeated else start.replaced(end)
        if self._batch is not None and self._batch.end == end:
            is_repeated, recreated = self._batch.is_repeated, self._batch.recreated
        # The first batch after a restart was planned before it. If it is the query's first batch, its start
        # was computed again, and may be after its end; see ``end``.
        if gone := [] if is_repeated else sorted(offsets.keys() - end.offsets.keys()):
            report_loss(self._gone(gone, offsets), self._fail)
        wanted = {
            at: offset
            for at, offset in sorted(end.offsets.items())
            if (offsets.get(at) != offset or at in recreated)
            and not (is_repeated and at in offsets and offset < offsets[at])
        }
        if not wanted:
            return []
        snapshot, earliest = self._state(end, wanted)
        if self._batch is None or self._batch.end != end:
            both = wanted.keys() & offsets.keys() & snapshot.ends.keys()
            recreated = recreated | {
                at
                for at in both
                if at.topic not in start.ids
                and self._snapshots.is_recreated(snapshot, at, start, end.offsets[at])
            }
            self._batch = _Batch(end, recreated, is_repeated)
        tasks = []
        for at, offset in wanted.items():
            if at not in snapshot.ends or snapshot.is_other(at, end):
                report_loss(
                    f"{at}: deleted before offsets up to {offset - 1} were read", self._fail
                )
                continue
            first = self._first(at, offsets.get(at), offset, earliest[at])
            last = snapshot.ends[at]
            if first is not None and offset > last:
                text = f"{at}: offsets {last} to {offset - 1} do not exist any more: the log was truncated"
                report_loss(text, self._fail)
            if first is not None and first < min(offset, last):
                tasks.append(Task(*at, first, min(offset, last), snapshot.topic_id(at)))
        return tasks

    def _state(self, end: StreamPosition, wanted: Offsets) -> tuple[StreamSnapshot, Offsets]:
        """Return the state of the brokers, and the earliest offsets of the wanted partitions.

        A state that this end was just computed from is used again, once. Later deletions are noticed when
        the tasks are read.
        """
        if self._batch is not None and self._batch.end == end:
            snapshot = self._batch.snapshot
            self._batch = replace(self._batch, snapshot=None)
            if snapshot is not None and snapshot.is_recent:
                with suppress(UnknownTopicOrPartition):  # deleted meanwhile
                    return snapshot, self._snapshots.at(sorted(wanted), At.EARLIEST)
        snapshot = self._snapshots.existing(StreamPosition(wanted, end.ids))
        return snapshot, self._snapshots.at(sorted(snapshot.ends), At.EARLIEST)

    def _first(self, at: TopicPartition, start: int | None, end: int, earliest: int) -> int | None:
        """Return the offset at which reading begins, or None if there is nothing to read."""
        if start is None:
            if earliest > 0:
                text = f"{at}: new, but its offsets before {earliest} are already deleted"
                report_loss(text, self._fail)
            return earliest
        if self._batch is not None and at in self._batch.recreated:
            report_loss(_lower_end(at, start, end, created_again=True), self._fail)
            return earliest
        if end < start:
            report_loss(_lower_end(at, start, end, created_again=False), self._fail)
            return None
        if start < earliest:
            text = f"{at}: offsets {start} to {earliest - 1} were deleted before they were read"
            report_loss(text, self._fail)
        return max(start, earliest)


def _lower_end(at: TopicPartition, start: int, end: int, *, created_again: bool) -> str:
    """Return the message for a log that ends before what was read."""
    if created_again:
        return f"{at}: read up to offset {start}, but the topic was deleted and created again"
    return (
        f"{at}: read up to offset {start}, but the log ends at offset {end}: it was truncated, or the topic was deleted"
        " and created again"
    )
