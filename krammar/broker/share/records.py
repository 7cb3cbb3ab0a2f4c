"""The state of share partitions, and its conversion to and from records of `__share_group_state`.

A *snapshot* record has the complete state of a share partition. An *update* record has what changed since
the snapshot with its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, TypeAlias
from uuid import UUID

import kafka_wire as kw

from krammar.logfiles.names import MAX_EPOCH, MAX_OFFSET, partition_problem
from krammar.wire.batches import Record

# A group id, a topic id and a partition.
SharePartitionKey: TypeAlias = tuple[str, UUID, int]

# The kinds of the records.
SNAPSHOT = "ShareSnapshot"
UPDATE = "ShareUpdate"

# In states: not initialized, or unknown. In updates: unchanged.
UNKNOWN = -1

_STATES = frozenset(kw.ShareRecordState) - {kw.ShareRecordState.ACQUIRED}
_MOST_DELIVERIES = 2**15 - 1


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Consecutive records with the same state; ``last_offset`` is inclusive.

    Attributes:
        delivery_state: a `ShareRecordState`; ACQUIRED is never stored
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The stored state of a share partition.

    Attributes:
        state_epoch: counts the initializations
        start_offset: the group is done with all records before it; -1 before the first write, if
            the group's setting `share.auto.offset.reset` decides
        delivery_complete_count: the number of records from the start offset on that are finished;
            -1 if unknown
        batches: in order, without overlaps; records outside of them are available
    """

    state_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareStateUpdate:
    """What the leader of a share partition writes.

    Attributes:
        state_epoch: the one that it read, or -1 to skip the check
        leader_epoch: its own, or -1 to skip the check
        start_offset: the new one; -1 if it is unchanged
        delivery_complete_count: the new one; -1 if unknown
        batches: the records whose state has changed
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is stored about a share partition. Times are in milliseconds since 1970.

    Attributes:
        snapshot_epoch: counts the snapshot records
        leader_epoch: the highest one that has used the state
        created_ms: when the state was initialized
        written_ms: when the newest snapshot record was written
    """

    snapshot_epoch: int
    leader_epoch: int
    created_ms: int
    written_ms: int
    state: ShareState

    def updated(self, update: ShareStateUpdate) -> Snapshot:
        """Return the snapshot with the changes of an update, except of the state epoch."""
        old = self.state
        start = old.start_offset if update.start_offset == UNKNOWN else update.start_offset
        state = ShareState(
            old.state_epoch,
            start,
            update.delivery_complete_count,
            combined(old.batches, update.batches, start),
        )
        epoch = self.leader_epoch if update.leader_epoch == UNKNOWN else update.leader_epoch
        return replace(self, leader_epoch=epoch, state=state)


def combined(
    current: Iterable[StateBatch], added: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Merge batches into a sequence in order, without overlaps, from ``start_offset`` on.

    Where batches overlap, the highest delivery count decides, then the highest state, as in Kafka.
    """
    waiting = [each for each in (*current, *added) if each.last_offset >= start_offset]
    waiting.sort(key=lambda each: each.first_offset, reverse=True)
    # The batches that begin at or before ``position``, the deciding one first.
    open_: list[tuple[int, int, int]] = []
    pieces: list[StateBatch] = []
    position = start_offset
    while waiting or open_:
        if not open_:
            position = max(position, waiting[-1].first_offset)
        while waiting and waiting[-1].first_offset <= position:
            batch = waiting.pop()
            heappush(open_, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
        count, state, last = open_[0]
        if last < position:
            heappop(open_)
            continue
        end = min(last, waiting[-1].first_offset - 1) if waiting else last
        first = position
        if pieces:
            before = pieces[-1]
            adjacent = before.last_offset == position - 1
            if adjacent and (before.delivery_count, before.delivery_state) == (-count, -state):
                first = pieces.pop().first_offset
        pieces.append(StateBatch(first, end, -state, -count))
        position = end + 1
    return tuple(pieces)


def snapshot_record(key: SharePartitionKey, snapshot: Snapshot) -> Record:
    """Build the record with the complete state of a share partition."""
    state = snapshot.state
    value = kw.ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=snapshot.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=snapshot.created_ms,
        write_timestamp=snapshot.written_ms,
        state_batches=_stored(state.batches, kw.ShareSnapshotValue.StateBatch),
    )
    return Record(key=_snapshot_key(key), value=value.encode())


def update_record(key: SharePartitionKey, snapshot_epoch: int, update: ShareStateUpdate) -> Record:
    """Build the record of a change since the snapshot with a number."""
    group_id, topic_id, partition = key
    value = kw.ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=_stored(update.batches, kw.ShareUpdateValue.StateBatch),
    )
    own = kw.ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return Record(key=own.encode(), value=value.encode())


def state_tombstone(key: SharePartitionKey) -> Record:
    """Build the record that deletes the state of a share partition."""
    return Record(key=_snapshot_key(key), value=None)


def _snapshot_key(key: SharePartitionKey) -> bytes:
    group_id, topic_id, partition = key
    return kw.ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition).encode()


def _stored(batches: Iterable[StateBatch], make: Any) -> list[Any]:
    return [
        make(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.delivery_state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]


def state_batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    """Convert the state batches of a record or a request."""
    return tuple(
        StateBatch(
            each.first_offset, each.last_offset, int(each.delivery_state), each.delivery_count
        )
        for each in batches
    )


def snapshot_of(value: kw.ShareSnapshotValue) -> Snapshot:
    """Convert a snapshot record."""
    start = value.start_offset
    return Snapshot(
        value.snapshot_epoch,
        value.leader_epoch,
        value.create_timestamp,
        value.write_timestamp,
        ShareState(
            value.state_epoch,
            start,
            value.delivery_complete_count,
            combined((), state_batches(value.state_batches), start),
        ),
    )


def update_of(value: kw.ShareUpdateValue) -> ShareStateUpdate:
    """Convert an update record, which has no state epoch."""
    return ShareStateUpdate(
        UNKNOWN,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        state_batches(value.state_batches),
    )


def check_state_record(key: Any, value: Any) -> None:
    """Check the decoded key and value of a record, which is no tombstone. Raises ValueError."""
    if problem := partition_problem(key.partition):
        raise ValueError(f"partition: {problem}")
    for name in ("snapshot_epoch", "state_epoch", "leader_epoch"):
        epoch = getattr(value, name, 0)
        if not UNKNOWN <= epoch <= MAX_EPOCH:
            raise ValueError(f"{name}: {epoch} is not a number from -1 to {MAX_EPOCH}")
    if problem := state_problem(value.start_offset, state_batches(value.state_batches)):
        raise ValueError(problem)


def state_problem(start_offset: int, batches: Iterable[StateBatch]) -> str | None:
    """Return why no share partition can have this state; None for a valid one."""
    if not UNKNOWN <= start_offset <= MAX_OFFSET:
        return f"start_offset: {start_offset} is not a number from -1 to {MAX_OFFSET}"
    for batch in batches:
        first, last = batch.first_offset, batch.last_offset
        if not 0 <= first <= last <= MAX_OFFSET:
            return f"state_batches: {first} to {last} is no range of offsets"
        if batch.delivery_state not in _STATES:
            return f"state_batches: the delivery state {batch.delivery_state} is never stored"
        if not 0 <= batch.delivery_count <= _MOST_DELIVERIES:
            return f"state_batches: {batch.delivery_count} is not a number of deliveries"
    return None
