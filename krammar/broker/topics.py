"""Creates, changes and deletes topics: metadata and logs together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from kafka_wire import ConfigResourceType, ErrorCode

from krammar.broker.assignments import Replicas, placed
from krammar.broker.cluster import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    ClusterMetadata,
    Topic,
)
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.log.log_config import LogConfig
from krammar.broker.log.manager import LogManager
from krammar.broker.nodes import Logs, Nodes
from krammar.broker.topic_checks import colliding
from krammar.logfiles.names import METADATA_TOPIC
from krammar.util.turns import Steps, finish

log = logging.getLogger("krammar.broker")

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER


class Topics:
    """Creates, changes and deletes topics. Methods that write raise ApiError.

    The constructor opens the logs of all topics, and finishes deletions that a crash interrupted.

    Attributes:
        deleted: functions that are called with each deleted topic
    """

    def __init__(
        self,
        configs: Sequence[BrokerConfig],
        cluster: ClusterMetadata,
        logs: LogManager,
        nodes: Nodes,
    ) -> None:
        self._configs = list(configs)
        self._config = configs[0]
        self._cluster = cluster
        self._logs = logs
        self._nodes = nodes
        self.deleted: list[Callable[[Topic], None]] = []
        self._read_broker_configs()
        logs.delete_removed(cluster.removed_topics)
        for topic in cluster.topics.values():
            finish(self._opening_logs(topic, topic.partitions))

    # Creating and deleting.

    def create(self, name: str, partitions: int, *, replicas: Replicas | None = None) -> Topic:
        """Create a topic with its metadata and logs. Does not validate."""
        return finish(self.creating(name, partitions, replicas=replicas))

    def creating(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        *,
        topic_id: UUID | None = None,
        replicas: Replicas | None = None,
    ) -> Steps[Topic]:
        """Create a topic in steps: metadata first, then the logs one by one."""
        if replicas is None:
            replicas = self._placed(partitions, self._config.default_replication_factor)
        topic = yield from self._cluster.creating_topic(
            name, partitions, configs, topic_id=topic_id, replicas=replicas
        )
        try:
            yield from self._opening_logs(topic, range(partitions))
        except (ApiError, BrokerError, OSError) as error:
            log.error("topic %s is not created: %s", name, error)
            yield from self.deleting(topic)
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the logs of {name} cannot be created: {error}"
            ) from error
        return topic

    def creating_on_use(self, name: str) -> Steps[Topic | None]:
        """Create a topic that a client wants to use, in steps. Returns None if its name collides."""
        if name in INTERNAL_TOPICS:
            return self.ensure_internal(name)
        other = colliding(name, self._cluster.topics)
        # As in Kafka, the response only says that the topic does not exist.
        if other is not None:
            log.warning("topic %s is not created: its name collides with %s", name, other)
            return None
        if name == METADATA_TOPIC:
            log.warning("topic %s is not created: the name is reserved", name)
            return None
        try:
            yield from self.creating(name, self._config.num_partitions)
        except ApiError as error:
            # Another client has created it meanwhile.
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return self._cluster.topics.get(name)

    def _placed(self, partitions: int, factor: int) -> Replicas:
        """Return replicas for the partitions of a new topic. Topics begin on different nodes."""
        first = len(self._cluster.topics)
        return placed(range(first, first + partitions), factor, self._nodes)

    def adding(self, topic: Topic, count: int, replicas: Replicas = ()) -> Steps[None]:
        """Increase the number of partitions to ``count``, in steps."""
        if not replicas and not topic.partitions:  # a log can have such a topic
            replicas = self._placed(count, self._config.default_replication_factor)
        elif not replicas:
            own = topic.partitions[0].replicas
            numbers = range(own[0] + len(topic.partitions), own[0] + count)
            replicas = placed(numbers, len(own), self._nodes)
        new = yield from self._cluster.adding_partitions(topic, count, replicas)
        yield from self._opening_logs(topic, new)

    def deleting(self, topic: Topic) -> Steps[None]:
        """Delete a topic and its committed offsets at once, and its data in steps."""
        self._cluster.delete_topic(topic)
        steps = self._logs.deleting(topic.name, topic.partitions)
        next(steps, None)
        for notify in self.deleted:
            notify(topic)
        yield from steps

    def _opening_logs(self, topic: Topic, partitions: Iterable[int]) -> Steps[None]:
        config = self._log_config(topic.name)
        for partition in partitions:
            log = self._logs.open(topic.name, topic.topic_id, partition, config)
            known = topic.partitions[partition]
            if known.leader >= 0:
                log.lead(known.leader_epoch)
            yield None
            if topic.topic_id not in self._cluster.topics_by_id:
                return  # the topic was deleted in the meantime

    # The coordinators' topics.

    def ensure_internal(self, name: str) -> Topic:
        """Return one of Kafka's internal topics, and create it if it is missing."""
        topic = self._cluster.topics.get(name)
        if topic is not None:
            return topic
        count, factor, configs = self._internal(name)
        return finish(self.creating(name, count, configs, replicas=self._placed(count, factor)))

    def _internal(self, name: str) -> tuple[int, int, dict[str, str]]:
        """Return the number of partitions, the replication factor and the settings of an internal topic."""
        config = self._config
        configs = {"cleanup.policy": "compact"}
        if name == OFFSETS_TOPIC:
            configs["compression.type"] = "producer"
            configs |= _segment_bytes(config.offsets_topic_segment_bytes)
            factor = config.offsets_topic_replication_factor
            return config.offsets_topic_num_partitions, factor, configs
        if name == SHARE_STATE_TOPIC:
            # The share coordinator deletes what is no longer needed.
            configs = {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "retention.ms": "-1",
            }
            configs |= _segment_bytes(config.share_coordinator_state_topic_segment_bytes)
            factor = config.share_coordinator_state_topic_replication_factor
            return config.share_coordinator_state_topic_num_partitions, factor, configs
        configs["compression.type"] = "uncompressed"
        configs |= _segment_bytes(config.transaction_state_log_segment_bytes)
        configs["unclean.leader.election.enable"] = "false"
        factor = config.transaction_state_log_replication_factor
        return config.transaction_state_log_num_partitions, factor, configs

    def coordinating_partition(self, name: str, key: str) -> int:
        """Return the partition of an internal topic that stores a group, a transactional id, or a share partition."""
        topic = self._cluster.topics.get(name)
        count = self._internal(name)[0] if topic is None else len(topic.partitions)
        return partition_of(key, count)

    def is_offline(self, topic: Topic, partition: int) -> bool:
        """Return whether the disk of a partition has failed, so that no node serves it until the next start."""
        found = self._logs.get(topic.name, partition)
        return found is not None and bool(found.offline)

    def end_offset(self, name: str, partition: int) -> int:
        """Return the end offset of a partition that any node leads; -1 if it cannot be read."""
        found = self._logs.get(name, partition)
        return -1 if found is None or found.offline else found.end_offset

    def check_coordinator(self, coordinated: Logs, name: str, key: str) -> None:
        """Raise ApiError(NOT_COORDINATOR) if another node leads the partition of an internal topic for a key."""
        partition = self.coordinating_partition(name, key)
        coordinated.get(name, partition)

    # Settings.

    def add_node(self, config: BrokerConfig) -> None:
        """Apply dynamic settings to another node too, now and when they change."""
        self._configs.append(config)
        self._read_broker_configs()

    def set_configs(self, kind: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Change the settings of a resource, with immediate effect; None restores the default.

        It is a topic, a group, a subscription to clients' metrics, a broker, or with an empty name all brokers.
        """
        self._cluster.set_configs(kind, name, changes)
        if kind == TOPIC:
            self._logs.update_config(name, self._log_config(name))
        elif kind == BROKER:
            self._read_broker_configs()
            for topic in self._cluster.topics:
                self._logs.update_config(topic, self._log_config(topic))

    def _read_broker_configs(self) -> None:
        """Apply the dynamic broker settings of the cluster metadata to all nodes."""
        configs = self._cluster.configs
        for config in self._configs:
            own = configs.get((BROKER, str(config.node_id)), {})
            config.set_dynamic(configs.get((BROKER, ""), {}), own)
        environment = self._logs.environment
        environment.producer_expiry_ms = self._config.producer_id_expiration_ms
        environment.delete_delay_ms = self._config.log_segment_delete_delay_ms

    def _log_config(self, topic: str) -> LogConfig:
        # Unchecked, because Kafka 3.9 allows settings that are invalid today.
        return self._config.topic_config(self._cluster.configs.get((TOPIC, topic), {}), check=False)


def _segment_bytes(size: int) -> dict[str, str]:
    """Return the topic's setting for segments of this size: ``segment.bytes`` must be at least 1 MiB (KIP-1030)."""
    return {"segment.bytes" if size >= 1 << 20 else "internal.segment.bytes": str(size)}


def partition_of(key: str, partitions: int) -> int:
    """Return the partition for a group or transactional id, as Kafka's coordinators compute it."""
    number = java_hash(key)
    # As Kafka defines it, the absolute value of the smallest 32-bit number is 0.
    return 0 if number == -(1 << 31) else abs(number) % partitions


def java_hash(text: str) -> int:
    """Compute Java's ``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
