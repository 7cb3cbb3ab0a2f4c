"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.

CreateTopics, v2 to v7 (KIP-4): v4 allows the broker's defaults for partitions and replicas
(KIP-464), v5 describes the created topic (KIP-525), and v7 returns its id (KIP-516).

DeleteTopics, v1 to v6 (KIP-4): v3 knows TOPIC_DELETION_DISABLED; before, the code is
INVALID_REQUEST. v5 has error messages (KIP-599), and v6 identifies topics by name or id (KIP-516).

CreatePartitions, v0 to v3 (KIP-195), and DeleteRecords, v0 to v2 (KIP-107): the same in all
versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from uuid import UUID

import kafka_wire as kw

from krammar.broker.assignments import check_amount, new_replicas
from krammar.broker.cluster import INTERNAL_TOPICS, ClusterMetadata
from krammar.broker.config import BrokerConfig, ConfigError
from krammar.broker.config.describe import describe_overrides
from krammar.broker.config.overrides import check_topic
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.meta_properties import random_uuid
from krammar.broker.nodes import Logs, Nodes
from krammar.broker.session import Session
from krammar.broker.topic_checks import check_new_topic, check_replicas, colliding
from krammar.broker.topics import Topics
from krammar.util.turns import Steps, one_by_one
from krammar.wire.primitives import NULL_UUID

Listed = tuple[str | None, UUID]  # how a request lists a topic to delete: by name or by id

R = TypeVar(
    "R", kw.CreateTopicsRequest.CreatableTopic, kw.CreatePartitionsRequest.CreatePartitionsTopic
)
T = TypeVar(
    "T",
    kw.CreateTopicsResponse.CreatableTopicResult,
    kw.CreatePartitionsResponse.CreatePartitionsTopicResult,
)


# The first versions of CreateTopics, DeleteTopics and CreatePartitions whose clients know
# THROTTLING_QUOTA_EXCEEDED (KIP-599).
_CREATE_THROTTLED = 6
_DELETE_THROTTLED = 5
_GROW_THROTTLED = 3

# Is called with the partitions of a topic that is created or deleted. Raises ApiError.
Count = Callable[[int], None]


@dataclass(eq=False)
class TopicHandlers:
    """Creates, extends and deletes topics.

    Attributes:
        throttle: gets the number of partitions that a client creates or deletes, and whether it
            knows the error of a refusal (KIP-599). Raises ApiError.
    """

    config: BrokerConfig
    nodes: Nodes
    cluster: ClusterMetadata
    logs: Logs
    topics: Topics
    throttle: Callable[[Session, int, bool], None] | None = field(init=False, default=None)

    def create_topics(
        self, session: Session, request: kw.CreateTopicsRequest, version: int
    ) -> Steps[kw.CreateTopicsResponse]:
        """Create topics. A name that the request lists more than once is refused."""
        # As in Kafka, names of the same request may collide with each other.
        count = self._count(session, version >= _CREATE_THROTTLED)
        create = partial(self._create, list(self.cluster.topics), request.validate_only, count)
        topics = yield from _once(
            request.topics, kw.CreateTopicsResponse.CreatableTopicResult, create
        )
        return kw.CreateTopicsResponse(topics=topics)

    def _count(self, session: Session, strict: bool) -> Count:
        if self.throttle is None:
            return lambda partitions: None
        throttle = self.throttle
        return lambda partitions: throttle(session, partitions, strict)

    def _create(
        self,
        before: list[str],
        validate_only: bool,
        count: Count,
        topic: kw.CreateTopicsRequest.CreatableTopic,
        result: kw.CreateTopicsResponse.CreatableTopicResult,
    ) -> Steps[None]:
        """Create a topic in steps, and describe it in ``result``. Raises ApiError."""
        name = topic.name
        cluster, config = self.cluster, self.config
        check_new_topic(name)
        if name in cluster.topics:
            raise ApiError(kw.ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = colliding(name, before)
        if other is not None:
            raise ApiError(
                kw.ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
        configs = self._configs(topic)
        replicas = new_replicas(topic, self.nodes, config, first=len(cluster.topics))
        topic_id = random_uuid()
        count(len(replicas))
        if not validate_only:
            yield from self.topics.creating(
                name, len(replicas), configs, topic_id=topic_id, replicas=replicas
            )
        result.topic_id = topic_id
        result.num_partitions, result.replication_factor = len(replicas), len(replicas[0])
        result.configs = [
            kw.CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.config_source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_overrides(config, kw.ConfigSource.TOPIC_CONFIG, configs)
        ]

    def _configs(self, topic: kw.CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
        """Return the checked settings of a new topic. Raises ApiError."""
        configs = {}
        for entry in topic.configs:
            if entry.value is None:
                raise ApiError(
                    kw.ErrorCode.INVALID_CONFIG,
                    f"Null value not supported for topic configs: {entry.name}",
                )
            configs[entry.name] = entry.value
        try:
            check_topic(self.config.topics, configs)
        except ConfigError as error:
            raise ApiError(kw.ErrorCode.INVALID_CONFIG, error.api) from None
        return configs

    def delete_topics(
        self, session: Session, request: kw.DeleteTopicsRequest, version: int
    ) -> Steps[kw.DeleteTopicsResponse]:
        wanted: list[Listed] = [(name, NULL_UUID) for name in request.topic_names]
        if version >= 6:
            wanted = [(topic.name, topic.topic_id) for topic in request.topics]
        if not self.config.delete_topic_enable:
            code = (
                kw.ErrorCode.TOPIC_DELETION_DISABLED
                if version >= 3
                else kw.ErrorCode.INVALID_REQUEST
            )
            text = "delete.topic.enable is false."
            return kw.DeleteTopicsResponse(
                responses=[_not_deleted(topic, text, code) for topic in wanted]
            )
        responses = []
        listed: Counter[Listed] = Counter()
        for name, topic_id in wanted:
            if (name is None) is (topic_id == NULL_UUID):
                text = "A topic needs either a name or an id."
                responses.append(_not_deleted((name, topic_id), text))
            else:
                listed[name, topic_id] += 1
        # A topic that is listed by name and by id is answered once, with both.
        for name, _ in list(listed):
            found = self.cluster.topics.get(name or "")
            if found is not None and (None, found.topic_id) in listed:
                del listed[name, NULL_UUID], listed[None, found.topic_id]
                text = "The topic is listed by its name and by its id."
                responses.append(_not_deleted((name, found.topic_id), text))
        names_first = sorted(listed.items(), key=lambda each: each[0][0] is None)
        count = self._count(session, version >= _DELETE_THROTTLED)
        for each in names_first:
            responses.append((yield from self._delete(each, count)))
            yield None
        return kw.DeleteTopicsResponse(responses=responses)

    def _delete(
        self, counted: tuple[Listed, int], count: Count
    ) -> Steps[kw.DeleteTopicsResponse.DeletableTopicResult]:
        """Delete a topic in steps, which the request lists that many times."""
        (name, topic_id), times = counted
        result = kw.DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id)
        with errors_in(result):
            if times > 1:
                what = "name" if name is not None else "id"
                raise ApiError(kw.ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            topic, unknown = self.cluster.topics_by_id.get(topic_id), kw.ErrorCode.UNKNOWN_TOPIC_ID
            if name is not None:
                topic, unknown = (
                    self.cluster.topics.get(name),
                    kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            if topic is None:
                raise ApiError(unknown, "The topic does not exist.")
            count(len(topic.partitions))
            yield from self.topics.deleting(topic)
            result.name, result.topic_id = topic.name, topic.topic_id
        return result

    def create_partitions(
        self, session: Session, request: kw.CreatePartitionsRequest, version: int
    ) -> Steps[kw.CreatePartitionsResponse]:
        count = self._count(session, version >= _GROW_THROTTLED)
        grow = partial(self._grow, request.validate_only, count)
        results = yield from _once(
            request.topics, kw.CreatePartitionsResponse.CreatePartitionsTopicResult, grow
        )
        return kw.CreatePartitionsResponse(results=results)

    def _grow(
        self,
        validate_only: bool,
        count: Count,
        topic: kw.CreatePartitionsRequest.CreatePartitionsTopic,
        _result: object,
    ) -> Steps[None]:
        """Add partitions to a topic, in steps. Raises ApiError."""
        found = self.cluster.topics.get(topic.name)
        if found is None:
            raise ApiError(kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")
        now = len(found.partitions)
        if topic.count == now:
            raise ApiError(
                kw.ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s)."
            )
        if topic.count < now:
            raise ApiError(
                kw.ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {now} partition(s); "
                f"{topic.count} would not be an increase.",
            )
        more = topic.count - now
        check_amount(more)
        replicas = [each.broker_ids for each in topic.assignments or ()]
        if topic.assignments is not None:
            if len(replicas) != more:
                raise ApiError(
                    kw.ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{more} partition(s) are added, but {len(replicas)} are assigned.",
                )
            check_replicas(replicas, self.nodes)
        count(more)
        if not validate_only:
            yield from self.topics.adding(found, topic.count, replicas)

    def delete_records(
        self, session: Session, request: kw.DeleteRecordsRequest, version: int
    ) -> Steps[kw.DeleteRecordsResponse]:
        topics = []
        for topic in request.topics:
            delete = partial(self._delete_before, topic.name)
            partitions = yield from one_by_one(delete, topic.partitions)
            topics.append(
                kw.DeleteRecordsResponse.DeleteRecordsTopicResult(
                    name=topic.name, partitions=partitions
                )
            )
        return kw.DeleteRecordsResponse(topics=topics)

    def _delete_before(
        self, topic: str, asked: kw.DeleteRecordsRequest.DeleteRecordsPartition
    ) -> kw.DeleteRecordsResponse.DeleteRecordsPartitionResult:
        """Delete the records of a partition before an offset; -1 deletes all."""
        index = asked.partition_index
        result = kw.DeleteRecordsResponse.DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=-1
        )
        with errors_in(result):
            log = self.logs.get(topic, index)
            if log is None:
                raise ApiError(kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if topic in INTERNAL_TOPICS:
                raise ApiError(kw.ErrorCode.INVALID_TOPIC_EXCEPTION)
            result.low_watermark = log.retention.delete_records(asked.offset)
        return result


def _once(
    topics: Sequence[R], kind: Callable[..., T], change: Callable[[R, T], Steps[None]]
) -> Steps[list[T]]:
    """Change topics in steps, and build a result for each. A name that is listed more than once is refused."""
    named = Counter(topic.name for topic in topics)
    results: dict[str, T] = {}
    for topic in topics:
        if topic.name in results:
            continue
        result = results[topic.name] = kind(name=topic.name, error_message=None)
        with errors_in(result):
            if named[topic.name] > 1:
                raise ApiError(kw.ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            yield from change(topic, result)
        yield None
    return list(results.values())


def _not_deleted(
    listed: Listed, message: str, code: kw.ErrorCode = kw.ErrorCode.INVALID_REQUEST
) -> kw.DeleteTopicsResponse.DeletableTopicResult:
    name, topic_id = listed
    return kw.DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )
