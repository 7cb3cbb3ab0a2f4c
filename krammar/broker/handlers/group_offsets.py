"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups.

OffsetCommit, v2 to v10:

- v2 to v4 name how long an offset is retained; later, the broker's setting decides (KIP-211).
- v7 has static members (KIP-345).
- v9 is for members of consumer groups, too, and reports GROUP_ID_NOT_FOUND (KIP-848).
- v10 identifies topics by id.

TxnOffsetCommit, v0 to v6:

- v3 names member and generation, so that old members are fenced (KIP-447).
- v4 knows TRANSACTION_ABORTABLE. From v5 on, the broker adds the group's partition to the
  transaction (KIP-890).
- v6 identifies topics by id.

OffsetFetch, v1 to v10:

- v2 can ask for all topics, and has an error of the whole group; v1 repeats the error in each
  partition.
- v7 can refuse offsets that an open transaction may change (KIP-447).
- v8 asks for several groups (KIP-709). v9 names the member of a consumer group (KIP-848).
- v10 identifies topics by id.

OffsetDelete, v0: deletes offsets of topics that no member reads (KIP-496).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.offsets import CommittedOffset, TopicPartition, offset_record
from krammar.broker.groups.records import fits
from krammar.util.turns import InThread, Steps
from krammar.wire.batches import Record
from krammar.wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.session import Session
    from krammar.broker.timers import Timers
    from krammar.broker.transactions.coordinator import TransactionCoordinator

T = TypeVar("T")

# The first versions that identify topics by id.
COMMIT_BY_ID = 10
TXN_COMMIT_BY_ID = 6
FETCH_BY_ID = 10

INT64_MAX = 2**63 - 1

TopicName = tuple[str, UUID]  # as in the request: one of the two is empty
Result = tuple[TopicName, int, kw.ErrorCode]  # for one partition

# The classes for topics and partitions in responses about several groups, and about one.
_OF_GROUPS = (kw.OffsetFetchResponse.Topics, kw.OffsetFetchResponse.Partitions)
_OF_ONE_GROUP = (kw.OffsetFetchResponse.Topic, kw.OffsetFetchResponse.Partition)

# The number of offsets whose batch is built without another thread.
_FEW = 1000
_NO_OFFSET = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", timestamp=-1)


@dataclass(eq=False)
class GroupOffsetHandlers:
    config: BrokerConfig
    timers: Timers
    cluster: ClusterMetadata
    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def offset_commit(
        self, session: Session, request: kw.OffsetCommitRequest, version: int
    ) -> Steps[kw.OffsetCommitResponse]:
        results = yield from self._commit(request, version, by_id=version >= COMMIT_BY_ID)
        topics = yield from _topics(
            results, kw.OffsetCommitResponse.Topic, kw.OffsetCommitResponse.Partition
        )
        return kw.OffsetCommitResponse(topics=topics)

    def txn_offset_commit(
        self, session: Session, request: kw.TxnOffsetCommitRequest, version: int
    ) -> Steps[kw.TxnOffsetCommitResponse]:
        def check() -> None:
            if request.group_id:  # the group coordinator refuses an empty one
                self.transactions.check_offsets(
                    request.transactional_id,
                    request.producer_id,
                    request.producer_epoch,
                    request.group_id,
                    version,
                )

        try:
            check()
        except ApiError as error:
            results = [
                ((topic.name, topic.topic_id), partition.partition_index, error.code)
                for topic in request.topics
                for partition in topic.partitions
            ]
        else:
            by_id = version >= TXN_COMMIT_BY_ID
            results = yield from self._commit(request, version, by_id=by_id, check=check)
        topics = yield from _topics(
            results, kw.TxnOffsetCommitResponse.Topic, kw.TxnOffsetCommitResponse.Partition
        )
        return kw.TxnOffsetCommitResponse(topics=topics)

    def _commit(
        self,
        request: kw.OffsetCommitRequest | kw.TxnOffsetCommitRequest,
        version: int,
        *,
        by_id: bool,
        check: Callable[[], None] | None = None,
    ) -> Steps[list[Result]]:
        """Commit the offsets of a request as one batch, which is built in steps.

        Args:
            check: is called again before the offsets are stored, because other requests run between
            the steps

        Returns the results in Kafka's order: refused partitions first.
        """
        now = self.timers.now_ms()
        expires = None
        if isinstance(request, kw.OffsetCommitRequest) and request.retention_time_ms != -1:
            expires = min(now + request.retention_time_ms, INT64_MAX)
        refused: list[Result] = []
        taken: list[Result] = []
        # Of a partition that is named several times, the last offset counts.
        offsets: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        records: list[Record] = []
        cluster = self.cluster
        unknown = (
            kw.ErrorCode.UNKNOWN_TOPIC_ID if by_id else kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        for asked in request.topics:
            name = (asked.name, asked.topic_id)
            topic = cluster.topics.get(asked.name)
            if by_id:
                topic = cluster.topics_by_id.get(asked.topic_id)
            for partition in asked.partitions:
                index = partition.partition_index
                metadata = partition.committed_metadata or ""
                if topic is None:
                    refused.append((name, index, unknown))
                elif index not in topic.partitions:
                    refused.append((name, index, kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                elif self._is_too_long(metadata):
                    # An error of the whole group takes precedence over this one.
                    taken.append((name, index, kw.ErrorCode.OFFSET_METADATA_TOO_LARGE))
                else:
                    taken.append((name, index, kw.ErrorCode.NONE))
                    committed = CommittedOffset(
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now,
                        expires,
                        topic.topic_id,
                    )
                    where = (topic.name, index)
                    offsets[where] = (len(records), committed)
                    if fits(request.group_id):  # the group coordinator refuses longer ones
                        records.append(offset_record(request.group_id, where, committed))
                yield None
        try:
            if taken:
                batch = b""
                if records:
                    encode = self.groups.offsets.encode(request, records)
                    batch = (yield InThread(encode)) if len(records) > _FEW else encode()
                if check is not None:
                    check()
                self.groups.offsets.commit(request, offsets, version, batch)
        except ApiError as error:
            taken = [(name, index, error.code) for name, index, _ in taken]
        return refused + taken

    def _is_too_long(self, metadata: str) -> bool:
        """Return whether a text exceeds the limit in UTF-16 units, as Java counts them."""
        if not fits(metadata):
            return True
        limit = self.config.offset_metadata_max_bytes
        return limit < 2 * len(metadata) and limit < len(metadata.encode("utf-16-le")) // 2

    def offset_fetch(
        self, session: Session, request: kw.OffsetFetchRequest, version: int
    ) -> Steps[kw.OffsetFetchResponse]:
        if version < 8:
            code, topics = yield from self._fetch(
                request, version, request.group_id, request.topics
            )
            return kw.OffsetFetchResponse(error_code=code, topics=topics)
        groups: dict[str, kw.OffsetFetchResponse.Group] = {}
        for asked in request.groups:
            name = asked.group_id
            if name not in groups:  # duplicate groups are answered once
                code, topics = yield from self._fetch(
                    request, version, name, asked.topics, asked.member_id, asked.member_epoch
                )
                groups[name] = kw.OffsetFetchResponse.Group(
                    group_id=name, error_code=code, topics=topics
                )
                yield None
        return kw.OffsetFetchResponse(groups=list(groups.values()))

    def _fetch(
        self,
        request: kw.OffsetFetchRequest,
        version: int,
        group_id: str,
        asked: Iterable[Any] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Steps[tuple[kw.ErrorCode, list[Any]]]:
        """Return the error code of a group, and the topics of the response in the version's classes."""
        classes: tuple[Callable[..., Any], ...] = _OF_GROUPS if version >= 8 else _OF_ONE_GROUP
        make_topic, make_partition = classes
        by_id = version >= FETCH_BY_ID
        failure = kw.ErrorCode.NONE
        offsets: dict[TopicPartition, CommittedOffset] = {}
        try:
            offsets = self.groups.offsets.of_group(group_id, member_id, member_epoch)
        except ApiError as error:
            if version >= 2:
                return error.code, []
            failure = error.code  # version 1 only has an error code per partition
        unstable = self.groups.offsets.unstable(group_id) if request.require_stable else ()
        if asked is None:
            wanted = yield from self._all_topics(offsets, by_id=by_id)
        else:
            wanted = [
                (t.name, t.topic_id if by_id else NULL_UUID, t.partition_indexes) for t in asked
            ]
        topics = []
        for name, topic_id, indexes in wanted:
            answer = make_topic(name=name)
            topic = None
            if by_id:
                answer.topic_id = topic_id
                topic = self.cluster.topics_by_id.get(topic_id)
            for index in indexes:
                where = (name if topic is None else topic.name, index)
                committed = offsets.get(where, _NO_OFFSET)
                code = failure
                if by_id and topic is None:
                    code = kw.ErrorCode.UNKNOWN_TOPIC_ID
                elif where in unstable:
                    code = kw.ErrorCode.UNSTABLE_OFFSET_COMMIT
                if code != kw.ErrorCode.NONE or _is_of_another(committed, topic_id):
                    committed = _NO_OFFSET
                answer.partitions.append(
                    make_partition(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=code,
                    )
                )
                yield None
            topics.append(answer)
            yield None
        return kw.ErrorCode.NONE, topics

    def _all_topics(
        self, offsets: Iterable[TopicPartition], *, by_id: bool
    ) -> Steps[list[tuple[str, UUID, list[int]]]]:
        """Return the name, id and partitions of each topic with offsets."""
        found: dict[str, list[int]] = {}
        for name, partition in list(offsets):  # other requests may commit between the steps
            found.setdefault(name, []).append(partition)
            yield None
        topics = self.cluster.topics
        return [
            (name, topics[name].topic_id if by_id else NULL_UUID, partitions)
            for name, partitions in found.items()
            # Versions with topic ids cannot report topics that no longer exist.
            if name in topics or not by_id
        ]

    def offset_delete(
        self, session: Session, request: kw.OffsetDeleteRequest, version: int
    ) -> Steps[kw.OffsetDeleteResponse]:
        results: list[Result] = []
        known = []
        for asked in request.topics:
            topic = self.cluster.topics.get(asked.name)
            for partition in asked.partitions:
                index = partition.partition_index
                if topic is None or index not in topic.partitions:
                    code = kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    results.append(((asked.name, NULL_UUID), index, code))
                else:
                    known.append((asked.name, index))
                yield None
        try:
            codes = yield from self.groups.offsets.delete(request.group_id, known)
        except ApiError as error:
            return kw.OffsetDeleteResponse(error_code=error.code)
        results += [((where[0], NULL_UUID), where[1], codes[where]) for where in known]
        topics = yield from _topics(
            results, kw.OffsetDeleteResponse.Topic, kw.OffsetDeleteResponse.Partition
        )
        return kw.OffsetDeleteResponse(topics=topics)


def _topics(
    results: Iterable[Result], make_topic: Callable[..., T], make_partition: Callable[..., Any]
) -> Steps[list[T]]:
    """Build the topics of a response from the classes for topics and partitions, in steps."""
    found: dict[TopicName, Any] = {}
    for key, index, code in results:
        if key not in found:
            found[key] = make_topic(name=key[0])
            if key[1] != NULL_UUID:
                found[key].topic_id = key[1]
        found[key].partitions.append(make_partition(partition_index=index, error_code=code))
        yield None
    return list(found.values())


def _is_of_another(committed: CommittedOffset, topic_id: UUID) -> bool:
    """Return whether the offset belongs to a deleted topic with the same name."""
    return NULL_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id
