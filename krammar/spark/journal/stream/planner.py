"""Where the micro-batches of a stream of journals end, and their tasks.

A micro-batch ends after an acknowledgement or a message outside of transactions, so that it has whole transactions. To
find that place, the driver scans the journals; it decodes only the UUIDs of most messages. Messages of open transactions
that follow are scanned once, and belong to a later micro-batch.

Spark's checkpoint stores the position at which each micro-batch ends, with the states of producers there. They
suffice to read a micro-batch again unchanged: a new driver scans it again.

Spark stores an end before it plans the tasks. Losses of messages are therefore reported before an end is returned: a restart
continues where the last micro-batch has ended.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from krammar.spark.journal.committed import CommittedPart, Scan
from krammar.spark.journal.reading import read_runs
from krammar.spark.journal.stream.places import JournalRange, StreamedJournals
from krammar.spark.journal.stream.positions import JournalPosition, Positions
from krammar.spark.journal.tasks import JournalQuery, JournalTask
from krammar.spark.limits import TriggerLimits
from krammar.spark.loss import report_loss

# Without any committed message, a micro-batch only stores a position. It does so after this many messages.
_MOST_UNSTORED = 100_000


@dataclass(slots=True)
class _Scanned:
    """A journal that is being scanned.

    Attributes:
        start: the position from Spark at which its next micro-batch begins; None if Spark does not know the journal
        first: where the scan began, in the journal with this id
        reached: the offset of the next message to be scanned
        messages: how many messages were scanned since ``first``
        decided: how many of them are before the end of ``scan``
    """

    start: JournalPosition | None
    first: JournalPosition
    scan: Scan
    reached: int
    messages: int = 0
    decided: int = 0


@dataclass(frozen=True, slots=True)
class _PlannedBatch:
    """A micro-batch, and the parts of journals that it reads."""

    start: Positions
    end: Positions
    tasks: list[JournalTask]


class JournalStreamPlanner:
    """Computes where micro-batches end, and plans their tasks. The driver has one for all micro-batches.

    Raises:
        MissingDataError: a folder or a topic does not exist.
        DataLossError: messages are missing, and ``failOnDataLoss`` is true.
        MalformedRecordError: in mode FAILFAST, a frame is not a message.
        JournalError, ClientError, OSError: the journals cannot be read.
    """

    def __init__(self, query: JournalQuery, journals: StreamedJournals) -> None:
        self._query = query
        self._journals = journals
        self._limits = TriggerLimits(query.options)
        self._horizon = timedelta(milliseconds=query.options["pruneHorizon"])
        self._scans: dict[str, _Scanned] = {}
        self._batch: _PlannedBatch | None = None
        self._ends_now = False
        self._fixed: dict[str, JournalRange] | None = None
        # Journals that were read and do not exist any more.
        self._absent: set[str] = set()

    def check(self) -> None:
        """Check that the journals exist that the options name."""
        self._journals.ranges({})

    def fix_end(self) -> None:
        """Let the query end at the ends that the journals have when its first micro-batch is planned."""
        self._ends_now = True

    # The end of a micro-batch.

    def end(self, start: Positions, limits: bool) -> Positions:
        """Return where the micro-batch from ``start`` ends; ``start`` if there is nothing to read yet."""
        ranges = self._existing(start)
        for name, found in ranges.items():
            self._scans[name] = self._scanned(name, start, found)
        scans = {name: self._scans[name] for name in ranges}
        sizes = {
            name: ranges[name].end - scanned.first.offset
            for name, scanned in scans.items()
            if ranges[name].end > scanned.first.offset
        }
        shares = self._limits.shares(sizes) if limits else {}
        cut_after = self._size_of_parts(sum(sizes.values()))
        for name in sizes:
            self._scan(name, ranges[name].end, shares.get(name), cut_after)
        decided = sum(scanned.decided for scanned in scans.values())
        is_empty = not any(scanned.scan.has_committed for scanned in scans.values())
        if is_empty and decided < _MOST_UNSTORED:
            return start
        if limits and self._fixed is None and self._limits.waits(decided):
            return start
        tasks: list[JournalTask] = []
        end = {name: at for name, at in start.items() if name in self._absent}
        for name, scanned in scans.items():
            tasks += _tasks(name, scanned.first.journal_id, scanned.scan.take())
            end[name] = self._taken(scanned, ranges[name].first)
        self._batch = _PlannedBatch(start, end, tasks)
        return end

    def _existing(self, start: Positions) -> dict[str, JournalRange]:
        """Return the offsets of the journals, and report those that do not exist any more."""
        if self._fixed is not None and start.keys() - self._absent <= self._fixed.keys():
            return self._fixed
        ranges = self._journals.ranges(start, self._absent)
        gone = start.keys() - ranges.keys()
        for name in sorted(gone - self._absent):
            report_loss(
                f"{name}: read up to offset {start[name].offset}, but the journal was deleted, or the options do not"
                " select it any more",
                self._query.fails,
            )
        self._absent = set(gone)
        if self._ends_now:
            self._fixed = ranges
        return ranges

    def _scanned(self, name: str, start: Positions, found: JournalRange) -> _Scanned:
        """Return the scan of a journal from the start of a micro-batch on."""
        at = start.get(name)
        scanned = self._scans.get(name)
        if (
            scanned is not None
            and scanned.start == at
            and scanned.first.is_in(found.journal_id)
            and scanned.reached >= found.first
        ):
            return scanned
        first = self._first(name, start, found)
        return _Scanned(at, first, Scan(first.offset, first.producers), first.offset)

    def _first(self, name: str, start: Positions, found: JournalRange) -> JournalPosition:
        """Return where reading begins, and report messages that do not exist any more."""
        at, fail = start.get(name), self._query.fails
        begin = JournalPosition(found.journal_id, found.first)
        if at is None:
            if start and found.first > 0:
                text = f"new, but its offsets before {found.first} were already deleted"
                report_loss(f"{name}: {text}", fail)
            return begin
        if not at.is_in(found.journal_id):
            text = f"read up to offset {at.offset}, but the journal was deleted and created again"
            report_loss(f"{name}: {text}", fail)
            return begin
        if at.offset < found.first:
            text = f"offsets {at.offset} to {found.first - 1} were deleted before they were read"
            report_loss(f"{name}: {text}", fail)
            return JournalPosition(found.journal_id, found.first, at.producers)
        # After a power cut, writers of files continue at a larger offset.
        if at.offset > found.end and not self._query.place.is_files:
            text = f"read up to offset {at.offset}, but the journal ends at {found.end}"
            report_loss(f"{name}: {text}", fail)
            producers = (p for p in at.producers if p.begin < found.end)
            return JournalPosition(found.journal_id, found.end, tuple(producers))
        return JournalPosition(found.journal_id, at.offset, at.producers)

    def _size_of_parts(self, total: int) -> int | None:
        """Return the number of offsets after which a part of a journal is full."""
        least = self._query.options["minPartitions"]
        sizes = [self._query.most, None if least is None else max(1, total // least)]
        return min((size for size in sizes if size is not None), default=None)

    def _scan(self, name: str, end: int, most: int | None, cut_after: int | None) -> None:
        """Scan a journal up to ``end``, or until ``most`` of its messages are decided."""
        scanned = self._scans[name]
        scan, query = scanned.scan, self._query
        if scanned.reached >= end or (most is not None and scanned.decided >= most):
            return
        task = JournalTask(name, scanned.first.journal_id, scanned.reached, end)
        del self._scans[name]  # unless all goes well
        messages = scanned.messages
        limit = most or 1 << 63
        full = scan.part_begin + cut_after if cut_after else 1 << 63
        with closing(read_runs(self._journals.reader(task), query.cls)) as runs:
            for run in runs:
                rest = run
                while rest.last >= full:
                    before, rest = rest.split(full)
                    if before is not None:
                        scan.add_run(before)
                    scan.cut(rest.begin)
                    full = rest.begin + (cut_after or 0)
                scan.add_run(rest)
                messages += run.count
                if scan.end == run.end:
                    scanned.decided = messages
                    if messages >= limit:
                        end = run.end
                        break
        scanned.messages = messages
        scanned.reached = end
        self._scans[name] = scanned

    def _taken(self, scanned: _Scanned, first: int) -> JournalPosition:
        """Return where a micro-batch ends in a journal, and let the scan begin the next one."""
        scan = scanned.scan
        producers = tuple(scan.producers(self._horizon, first))
        position = JournalPosition(scanned.first.journal_id, scan.end, producers)
        scanned.start = scanned.first = position
        scanned.messages -= scanned.decided
        scanned.decided = 0
        return position

    # The tasks of a micro-batch.

    def tasks(self, start: Positions, end: Positions) -> list[JournalTask]:
        """Return the parts of journals that a micro-batch reads."""
        batch = self._batch
        if batch is None or (batch.start, batch.end) != (start, end):
            batch = self._batch = _PlannedBatch(start, end, self._planned_again(start, end))
        return batch.tasks

    def _planned_again(self, start: Positions, end: Positions) -> list[JournalTask]:
        """Scan a micro-batch that was planned before a restart."""
        changed = {name: at for name, at in end.items() if start.get(name) != at}
        if not changed:
            return []
        ranges = self._journals.ranges(changed)
        lasts = {name: at.offset for name, at in changed.items()}
        cut_after = self._size_of_parts(
            sum(last - (start[name].offset if name in start else 0) for name, last in lasts.items())
        )
        tasks: list[JournalTask] = []
        for name, last in lasts.items():
            found = ranges.get(name)
            if found is None or not changed[name].is_in(found.journal_id):
                text = f"deleted before offsets up to {last} were read"
                report_loss(f"{name}: {text}", self._query.fails)
                continue
            if last > found.end:
                text = f"offsets {found.end} to {last} do not exist any more"
                report_loss(f"{name}: {text}", self._query.fails)
            first = self._first(name, start, found)
            scanned = _Scanned(
                start.get(name), first, Scan(first.offset, first.producers), first.offset
            )
            self._scans[name] = scanned
            self._scan(name, min(last, found.end), None, cut_after)
            tasks += _tasks(name, found.journal_id, scanned.scan.take())
            del self._scans[name]  # the next one begins with what the checkpoint has
        return tasks


def _tasks(name: str, journal_id: UUID, parts: list[CommittedPart]) -> list[JournalTask]:
    return [
        JournalTask(name, journal_id, part.begin, part.end, whole=False, part=part)
        for part in parts
    ]
