"""The committed offsets of a node's groups: commits, fetches, deletions and expiry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import kafka_wire as kw

from krammar.broker.cluster import OFFSETS_TOPIC, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, coordinator_errors
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.classic_protocol import ClassicProtocol
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.group import CONSUMER, Commit, GroupState
from krammar.broker.groups.host import OffsetGroup
from krammar.broker.groups.offsets import CommittedOffset, TopicPartition
from krammar.broker.groups.shard import Shard
from krammar.broker.groups.shards import Shards
from krammar.broker.groups.share_group import ShareGroup
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.util.turns import Steps, finish
from krammar.wire.batches import Record

# The first version of OffsetCommit for consumer groups, which also reports GROUP_ID_NOT_FOUND.
WITH_EPOCHS = 9


@dataclass(eq=False)
class OffsetManager:
    """Reads and writes committed offsets. Methods raise ApiError."""

    _config: BrokerConfig
    _timers: Timers
    _shards: Shards
    _topics: Topics
    _classic: ClassicProtocol

    def __post_init__(self) -> None:
        self._topics.deleted.append(self._topic_deleted)

    def encode(
        self, request: kw.OffsetCommitRequest | kw.TxnOffsetCommitRequest, records: Sequence[Record]
    ) -> Callable[[], bytes]:
        """Return a function that builds the batch for ``commit``. Another thread may call it."""
        log = self._shards.of(request.group_id).log
        if isinstance(request, kw.TxnOffsetCommitRequest):
            return partial(
                log.encode_records,
                records,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                is_transactional=request.producer_id >= 0,
            )
        return partial(log.encode_records, records)

    def commit(
        self,
        request: kw.OffsetCommitRequest | kw.TxnOffsetCommitRequest,
        offsets: Mapping[TopicPartition, tuple[int, CommittedOffset]],
        version: int,
        batch: bytes,
    ) -> None:
        """Store offsets, from which ``encode`` has built a batch. Offsets of a transaction wait for its end.

        Args:
            offsets: as for ``Shard.commit``
        """
        transactional = isinstance(request, kw.TxnOffsetCommitRequest)
        producer_id = request.producer_id if isinstance(request, kw.TxnOffsetCommitRequest) else -1
        group_id, member_id = request.group_id, request.member_id
        epoch = request.generation_id_or_member_epoch
        if transactional and not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        with_epochs = not transactional and version >= WITH_EPOCHS
        if group is None:
            if epoch >= 0:
                raise ApiError(
                    kw.ErrorCode.GROUP_ID_NOT_FOUND
                    if with_epochs
                    else kw.ErrorCode.ILLEGAL_GENERATION
                )
            group = ClassicGroup(group_id, None)
        if isinstance(group, ShareGroup):
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND)
        member = group.members.get(member_id)
        if not transactional and not with_epochs and member is not None and not member.protocols:
            raise ApiError(kw.ErrorCode.UNSUPPORTED_VERSION)
        places = [(offset.topic_id, where[1]) for where, (_, offset) in offsets.items()]
        group.check_commit(
            Commit(member_id, request.group_instance_id, epoch, transactional, places)
        )
        in_generation = group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        if not transactional and isinstance(group, ClassicGroup) and in_generation:
            self._classic.extend_session(group, group.members[member_id])
        if offsets:
            with coordinator_errors():
                shard.commit(group_id, offsets, batch, producer_id)

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> None:
        """Handle a transaction marker that was written to a partition of `__consumer_offsets`."""
        shard = self._shards.loaded_at(partition)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, committed)

    def of_group(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group; a consumer group checks the epoch of its members."""
        shard = self._shards.existing(group_id)
        if shard is None:
            return {}
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and (member_id or epoch >= 0):
            group.check_epoch(member_id or "", epoch)
        return shard.offsets.of_group(group_id)

    def unstable(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions whose offsets an open transaction may change."""
        shard = self._shards.existing(group_id)
        return () if shard is None else shard.offsets.pending(group_id)

    def delete(
        self, group_id: str, offsets: Iterable[TopicPartition]
    ) -> Steps[dict[TopicPartition, kw.ErrorCode]]:
        """Delete offsets in steps, except of topics that members read. Returns an error code per offset."""
        group = self._named(group_id)
        # Consumers declare their subscriptions, so the offsets of other topics can be deleted.
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            raise ApiError(kw.ErrorCode.NON_EMPTY_GROUP)
        shard = self._shards.of(group_id)
        known = set(shard.offsets.all_of(group_id))
        results: dict[TopicPartition, kw.ErrorCode] = {}
        wanted = iter(dict.fromkeys(offsets))
        while some := list(islice(wanted, shard.forgotten_at_once)):
            # Members may have subscribed to topics since the last step.
            group = self._named(group_id)
            gone = []
            for where in some:
                is_read = group.reads(where[0])
                results[where] = (
                    kw.ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else kw.ErrorCode.NONE
                )
                if not is_read and where in known:
                    gone.append((group_id, where))
            with coordinator_errors():
                yield from shard.forgetting(gone)
            yield None
        return results

    def _named(self, group_id: str) -> OffsetGroup:
        """Return a group that commits offsets. Raises ApiError."""
        group = self._shards.named(group_id, kw.ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ShareGroup):
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    # -- clean-up

    def _topic_deleted(self, topic: Topic) -> None:
        """Delete the committed offsets of a topic: the first ones at once, and many in steps."""
        if topic.name == OFFSETS_TOPIC:
            self._shards.unload()
            return

        def forget(shard: Shard) -> Steps[None]:
            found = shard.offsets.of_topic(topic.name)
            for begin in range(0, len(found), shard.forgotten_at_once):
                # Members of a new topic with the same name may have committed offsets since.
                old = [
                    each
                    for each in found[begin : begin + shard.forgotten_at_once]
                    if shard.offsets.is_of(each, topic.topic_id)
                ]
                yield from shard.forgetting(old)

        self._shards.run_in_slices(self._shards.clean(forget))

    def sweep_later(self) -> None:
        """Start the regular expiry of offsets."""
        interval = self._config.offsets_retention_check_interval_ms
        self._timers.call_later(interval / 1000, self._sweep)

    def _sweep(self) -> None:
        self.sweep_later()
        self._shards.run_in_slices(self._expiring())

    def expire(self) -> None:
        """Delete expired offsets and groups in all shards."""
        finish(self._expiring())

    def _expiring(self) -> Steps[None]:
        retention = self._config.offsets_retention_minutes * 60000

        def expire(shard: Shard) -> Steps[None]:
            for group in list(shard.groups.values()):
                if shard.groups.get(group.group_id) is not group:
                    continue
                offsets, unused = shard.expired(group, self._timers.now_ms(), retention)
                if offsets or unused:
                    self._shards.forget(shard, offsets, [group] if unused else [])
                yield None

        return self._shards.clean(expire)
