"""DescribeCluster, DescribeLogDirs and DescribeClientQuotas: the one broker that there is, its disks, and
that it limits nobody."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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

from krammar.broker.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.session import Session


def describe_cluster(
    broker: Broker, session: Session, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    """KIP-700; who asks for controllers is told that this is a broker (KIP-919)."""
    if request.endpoint_type != EndpointType.BROKER:
        known = request.endpoint_type == EndpointType.CONTROLLER
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message=f"This is a broker, not an endpoint of type {request.endpoint_type}.",
        )
    host, port = broker.advertised(session)
    node_id = broker.config.node_id
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = CLUSTER_OPERATIONS
    return DescribeClusterResponse(
        cluster_id=broker.cluster.cluster_id,
        controller_id=node_id,
        brokers=[
            DescribeClusterResponseBroker(
                broker_id=node_id, host=host, port=port, rack=broker.config.broker_rack
            )
        ],
        cluster_authorized_operations=operations,
    )


def describe_log_dirs(
    broker: Broker, session: Session, request: DescribeLogDirsRequest, version: int
) -> DescribeLogDirsResponse:
    """KIP-113; sizes in bytes. Partitions that are not here are left out."""
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    held: dict[Path, dict[str, dict[int, int]]] = {path: {} for path in broker.config.log_dirs}
    for log in broker.logs:
        if wanted is None or log.partition in wanted.get(log.topic, ()):
            topics = held.setdefault(log.path.parent, {})
            topics.setdefault(log.topic, {})[log.partition] = log.size
    return DescribeLogDirsResponse(results=[_log_dir(path, held[path]) for path in held])


def _log_dir(path: Path, topics: Mapping[str, Mapping[int, int]]) -> DescribeLogDirsResponseResult:
    try:
        volume = shutil.disk_usage(path)
    except OSError:
        return DescribeLogDirsResponseResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute())
        )
    return DescribeLogDirsResponseResult(
        log_dir=str(path.absolute()),
        topics=[
            DescribeLogDirsResponseResultTopic(
                name=name,
                partitions=[
                    DescribeLogDirsResponseResultTopicPartition(
                        partition_index=index, partition_size=size
                    )
                    for index, size in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
        total_bytes=volume.total,
        usable_bytes=volume.free,
    )


def describe_client_quotas(
    broker: Broker, session: Session, request: DescribeClientQuotasRequest, version: int
) -> DescribeClientQuotasResponse:
    """KIP-546. There are no quotas, and none can be set; Kafka's tools ask for them with every user."""
    return DescribeClientQuotasResponse(error_message=None, entries=[])
