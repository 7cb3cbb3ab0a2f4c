"""Handlers for OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_wire import (
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitRequestTopicPartition,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetCommitResponseTopicPartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetDeleteResponseTopicPartition,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopicPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitRequestTopicPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
    TxnOffsetCommitResponseTopicPartition,
)

from krammar.broker.errors import ApiError
from krammar.broker.groups.records import Committed, TopicPartition, fits
from krammar.broker.slices import Steps
from krammar.wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from krammar.broker.cluster import ClusterMetadata, Topic
    from krammar.broker.config import BrokerConfig
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.session import Session
    from krammar.broker.timers import Timers
    from krammar.broker.transactions.coordinator import TransactionCoordinator

    AnyTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
    AnyPartition = OffsetCommitRequestTopicPartition | TxnOffsetCommitRequestTopicPartition

T = TypeVar("T")

# The first versions that identify topics by id.
COMMIT_BY_ID = 10
TXN_COMMIT_BY_ID = 6
FETCH_BY_ID = 10

INT64_MAX = 2**63 - 1


def find_topic(
    cluster: ClusterMetadata, name: str, topic_id: UUID, *, by_id: bool
) -> Topic | ErrorCode:
    """Return the topic that a request names, or the error code if it does not exist."""
    if by_id:
        return cluster.topics_by_id.get(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return cluster.topics.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


TopicName = tuple[str, "UUID"]  # as in the request: one of the two is empty


class _Results:
    """The result for each partition of a request, in Kafka's order: refused partitions first."""

    def __init__(self) -> None:
        self._refused: dict[TopicName, list[tuple[int, ErrorCode]]] = {}
        self._taken: list[tuple[TopicName, int, ErrorCode]] = []

    def refuse(self, topic: TopicName, partition: int, code: ErrorCode) -> None:
        self._refused.setdefault(topic, []).append((partition, code))

    def take(self, topic: TopicName, partition: int, code: ErrorCode = ErrorCode.NONE) -> None:
        self._taken.append((topic, partition, code))

    def __bool__(self) -> bool:
        """Whether the group must handle any partition."""
        return bool(self._taken)

    def topics(
        self, failure: ErrorCode | None = None
    ) -> list[tuple[TopicName, list[tuple[int, ErrorCode]]]]:
        """Return partitions and error codes by topic; ``failure`` is an error of the whole group."""
        found = {topic: list(partitions) for topic, partitions in self._refused.items()}
        for topic, partition, code in self._taken:
            found.setdefault(topic, []).append((partition, failure or code))
        return list(found.items())

    def responses(
        self, topic: Callable[..., T], partition: Callable[..., Any], failure: ErrorCode | None
    ) -> list[T]:
        """Build the topics of a response from the classes for topics and partitions."""
        return [
            topic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    partition(partition_index=index, error_code=code) for index, code in codes
                ],
            )
            for (name, topic_id), codes in self.topics(failure)
        ]


class _Commit:
    """The partitions of a commit: the offsets to store, and the errors of the other partitions."""

    def __init__(
        self, cluster: ClusterMetadata, metadata_limit: int, now: int, expires: int | None = None
    ) -> None:
        self.offsets: list[tuple[TopicPartition, Committed]] = []
        self.results = _Results()
        self._cluster = cluster
        self._now = now
        self._expires = expires
        self._limit = metadata_limit

    def read(self, topics: Sequence[AnyTopic], *, by_id: bool) -> None:
        for asked in topics:
            topic = find_topic(self._cluster, asked.name, asked.topic_id, by_id=by_id)
            name = (asked.name, asked.topic_id)
            partitions: Sequence[AnyPartition] = asked.partitions
            for partition in partitions:
                index = partition.partition_index
                if isinstance(topic, ErrorCode):
                    self.results.refuse(name, index, topic)
                elif index not in topic.partitions:
                    self.results.refuse(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif self._is_too_long(partition.committed_metadata or ""):
                    # An error of the whole group takes precedence over this one.
                    self.results.take(name, index, ErrorCode.OFFSET_METADATA_TOO_LARGE)
                else:
                    self.results.take(name, index)
                    self.offsets.append(((topic.name, index), self._committed(topic, partition)))

    def _is_too_long(self, metadata: str) -> bool:
        """Return whether a text exceeds the limit in UTF-16 units, as Java counts them."""
        if not fits(metadata):
            return True
        limit = self._limit
        return limit < 2 * len(metadata) and limit < len(metadata.encode("utf-16-le")) // 2

    def _committed(self, topic: Topic, partition: AnyPartition) -> Committed:
        return Committed(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            self._now,
            self._expires,
            topic.topic_id,
        )


class GroupOffsetHandlers:
    """Handles OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete."""

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        cluster: ClusterMetadata,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
    ) -> None:
        self._config = config
        self._timers = timers
        self._cluster = cluster
        self._groups = groups
        self._transactions = transactions

    def offset_commit(
        self, session: Session, request: OffsetCommitRequest, version: int
    ) -> OffsetCommitResponse:
        retention = request.retention_time_ms
        now = self._timers.now_ms()
        expires = None if retention == -1 else min(now + retention, INT64_MAX)
        commit = _Commit(self._cluster, self._config.offset_metadata_max_bytes, now, expires)
        commit.read(request.topics, by_id=version >= COMMIT_BY_ID)
        failure = None
        if commit.results:
            try:
                self._groups.commit_offsets(request, commit.offsets, version)
            except ApiError as error:
                failure = error.code
        return OffsetCommitResponse(
            topics=commit.results.responses(
                OffsetCommitResponseTopic, OffsetCommitResponseTopicPartition, failure
            )
        )

    def txn_offset_commit(
        self, session: Session, request: TxnOffsetCommitRequest, version: int
    ) -> TxnOffsetCommitResponse:
        results = _Results()
        failure = None
        if request.group_id:  # the group coordinator refuses an empty one
            try:
                self._transactions.check_offsets(
                    request.transactional_id,
                    request.producer_id,
                    request.producer_epoch,
                    request.group_id,
                    version,
                )
            except ApiError as error:
                failure = error.code
        if failure is not None:
            for topic in request.topics:
                for partition in topic.partitions:
                    results.take((topic.name, topic.topic_id), partition.partition_index)
        else:
            commit = _Commit(
                self._cluster, self._config.offset_metadata_max_bytes, self._timers.now_ms()
            )
            commit.read(request.topics, by_id=version >= TXN_COMMIT_BY_ID)
            results = commit.results
            if results:
                try:
                    self._groups.commit_offsets(request, commit.offsets, version)
                except ApiError as error:
                    failure = error.code
        return TxnOffsetCommitResponse(
            topics=results.responses(
                TxnOffsetCommitResponseTopic, TxnOffsetCommitResponseTopicPartition, failure
            )
        )

    def offset_fetch(
        self, session: Session, request: OffsetFetchRequest, version: int
    ) -> Steps[OffsetFetchResponse]:
        if version >= 8:
            groups: dict[str, OffsetFetchResponseGroup] = {}
            for asked in request.groups:
                # Duplicate groups are answered once.
                if asked.group_id not in groups:
                    groups[asked.group_id] = self._fetch(asked, request, version)
                    yield None
            return OffsetFetchResponse(groups=list(groups.values()))
        topics = request.topics
        group = OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=(
                None
                if topics is None
                else [
                    OffsetFetchRequestGroupTopic(
                        name=topic.name, partition_indexes=topic.partition_indexes
                    )
                    for topic in topics
                ]
            ),
        )
        found = self._fetch(group, request, version)
        return OffsetFetchResponse(
            error_code=found.error_code,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponseTopicPartition(
                            partition_index=partition.partition_index,
                            committed_offset=partition.committed_offset,
                            committed_leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.metadata,
                            error_code=partition.error_code,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in found.topics
            ],
        )

    def _fetch(
        self, group: OffsetFetchRequestGroup, request: OffsetFetchRequest, version: int
    ) -> OffsetFetchResponseGroup:
        by_id = version >= FETCH_BY_ID
        try:
            offsets = self._groups.offsets_of(group.group_id, group.member_id, group.member_epoch)
        except ApiError as error:
            return _failed(group, error.code, version)
        wanted = group.topics
        if wanted is None:
            wanted = self._all_topics(offsets, by_id=by_id)
        topics = []
        for asked in wanted:
            topic = (
                find_topic(self._cluster, asked.name, asked.topic_id, by_id=True) if by_id else None
            )
            answer = OffsetFetchResponseGroupTopic(name=asked.name, topic_id=asked.topic_id)
            for index in dict.fromkeys(asked.partition_indexes):
                if isinstance(topic, ErrorCode):
                    answer.partitions.append(_nothing(index, topic))
                    continue
                where = (asked.name if topic is None else topic.name, index)
                committed = offsets.get(where)
                if request.require_stable and self._groups.is_unstable(group.group_id, where):
                    answer.partitions.append(_nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                elif committed is None or _is_of_another(committed, asked.topic_id):
                    answer.partitions.append(_nothing(index, ErrorCode.NONE))
                else:
                    answer.partitions.append(
                        OffsetFetchResponseGroupTopicPartition(
                            partition_index=index,
                            committed_offset=committed.offset,
                            committed_leader_epoch=committed.leader_epoch,
                            metadata=committed.metadata,
                        )
                    )
            topics.append(answer)
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)

    def _all_topics(
        self, offsets: Iterable[TopicPartition], *, by_id: bool
    ) -> list[OffsetFetchRequestGroupTopic]:
        topics: dict[str, OffsetFetchRequestGroupTopic] = {}
        for name, partition in offsets:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = OffsetFetchRequestGroupTopic(name=name)
                existing = self._cluster.topics.get(name)
                if by_id and existing is not None:
                    topic.topic_id = existing.topic_id
            topic.partition_indexes.append(partition)
        # Versions with topic ids cannot report topics that no longer exist.
        return [topic for topic in topics.values() if not by_id or topic.topic_id != NULL_UUID]

    def offset_delete(
        self, session: Session, request: OffsetDeleteRequest, version: int
    ) -> OffsetDeleteResponse:
        results = _Results()
        known = []
        for asked in request.topics:
            topic = self._cluster.topics.get(asked.name)
            for partition in asked.partitions:
                where = (asked.name, partition.partition_index)
                if topic is None or where[1] not in topic.partitions:
                    results.refuse(
                        (asked.name, NULL_UUID), where[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                else:
                    known.append(where)
        try:
            codes = self._groups.delete_offsets(request.group_id, known)
        except ApiError as error:
            return OffsetDeleteResponse(error_code=error.code)
        for where in known:
            results.take((where[0], NULL_UUID), where[1], codes[where])
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteResponseTopicPartition(partition_index=index, error_code=code)
                        for index, code in partitions
                    ],
                )
                for (name, _), partitions in results.topics()
            ]
        )


def _is_of_another(committed: Committed, topic_id: UUID) -> bool:
    """Return whether the offset belongs to a deleted topic with the same name."""
    return NULL_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id


def _nothing(index: int, code: ErrorCode) -> OffsetFetchResponseGroupTopicPartition:
    return OffsetFetchResponseGroupTopicPartition(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )


def _failed(
    group: OffsetFetchRequestGroup, code: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    """Build the response for a failed group. Version 1 only has an error code per partition."""
    failed = OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    if version < 2:
        failed.topics = [
            OffsetFetchResponseGroupTopic(
                name=topic.name,
                partitions=[_nothing(index, code) for index in topic.partition_indexes],
            )
            for topic in group.topics or ()
        ]
    return failed
