"""A share partition: which records of a partition the members of a share group may get, have, and are done with (KIP-932).

Every record from the start offset on is in one state:

- *available*: the next member that fetches gets it;
- *acquired*: it is locked for a member, until a deadline;
- *archiving*: it was rejected, or was delivered too often, and its dead letter is being written;
- *acknowledged* or *archived*: the group is done with it. Archived records were rejected, were delivered
  too often, or cannot be delivered, such as control records and records of aborted transactions.

The start offset is the first record with which the group is not done. Records that follow the last known
one are available, too.

`SharePartition` does no I/O. A change that must survive a crash has two steps: a method returns the
`StateChange`, with what is to be written, and `settle` applies it after that. Until then the records stay
acquired, so nobody else gets them. One change at a time is in this state.

Acquisitions are not written. After a crash, records that were acquired are available again, with the
delivery count that was written last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from typing import NamedTuple

from kafka_wire import ErrorCode, ShareAcknowledgeType, ShareRecordState

from krammar.broker.errors import ApiError
from krammar.broker.share.records import ShareState, StateBatch
from krammar.util.turns import Steps

AVAILABLE = ShareRecordState.AVAILABLE
ACQUIRED = ShareRecordState.ACQUIRED
ACKNOWLEDGED = ShareRecordState.ACKNOWLEDGED
ARCHIVING = ShareRecordState.ARCHIVING
ARCHIVED = ShareRecordState.ARCHIVED
_DONE = frozenset({ACKNOWLEDGED, ARCHIVED})

_TYPES: dict[int, ShareRecordState] = {
    ShareAcknowledgeType.GAP: ARCHIVED,
    ShareAcknowledgeType.ACCEPT: ACKNOWLEDGED,
    ShareAcknowledgeType.RELEASE: AVAILABLE,
    ShareAcknowledgeType.REJECT: ARCHIVED,
    ShareAcknowledgeType.RENEW: ACQUIRED,
}


class FetchedBatch(NamedTuple):
    """A record batch that was read for a member.

    Attributes:
        delivered: whether its records are for applications; not if it is a control batch, or of an aborted
            transaction
    """

    first: int
    last: int
    delivered: bool


class Acquired(NamedTuple):
    """Consecutive records that a member has acquired, and how often each was delivered, this time included."""

    first: int
    last: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """What a member did with consecutive records: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The settings of a share group for the records of a partition.

    Attributes:
        deliveries: how often a record is delivered before it is archived
        locks: the number of records with which the group has begun and is not done, from which on
            no new ones are acquired
        lock_ms: how long a record stays with a member
        renews: whether members may extend that time (KIP-1222)
        dead_letters: whether records that are archived without success are archiving first (KIP-1191)
    """

    deliveries: int
    locks: int
    lock_ms: int
    renews: bool
    dead_letters: bool = False


class Wish(NamedTuple):
    """What a member would like to acquire.

    Attributes:
        most: the number of records after which no other batch is acquired
        batch_size: the preferred number of records in an `Acquired`
        strict: whether ``most`` also cuts batches (KIP-1206)
    """

    member: str
    most: int
    batch_size: int
    strict: bool


@dataclass(slots=True, eq=False)
class RecordRange:
    """Consecutive records in the same state; ``last`` is inclusive.

    Attributes:
        count: deliveries so far
        member: who has acquired them
        deadline: until when, in milliseconds since 1970
        next: the state after the change that is being written
        rejected: whether a member has rejected them, if they are archiving
    """

    first: int
    last: int
    state: ShareRecordState
    count: int = 0
    member: str = ""
    deadline: int = 0
    next: ShareRecordState | None = None
    rejected: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_done(self) -> bool:
        return self.state in _DONE

    @property
    def is_locked(self) -> bool:
        """Whether a member has the records, and no change of that is being written."""
        return self.state is ACQUIRED and self.next is None

    def continues(self, other: RecordRange) -> bool:
        """Return whether this range can be one with the range before it."""
        return (
            self.state is other.state
            and self.next is other.next
            and self.count == other.count
            and self.member == other.member
            and self.deadline == other.deadline
            and self.rejected == other.rejected
        )


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of states that is to be written.

    Attributes:
        start_offset: the start offset after it
        done: how many records from there on are acknowledged or archived after it
        batches: the records from there on whose state changes
        must_be_written: whether it is more than longer locks
    """

    start_offset: int
    done: int
    batches: tuple[StateBatch, ...]
    must_be_written: bool


class SharePartition:
    """The states of the records of one partition for one share group.

    Attributes:
        limits: may be replaced at any time
        start_offset: the first record with which the group is not done
        next_offset: the first record that no member has acquired yet
        ranges: all records between these two offsets, in order, without gaps
    """

    def __init__(self, state: ShareState, limits: RecordLimits) -> None:
        """Begin with a stored state, which has a start offset."""
        self.limits = limits
        self.start_offset = self.next_offset = state.start_offset
        self.ranges: list[RecordRange] = []
        for batch in state.batches:
            self._reach(batch.first_offset, AVAILABLE)
            self._reach(
                batch.last_offset + 1, ShareRecordState(batch.delivery_state), batch.delivery_count
            )
        for each in self.archiving():
            # As in Kafka: the reason is not stored.
            each.rejected = each.count < limits.deliveries
        self._tidy()

    def _reach(self, offset: int, state: ShareRecordState, count: int = 0) -> None:
        """Add the records before an offset in a state, as far as they are not known."""
        if offset > self.next_offset:
            self.ranges.append(RecordRange(self.next_offset, offset - 1, state, count))
            self.next_offset = offset

    # What is in which state.

    @property
    def done(self) -> int:
        """How many records from the start offset on are acknowledged or archived."""
        return sum(each.size for each in self.ranges if each.is_done)

    @property
    def in_flight(self) -> int:
        """The number of records with which the group has begun and is not done."""
        return self.next_offset - self.start_offset - self.done

    @property
    def _room(self) -> int:
        """How many new records may be acquired."""
        return self.limits.locks - self.in_flight

    def overdue(self, now: int) -> int:
        """Return the number of records whose time with their members is over, in milliseconds since 1970."""
        return sum(each.size for each in self.ranges if each.is_locked and each.deadline <= now)

    def next_available(self) -> int | None:
        """Return the first record that can be acquired; None if there are too many locks for new ones."""
        for each in self.ranges:
            if each.state is AVAILABLE:
                return each.first
        return self.next_offset if self._room > 0 else None

    def next_deadline(self) -> int | None:
        """Return when the next lock ends, in milliseconds since 1970; None if no record is locked."""
        return min((each.deadline for each in self.ranges if each.is_locked), default=None)

    def archiving(self) -> list[RecordRange]:
        """Return the records whose dead letters are to be written."""
        return [each for each in self.ranges if each.state is ARCHIVING and each.next is None]

    # Acquiring.

    def acquire(
        self, wish: Wish, batches: Iterable[FetchedBatch], offset: int, now: int
    ) -> list[Acquired]:
        """Acquire available records of batches that were read from ``offset`` on, in order.

        Offsets between the batches have no records, because the log was compacted: they are
        archived.

        Args:
            offset: a result of ``next_available``, or a later offset that is known
            now: milliseconds since 1970
        """
        room = self._room
        most = min(wish.most, room) if room > 0 else wish.most
        taking = _Taking(wish, now + self.limits.lock_ms, most, [])
        position = offset
        for batch in batches:
            self._archive(position, batch.first - 1)
            first = max(position, batch.first)
            position = max(position, batch.last + 1)
            if not batch.delivered:
                self._archive(first, batch.last)
                continue
            if taking.left > 0:
                self._acquire_known(first, batch, taking)
            if taking.left > 0 and room > 0 and batch.last >= self.next_offset:
                new = batch.last - self.next_offset + 1
                if wish.strict:
                    new = min(new, taking.left)
                self._reach(self.next_offset + new, AVAILABLE)
                self._lock(self.ranges[-1], new, taking)
            if taking.left <= 0 or batch.last >= self.next_offset:
                break
        self._tidy()
        return taking.acquired

    def _archive(self, first: int, last: int) -> None:
        """Archive what is available between two offsets."""
        for each in self._within(first, last):
            if each.state is AVAILABLE:
                each.state = ARCHIVED
        self._reach(last + 1, ARCHIVED)

    def _acquire_known(self, first: int, batch: FetchedBatch, taking: _Taking) -> None:
        """Acquire what is available of a batch.

        As in Kafka, records that were returned often come without those of other batches, in smaller
        numbers each time, and for the last time one by one, so that one bad record does not have
        others archived.
        """
        ranges = [each for each in self._within(first, batch.last) if each.state is AVAILABLE]
        often = max(2, ceil(self.limits.deliveries / 2))
        if self.limits.deliveries <= 2 or all(each.count < often for each in ranges):
            for each in ranges:
                self._lock(each, each.size, taking)
            return
        most: int | None = None
        got = 0
        for each in ranges if not taking.acquired else ():
            size = each.size
            if most is None and each.count >= often:
                most = max(1, (batch.last - batch.first + 1) >> (each.count - often + 1))
            allowed = size if most is None else min(size, most - got)
            if self._is_last_delivery(each.count + 1):
                allowed = min(allowed, 1 - got)
            got += self._lock(each, allowed, taking)
            if allowed < size or self._is_last_delivery(each.count):
                break
        taking.left = 0

    def _is_last_delivery(self, count: int) -> bool:
        return count >= self.limits.deliveries > 2

    def _lock(self, each: RecordRange, size: int, taking: _Taking) -> int:
        """Let a member acquire the first records of a range. Returns how many it gets."""
        if taking.wish.strict:
            size = min(size, taking.left)
        if size <= 0:
            return 0
        if size < each.size:
            self._split(each.first + size)
        each.state = ACQUIRED
        each.count += 1
        each.member, each.deadline = taking.wish.member, taking.deadline
        taking.left -= size
        taking.add(each)
        return size

    # Finding ranges.

    def _within(self, first: int, last: int) -> list[RecordRange]:
        """Return the known ranges from ``first`` to ``last``, split at these offsets."""
        first = max(first, self.start_offset)
        last = min(last, self.next_offset - 1)
        if first > last:
            return []
        begin = self._split(first)
        return self.ranges[begin : self._split(last + 1)]

    def _split(self, offset: int) -> int:
        """Let a range begin at an offset. Returns its index."""
        if offset >= self.next_offset:
            return len(self.ranges)
        index = bisect_right(self.ranges, offset, key=_first) - 1
        found = self.ranges[index]
        if found.first == offset:
            return index
        self.ranges.insert(index + 1, replace(found, first=offset))
        found.last = offset - 1
        return index + 1

    def _tidy(self) -> None:
        """Move the start offset past records that are done, and join ranges in the same state."""
        tidy: list[RecordRange] = []
        for each in self.ranges:
            if not tidy and each.is_done:
                self.start_offset = each.last + 1
            elif tidy and each.continues(tidy[-1]):
                tidy[-1].last = each.last
            else:
                tidy.append(each)
        self.ranges = tidy

    # Changes that are written.

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement]
    ) -> Steps[StateChange]:
        """Change the state of records that a member has acquired, in steps: all of them, or none.

        Records before the start offset are ignored.

        Raises ApiError.
        """
        complete = False
        try:
            for each in acknowledgements:
                for first, last, kind in _runs(each):
                    yield None
                    self._mark(member, first, last, kind)
            complete = True
        finally:
            if not complete:
                self._forget_change()
        return self._change()

    def _mark(self, member: str, first: int, last: int, kind: int) -> None:
        if last < self.start_offset:
            return
        if not self.ranges:
            raise _invalid_state(f"nobody has acquired offset {first}")
        if last >= self.next_offset:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"offset {last} is after the last acquired record, {self.next_offset - 1}",
            )
        state = _TYPES[kind]
        if state is ACQUIRED and not self.limits.renews:
            raise _invalid_state("share.renew.acknowledge.enable is false for the group")
        for each in self._within(first, last):
            if each.state is not ACQUIRED:
                raise _invalid_state(f"offset {each.first} is {each.state.name.lower()}")
            if each.member != member:
                raise _invalid_state(f"another member has acquired offset {each.first}")
            if each.next is not None:
                raise _invalid_state(f"the state of offset {each.first} changes")
            each.next = self._returned(each) if state is AVAILABLE else state
            if kind == ShareAcknowledgeType.REJECT and self.limits.dead_letters:
                each.next, each.rejected = ARCHIVING, True

    def release(self, member: str) -> StateChange | None:
        """Return all records that a member has acquired. Returns None if there are none."""
        return self._return([each for each in self.ranges if each.member == member])

    def expire(self, now: int) -> StateChange | None:
        """Return all records whose time with their members is over. Returns None if there are none.

        Args:
            now: milliseconds since 1970
        """
        return self._return([each for each in self.ranges if each.deadline <= now])

    def _return(self, ranges: list[RecordRange]) -> StateChange | None:
        locked = [each for each in ranges if each.is_locked]
        for each in locked:
            each.next = self._returned(each)
        return self._change() if locked else None

    def _returned(self, each: RecordRange) -> ShareRecordState:
        """Return the state of records that a member returns: available, unless they were delivered too often."""
        if each.count < self.limits.deliveries:
            return AVAILABLE
        return ARCHIVING if self.limits.dead_letters else ARCHIVED

    def archive(self, first: int, last: int) -> StateChange:
        """Be done with records that are archiving."""
        for each in self._within(first, last):
            if each.state is ARCHIVING:
                each.next = ARCHIVED
        return self._change()

    def _change(self) -> StateChange:
        """Return the change that all ranges with a next state are."""
        start: int | None = None
        done = 0
        must_be_written = False
        batches: list[StateBatch] = []
        for each in self.ranges:
            state = each.state if each.next is None else each.next
            must_be_written |= each.next not in (None, ACQUIRED)
            if state in _DONE:
                if start is None:
                    continue
                done += each.size
            elif start is None:
                start = each.first
            if each.next not in (None, ACQUIRED):
                batches.append(StateBatch(each.first, each.last, state, each.count))
        return StateChange(
            self.next_offset if start is None else start, done, tuple(batches), must_be_written
        )

    def settle(self, now: int) -> None:
        """Apply the change, which was written. Locks that become longer do so from now on.

        Args:
            now: milliseconds since 1970
        """
        for each in self.ranges:
            if each.next is None:
                continue
            each.state, each.next = each.next, None
            if each.state is ACQUIRED:
                each.deadline = now + self.limits.lock_ms
            else:
                each.member, each.deadline = "", 0
        self._tidy()

    def undo(self) -> None:
        """Forget the change, which could not be written."""
        self._forget_change()
        self._tidy()

    def _forget_change(self) -> None:
        for each in self.ranges:
            if each.next is ARCHIVING:
                each.rejected = False
            each.next = None

    def begin_at(self, log_start_offset: int) -> None:
        """Forget the records before an offset, which were deleted from the log."""
        if log_start_offset <= self.start_offset:
            return
        self.ranges = [each for each in self.ranges if each.last >= log_start_offset]
        if self.ranges:
            self.ranges[0].first = max(self.ranges[0].first, log_start_offset)
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        self._tidy()


@dataclass(slots=True)
class _Taking:
    """A call of ``acquire``.

    Attributes:
        deadline: of the new locks, in milliseconds since 1970
        left: how many records the member may still get
    """

    wish: Wish
    deadline: int
    left: int
    acquired: list[Acquired]

    def add(self, each: RecordRange) -> None:
        """Add a range to the answer: to the last run, if it continues that and the run is small."""
        if self.acquired:
            first, last, count = self.acquired[-1]
            small = last - first + 1 < self.wish.batch_size
            if small and last + 1 == each.first and count == each.count:
                self.acquired[-1] = Acquired(first, each.last, count)
                return
        self.acquired.append(Acquired(each.first, each.last, each.count))


def _first(each: RecordRange) -> int:
    return each.first


def _runs(each: Acknowledgement) -> Iterator[tuple[int, int, int]]:
    """Yield first offset, last offset and type of records with the same type."""
    if len(each.types) == 1:
        yield each.first, each.last, each.types[0]
        return
    first = each.first
    for kind, same in groupby(each.types):
        end = first + sum(1 for _ in same)
        yield first, end - 1, kind
        first = end


def _invalid_state(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD_STATE, message)
