"""The client's metadata: the brokers of a cluster, and the leaders of partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafka_wire import ErrorCode

from krammar.client.errors import KafkaError, kafka_error

NO_ID = UUID(int=0)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """A broker, with its address on the listener that the client uses."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class Partition:
    """A partition's replicas. ``leader`` is -1 if there is none, ``leader_epoch`` is -1 if it is unknown."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int] = field(default_factory=list)
    isr: list[int] = field(default_factory=list)
    offline: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Topic:
    """A topic with its partitions by index.

    Attributes:
        topic_id: the null UUID if the broker is too old to have ids
        error: the error that the broker returned for this topic, if any
    """

    name: str
    topic_id: UUID = NO_ID
    internal: bool = False
    partitions: dict[int, Partition] = field(default_factory=dict)
    error: KafkaError | None = None


class Metadata:
    """Brokers and topics from Metadata responses."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.read_at: dict[str, float] = {}  # by time.monotonic
        self.coordinators: dict[tuple[int, str], int] = {}  # by their type and their group or id

    def update(self, response: Any, now: float) -> list[Topic]:
        """Store a response; return its topics, including those with an error."""
        if response.brokers:
            self.nodes = {
                b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers
            }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        topics = []
        for reported in response.topics:
            topic = Topic(reported.name or "", reported.topic_id, reported.is_internal)
            topics.append(topic)
            if reported.error_code:
                topic.error = kafka_error(reported.error_code, topic.name or str(reported.topic_id))
                if reported.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.forget(topic.name)
                continue
            known = self.topics.get(topic.name)
            for p in reported.partitions:
                new = Partition(
                    p.partition_index,
                    p.leader_id,
                    p.leader_epoch,
                    p.replica_nodes,
                    p.isr_nodes,
                    p.offline_replicas,
                )
                if known is not None and known.topic_id == topic.topic_id:
                    old = known.partitions.get(new.index)
                    # This broker's metadata may be older than what is already known.
                    if old is not None and old.leader_epoch > new.leader_epoch >= 0:
                        new = old
                topic.partitions[new.index] = new
            self.topics[topic.name] = topic
            self.read_at[topic.name] = now
        return topics

    def is_fresh(self, name: str, max_age_ms: int) -> bool:
        """Return whether a topic was read at most ``max_age_ms`` ago."""
        read_at = self.read_at.get(name)
        return read_at is not None and time.monotonic() - read_at < max_age_ms / 1000

    def forget(self, name: str) -> None:
        """Discard a topic."""
        self.topics.pop(name, None)
        self.read_at.pop(name, None)

    def outdate(self, names: Iterable[str]) -> None:
        """Mark topics as outdated: they are requested again, but their leader epochs remain known."""
        for name in names:
            self.read_at.pop(name, None)

    def learn_leader(
        self, topic: str, partition: int, leader: int, epoch: int, endpoints: Iterable[Any]
    ) -> bool:
        """Store the new leader that a broker names in an error (KIP-951); return whether it was unknown."""
        for e in endpoints:
            self.nodes[e.node_id] = Node(e.node_id, e.host, e.port, e.rack)
        known = self.topics.get(topic)
        p = None if known is None else known.partitions.get(partition)
        if p is None or leader < 0 or epoch <= p.leader_epoch or leader not in self.nodes:
            return False
        p.leader, p.leader_epoch = leader, epoch
        return True
