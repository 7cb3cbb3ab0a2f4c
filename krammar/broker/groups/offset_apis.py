"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: from requests to offsets and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

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
from krammar.broker.groups.records import NULL_UUID, Committed, TopicPartition, fits

if TYPE_CHECKING:
    from uuid import UUID

    from krammar.broker.broker import Broker
    from krammar.broker.cluster import Topic
    from krammar.broker.session import Session

    AnyTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
    AnyPartition = OffsetCommitRequestTopicPartition | TxnOffsetCommitRequestTopicPartition

# The first versions that name topics by id.
COMMIT_BY_ID = 10
TXN_COMMIT_BY_ID = 6
FETCH_BY_ID = 10

INT64_MAX = 2**63 - 1

# From here on a member of a group that is gone learns just that.
GROUP_NOT_FOUND = 9


def find_topic(broker: Broker, name: str, topic_id: UUID, *, by_id: bool) -> Topic | ErrorCode:
    """A topic as a request names it, or what is wrong with the name."""
    if by_id:
        return broker.cluster.topics_by_id.get(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return broker.cluster.topics.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


TopicName = tuple[str, "UUID"]  # as the request has it: one of the two is empty


class _Results:
    """The outcome for each partition of a request: first what is refused at once, then the others,
    which is Kafka's order."""

    def __init__(self) -> None:
        self._refused: dict[TopicName, list[tuple[int, ErrorCode]]] = {}
        self._taken: list[tuple[TopicName, int, ErrorCode]] = []

    def refuse(self, topic: TopicName, partition: int, code: ErrorCode) -> None:
        self._refused.setdefault(topic, []).append((partition, code))

    def take(self, topic: TopicName, partition: int, code: ErrorCode = ErrorCode.NONE) -> None:
        self._taken.append((topic, partition, code))

    def __bool__(self) -> bool:
        """Whether the group has to be asked about anything."""
        return bool(self._taken)

    def topics(
        self, failure: ErrorCode | None = None
    ) -> list[tuple[TopicName, list[tuple[int, ErrorCode]]]]:
        """Partitions and their codes by topic; ``failure`` is that of the group as a whole."""
        found = {topic: list(partitions) for topic, partitions in self._refused.items()}
        for topic, partition, code in self._taken:
            found.setdefault(topic, []).append((partition, failure or code))
        return list(found.items())


class _Commit:
    """The partitions of a commit: the offsets that can be stored, and what is wrong with others."""

    def __init__(self, broker: Broker, expires: int | None = None) -> None:
        self.offsets: list[tuple[TopicPartition, Committed]] = []
        self.results = _Results()
        self._broker = broker
        self._now = broker.now_ms()
        self._expires = expires
        self._limit = broker.config.offset_metadata_max_bytes

    def read(self, topics: Sequence[AnyTopic], *, by_id: bool) -> None:
        for asked in topics:
            topic = find_topic(self._broker, asked.name, asked.topic_id, by_id=by_id)
            name = (asked.name, asked.topic_id)
            partitions: Sequence[AnyPartition] = asked.partitions
            for partition in partitions:
                index = partition.partition_index
                if isinstance(topic, ErrorCode):
                    self.results.refuse(name, index, topic)
                elif index not in topic.partitions:
                    self.results.refuse(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif self._is_too_long(partition.committed_metadata or ""):
                    # An error of the group as a whole goes before this one.
                    self.results.take(name, index, ErrorCode.OFFSET_METADATA_TOO_LARGE)
                else:
                    self.results.take(name, index)
                    self.offsets.append(((topic.name, index), self._committed(topic, partition)))

    def _is_too_long(self, metadata: str) -> bool:
        """Java counts UTF-16 units."""
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


def offset_commit(
    broker: Broker, session: Session, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse:
    retention = request.retention_time_ms
    expires = None if retention == -1 else min(broker.now_ms() + retention, INT64_MAX)
    commit = _Commit(broker, expires)
    commit.read(request.topics, by_id=version >= COMMIT_BY_ID)
    failure = None
    if commit.results:
        unknown = (
            ErrorCode.GROUP_ID_NOT_FOUND
            if version >= GROUP_NOT_FOUND
            else ErrorCode.ILLEGAL_GENERATION
        )
        try:
            broker.groups.commit_offsets(
                request.group_id,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                commit.offsets,
                unknown_group=unknown,
            )
        except ApiError as error:
            failure = error.code
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitResponseTopicPartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for (name, topic_id), partitions in commit.results.topics(failure)
        ]
    )


def txn_offset_commit(
    broker: Broker, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    commit = _Commit(broker)
    commit.read(request.topics, by_id=version >= TXN_COMMIT_BY_ID)
    failure = None
    if commit.results:
        try:
            broker.groups.commit_transactional_offsets(request, commit.offsets)
        except ApiError as error:
            failure = error.code
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    TxnOffsetCommitResponseTopicPartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for (name, topic_id), partitions in commit.results.topics(failure)
        ]
    )


def offset_fetch(
    broker: Broker, session: Session, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    if version >= 8:
        return OffsetFetchResponse(
            groups=[_fetch(broker, group, request, version) for group in request.groups]
        )
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
    found = _fetch(broker, group, request, version)
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
    broker: Broker, group: OffsetFetchRequestGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponseGroup:
    by_id = version >= FETCH_BY_ID
    try:
        offsets = broker.groups.offsets_of(group.group_id)
    except ApiError as error:
        return _failed(group, error.code, version)
    wanted = group.topics
    if wanted is None:
        wanted = _all_topics(broker, offsets, by_id=by_id)
    topics = []
    for asked in wanted:
        topic = find_topic(broker, asked.name, asked.topic_id, by_id=True) if by_id else None
        answer = OffsetFetchResponseGroupTopic(name=asked.name, topic_id=asked.topic_id)
        for index in asked.partition_indexes:
            if isinstance(topic, ErrorCode):
                answer.partitions.append(_nothing(index, topic))
                continue
            where = (asked.name if topic is None else topic.name, index)
            committed = offsets.get(where)
            if request.require_stable and broker.groups.is_unstable(group.group_id, where):
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


def _is_of_another(committed: Committed, topic_id: UUID) -> bool:
    """Whether the offset is that of a topic of the same name which was deleted."""
    return NULL_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id


def _all_topics(
    broker: Broker, offsets: Iterable[TopicPartition], *, by_id: bool
) -> list[OffsetFetchRequestGroupTopic]:
    topics: dict[str, OffsetFetchRequestGroupTopic] = {}
    for name, partition in offsets:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchRequestGroupTopic(name=name)
            existing = broker.cluster.topics.get(name)
            if by_id and existing is not None:
                topic.topic_id = existing.topic_id
        topic.partition_indexes.append(partition)
    # What has no id any more cannot be named in these versions.
    return [topic for topic in topics.values() if not by_id or topic.topic_id != NULL_UUID]


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
    """Version 1 has a place for an error only in each partition."""
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


def offset_delete(
    broker: Broker, session: Session, request: OffsetDeleteRequest, version: int
) -> OffsetDeleteResponse:
    results = _Results()
    known = []
    for asked in request.topics:
        topic = broker.cluster.topics.get(asked.name)
        for partition in asked.partitions:
            where = (asked.name, partition.partition_index)
            if topic is None or where[1] not in topic.partitions:
                results.refuse(
                    (asked.name, NULL_UUID), where[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            else:
                known.append(where)
    try:
        codes = broker.groups.delete_offsets(request.group_id, known)
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
