"""Metadata and DescribeTopicPartitions: which topics there are, and that this broker leads them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
from krammar.broker.topic_names import check_topic_name, colliding
from krammar.wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session

log = logging.getLogger("krammar.broker")

_NAMES_ONLY = 12  # before it topics are asked for by name alone
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


def metadata(
    broker: Broker, session: Session, request: MetadataRequest, version: int
) -> MetadataResponse:
    refused = _refused(request, version)
    if refused is not None:
        return refused
    cluster = broker.cluster
    asked = NOT_ASKED
    if version >= 8 and request.include_topic_authorized_operations:
        asked = TOPIC_OPERATIONS
    if request.topics is None or (version == 0 and not request.topics):
        topics = [_topic(topic, asked) for topic in cluster.topics.values()]
    else:
        topics = list(_wanted(broker, request, asked))
    cluster_operations = NOT_ASKED
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        cluster_operations = CLUSTER_OPERATIONS
    host, port = broker.advertised(session)
    node_id = broker.config.node_id
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node_id, host=host, port=port, rack=broker.config.broker_rack
            )
        ],
        cluster_id=cluster.cluster_id,
        controller_id=node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _refused(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """The answer to a request that names topics in a way that its version does not have (KIP-516)."""
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


def _wanted(
    broker: Broker, request: MetadataRequest, operations: int
) -> Iterator[MetadataResponseTopic]:
    """The topics that the request names: by id as soon as it has one id, else by name."""
    ids = {topic.topic_id: None for topic in request.topics or () if topic.topic_id != NULL_UUID}
    for topic_id in ids:
        topic = broker.cluster.topics_by_id.get(topic_id)
        if topic is None:
            yield MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
            )
        else:
            yield _topic(topic, operations)
    if ids:
        return
    create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    for name in {topic.name or "": None for topic in request.topics or ()}:
        topic = broker.cluster.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            try:
                check_topic_name(name)
                if create:
                    topic = create_on_use(broker, name)
            except ApiError as cause:
                error = cause.code
        if topic is not None:
            yield _topic(topic, operations)
        else:
            yield MetadataResponseTopic(
                error_code=error,
                name=name,
                is_internal=name in INTERNAL_TOPICS,
                topic_authorized_operations=operations,
            )


def create_on_use(broker: Broker, name: str) -> Topic | None:
    """Make a topic because a client wants to use it. Raises ApiError."""
    if name == OFFSETS_TOPIC:
        broker.groups.ensure_topic()
    elif name == TRANSACTIONS_TOPIC:
        broker.transactions.ensure_topic()
    else:
        other = colliding(name, broker.cluster.topics)
        if other is not None:
            # As with Kafka the client learns no more than that there is no such topic.
            log.warning("topic %s is not created, for it collides with %s", name, other)
            return None
        broker.create_topic(name, broker.config.num_partitions)
    return broker.cluster.topics[name]


def _topic(topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponseTopicPartition(
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
            )
            for partition in topic.partitions.values()
        ],
        topic_authorized_operations=operations,
    )


def describe_topic_partitions(
    broker: Broker, session: Session, request: DescribeTopicPartitionsRequest, version: int
) -> DescribeTopicPartitionsResponse:
    """KIP-966: sorted by name, at most so many partitions, then a cursor to go on from."""
    cursor = request.cursor
    everything = not request.topics
    names = {topic.name for topic in request.topics} or set(broker.cluster.topics)
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
        1, min(broker.config.max_request_partition_size_limit, request.response_partition_limit)
    )
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseNextCursor(topic_name=name)
            break
        topic = broker.cluster.topics.get(name)
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
                partitions=[_described(topic.partitions[index]) for index in indexes[:left]],
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


def _described(partition: Partition) -> DescribeTopicPartitionsResponseTopicPartition:
    return DescribeTopicPartitionsResponseTopicPartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
