"""Metadata and DescribeTopicPartitions: nodes, topics and partitions.

Metadata, v0 to v13:

- In v0, an empty list asks for all topics. From v1 on, null does, and an empty list asks for none.
- v4 lets the client forbid that topics are created; older versions always allow it.
- v8 asks for authorized operations (KIP-430); from v11 on, DescribeCluster has those of the cluster
  (KIP-700).
- v10 returns the ids of topics, and v12 can ask by them (KIP-516).
- v13 has an error for the whole response (KIP-1102).

DescribeTopicPartitions, v0: the same page by page (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from kafka_wire import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
)

from krammar.authorization.operations import NOT_ASKED
from krammar.broker.cluster import INTERNAL_TOPICS, ClusterMetadata, Partition, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.elections import NO_LEADER
from krammar.broker.errors import errors_in
from krammar.broker.nodes import Nodes
from krammar.broker.session import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, Session
from krammar.broker.topic_checks import check_topic_name
from krammar.broker.topics import Topics
from krammar.util.turns import Steps
from krammar.wire.primitives import NULL_UUID

T = TypeVar("T")

# Describing so many takes about a millisecond.
_PARTITIONS_OF_A_STEP = 200
_NAMES_ONLY = 12  # before this version, requests list topics only by name


@dataclass(eq=False)
class MetadataHandlers:
    config: BrokerConfig
    nodes: Nodes
    cluster: ClusterMetadata
    topics: Topics

    def metadata(
        self, session: Session, request: MetadataRequest, version: int
    ) -> Steps[MetadataResponse]:
        wanted = request.topics
        if not all(_is_allowed(topic, version) for topic in wanted or ()):
            invalid = ErrorCode.INVALID_REQUEST
            refused = [
                MetadataResponse.Topic(
                    error_code=invalid, name=topic.name or "", topic_id=topic.topic_id
                )
                for topic in wanted or ()
            ]
            return MetadataResponse(topics=refused, error_code=invalid)
        cluster = self.cluster
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        ids = {topic.topic_id: None for topic in wanted or () if topic.topic_id != NULL_UUID}
        topics: list[MetadataResponse.Topic] = []
        if wanted is None or (version == 0 and not wanted):
            for topic in list(cluster.topics.values()):
                topics.append((yield from self._topic(operations, topic)))
        elif ids:
            for topic_id in ids:
                topics.append((yield from self._with_id(operations, topic_id)))
        else:
            create = request.allow_auto_topic_creation and self.config.auto_create_topics_enable
            for name in {topic.name or "": None for topic in wanted}:
                topics.append((yield from self._named(operations, name, create)))
        cluster_operations = NOT_ASKED
        if request.include_cluster_authorized_operations:
            cluster_operations = CLUSTER_OPERATIONS
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(**each._asdict())
                for each in self.nodes.endpoints(session.listener)
            ],
            cluster_id=cluster.cluster_id,
            controller_id=self.nodes.controller,
            topics=topics,
            cluster_authorized_operations=cluster_operations,
        )

    def _topic(self, operations: int, topic: Topic) -> Steps[MetadataResponse.Topic]:
        partitions = yield from self._partitions(
            MetadataResponse.Partition, topic, list(topic.partitions.values())
        )
        return MetadataResponse.Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=partitions,
            topic_authorized_operations=operations,
        )

    def _with_id(self, operations: int, topic_id: UUID) -> Steps[MetadataResponse.Topic]:
        topic = self.cluster.topics_by_id.get(topic_id)
        if topic is None:
            yield None
            return MetadataResponse.Topic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
            )
        return (yield from self._topic(operations, topic))

    def _named(self, operations: int, name: str, create: bool) -> Steps[MetadataResponse.Topic]:
        """Describe a topic, which is created if it does not exist and ``create`` is true."""
        topic = self.cluster.topics.get(name)
        if topic is None:
            absent = _absent(MetadataResponse.Topic, name, operations)
            if create and absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                with errors_in(absent):
                    topic = yield from self.topics.creating_on_use(name)
        if topic is None:
            yield None
            return absent
        return (yield from self._topic(operations, topic))

    def _partitions(
        self, kind: Callable[..., T], topic: Topic, partitions: Iterable[Partition], **fields: Any
    ) -> Steps[list[T]]:
        """Describe partitions in steps; ``fields`` are the same for all of them.

        As in Kafka, a partition whose log is offline has no leader, but its last replica remains in
        sync.
        """
        found = []
        for partition in partitions:
            offline = self.topics.is_offline(topic, partition.index)
            leader = NO_LEADER if offline else partition.leader
            described = kind(
                error_code=(
                    ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE
                ),
                partition_index=partition.index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=[
                    node
                    for node in partition.replicas
                    if offline or node not in self.cluster.running
                ],
                **fields,
            )
            found.append(described)
            if len(found) % _PARTITIONS_OF_A_STEP == 0:
                yield None
        yield None
        return found

    def describe_topic_partitions(
        self, session: Session, request: DescribeTopicPartitionsRequest, version: int
    ) -> Steps[DescribeTopicPartitionsResponse]:
        """Describe topics sorted by name, up to a number of partitions, then a cursor (KIP-966)."""
        cursor = request.cursor
        everything = not request.topics
        names = {topic.name for topic in request.topics} or set(self.cluster.topics)
        if cursor is not None:
            if cursor.partition_index < 0 or not (everything or cursor.topic_name in names):
                return DescribeTopicPartitionsResponse(
                    topics=[
                        DescribeTopicPartitionsResponse.Topic(
                            error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                        )
                        for topic in request.topics
                    ]
                )
            names = {name for name in names if name >= cursor.topic_name}
        limit = min(self.config.max_request_partition_size_limit, request.response_partition_limit)
        left = max(1, limit)
        response = DescribeTopicPartitionsResponse()
        for name in sorted(names):
            if left == 0:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name)
                break
            topic = self.cluster.topics.get(name)
            if topic is None:
                if not everything:
                    absent = _absent(DescribeTopicPartitionsResponse.Topic, name, TOPIC_OPERATIONS)
                    response.topics.append(absent)
                yield None
                continue
            first = 0
            if cursor is not None and cursor.topic_name == name:
                first = cursor.partition_index
            indexes = [index for index in sorted(topic.partitions) if index >= first]
            partitions = yield from self._partitions(
                DescribeTopicPartitionsResponse.Partition,
                topic,
                [topic.partitions[index] for index in indexes[:left]],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            response.topics.append(
                DescribeTopicPartitionsResponse.Topic(
                    name=name,
                    topic_id=topic.topic_id,
                    is_internal=topic.internal,
                    partitions=partitions,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            if len(indexes) > left:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=indexes[left]
                )
                break
            left -= len(indexes)
        return response


def _is_allowed(topic: MetadataRequest.Topic, version: int) -> bool:
    """Return whether a version allows this way to list a topic (KIP-516)."""
    if version < _NAMES_ONLY:
        return topic.name is not None and topic.topic_id == NULL_UUID
    return topic.name is not None or topic.topic_id != NULL_UUID


def _absent(kind: Callable[..., T], name: str, operations: int) -> T:
    """Build the response for a topic that does not exist."""
    topic = kind(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )
    with errors_in(topic):
        check_topic_name(name)
    return topic
