"""Checks the partitions and replicas that a request asks for against what one node can provide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kafka_wire import CreateTopicsRequestTopic, ErrorCode

from krammar.broker.errors import ApiError

# Per topic: Kafka limits the number of records in one change of the metadata.
MAX_PARTITIONS = 10000


def partition_count(
    topic: CreateTopicsRequestTopic, *, node_id: int, num_partitions: int, replication_factor: int
) -> int:
    """Return the number of partitions of a new topic.

    Args:
        topic: the request
        node_id: the id of this node
        num_partitions: the broker's default
        replication_factor: the broker's default

    Raises:
        ApiError: one node cannot provide the partitions or replicas.
    """
    if topic.assignments:
        return _assigned(topic, node_id)
    factor = topic.replication_factor
    if factor == 0 or factor < -1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    count = topic.num_partitions
    if count == 0 or count < -1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be larger than 0, or -1 for the default, but is {count}.",
        )
    if factor == -1:
        factor = replication_factor
    if factor > 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} cannot be reached: this cluster has 1 broker.",
        )
    if count == -1:
        count = num_partitions
    check_amount(count)
    return count


def _assigned(topic: CreateTopicsRequestTopic, node_id: int) -> int:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("number of partitions", topic.num_partitions),
    ):
        if value != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"With an assignment of replicas the {name} must be -1, but is {value}.",
            )
    indexes = [assignment.partition_index for assignment in topic.assignments]
    for index, times in Counter(indexes).items():
        if times > 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} is assigned twice."
            )
    if sorted(indexes) != list(range(len(indexes))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The assigned partitions must be numbered from 0 without gaps.",
        )
    check_replicas((assignment.broker_ids for assignment in topic.assignments), node_id)
    return len(indexes)


def check_amount(count: int) -> None:
    """Raise ApiError if a request would create too many partitions."""
    if count > MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count} of {MAX_PARTITIONS}.",
        )


def check_replicas(assignments: Iterable[Sequence[int]], node_id: int) -> None:
    """Raise ApiError unless each partition is assigned to this node alone."""
    for broker_ids in assignments:
        if not broker_ids:
            problem = "an empty list of replicas"
        elif any(broker != node_id for broker in broker_ids):
            other = next(broker for broker in broker_ids if broker != node_id)
            problem = f"broker {other}, which is not registered"
        elif len(broker_ids) > 1:
            problem = f"broker {node_id} more than once"
        else:
            continue
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of replicas has {problem}."
        )
