"""Administration: topics, settings, and descriptions of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka_wire as kw

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.errors import ClientError, kafka_error, raise_code
from krammar.client.in_flight import ByVersion
from krammar.client.metadata import Node, Topic, TopicPartition
from krammar.client.offsets import delete_records
from krammar.client.routing import call_controller

# The settings of topics and brokers.


@dataclass(frozen=True, slots=True)
class Config:
    """A setting of a topic or broker.

    Attributes:
        value: None if the value is secret or not set
        source: which configuration contains the value
        is_default: whether the value was not set for this topic or broker itself
    """

    name: str
    value: str | None
    source: kw.ConfigSource | int
    read_only: bool
    sensitive: bool
    is_default: bool


def describe_configs(
    cluster: Cluster, kind: kw.ConfigResourceType, name: str, timeout_ms: float | None
) -> dict[str, Config]:
    """Return the settings of a topic or broker by name."""
    deadline = cluster.deadline(f"describing the settings of {name}", timeout_ms)
    resource = kw.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )

    def check(response: Any) -> None:
        for result in response.results:
            raise_code(result.error_code, f"settings of {name}", result.error_message)

    node_id = _owner(cluster, kind, name, deadline)
    response = cluster.call(
        kw.DescribeConfigsRequest(resources=[resource]),
        deadline,
        node_id=node_id,
        low=1,
        check=check,
    )
    own = (
        kw.ConfigSource.TOPIC_CONFIG
        if kind == kw.ConfigResourceType.TOPIC
        else kw.ConfigSource.DYNAMIC_BROKER_CONFIG
    )
    return {
        c.name: Config(
            c.name,
            c.value,
            c.config_source,
            c.read_only,
            c.is_sensitive,
            c.config_source != own,
        )
        for result in response.results
        for c in result.configs
    }


def _owner(
    cluster: Cluster, kind: kw.ConfigResourceType, name: str, deadline: Deadline
) -> int | None:
    """Return the broker that must handle a request for settings; None means any."""
    if kind != kw.ConfigResourceType.BROKER or not name:
        return None
    node_id = int(name)
    if node_id not in cluster.metadata.nodes:
        cluster.refresh([], deadline)
    return node_id


def alter_configs(
    cluster: Cluster,
    kind: kw.ConfigResourceType,
    name: str,
    changes: Mapping[str, str | None],
    timeout_ms: float | None,
) -> None:
    """Change settings of a topic or broker. None restores a default."""
    deadline = cluster.deadline(f"changing the settings of {name}", timeout_ms)
    resource = kw.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            kw.IncrementalAlterConfigsRequest.AlterableConfig(
                name=key,
                config_operation=(
                    kw.AlterConfigOp.DELETE if value is None else kw.AlterConfigOp.SET
                ),
                value=value,
            )
            for key, value in changes.items()
        ],
    )

    def check(response: Any) -> None:
        for result in response.responses:
            raise_code(result.error_code, f"settings of {name}", result.error_message)

    request = kw.IncrementalAlterConfigsRequest(resources=[resource])
    node_id = _owner(cluster, kind, name, deadline)
    if node_id is None:
        call_controller(cluster, request, deadline, check)
    else:
        cluster.call(request, deadline, node_id=node_id, check=check)


# Topics, records, and the cluster.


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its brokers; ``controller_id`` is the broker that accepts requests for the controller."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log folder of a broker.

    Attributes:
        sizes: bytes by partition
        total_bytes, usable_bytes: of the disk; -1 if unknown
        error: the folder's error, or None
    """

    node_id: int
    path: str
    sizes: dict[TopicPartition, int]
    total_bytes: int
    usable_bytes: int
    error: ClientError | None


class Admin:
    """Administrative operations.

    Every method has an argument ``timeout_ms`` (default: ``default.api.timeout.ms``). It raises DeadlineError after
    that time, KafkaError if the broker refuses the operation, or another ClientError.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str | None] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Topic:
        """Create a topic, and wait until its partitions have leaders.

        Args:
            partitions: the number of partitions; -1 means the broker's default.
            replication_factor: the number of replicas; -1 means the broker's default.
            configs: the topic's settings.
            assignments: the replicas of each partition, the preferred leader first; replaces both numbers.
            validate_only: only check whether the topic can be created.

        Raises:
            TopicAlreadyExists: the topic exists.
            InvalidPartitions: the number of partitions is not allowed.
            InvalidConfig: a setting is unknown or invalid.
            PolicyViolation: the cluster's policy forbids the topic.
        """
        deadline = self._cluster.deadline(f"creating topic {name}", timeout_ms)
        if assignments:
            partitions = replication_factor = -1
        topic = kw.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[
                kw.CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=list(nodes)
                )
                for index, nodes in (assignments or {}).items()
            ],
            configs=[
                kw.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        request = kw.CreateTopicsRequest(
            topics=[topic],
            timeout_ms=self._cluster.broker_timeout_ms(deadline),
            validate_only=validate_only,
        )
        lost: list[ClientError] = []

        def check(response: Any) -> None:
            for t in response.topics:
                # An earlier attempt, whose response was lost, has created the topic.
                if t.error_code == kw.ErrorCode.TOPIC_ALREADY_EXISTS and lost:
                    continue
                raise_code(t.error_code, f"topic {name}", t.error_message)

        # Version 4 added the broker's defaults for both numbers.
        defaults = not assignments and -1 in (partitions, replication_factor)
        low = 4 if defaults else 1
        call_controller(self._cluster, request, deadline, check, low=low, lost=lost)
        if validate_only:
            return Topic(name)
        self._cluster.metadata.outdate([name])
        return self._await(name, deadline)

    def _await(self, name: str, deadline: Deadline) -> Topic:
        """Wait until all partitions of a new topic have leaders."""

        def attempt() -> Topic:
            topic = self._cluster.topic(name, deadline, auto_create=False)
            if any(p.leader < 0 for p in topic.partitions.values()):
                self._cluster.metadata.outdate([name])
                raise kafka_error(kw.ErrorCode.LEADER_NOT_AVAILABLE, name)
            return topic

        return self._cluster.retrying(deadline, attempt)

    def delete_topic(self, name: str, *, timeout_ms: float | None = None) -> None:
        """Delete a topic and its records.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
            TopicDeletionDisabled: the cluster does not allow it.
        """
        deadline = self._cluster.deadline(f"deleting topic {name}", timeout_ms)

        def build(version: int) -> kw.DeleteTopicsRequest:
            limit = self._cluster.broker_timeout_ms(deadline)
            if version < 6:
                return kw.DeleteTopicsRequest(topic_names=[name], timeout_ms=limit)
            topic = kw.DeleteTopicsRequest.DeleteTopicState(name=name)
            return kw.DeleteTopicsRequest(topics=[topic], timeout_ms=limit)

        request = ByVersion(kw.DeleteTopicsRequest, build)
        lost: list[ClientError] = []

        def check(response: Any) -> None:
            for t in response.responses:
                if t.error_code == kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and lost:
                    continue
                raise_code(t.error_code, f"topic {name}", t.error_message)

        call_controller(self._cluster, request, deadline, check, lost=lost)
        self._cluster.metadata.forget(name)

    def create_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Add partitions to a topic.

        Args:
            count: the new total number of partitions.
            assignments: the replicas of each new partition.

        Raises:
            InvalidPartitions: the topic already has as many partitions.
        """
        deadline = self._cluster.deadline(f"adding partitions to {name}", timeout_ms)
        places = None
        if assignments is not None:
            places = [
                kw.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(nodes))
                for nodes in assignments
            ]
        topic = kw.CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=count, assignments=places
        )
        request = kw.CreatePartitionsRequest(
            topics=[topic], timeout_ms=self._cluster.broker_timeout_ms(deadline)
        )

        def check(response: Any) -> None:
            for result in response.results:
                raise_code(result.error_code, f"topic {name}", result.error_message)

        call_controller(self._cluster, request, deadline, check)
        self._cluster.metadata.outdate([name])

    def delete_records(
        self,
        before: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition, and return where the logs begin now.

        Args:
            before: the first offset to retain in each partition; ``At.LATEST`` deletes all records.

        Raises:
            OffsetOutOfRange: a log does not have the offset.
            PolicyViolation: the topic's records cannot be deleted.
        """
        wanted = {TopicPartition(*at): int(offset) for at, offset in before.items()}
        deadline = self._cluster.deadline("deleting records", timeout_ms)
        return delete_records(self._cluster, wanted, deadline)

    # Settings.

    def topic_configs(self, name: str, *, timeout_ms: float | None = None) -> dict[str, Config]:
        """Return a topic's settings by name.

        Raises:
            UnknownTopicOrPartition: the topic does not exist.
        """
        return describe_configs(self._cluster, kw.ConfigResourceType.TOPIC, name, timeout_ms)

    def broker_configs(self, node_id: int, *, timeout_ms: float | None = None) -> dict[str, Config]:
        """Return a broker's settings by name."""
        return describe_configs(
            self._cluster, kw.ConfigResourceType.BROKER, str(node_id), timeout_ms
        )

    def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, timeout_ms: float | None = None
    ) -> None:
        """Change settings of a topic.

        Args:
            changes: new values by name; None restores the default.

        Raises:
            InvalidConfig: a setting is unknown or invalid.
        """
        alter_configs(self._cluster, kw.ConfigResourceType.TOPIC, name, changes, timeout_ms)

    def alter_broker_configs(
        self,
        node_id: int | None,
        changes: Mapping[str, str | None],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Change settings of a running broker.

        Args:
            node_id: the broker; None means the defaults of all brokers.
            changes: new values by name; None restores the default.

        Raises:
            InvalidConfig: a setting is unknown, invalid, or cannot be changed while the broker runs.
        """
        name = "" if node_id is None else str(node_id)
        alter_configs(self._cluster, kw.ConfigResourceType.BROKER, name, changes, timeout_ms)

    # The cluster.

    def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterDescription:
        """Return the cluster's id, controller and brokers."""
        deadline = self._cluster.deadline("describing the cluster", timeout_ms)

        def attempt() -> ClusterDescription:
            connection = self._cluster.any(deadline)
            if not connection.versions.has(kw.DescribeClusterRequest, 0):  # Kafka before 2.8
                self._cluster.refresh([], deadline)
                known = self._cluster.metadata
                return ClusterDescription(
                    known.cluster_id or "", known.controller_id, tuple(known.nodes.values())
                )
            pending = self._cluster.send(connection, kw.DescribeClusterRequest(), deadline)
            response = self._cluster.wait_for(pending, deadline)
            raise_code(response.error_code, "the cluster", response.error_message)
            nodes = [Node(b.broker_id, b.host, b.port, b.rack) for b in response.brokers]
            return ClusterDescription(
                response.cluster_id, response.controller_id, tuple(sorted(nodes))
            )

        return self._cluster.retrying(deadline, attempt)

    def log_dirs(
        self, node_ids: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> list[LogDir]:
        """Return the log folders of brokers, with the size of each partition.

        Args:
            node_ids: the brokers; None means all.
        """
        deadline = self._cluster.deadline("describing log folders", timeout_ms)
        self._cluster.refresh([], deadline)
        wanted = sorted(self._cluster.metadata.nodes) if node_ids is None else list(node_ids)
        found = []
        for node_id in wanted:
            response = self._cluster.call(
                kw.DescribeLogDirsRequest(topics=None),
                deadline,
                node_id=node_id,
                check=lambda r: raise_code(r.error_code, "log folders"),
            )
            for result in response.results:
                error = result.error_code
                found.append(
                    LogDir(
                        node_id,
                        result.log_dir,
                        {
                            TopicPartition(topic.name, p.partition_index): p.partition_size
                            for topic in result.topics
                            for p in topic.partitions
                            if not p.is_future_key
                        },
                        result.total_bytes,
                        result.usable_bytes,
                        kafka_error(error, result.log_dir) if error else None,
                    )
                )
        return found
