"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_wire import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    CreateTopicsResponseTopicConfig,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponseTopic,
    DeleteRecordsResponseTopicPartition,
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseResponse,
    ErrorCode,
)

from krammar.broker.assignments import check_amount, check_replicas, new_replicas
from krammar.broker.cluster import INTERNAL_TOPICS, Topic
from krammar.broker.config import ConfigError
from krammar.broker.config.describe import describe_topic
from krammar.broker.errors import ApiError
from krammar.broker.meta_properties import random_uuid
from krammar.broker.slices import Steps
from krammar.broker.topic_names import check_topic_name, colliding
from krammar.wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.nodes import Logs, Nodes
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics

METADATA_TOPIC = "__cluster_metadata"
_DUPLICATE_NAME = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


class TopicHandlers:
    """Handles CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

    def __init__(
        self,
        config: BrokerConfig,
        nodes: Nodes,
        cluster: ClusterMetadata,
        logs: Logs,
        topics: Topics,
    ) -> None:
        self._config = config
        self._nodes = nodes
        self._cluster = cluster
        self._logs = logs
        self._topics = topics

    def create_topics(
        self, session: Session, request: CreateTopicsRequest, version: int
    ) -> Steps[CreateTopicsResponse]:
        """Create topics. A name that the request lists more than once is refused."""
        named = Counter(topic.name for topic in request.topics)
        # As in Kafka, names of the same request may collide with each other.
        before = list(self._cluster.topics)
        results: dict[str, CreateTopicsResponseTopic] = {}
        for topic in request.topics:
            if topic.name in results:
                continue
            try:
                if named[topic.name] > 1:
                    raise _DUPLICATE_NAME
                results[topic.name] = yield from self._creating(
                    topic, before, validate_only=request.validate_only
                )
            except ApiError as error:
                results[topic.name] = CreateTopicsResponseTopic(
                    name=topic.name, error_code=error.code, error_message=error.message
                )
            yield None
        return CreateTopicsResponse(topics=list(results.values()))

    def _creating(
        self, topic: CreateTopicsRequestTopic, before: list[str], *, validate_only: bool
    ) -> Steps[CreateTopicsResponseTopic]:
        name = topic.name
        cluster, config = self._cluster, self._config
        if name == METADATA_TOPIC:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} cannot be created.")
        check_topic_name(name)
        if name in cluster.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = colliding(name, before)
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
        configs = self._configs(topic)
        replicas = new_replicas(
            topic,
            nodes=self._nodes,
            running=self._nodes.running,
            first=len(cluster.topics),
            num_partitions=config.num_partitions,
            replication_factor=config.default_replication_factor,
        )
        topic_id = random_uuid()
        if not validate_only:
            yield from self._topics.creating(
                name, len(replicas), configs, topic_id=topic_id, replicas=replicas
            )
        return CreateTopicsResponseTopic(
            name=name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=[
                CreateTopicsResponseTopicConfig(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.config_source,
                    is_sensitive=entry.is_sensitive,
                )
                for entry in describe_topic(config, configs)
            ],
        )

    def _configs(self, topic: CreateTopicsRequestTopic) -> dict[str, str]:
        """Return the checked settings of a new topic. Raises ApiError."""
        configs = {}
        for entry in topic.configs:
            if entry.value is None:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"Null value not supported for topic configs: {entry.name}",
                )
            configs[entry.name] = entry.value
        try:
            self._config.check_topic_config(configs)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.api) from None
        return configs

    def delete_topics(
        self, session: Session, request: DeleteTopicsRequest, version: int
    ) -> Steps[DeleteTopicsResponse]:
        if version >= 6:
            wanted = request.topics
        else:
            wanted = [DeleteTopicsRequestTopic(name=name) for name in request.topic_names]
        if not self._config.delete_topic_enable:
            code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
            error = ApiError(code, "delete.topic.enable is false.")
            return DeleteTopicsResponse(
                responses=[_not_deleted(topic.name, topic.topic_id, error) for topic in wanted]
            )
        responses = []
        names: Counter[str] = Counter()
        ids: Counter[UUID] = Counter()
        for topic in wanted:
            if (topic.name is None) is (topic.topic_id == NULL_UUID):
                error = ApiError(ErrorCode.INVALID_REQUEST, "A topic needs either a name or an id.")
                responses.append(_not_deleted(topic.name, topic.topic_id, error))
            elif topic.name is None:
                ids[topic.topic_id] += 1
            else:
                names[topic.name] += 1
        # A topic that is listed by name and by id is answered once, with both.
        twice: dict[str, Topic] = {
            found.name: found
            for found in map(self._cluster.topics.get, names)
            if found is not None and found.topic_id in ids
        }
        for name, found in twice.items():
            del names[name], ids[found.topic_id]
            error = ApiError(
                ErrorCode.INVALID_REQUEST, "The topic is listed by its name and by its id."
            )
            responses.append(_not_deleted(name, found.topic_id, error))
        for name, times in names.items():
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            responses.append(
                self._delete(self._cluster.topics.get(name), times, unknown, name, NULL_UUID)
            )
            yield None
        for topic_id, times in ids.items():
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
            responses.append(
                self._delete(
                    self._cluster.topics_by_id.get(topic_id), times, unknown, None, topic_id
                )
            )
            yield None
        return DeleteTopicsResponse(responses=responses)

    def _delete(
        self,
        topic: Topic | None,
        times: int,
        unknown: ErrorCode,
        name: str | None,
        topic_id: UUID,
    ) -> DeleteTopicsResponseResponse:
        """Delete a topic that the request lists ``times`` times, by ``name`` or ``topic_id``."""
        try:
            if times > 1:
                what = "name" if name is not None else "id"
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            if topic is None:
                raise ApiError(unknown, "The topic does not exist.")
            self._topics.delete(topic)
        except ApiError as error:
            return _not_deleted(name, topic_id, error)
        return DeleteTopicsResponseResponse(name=topic.name, topic_id=topic.topic_id)

    def create_partitions(
        self, session: Session, request: CreatePartitionsRequest, version: int
    ) -> Steps[CreatePartitionsResponse]:
        named = Counter(topic.name for topic in request.topics)
        results: dict[str, CreatePartitionsResponseResult] = {}
        for topic in request.topics:
            result = CreatePartitionsResponseResult(name=topic.name)
            if results.setdefault(topic.name, result) is not result:
                continue
            try:
                if named[topic.name] > 1:
                    raise _DUPLICATE_NAME
                found = self._growing(topic)
                if not request.validate_only:
                    yield from self._topics.adding(
                        found, topic.count, [each.broker_ids for each in topic.assignments or ()]
                    )
            except ApiError as error:
                result.error_code, result.error_message = error.code, error.message
            yield None
        return CreatePartitionsResponse(results=list(results.values()))

    def _growing(self, topic: CreatePartitionsRequestTopic) -> Topic:
        """Return the topic that gets more partitions. Raises ApiError if that is impossible."""
        found = self._cluster.topics.get(topic.name)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")
        now = len(found.partitions)
        if topic.count == now:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
        if topic.count < now:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {now} partition(s); "
                f"{topic.count} would not be an increase.",
            )
        more = topic.count - now
        check_amount(more)
        if topic.assignments is not None:
            if len(topic.assignments) != more:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{more} partition(s) are added, but {len(topic.assignments)} are assigned.",
                )
            check_replicas((each.broker_ids for each in topic.assignments), self._nodes)
        return found

    def delete_records(
        self, session: Session, request: DeleteRecordsRequest, version: int
    ) -> Steps[DeleteRecordsResponse]:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                result = DeleteRecordsResponseTopicPartition(
                    partition_index=partition.partition_index, low_watermark=-1
                )
                try:
                    result.low_watermark = self._delete_before(
                        topic.name, partition.partition_index, partition.offset
                    )
                except ApiError as error:
                    result.error_code = error.code
                partitions.append(result)
                yield None
            topics.append(DeleteRecordsResponseTopic(name=topic.name, partitions=partitions))
        return DeleteRecordsResponse(topics=topics)

    def _delete_before(self, topic: str, partition: int, offset: int) -> int:
        """Delete the records before an offset; -1 deletes all. Returns the new start of the log."""
        log = self._logs.get(topic, partition)
        if log is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return log.delete_records(offset)


def _not_deleted(name: str | None, topic_id: UUID, error: ApiError) -> DeleteTopicsResponseResponse:
    return DeleteTopicsResponseResponse(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
    )
