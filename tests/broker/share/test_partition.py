"""The states of a share partition's records: acquisition, acknowledgement, locks, and a random model of all of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from kafka_wire import ErrorCode, ShareRecordState

from krammar.broker.errors import ApiError
from krammar.broker.share.partition import (
    Acknowledgement,
    FetchedBatch,
    RecordLimits,
    SharePartition,
    StateChange,
    Wish,
)
from krammar.broker.share.records import ShareState, ShareStateUpdate, Snapshot, StateBatch
from krammar.util.turns import finish

AVAILABLE, ACQUIRED = ShareRecordState.AVAILABLE, ShareRecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = ShareRecordState.ACKNOWLEDGED, ShareRecordState.ARCHIVED
ARCHIVING = ShareRecordState.ARCHIVING
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
# In the model: the dead letter was written.
BURY = 5
DYING, DONE = "dying", "done"
LIMITS = RecordLimits(deliveries=5, locks=100, lock_ms=1000, renews=True)


def partition(
    *batches: StateBatch, start: int = 0, limits: RecordLimits = LIMITS
) -> SharePartition:
    return SharePartition(ShareState(0, start, -1, batches), limits)


def records(*sizes: int, start: int = 0) -> list[FetchedBatch]:
    """Record batches of these sizes, one after another."""
    found = []
    for size in sizes:
        found.append(FetchedBatch(start, start + size - 1, True))
        start += size
    return found


def acquire(
    states: SharePartition,
    batches: Iterable[FetchedBatch],
    member: str = "a",
    *,
    most: int = 500,
    batch_size: int = 500,
    strict: bool = False,
    now: int = 0,
) -> list[tuple[int, int, int]]:
    offset = states.next_available()
    assert offset is not None
    wish = Wish(member, most, batch_size, strict)
    inside = [each for each in batches if each.last >= offset]
    return [tuple(each) for each in states.acquire(wish, inside, offset, now)]


def acknowledge(
    states: SharePartition, first: int, last: int, *types: int, member: str = "a", now: int = 0
) -> StateChange:
    change = finish(states.acknowledge(member, [Acknowledgement(first, last, types)]))
    states.settle(now)
    return change


def shown(states: SharePartition) -> list[tuple[int, int, ShareRecordState, int]]:
    return [(each.first, each.last, each.state, each.count) for each in states.ranges]


def refused(
    states: SharePartition, *acknowledgements: Acknowledgement, member: str = "a"
) -> ErrorCode:
    before = shown(states)
    with pytest.raises(ApiError) as error:
        finish(states.acknowledge(member, acknowledgements))
    states.undo()
    assert shown(states) == before
    return error.value.code


# -- acquiring


def test_new_records_are_acquired_in_whole_batches() -> None:
    states = partition()
    assert acquire(states, records(10, 10, 10), most=15) == [(0, 19, 1)]
    assert acquire(states, records(10, 10, 10), "b") == [(20, 29, 1)]
    assert states.next_available() == 30


def test_a_strict_limit_cuts_batches() -> None:
    states = partition()
    assert acquire(states, records(10, 10), most=4, strict=True) == [(0, 3, 1)]
    assert acquire(states, records(10, 10), most=8, strict=True) == [(4, 11, 1)]


def test_the_batch_size_divides_what_is_acquired_between_batches() -> None:
    found = acquire(partition(), records(3, 3, 3, 3), batch_size=5)
    assert found == [(0, 5, 1), (6, 11, 1)]


def test_what_applications_do_not_get_is_archived() -> None:
    states = partition()
    batches = [FetchedBatch(2, 4, True), FetchedBatch(5, 5, False), FetchedBatch(8, 9, True)]
    assert acquire(states, batches) == [(2, 4, 1), (8, 9, 1)]
    assert states.start_offset == 2
    assert shown(states) == [
        (2, 4, ACQUIRED, 1),
        (5, 7, ARCHIVED, 0),
        (8, 9, ACQUIRED, 1),
    ]
    assert acknowledge(states, 2, 4, ACCEPT).start_offset == 8


def test_no_new_records_are_acquired_with_too_many_locks() -> None:
    states = partition(limits=replace(LIMITS, locks=10))
    assert acquire(states, records(6, 6, 6)) == [(0, 11, 1)]
    assert states.next_available() is None
    acknowledge(states, 5, 5, RELEASE)
    assert acquire(states, records(6, 6, 6)) == [(5, 5, 2)]
    acknowledge(states, 0, 2, ACCEPT)
    assert states.next_available() == 12
    assert acquire(states, records(6, 6, 6), strict=True) == [(12, 12, 1)]


def test_records_that_are_returned_often_come_alone() -> None:
    states = partition(StateBatch(0, 9, AVAILABLE, 2))
    assert acquire(states, records(10)) == [(0, 9, 3)]
    acknowledge(states, 0, 9, RELEASE)
    assert acquire(states, records(10)) == [(0, 4, 4)]
    acknowledge(states, 0, 4, RELEASE)
    assert acquire(states, records(10)) == [(0, 0, 5)]
    assert acquire(states, records(10), "b") == [(1, 1, 5)]
    assert acknowledge(states, 0, 0, RELEASE).batches == ()
    assert states.start_offset == 1


def test_the_rest_of_a_batch_that_is_returned_often_comes_with_the_same_count() -> None:
    """The size of the whole batch counts."""
    states = partition(StateBatch(0, 9, AVAILABLE, 3))
    assert acquire(states, records(10)) == [(0, 4, 4)]
    assert acquire(states, records(10)) == [(5, 9, 4)]


def test_a_batch_that_is_returned_often_comes_without_others() -> None:
    states = partition(StateBatch(0, 3, AVAILABLE, 3), StateBatch(4, 7, AVAILABLE, 1))
    assert acquire(states, records(4, 4)) == [(0, 1, 4)]
    acknowledge(states, 0, 1, ACCEPT)
    assert acquire(states, records(4, 4)) == [(2, 3, 4)]
    assert acquire(states, records(4, 4, 4)) == [(4, 7, 2), (8, 11, 1)]
    acknowledge(states, 2, 3, RELEASE)
    acknowledge(states, 4, 7, RELEASE)
    assert acquire(states, records(4, 4, 4)) == [(2, 2, 5)]
    assert acquire(states, records(4, 4, 4)) == [(3, 3, 5)]
    assert acquire(states, records(4, 4, 4)) == [(4, 7, 3)]


def test_a_fetch_gets_all_that_is_available_of_a_batch() -> None:
    states = partition()
    acquire(states, records(5, 5), batch_size=5)
    acknowledge(states, 0, 9, ACCEPT, RELEASE, ACCEPT, RELEASE, ACCEPT, *[RELEASE] * 5)
    assert acquire(states, records(5, 5), most=1) == [(1, 1, 2), (3, 3, 2)]


def test_returned_records_count_among_those_that_may_be_locked() -> None:
    states = partition(limits=replace(LIMITS, locks=10))
    acquire(states, records(4, 4))
    acknowledge(states, 0, 3, RELEASE)
    assert acquire(states, records(4, 4, 4, 4)) == [(0, 3, 2)]
    assert acquire(states, records(4, 4, 4, 4)) == [(8, 11, 1)]


# -- acknowledging


def test_each_record_can_have_its_own_type() -> None:
    states = partition()
    acquire(states, records(6))
    change = acknowledge(states, 0, 5, ACCEPT, REJECT, RELEASE, GAP, RENEW, ACCEPT, now=50)
    assert change == StateChange(
        2,
        2,
        (
            StateBatch(2, 2, AVAILABLE, 1),
            StateBatch(3, 3, ARCHIVED, 1),
            StateBatch(5, 5, ACKNOWLEDGED, 1),
        ),
        True,
    )
    assert states.start_offset == 2
    assert states.next_deadline() == 1050


def test_a_longer_lock_is_not_written() -> None:
    states = partition()
    acquire(states, records(3))
    assert not acknowledge(states, 0, 2, RENEW, now=600).must_be_written
    assert states.expire(1000) is None
    assert states.expire(1600) is not None


def test_nothing_changes_if_something_is_refused() -> None:
    states = partition()
    acquire(states, records(5))
    acquire(states, records(5, 5), "b")
    good = Acknowledgement(0, 4, [ACCEPT])
    state, request = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    assert refused(states, good, Acknowledgement(5, 5, [ACCEPT])) == state
    assert refused(states, good, Acknowledgement(4, 4, [ACCEPT])) == state
    assert refused(states, good, Acknowledgement(8, 10, [ACCEPT])) == request
    states.limits = replace(LIMITS, renews=False)
    assert refused(states, Acknowledgement(0, 4, [RENEW])) == state
    acknowledge(states, 1, 1, ACCEPT)
    assert refused(states, good) == state
    assert refused(partition(), good) == state


def test_records_before_the_start_offset_are_ignored() -> None:
    states = partition()
    acquire(states, records(10))
    states.begin_at(4)
    assert not acknowledge(states, 0, 3, ACCEPT).must_be_written
    assert acknowledge(states, 2, 5, ACCEPT).start_offset == 6


def test_a_change_that_is_not_written_has_no_effect() -> None:
    states = partition()
    acquire(states, records(5))
    change = finish(states.acknowledge("a", [Acknowledgement(0, 2, [ACCEPT])]))
    assert change.start_offset == 3
    assert states.start_offset == 0
    # Meanwhile, the records belong to nobody else, and their time is not over.
    assert states.next_available() == 5
    expired = states.expire(5000)
    assert expired is not None
    assert expired.batches[-1] == StateBatch(3, 4, AVAILABLE, 1)
    states.undo()
    assert shown(states) == [(0, 4, ACQUIRED, 1)]


def test_steps_that_are_not_finished_change_nothing() -> None:
    states = partition()
    acquire(states, records(5))
    steps = states.acknowledge(
        "a", [Acknowledgement(0, 0, [ACCEPT]), Acknowledgement(1, 1, [ACCEPT])]
    )
    next(steps)
    next(steps)
    steps.close()
    assert all(each.next is None for each in states.ranges)


# -- returning


def test_records_of_a_member_are_returned() -> None:
    states = partition()
    acquire(states, records(5))
    acquire(states, records(5, 5), "b")
    change = states.release("a")
    assert change is not None
    assert change.batches == (StateBatch(0, 4, AVAILABLE, 1),)
    states.settle(0)
    assert acquire(states, records(5), "c") == [(0, 4, 2)]
    assert states.release("a") is None


def test_a_lock_ends_after_its_time() -> None:
    states = partition()
    acquire(states, records(5))
    acquire(states, records(5, 5), "b", now=400)
    assert states.next_deadline() == 1000
    assert states.expire(999) is None
    assert states.expire(1000) is not None
    states.settle(1000)
    assert states.next_deadline() == 1400
    assert states.next_available() == 0


def test_the_log_start_moves_past_acquired_records() -> None:
    states = partition()
    acquire(states, records(10))
    states.begin_at(20)
    assert (states.start_offset, states.next_offset, states.ranges) == (20, 20, [])
    states.begin_at(10)
    assert states.start_offset == 20


def test_a_stored_state_has_gaps_that_are_available() -> None:
    states = partition(
        StateBatch(0, 2, ACKNOWLEDGED, 1),
        StateBatch(5, 6, ARCHIVED, 5),
        StateBatch(9, 9, AVAILABLE, 2),
    )
    assert states.start_offset == 3
    assert acquire(states, records(10, 5), strict=True, most=4) == [(3, 4, 1), (7, 8, 1)]
    assert acquire(states, records(10, 5)) == [(9, 9, 3), (10, 14, 1)]


# -- the model


class Model:
    """Random members on a random log, and what each record's state must be, one record at a time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        deliveries = self.random.choice([2, 3, 5])
        self.has_letters = self.random.random() < 0.5
        locks = self.random.choice([3, 20, 1000])
        self.limits = RecordLimits(deliveries, locks, 1000, True, self.has_letters)
        self.stored = Snapshot(0, 0, 0, 0, ShareState(0, 0, 0, ()))
        self.now = 0
        self.log: list[FetchedBatch] = []
        self.log_start = self.end = 0
        # By offset, for records that applications get.
        self.count: dict[int, int] = {}
        self.stored_count: dict[int, int] = {}
        self.holder: dict[int, tuple[str, int]] = {}
        # What became of the records that nobody gets any more, in memory and as it is stored.
        self.fate: dict[int, str] = {}
        self.stored_fate: dict[int, str] = {}
        self.load()

    @property
    def done(self) -> set[int]:
        return {at for at, fate in self.fate.items() if fate == DONE}

    def load(self) -> None:
        self.states = SharePartition(self.stored.state, self.limits)
        self.states.begin_at(self.log_start)

    def grow(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.end += self.random.choice([0, 0, 0, 1, 3])  # compacted
            size = self.random.randint(1, 6)
            delivered = self.random.random() < 0.8
            self.log.append(FetchedBatch(self.end, self.end + size - 1, delivered))
            if delivered:
                for offset in range(self.end, self.end + size):
                    self.count[offset] = self.stored_count[offset] = 0
            self.end += size

    def trim(self) -> None:
        if self.random.random() < 0.2 and self.log:
            self.log_start = self.random.randint(self.log_start, self.end)
            self.states.begin_at(self.log_start)

    def acquire(self, most: int | None = None) -> int:
        offset = self.states.next_available()
        if offset is None:
            return 0
        strict = self.random.random() < 0.5
        most = most or self.random.choice([1, 2, 7, 50])
        wish = Wish(self.random.choice("abc"), most, self.random.choice([1, 4, 100]), strict)
        batches = [each for each in self.log if each.last >= offset]
        batches = batches[: self.random.randint(1, 8)]
        acquired = self.states.acquire(wish, batches, offset, self.now)
        inside = [at for each in acquired for at in range(each.first, each.last + 1)]
        assert len(inside) == len(set(inside))
        if strict:
            assert len(inside) <= most
        for each in acquired:
            for at in range(each.first, each.last + 1):
                assert at not in self.fate and at not in self.holder
                self.count[at] += 1  # also: applications get this record
                assert each.deliveries == self.count[at] <= self.limits.deliveries
                self.holder[at] = (wish.member, self.now + self.limits.lock_ms)
        return len(inside)

    def write(self, change: StateChange | None, ends: dict[int, int], forced: bool = False) -> None:
        """Write a change, or fail; ``ends`` has the type by offset. Returned records are returned in any case."""
        if change is None:
            assert not ends
            return
        written = self.random.random() < 0.9
        if written:
            update = ShareStateUpdate(0, 0, change.start_offset, change.done, change.batches)
            self.stored = self.stored.updated(update)
            self.stored_fate |= {at: DONE for at in self.fate if at < change.start_offset}
        elif not forced:
            self.states.undo()
            return
        self.states.settle(self.now)
        for at, kind in ends.items():
            if kind == RENEW:
                self.holder[at] = (self.holder[at][0], self.now + self.limits.lock_ms)
                continue
            if kind == BURY:
                self.fate[at] = DONE
            else:
                del self.holder[at]
                over = kind == RELEASE and self.count[at] >= self.limits.deliveries
                if kind != RELEASE or over:
                    dies = self.has_letters and (kind == REJECT or over)
                    self.fate[at] = DYING if dies else DONE
            if written:
                self.stored_count[at] = self.count[at]
                if at in self.fate:
                    self.stored_fate[at] = self.fate[at]

    def acknowledge(self) -> None:
        member = self.random.choice("abc")
        held = sorted(at for at, (holder, _) in self.holder.items() if holder == member)
        held = [at for at in held if at >= self.log_start and self.random.random() < 0.7]
        types = {
            at: self.random.choice([ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RENEW]) for at in held
        }
        runs: list[tuple[int, list[int]]] = []
        for at in held:
            if runs and runs[-1][0] + len(runs[-1][1]) == at and self.random.random() < 0.8:
                runs[-1][1].append(types[at])
            else:
                runs.append((at, [types[at]]))
        asked = [Acknowledgement(first, first + len(kinds) - 1, kinds) for first, kinds in runs]
        if self.random.random() < 0.2:
            wrong = self.random.randint(self.log_start, self.end)
            if wrong not in held and self.holder.get(wrong, ("",))[0] != member:
                asked.append(Acknowledgement(wrong, wrong, [ACCEPT]))
                if wrong >= self.states.start_offset:
                    refused(self.states, *asked, member=member)
                    return
                asked.pop()
        self.write(finish(self.states.acknowledge(member, asked)), types)

    def release(self) -> None:
        member = self.random.choice("abc")
        held = {at: RELEASE for at, (holder, _) in self.holder.items() if holder == member}
        self.write(self.states.release(member), self._inside(held), forced=True)

    def bury(self) -> None:
        """Be done with records whose dead letters were written."""
        found = self.states.archiving()
        assert bool(found) == (DYING in self.fate.values())
        if not found:
            return
        each = self.random.choice(found)
        first = self.random.randint(each.first, each.last)
        dead = dict.fromkeys(range(first, each.last + 1), BURY)
        self.write(self.states.archive(first, each.last), dead, forced=True)

    def jump(self) -> None:
        self.now += self.random.choice([1, 300, 999, 1000, 100_000])
        over = {at: RELEASE for at, (_, deadline) in self.holder.items() if deadline <= self.now}
        self.write(self.states.expire(self.now), self._inside(over), forced=True)

    def _inside(self, ends: dict[int, int]) -> dict[int, int]:
        return {at: kind for at, kind in ends.items() if at >= self.log_start}

    def kill(self) -> None:
        self.holder.clear()
        self.count.update(self.stored_count)
        # Records that were delivered too often, but nobody was told, come again.
        self.fate = dict(self.stored_fate)
        self.load()

    def check(self) -> None:
        states = self.states
        for gone in [at for at in self.count if at < self.log_start]:
            self.fate[gone] = self.stored_fate[gone] = DONE
            self.holder.pop(gone, None)
        known: dict[int, tuple[ShareRecordState, str, int, int]] = {}
        offset = states.start_offset
        for each in states.ranges:
            assert each.first == offset and each.last >= each.first and each.next is None
            for at in range(each.first, each.last + 1):
                known[at] = (each.state, each.member, each.count, each.deadline)
            offset = each.last + 1
        assert offset == states.next_offset
        for at, count in self.count.items():
            if self.fate.get(at) == DYING:
                assert known[at][0] is ARCHIVING
            elif at in self.fate:
                assert at < states.start_offset or known[at][0] in (ACKNOWLEDGED, ARCHIVED)
            elif at in self.holder:
                assert known[at] == (ACQUIRED, self.holder[at][0], count, self.holder[at][1])
            else:
                assert at >= states.start_offset
                assert at >= states.next_offset or known[at] == (AVAILABLE, "", count, 0)

    def drain(self) -> None:
        """Accept everything that is left."""
        for _ in range(20 * len(self.count) + 20):
            self.jump()
            self.acquire(most=50)
            self.bury()
            for at, (member, _) in sorted(self.holder.items()):
                change = finish(
                    self.states.acknowledge(member, [Acknowledgement(at, at, [ACCEPT])])
                )
                self.write(change, {at: ACCEPT}, forced=True)
            self.check()
            if self.done >= self.count.keys():
                return
        raise AssertionError("records are lost")


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_delivered_until_the_group_is_done_with_it(seed: int) -> None:
    model = Model(seed)
    model.grow()
    steps: Sequence[tuple[int, str]] = [
        (4, "grow"),
        (12, "acquire"),
        (10, "acknowledge"),
        (2, "release"),
        (4, "jump"),
        (3, "bury"),
        (1, "trim"),
        (1, "kill"),
    ]
    names = [name for weight, name in steps for _ in range(weight)]
    for _ in range(150):
        getattr(model, model.random.choice(names))()
        model.check()
    model.drain()
    assert model.count
