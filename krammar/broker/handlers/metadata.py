"""Metadata and DescribeTopicPartitions: nodes, topics and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_wire import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseNextCursor,
    DescribeTopicPartitionsResponseTopic,
    DescribeTopicPartitionsResponseTopicPartition,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
    MetadataResponseTopicPartition,
)

from krammar.broker.cluster import INTERNAL_TOPICS, Partition, Topic
from krammar.broker.errors import ApiError
from krammar.broker.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from krammar.broker.slices import Steps
from krammar.broker.topic_names import check_topic_name
from krammar.wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.nodes import Nodes
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics

_NAMES_ONLY = 12  # before this version, requests list topics only by name


@dataclass(eq=False)
class MetadataHandlers:
    """Handles Metadata and DescribeTopicPartitions."""

    config: BrokerConfig
    nodes: Nodes
    cluster: ClusterMetadata
    topics: Topics

    def metadata(
        self, session: Session, request: MetadataRequest, version: int
    ) -> Steps[MetadataResponse]:
        refused = _refused(request, version)
        if refused is not None:
            return refused
        cluster = self.cluster
        asked = NOT_ASKED
        if version >= 8 and request.include_topic_authorized_operations:
            asked = TOPIC_OPERATIONS
        topics: list[MetadataResponseTopic] = []
        if request.topics is None or (version == 0 and not request.topics):
            for topic in list(cluster.topics.values()):
                topics.append(_topic(topic, asked, cluster.running))
                yield None
        else:
            yield from self._wanted(request, asked, topics)
        cluster_operations = NOT_ASKED
        if 8 <= version <= 10 and request.include_cluster_authorized_operations:
            cluster_operations = CLUSTER_OPERATIONS
        nodes = self.nodes
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(**each._asdict())
                for each in nodes.endpoints(session.listener)
            ],
            cluster_id=cluster.cluster_id,
            controller_id=nodes.controller,
            topics=topics,
            cluster_authorized_operations=cluster_operations,
        )

    def _wanted(
        self,
        request: MetadataRequest,
        operations: int,
        found: list[MetadataResponseTopic],
    ) -> Steps[None]:
        """Append the topics that the request lists: by id if it has any id, else by name."""
        ids = {
            topic.topic_id: None for topic in request.topics or () if topic.topic_id != NULL_UUID
        }
        for topic_id in ids:
            topic = self.cluster.topics_by_id.get(topic_id)
            if topic is None:
                found.append(
                    MetadataResponseTopic(
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                    )
                )
            else:
                found.append(_topic(topic, operations, self.cluster.running))
            yield None
        if ids:
            return
        create = request.allow_auto_topic_creation and self.config.auto_create_topics_enable
        for name in {topic.name or "": None for topic in request.topics or ()}:
            topic = self.cluster.topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is None:
                try:
                    check_topic_name(name)
                    if create:
                        topic = yield from self.topics.creating_on_use(name)
                except ApiError as cause:
                    error = cause.code
            if topic is not None:
                found.append(_topic(topic, operations, self.cluster.running))
            else:
                found.append(
                    MetadataResponseTopic(
                        error_code=error,
                        name=name,
                        is_internal=name in INTERNAL_TOPICS,
                        topic_authorized_operations=operations,
                    )
                )
            yield None

    def describe_topic_partitions(
        self, session: Session, request: DescribeTopicPartitionsRequest, version: int
    ) -> DescribeTopicPartitionsResponse:
        """Describe topics sorted by name, up to a number of partitions, then a cursor (KIP-966)."""
        cursor = request.cursor
        everything = not request.topics
        names = {topic.name for topic in request.topics} or set(self.cluster.topics)
        if cursor is not None:
            if cursor.partition_index < 0 or not (everything or cursor.topic_name in names):
                return DescribeTopicPartitionsResponse(
                    topics=[
                        DescribeTopicPartitionsResponseTopic(
                            error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                        )
                        for topic in request.topics
                    ]
                )
            names = {name for name in names if name >= cursor.topic_name}
        left = max(
            1, min(self.config.max_request_partition_size_limit, request.response_partition_limit)
        )
        response = DescribeTopicPartitionsResponse()
        for name in sorted(names):
            if left == 0:
                response.next_cursor = DescribeTopicPartitionsResponseNextCursor(topic_name=name)
                break
            topic = self.cluster.topics.get(name)
            if topic is None:
                if not everything:
                    response.topics.append(_unknown(name))
                continue
            first = 0
            if cursor is not None and cursor.topic_name == name:
                first = cursor.partition_index
            indexes = [index for index in sorted(topic.partitions) if index >= first]
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=name,
                    topic_id=topic.topic_id,
                    is_internal=topic.internal,
                    partitions=[
                        _described(topic.partitions[index], self.cluster.running)
                        for index in indexes[:left]
                    ],
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            if len(indexes) > left:
                response.next_cursor = DescribeTopicPartitionsResponseNextCursor(
                    topic_name=name, partition_index=indexes[left]
                )
                break
            left -= len(indexes)
        return response


def _refused(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """Return the response to a request that lists topics in a way that its version forbids (KIP-516)."""
    if request.topics is None or all(
        (
            topic.name is not None and topic.topic_id == NULL_UUID
            if version < _NAMES_ONLY
            else topic.name is not None or topic.topic_id != NULL_UUID
        )
        for topic in request.topics
    ):
        return None
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics
        ],
        error_code=ErrorCode.INVALID_REQUEST,
    )


def _topic(topic: Topic, operations: int, running: set[int]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponseTopicPartition(
                error_code=(
                    ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
                ),
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=[node for node in partition.replicas if node not in running],
            )
            for partition in topic.partitions.values()
        ],
        topic_authorized_operations=operations,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except ApiError as cause:
        error = cause.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(
    partition: Partition, running: set[int]
) -> DescribeTopicPartitionsResponseTopicPartition:
    return DescribeTopicPartitionsResponseTopicPartition(
        error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[node for node in partition.replicas if node not in running],
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
