"""The group coordinator of a broker: loads and stores groups, and runs their timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import kafka_wire as kw

from krammar.broker.cluster import OFFSETS_TOPIC, ClusterMetadata, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError
from krammar.broker.groups.consumer import ConsumerProtocol
from krammar.broker.groups.group import CONSUMER, LARGEST_GROUP, Group, GroupKind, GroupState, Key
from krammar.broker.groups.member import JoinReply, join_error, size_of
from krammar.broker.groups.protocol import ClassicProtocol, GroupClient
from krammar.broker.groups.records import GROUP, CommittedOffset, TopicPartition, fits
from krammar.broker.groups.shard import FORGOTTEN_AT_ONCE, Shard
from krammar.broker.nodes import Logs
from krammar.broker.slices import Slices, Steps, advance, finish
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.wire.batches import Record
from krammar.wire.errors import WireError

log = logging.getLogger("krammar.broker.groups")

R = TypeVar("R")

# The first version of OffsetCommit for consumer groups, which also reports GROUP_ID_NOT_FOUND.
WITH_EPOCHS = 9

# The error codes that clients of a group get for failed writes. The log raises no others of Kafka's list.
_WRITE_ERRORS = {
    kw.ErrorCode.KAFKA_STORAGE_ERROR: kw.ErrorCode.NOT_COORDINATOR,
    kw.ErrorCode.MESSAGE_TOO_LARGE: kw.ErrorCode.UNKNOWN_SERVER_ERROR,
}


class GroupCoordinator:
    """All groups of a broker, in one shard per partition of `__consumer_offsets`.

    Shards are loaded soon after the start, or when they are first needed. Methods that do not return a response
    raise ApiError.
    """

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        cluster: ClusterMetadata,
        logs: Logs,
        topics: Topics,
        slices: Slices,
    ) -> None:
        self._config = config
        self._timers = timers
        self._cluster = cluster
        self._logs = logs
        self._topics = topics
        topics.deleted.append(self._topic_deleted)
        self._classic = ClassicProtocol(
            self, config.group_initial_rebalance_delay_ms, config.group_max_size
        )
        self._consumer = ConsumerProtocol(self, config, cluster, self._classic)
        self._shards: dict[int, Shard] = {}
        self._closed = False
        self._slices = slices
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the sessions of members in the log, and the expiry of offsets."""
        self.take_over()
        self._sweep_later()

    def take_over(self) -> None:
        """Drop the groups that another node coordinates from now on, and load those of this node."""
        own = self._own()
        self._unload(self._shards.keys() - set(own))
        self._timers.call_later(0, self._load_all, iter(own))

    def _own(self) -> list[int]:
        """Return the partitions of `__consumer_offsets` that this node leads."""
        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        node_id = self._config.node_id
        found = topic.partitions.values() if topic is not None else ()
        return sorted(partition.index for partition in found if partition.leader == node_id)

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

    def _sweep_later(self) -> None:
        interval = self._config.offsets_retention_check_interval_ms
        self._timers.call_later(interval / 1000, self._sweep)

    def close(self) -> None:
        """Stop all timers. Waiting JoinGroup and SyncGroup requests get NOT_COORDINATOR."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self._unload(list(self._shards))

    # -- shards

    def _shard(self, group_id: str) -> Shard:
        if not fits(group_id):
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        self._topics.ensure_internal(OFFSETS_TOPIC)
        return self._load(self._topics.coordinating_partition(OFFSETS_TOPIC, group_id))

    def _existing_shard(self, group_id: str) -> Shard | None:
        """Return the group's shard; None if `__consumer_offsets` does not exist."""
        if OFFSETS_TOPIC not in self._cluster.topics:
            return None
        return self._load(self._topics.coordinating_partition(OFFSETS_TOPIC, group_id))

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
                self._loaded(group)
        return shard

    def _loaded(self, group: Group) -> None:
        (self._classic if group.kind is GroupKind.CLASSIC else self._consumer).loaded(group)

    def _unload(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for group in self._shards.pop(number).groups.values():
                self._cancel_all(group)
                for member in group.members.values():
                    member.fail(kw.ErrorCode.NOT_COORDINATOR, member.member_id)

    # -- the interface `protocol.Host`

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def schedule(self, group: Group, key: Key, delay: int, action: Callable[[], None]) -> None:
        def elapsed() -> None:
            del group.timers[key]
            action()

        self.cancel(group, key)
        group.timers[key] = timer = self._timers.call_later(max(delay, 0) / 1000, elapsed)
        timer.of_member = True

    def cancel(self, group: Group, key: Key) -> None:
        if (timer := group.timers.pop(key, None)) is not None:
            timer.cancel()

    def _cancel_all(self, group: Group) -> None:
        for key in list(group.timers):
            self.cancel(group, key)

    def store(self, group: Group) -> None:
        shard = self._shard(group.group_id)
        with _errors_for_clients():
            try:
                shard.store(group)
            except ApiError as error:
                log.warning("group %s could not be written: %s", group.group_id, error)
                if group.stored and (
                    group.kind is GroupKind.CONSUMER or (GROUP, "") in group.stored
                ):
                    shard.restore(group)
                    self._loaded(group)
                raise

    def in_thread(self, group: Group, function: Callable[[], R], then: Callable[[R], None]) -> None:
        async def run() -> None:
            result = await self._slices.worker.run(function)
            # The group may have been deleted, or may have moved to another node.
            if any(each.groups.get(group.group_id) is group for each in self._shards.values()):
                then(result)

        self._run(run())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._timers.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- members

    def join(
        self, request: kw.JoinGroupRequest, client: GroupClient
    ) -> kw.JoinGroupResponse | Awaitable[kw.JoinGroupResponse]:
        """Let a member join its group, which is created if it does not exist."""

        def run(reply: JoinReply) -> None:
            def answer(response: kw.JoinGroupResponse) -> None:
                if response.protocol_name is None and client.version < 7:  # null is not allowed
                    response.protocol_name = ""
                reply(response)

            try:
                group = self._group_to_join(request)
                if group.kind is GroupKind.CLASSIC:
                    self._classic.join(group, request, client, answer)
                else:
                    answer(self._consumer.join(group, request, client))
            except ApiError as error:
                answer(join_error(error.code, request.member_id))

        return self._held(run)

    def _group_to_join(self, request: kw.JoinGroupRequest) -> Group:
        if not request.group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        names = (protocol.name for protocol in request.protocols)
        if not all(map(fits, (request.group_instance_id, request.protocol_type, *names))):
            raise ApiError(kw.ErrorCode.INVALID_REQUEST)
        size = size_of(request.protocols)
        if size > LARGEST_GROUP:
            raise ApiError(kw.ErrorCode.INVALID_REQUEST)
        shortest = self._config.group_min_session_timeout_ms
        if not (
            shortest <= request.session_timeout_ms <= self._config.group_max_session_timeout_ms
        ):
            raise ApiError(kw.ErrorCode.INVALID_SESSION_TIMEOUT)
        shard = self._shard(request.group_id)
        group = shard.groups.get(request.group_id)
        if group is None or (group.kind is GroupKind.CONSUMER and group.state is GroupState.EMPTY):
            if request.member_id:
                raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._new(request.group_id, GroupKind.CLASSIC, group)
            with _errors_for_clients():
                shard.store(group)
        if not group.has_space(request.member_id, size):
            raise ApiError(kw.ErrorCode.GROUP_MAX_SIZE_REACHED)
        return group

    def _new(self, group_id: str, kind: GroupKind, old: Group | None) -> Group:
        """Create a group, in place of an empty one of the other protocol."""
        group = Group(group_id, self.now_ms(), kind)
        if old is not None:
            group.stored = old.stored
            self._cancel_all(old)
        return group

    def sync(
        self, request: kw.SyncGroupRequest
    ) -> kw.SyncGroupResponse | Awaitable[kw.SyncGroupResponse]:
        group = self._named(request.group_id)
        if group.kind is GroupKind.CONSUMER:
            return self._consumer.sync(group, request)
        return self._held(lambda reply: self._classic.sync(group, request, reply))

    def heartbeat(self, request: kw.HeartbeatRequest) -> None:
        group = self._named(request.group_id)
        if group.kind is GroupKind.CONSUMER:
            self._consumer.classic_heartbeat(group, request)
        else:
            self._classic.heartbeat(group, request)

    def leave(
        self, group_id: str, members: Sequence[kw.LeaveGroupRequest.MemberIdentity]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        if not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        group = self.find(group_id) or Group(group_id, None)
        protocol = self._classic if group.kind is GroupKind.CLASSIC else self._consumer
        return protocol.leave(group, members)

    def consumer_heartbeat(
        self, request: kw.ConsumerGroupHeartbeatRequest, client: GroupClient
    ) -> kw.ConsumerGroupHeartbeatResponse:
        """Handle the heartbeat of a member of a consumer group, which is created if it does not exist."""
        self._consumer.check(request)
        group_id, epoch = request.group_id, request.member_epoch
        group = self._shard(group_id).groups.get(group_id)
        if group is None and epoch != 0:
            kind = "Consumer group" if epoch > 0 else "Group"
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if group is None or (
            epoch == 0 and group.kind is GroupKind.CLASSIC and group.state is GroupState.EMPTY
        ):
            group = self._new(group_id, GroupKind.CONSUMER, group)
        return self._consumer.heartbeat(group, request, client)

    def _named(
        self, group_id: str, unknown: kw.ErrorCode = kw.ErrorCode.UNKNOWN_MEMBER_ID
    ) -> Group:
        """Return a group. Raises ApiError, with the code ``unknown`` if it does not exist."""
        if not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        group = self.find(group_id)
        if group is None:
            raise ApiError(unknown)
        return group

    def _held(self, run: Callable[[Callable[[R], None]], None]) -> R | Awaitable[R]:
        """Return the response if it is available at once, else a future of it."""
        future: asyncio.Future[R] = self._timers.loop.create_future()

        def reply(response: R) -> None:
            # Closing the connection cancels the future.
            if not future.done():
                future.set_result(response)

        run(reply)
        return future.result() if future.done() else future

    # -- offsets

    def encode_offsets(
        self, request: kw.OffsetCommitRequest | kw.TxnOffsetCommitRequest, records: Sequence[Record]
    ) -> Callable[[], bytes]:
        """Return a function that builds the batch for ``commit_offsets``. Another thread may call it."""
        log = self._shard(request.group_id).log
        if isinstance(request, kw.TxnOffsetCommitRequest):
            return partial(
                log.encode_records,
                records,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                is_transactional=request.producer_id >= 0,
            )
        return partial(log.encode_records, records)

    def commit_offsets(
        self,
        request: kw.OffsetCommitRequest | kw.TxnOffsetCommitRequest,
        offsets: Mapping[TopicPartition, tuple[int, CommittedOffset]],
        version: int,
        batch: bytes,
    ) -> None:
        """Store offsets, which ``encode_offsets`` has built a batch of; those of a transaction wait for its end.

        Args:
            offsets: as for ``Shard.commit``
        """
        transactional = isinstance(request, kw.TxnOffsetCommitRequest)
        producer_id = request.producer_id if isinstance(request, kw.TxnOffsetCommitRequest) else -1
        group_id, member_id = request.group_id, request.member_id
        generation = request.generation_id_or_member_epoch
        if transactional and not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        with_epochs = not transactional and version >= WITH_EPOCHS
        if group is None:
            if generation >= 0:
                raise ApiError(
                    kw.ErrorCode.GROUP_ID_NOT_FOUND
                    if with_epochs
                    else kw.ErrorCode.ILLEGAL_GENERATION
                )
            group = Group(group_id, None)
        member = group.members.get(member_id)
        if not transactional and not with_epochs and member is not None and not member.protocols:
            raise ApiError(kw.ErrorCode.UNSUPPORTED_VERSION)
        group.check_commit(
            member_id,
            request.group_instance_id,
            generation,
            transactional=transactional,
            places=((offset.topic_id, where[1]) for where, (_, offset) in offsets.items()),
        )
        in_generation = group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        if not transactional and group.kind is GroupKind.CLASSIC and in_generation:
            self._classic.extend_session(group, group.members[member_id])
        if offsets:
            with _errors_for_clients():
                shard.commit(group_id, offsets, batch, producer_id)

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> None:
        """Handle a transaction marker that was written to a partition of `__consumer_offsets`."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, committed)

    def offsets_of(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group; a consumer group checks the epoch of its members."""
        shard = self._existing_shard(group_id)
        if shard is None:
            return {}
        group = shard.groups.get(group_id)
        if group is not None and group.kind is GroupKind.CONSUMER and (member_id or epoch >= 0):
            group.check_epoch(member_id or "", epoch)
        return shard.offsets.of_group(group_id)

    def unstable_offsets(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions whose offsets an open transaction may change."""
        shard = self._existing_shard(group_id)
        return () if shard is None else shard.offsets.pending(group_id)

    def delete_offsets(
        self, group_id: str, offsets: Iterable[TopicPartition]
    ) -> Steps[dict[TopicPartition, kw.ErrorCode]]:
        """Delete offsets in steps, except of topics that members read. Returns an error code per offset."""
        group = self._named(group_id, kw.ErrorCode.GROUP_ID_NOT_FOUND)
        # Consumers declare their subscriptions, so the offsets of other topics can be deleted.
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            raise ApiError(kw.ErrorCode.NON_EMPTY_GROUP)
        shard = self._shard(group_id)
        known = set(shard.offsets.all_of(group_id))
        results: dict[TopicPartition, kw.ErrorCode] = {}
        wanted = iter(dict.fromkeys(offsets))
        while some := list(islice(wanted, FORGOTTEN_AT_ONCE)):
            # Members may have subscribed to topics since the last step.
            group = self._named(group_id, kw.ErrorCode.GROUP_ID_NOT_FOUND)
            gone = []
            for where in some:
                is_read = group.reads(where[0])
                results[where] = (
                    kw.ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else kw.ErrorCode.NONE
                )
                if not is_read and where in known:
                    gone.append((group_id, where))
            with _errors_for_clients():
                yield from shard.forgetting(gone)
            yield None
        return results

    # -- administration

    def find(self, group_id: str) -> Group | None:
        """Return a group; None if it does not exist."""
        shard = self._existing_shard(group_id)
        return None if shard is None else shard.groups.get(group_id)

    def all_groups(self) -> list[Group]:
        return [group for number in self._own() for group in self._load(number).groups.values()]

    def delete(self, group_id: str) -> Steps[None]:
        """Delete a group without members, and its offsets, in steps.

        If a member joins between the steps, the deletion ends with NON_EMPTY_GROUP, and the offsets that are left stay.
        """
        self._without_members(group_id)
        shard = self._shard(group_id)
        offsets = [(group_id, where) for where in shard.offsets.all_of(group_id)]
        for begin in range(0, len(offsets), FORGOTTEN_AT_ONCE):
            with _errors_for_clients():
                yield from shard.forgetting(offsets[begin : begin + FORGOTTEN_AT_ONCE])
            self._without_members(group_id)
        # Usually none; other requests may have committed some between the steps.
        offsets = [(group_id, where) for where in shard.offsets.all_of(group_id)]
        self._forget(shard, offsets, [self._without_members(group_id)])

    def _without_members(self, group_id: str) -> Group:
        """Return a group. Raises ApiError if it has members, or does not exist."""
        group = self.find(group_id)
        if group is None:
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ApiError(kw.ErrorCode.NON_EMPTY_GROUP)
        return group

    def _forget(
        self,
        shard: Shard,
        offsets: Sequence[tuple[str, TopicPartition]],
        groups: Sequence[Group] = (),
    ) -> None:
        with _errors_for_clients():
            shard.forget(offsets, groups)
        for group in groups:
            self._cancel_all(group)

    # -- clean-up

    def _topic_deleted(self, topic: Topic) -> None:
        """Delete the committed offsets of a topic: the first ones at once, and many in steps."""
        if topic.name == OFFSETS_TOPIC:
            self._unload(list(self._shards))
            return

        def forget(shard: Shard) -> Steps[None]:
            found = shard.offsets.of_topic(topic.name)
            for begin in range(0, len(found), FORGOTTEN_AT_ONCE):
                # Members of a new topic with the same name may have committed offsets since.
                old = [
                    each
                    for each in found[begin : begin + FORGOTTEN_AT_ONCE]
                    if shard.offsets.is_of(each, topic.topic_id)
                ]
                yield from shard.forgetting(old)

        steps = self._for_each_shard(forget)
        progress = advance(steps)
        if not progress.done:
            self._run(self._slices.run(steps, progress.job))

    def _sweep(self) -> None:
        self._sweep_later()
        self._run(self._slices.run_from_start(self._expiring()))

    def expire(self) -> None:
        """Delete expired offsets and groups in all shards."""
        finish(self._expiring())

    def _expiring(self) -> Steps[None]:
        retention = self._config.offsets_retention_minutes * 60000

        def expire(shard: Shard) -> Steps[None]:
            for group in list(shard.groups.values()):
                if shard.groups.get(group.group_id) is not group:
                    continue
                offsets, unused = shard.expired(group, self.now_ms(), retention)
                if offsets or unused:
                    self._forget(shard, offsets, [group] if unused else [])
                yield None

        return self._for_each_shard(expire)

    def _for_each_shard(self, clean: Callable[[Shard], Steps[None]]) -> Steps[None]:
        """Clean all shards in steps; a failure is logged."""
        for number in self._own():
            try:
                yield from clean(self._load(number))
            except ApiError as error:
                log.warning(
                    "%s-%d: expired offsets could not be deleted: %s", OFFSETS_TOPIC, number, error
                )


@contextmanager
def _errors_for_clients() -> Iterator[None]:
    """Convert the errors of failed writes to the errors for clients of a group."""
    try:
        yield
    except ApiError as error:
        raise ApiError(_WRITE_ERRORS.get(error.code, error.code), error.message) from error
