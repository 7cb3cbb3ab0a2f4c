"""The partitions of `__consumer_offsets` that a node coordinates, and the timers and threads of their groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import kafka_wire as kw

from krammar.broker.cluster import OFFSETS_TOPIC, ClusterMetadata
from krammar.broker.errors import ApiError, coordinator_errors
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.group import Key
from krammar.broker.groups.host import AnyGroup
from krammar.broker.groups.offsets import TopicPartition
from krammar.broker.groups.records import CLASSIC, fits
from krammar.broker.groups.shard import Shard
from krammar.broker.groups.share_group import ShareGroup
from krammar.broker.nodes import Logs
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.util.turns import Slices, Steps, in_thread
from krammar.wire.errors import WireError

log = logging.getLogger("krammar.broker.groups")

R = TypeVar("R")


@dataclass(eq=False)
class Shards:
    """The shards of a node, loaded soon after the start, or when they are first needed. It is the groups' `Host`.

    Attributes:
        loaded: functions to call with each group that was loaded from the log
    """

    _node_id: int
    _timers: Timers
    _cluster: ClusterMetadata
    _logs: Logs
    _topics: Topics
    _slices: Slices
    loaded: list[Callable[[AnyGroup], None]] = field(init=False, default_factory=list)
    _shards: dict[int, Shard] = field(init=False, default_factory=dict)
    _closed: bool = field(init=False, default=False)
    _tasks: set[asyncio.Task[None]] = field(init=False, default_factory=set)

    def take_over(self) -> None:
        """Drop the groups that another node coordinates from now on, and load those of this node."""
        own = self._own()
        self._unload(self._shards.keys() - set(own))
        self._timers.call_later(0, self._load_all, iter(own))

    def close(self) -> None:
        """Stop all timers. Waiting JoinGroup and SyncGroup requests get NOT_COORDINATOR."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self.unload()

    def unload(self) -> None:
        """Drop all groups from memory."""
        self._unload(list(self._shards))

    # -- loading

    def _own(self) -> list[int]:
        """Return the partitions of `__consumer_offsets` that this node leads."""
        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        found = topic.partitions.values() if topic is not None else ()
        return sorted(partition.index for partition in found if partition.leader == self._node_id)

    def _load_all(self, numbers: Iterator[int]) -> None:
        """Load one shard at a time, so that requests are answered in between."""
        number = next(numbers, None)
        if number is None:
            return
        with suppress(ApiError):  # requests that need the shard report the error
            partition_log = self._logs.get(OFFSETS_TOPIC, number)
            if partition_log is not None and partition_log.end_offset:
                self._load(number)
        self._timers.call_later(0, self._load_all, numbers)

    def of(self, group_id: str) -> Shard:
        """Return the group's shard. Creates `__consumer_offsets` if it does not exist. Raises ApiError."""
        if not fits(group_id):
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        self._topics.ensure_internal(OFFSETS_TOPIC)
        return self._load(self._topics.coordinating_partition(OFFSETS_TOPIC, group_id))

    def existing(self, group_id: str) -> Shard | None:
        """Return the group's shard; None if `__consumer_offsets` does not exist. Raises ApiError."""
        if OFFSETS_TOPIC not in self._cluster.topics:
            return None
        return self._load(self._topics.coordinating_partition(OFFSETS_TOPIC, group_id))

    def find(self, group_id: str) -> AnyGroup | None:
        """Return a group; None if it does not exist. Raises ApiError."""
        shard = self.existing(group_id)
        return None if shard is None else shard.groups.get(group_id)

    def named(
        self, group_id: str, unknown: kw.ErrorCode = kw.ErrorCode.UNKNOWN_MEMBER_ID
    ) -> AnyGroup:
        """Return a group. Raises ApiError, with the code ``unknown`` if it does not exist."""
        if not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        group = self.find(group_id)
        if group is None:
            raise ApiError(unknown)
        return group

    def loaded_at(self, number: int) -> Shard | None:
        """Return the shard of a partition; None if it is not in memory."""
        return self._shards.get(number)

    def all(self) -> list[Shard]:
        """Return all shards of the node. Raises ApiError."""
        return [self._load(number) for number in self._own()]

    def _load(self, number: int) -> Shard:
        shard = self._shards.get(number)
        if shard is None:
            partition_log = self._logs.get(OFFSETS_TOPIC, number)
            if partition_log is None or partition_log.offline or self._closed:
                raise ApiError(kw.ErrorCode.NOT_COORDINATOR)
            try:
                shard = Shard(partition_log, log.warning)
            except (ApiError, OSError, WireError) as error:
                log.error("%s-%d cannot be read: %s", OFFSETS_TOPIC, number, error)
                raise ApiError(kw.ErrorCode.NOT_COORDINATOR) from error
            self._shards[number] = shard
            for group in list(shard.groups.values()):
                self._announce(group)
        return shard

    def _announce(self, group: AnyGroup) -> None:
        for function in self.loaded:
            function(group)

    def _unload(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for group in self._shards.pop(number).groups.values():
                self.cancel_all(group)
                for member in () if isinstance(group, ShareGroup) else group.members.values():
                    member.fail(kw.ErrorCode.NOT_COORDINATOR, member.member_id)

    # -- the interface `Host`

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def schedule(self, group: AnyGroup, key: Key, delay: int, action: Callable[[], None]) -> None:
        def elapsed() -> None:
            del group.timers[key]
            action()

        self.cancel(group, key)
        group.timers[key] = timer = self._timers.call_later(max(delay, 0) / 1000, elapsed)
        timer.of_member = True

    def cancel(self, group: AnyGroup, key: Key) -> None:
        if (timer := group.timers.pop(key, None)) is not None:
            timer.cancel()

    def cancel_all(self, group: AnyGroup) -> None:
        """Stop all timers of a group."""
        for key in list(group.timers):
            self.cancel(group, key)

    def store(self, group: AnyGroup) -> None:
        shard = self.of(group.group_id)
        with coordinator_errors():
            try:
                shard.store(group)
            except ApiError as error:
                log.warning("group %s could not be written: %s", group.group_id, error)
                was_classic = (CLASSIC, "") in group.stored
                if group.stored and not (isinstance(group, ClassicGroup) and was_classic):
                    self.cancel_all(group)
                    self._announce(shard.restore(group))
                raise

    def in_thread(
        self, group: AnyGroup, function: Callable[[], R], then: Callable[[R], None]
    ) -> None:
        async def run() -> None:
            result = await in_thread(function, worker=self._slices.worker)
            # The group may have been deleted, or may have moved to another node.
            if any(each.groups.get(group.group_id) is group for each in self._shards.values()):
                then(result)

        self._run(run())

    # -- work in steps

    def forget(
        self,
        shard: Shard,
        offsets: Sequence[tuple[str, TopicPartition]],
        groups: Sequence[AnyGroup] = (),
    ) -> None:
        """Delete offsets and groups. Raises ApiError."""
        with coordinator_errors():
            shard.forget(offsets, groups)
        for group in groups:
            self.cancel_all(group)

    def clean(self, clean: Callable[[Shard], Steps[None]]) -> Steps[None]:
        """Clean all shards in steps; a failure is logged."""
        for number in self._own():
            try:
                yield from clean(self._load(number))
            except ApiError as error:
                log.warning(
                    "%s-%d: expired offsets could not be deleted: %s", OFFSETS_TOPIC, number, error
                )

    def run_in_slices(self, steps: Steps[None]) -> None:
        """Run the first slice of steps at once, and the others between requests, until ``close``."""
        progress = self._slices.budget.advance(steps)
        if not progress.done:
            self._run(self._slices.run(steps, progress.job))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._timers.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
