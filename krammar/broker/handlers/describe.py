"""DescribeCluster, DescribeLogDirs and DescribeClientQuotas."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from kafka_wire import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseResultTopic,
    DescribeLogDirsResponseResultTopicPartition,
    EndpointType,
    ErrorCode,
)

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from krammar.broker.nodes import Logs, Nodes
from krammar.broker.session import Session

Topics = dict[str, list[DescribeLogDirsResponseResultTopicPartition]]


@dataclass(eq=False)
class DescribeHandlers:
    config: BrokerConfig
    nodes: Nodes
    cluster: ClusterMetadata
    logs: Logs

    def describe_cluster(
        self, session: Session, request: DescribeClusterRequest, version: int
    ) -> DescribeClusterResponse:
        """Describe the cluster (KIP-700). A request for controllers gets an error (KIP-919)."""
        if request.endpoint_type != EndpointType.BROKER:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            if request.endpoint_type == EndpointType.CONTROLLER:
                code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            return DescribeClusterResponse(
                error_code=code,
                error_message=f"This is a broker, not an endpoint of type {request.endpoint_type}.",
            )
        nodes = self.nodes
        shown = nodes if request.include_fenced_brokers else nodes.running
        operations = NOT_ASKED
        if request.include_cluster_authorized_operations:
            operations = CLUSTER_OPERATIONS
        return DescribeClusterResponse(
            cluster_id=self.cluster.cluster_id,
            controller_id=nodes.controller,
            brokers=[
                DescribeClusterResponseBroker(
                    broker_id=node_id,
                    host=host,
                    port=port,
                    rack=rack,
                    is_fenced=node_id not in nodes.running,
                )
                for node_id, host, port, rack in (
                    nodes.endpoint(each, session.listener) for each in sorted(shown)
                )
            ],
            cluster_authorized_operations=operations,
        )

    def describe_log_dirs(
        self, session: Session, request: DescribeLogDirsRequest, version: int
    ) -> DescribeLogDirsResponse:
        """Describe the log folders (KIP-113), with sizes in bytes. Unknown partitions are skipped."""
        wanted: dict[str, set[int]] | None = None
        if request.topics is not None:
            wanted = {}
            for topic in request.topics:
                wanted.setdefault(topic.topic, set()).update(topic.partitions)
        found: dict[Path, Topics] = {path: {} for path in self.config.log_dirs}
        for log in self.logs:
            if wanted is None or log.partition in wanted.get(log.topic, ()):
                partition = DescribeLogDirsResponseResultTopicPartition(
                    partition_index=log.partition, partition_size=log.size
                )
                topics = found.setdefault(log.path.parent, {})
                topics.setdefault(log.topic, []).append(partition)
        return DescribeLogDirsResponse(
            results=[_log_dir(path, topics) for path, topics in found.items()]
        )

    def describe_client_quotas(
        self, session: Session, request: DescribeClientQuotasRequest, version: int
    ) -> DescribeClientQuotasResponse:
        """Return no quotas (KIP-546). Kafka's tools request them whenever they describe users."""
        return DescribeClientQuotasResponse(error_message=None, entries=[])


def _log_dir(path: Path, topics: Topics) -> DescribeLogDirsResponseResult:
    result = DescribeLogDirsResponseResult(log_dir=str(path.absolute()))
    try:
        result.total_bytes, _, result.usable_bytes = shutil.disk_usage(path)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.topics = [
        DescribeLogDirsResponseResultTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    return result
