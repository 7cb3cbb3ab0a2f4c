"""The share partitions that a node leads: they are loaded at their first use, and what changes is written before it counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError
from krammar.broker.log.log import PartitionLog
from krammar.broker.share.counts import ShareCounts
from krammar.broker.share.dead_letters import DeadLetters, DeadRecords
from krammar.broker.share.partition import (
    Acknowledgement,
    Acquired,
    FetchedBatch,
    RecordLimits,
    SharePartition,
    StateChange,
    Wish,
)
from krammar.broker.share.records import UNKNOWN, SharePartitionKey, ShareStateUpdate
from krammar.broker.share.settings import ShareSettings
from krammar.broker.share.state import ShareStates
from krammar.broker.timers import Timer, Timers
from krammar.util.logs import Seldom
from krammar.util.turns import Slices

log = logging.getLogger("krammar.broker.share")

# The error codes that members get for those of the share coordinator, as in Kafka. Others become
# UNKNOWN_SERVER_ERROR.
_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_GROUP_ID: ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class LedPartition:
    """A share partition on the node that leads the partition: its states, and the timer of its locks.

    Changes are written one after another, because each contains the start offset. What a change
    returns is available after it is written.

    Attributes:
        key: group, topic id and partition
        states: the states of its records
        users: the sessions that read it
        watchers: called when records may have become available, and when another node or a newer
            state takes over
        is_current: whether no other one has taken over
        is_burying: whether dead letters are being written
    """

    def __init__(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        state_epoch: int,
        states: SharePartition,
        store: ShareStates,
        timers: Timers,
        slices: Slices,
        counts: ShareCounts,
        expire: Callable[[LedPartition], None],
        bury: Callable[[LedPartition], None],
    ) -> None:
        """Begin with states that were loaded.

        Args:
            expire: called when the time of locks is over; it runs ``expire`` of this object
            bury: called when records are archiving; it runs ``bury`` of this object
        """
        self.key = key
        self.states = states
        self.users: set[object] = set()
        self.watchers: set[Callable[[], None]] = set()
        self.is_current = True
        self._leader_epoch, self._state_epoch = leader_epoch, state_epoch
        self._store, self._timers, self._slices = store, timers, slices
        self._counts = counts
        self._time_is_over = partial(expire, self)
        self._begin_to_bury = partial(bury, self)
        self.is_burying = False
        self._writing = asyncio.Lock()
        self._timer: Timer | None = None
        self._due = 0

    def belongs_to(self, leader_epoch: int) -> bool:
        """Return whether leader and state are still those for which it was loaded."""
        if not self.is_current or leader_epoch != self._leader_epoch:
            return False
        with suppress(ApiError):  # a coordinator that is gone decides nothing
            stored = self._store.read_summary(*self.key)
            return stored is not None and stored.state.state_epoch == self._state_epoch
        return True

    def use(self, user: object, limits: RecordLimits, log_start_offset: int) -> None:
        """Serve a session, with the current settings, from the first record that exists on."""
        self.users.add(user)
        self.states.limits = limits
        self.states.begin_at(log_start_offset)

    def acquire(self, wish: Wish, batches: Iterable[FetchedBatch], offset: int) -> list[Acquired]:
        """Acquire records, as ``SharePartition.acquire``, and free them when their time is over."""
        now = self._timers.now_ms()
        acquired = self.states.acquire(wish, batches, offset, now)
        if acquired:
            self._expire_at(now + self.states.limits.lock_ms)
        return acquired

    async def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Change the states of acquired records: all of them, or none. Raises ApiError."""
        async with self._writing:
            if not self.is_current:
                raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
            steps = self.states.acknowledge(member, acknowledgements)
            change = await self._slices.run_from_start(steps)
            try:
                self._write(change)
            except ApiError:
                self.states.undo()
                raise
            self._settle()
            self._counts.acknowledge(acknowledgements)

    async def release(self, member: str) -> None:
        """Return all records that a member has acquired. Raises ApiError."""
        async with self._writing:
            if self.is_current:
                self._give_back(self.states.release(member))

    async def expire(self) -> None:
        """Return the records whose time is over."""
        self._timer = None
        with suppress(ApiError):
            async with self._writing:
                if self.is_current:
                    now = self._timers.now_ms()
                    self._counts.expired[self.key] += self.states.overdue(now)
                    self._give_back(self.states.expire(now))
        due = self.states.next_deadline()
        if due is not None and self.is_current:
            self._expire_at(due)

    def _give_back(self, change: StateChange | None) -> None:
        """Apply a change even if it cannot be written: then only delivery counts can be lost."""
        if change is None:
            return
        try:
            self._write(change)
        finally:
            self._settle()

    def _write(self, change: StateChange) -> None:
        if not change.must_be_written:
            return
        update = ShareStateUpdate(
            self._state_epoch,
            self._leader_epoch,
            change.start_offset,
            change.done,
            change.batches,
        )
        try:
            if not self.belongs_to(self._leader_epoch):
                # The group was deleted or reset: this must not write the old state again.
                raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
            self._store.store(*self.key, update)
        except ApiError as error:
            if error.code in (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH):
                self.retire()
            raise member_error(error) from error

    def _settle(self) -> None:
        self.states.settle(self._timers.now_ms())
        self._notify()
        self.bury_soon()

    # Dead letters.

    def bury_soon(self) -> None:
        """Write the dead letters of records that are archiving, if there are any."""
        if not self.is_burying and self.states.archiving():
            self.is_burying = True
            self._begin_to_bury()

    async def bury(self, letters: DeadLetters, warn: Callable[[str], object]) -> None:
        """Write dead letters, and then archive their records, also if that fails, as in Kafka."""
        group = self.key[0]
        try:
            while self.is_current and (found := self.states.archiving()):
                each = found[0]
                dead = DeadRecords(each.first, each.last, each.count, each.rejected)
                try:
                    written = await self._slices.run_from_start(letters.writing(self.key, dead))
                    self._counts.dead_letters[group] += written
                except ApiError as error:
                    self._counts.failed_dead_letters[group] += 1
                    warn(
                        f"share group {group}: the records {dead.first} to {dead.last} are archived without dead"
                        f" letters in topic {letters.topic_of(group) or '-'}: {error.message or error}"
                    )
                await self._archive(dead.first, dead.last)
        finally:
            self.is_burying = False

    async def _archive(self, first: int, last: int) -> None:
        async with self._writing:
            if self.is_current:
                with suppress(ApiError):  # after a crash, the dead letters are written again
                    self._give_back(self.states.archive(first, last))

    def retire(self) -> None:
        """Serve nobody any more, because another node or a newer state has taken over."""
        self.is_current = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notify()

    def _notify(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    # The time of the locks.

    def _expire_at(self, due: int) -> None:
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        seconds = max(0, due - self._timers.now_ms()) / 1000
        self._timer = self._timers.call_later(seconds, self._time_is_over)


class SharePartitions:
    """All share partitions that a node leads.

    Attributes:
        counts: what happened to their records
    """

    def __init__(
        self,
        timers: Timers,
        settings: ShareSettings,
        store: ShareStates,
        letters: DeadLetters,
        slices: Slices,
    ) -> None:
        self._letters = letters
        self._warn = Seldom(log.warning)
        self._timers = timers
        self._settings = settings
        self._store = store
        self._slices = slices
        self.counts = ShareCounts()
        self._led: dict[SharePartitionKey, LedPartition] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[LedPartition]:
        return iter(list(self._led.values()))

    def __contains__(self, key: SharePartitionKey) -> bool:
        """Return whether a share partition is loaded, for whichever leader epoch."""
        return key in self._led

    def find(self, key: SharePartitionKey, leader_epoch: int) -> LedPartition | None:
        """Return a share partition, if it is loaded for this leader epoch."""
        led = self._led.get(key)
        if led is not None and not led.belongs_to(leader_epoch):
            self.forget(led)
            return None
        return led

    def get(self, key: SharePartitionKey, leader_epoch: int, log: PartitionLog) -> LedPartition:
        """Return a share partition of which this node leads the partition. Raises ApiError."""
        led = self.find(key, leader_epoch)
        if led is None:
            led = self._led[key] = self._load(key, leader_epoch, log)
            led.bury_soon()
        return led

    def _load(self, key: SharePartitionKey, leader_epoch: int, log: PartitionLog) -> LedPartition:
        group = key[0]
        with _errors_for_members():
            state = self._store.load(*key, leader_epoch)
        if state.start_offset == UNKNOWN:
            # Written at once: after a crash, the group must not begin at a later offset.
            start = self._settings.first_offset(group, log, self._timers.now_ms())
            begin = ShareStateUpdate(state.state_epoch, leader_epoch, start, 0, ())
            with _errors_for_members():
                self._store.store(*key, begin)
            state = replace(state, start_offset=start)
        return LedPartition(
            key,
            leader_epoch,
            state.state_epoch,
            SharePartition(state, self._settings.limits(group)),
            self._store,
            self._timers,
            self._slices,
            self.counts,
            self._expire,
            self._bury,
        )

    def forget(self, led: LedPartition) -> None:
        """Forget a share partition; its state is read again when it is needed."""
        led.retire()
        if self._led.get(led.key) is led:
            del self._led[led.key]

    def leave(self, led: LedPartition, user: object) -> None:
        """End the use by a session. Without sessions, locks and dead letters, there is nothing to remember."""
        led.users.discard(user)
        if not led.users and not led.is_burying and led.states.next_deadline() is None:
            self.forget(led)

    def _expire(self, led: LedPartition) -> None:
        async def expire() -> None:
            await led.expire()
            self.leave(led, None)

        self.spawn(expire())

    def _bury(self, led: LedPartition) -> None:
        async def bury() -> None:
            await led.bury(self._letters, self._warn)
            self.leave(led, None)

        self.spawn(bury())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that no request waits for."""
        task = self._timers.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def member_error(error: ApiError) -> ApiError:
    """Convert an error of the share coordinator to the error for members."""
    return ApiError(_ERRORS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)


@contextmanager
def _errors_for_members() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise member_error(error) from error
