"""Checks the partitions and replicas that a request asks for against the nodes, and places replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafka_wire import CreateTopicsRequest, ErrorCode

from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.topic_checks import check_replicas, invalid_replicas

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig
    from krammar.broker.nodes import Nodes


# Per topic: Kafka limits the number of records in one change of the metadata.
MAX_PARTITIONS = 10000

Replicas = Sequence[Sequence[int]]  # the nodes of each partition, the preferred leader first


def new_replicas(
    topic: CreateTopicsRequest.CreatableTopic, nodes: Nodes, config: BrokerConfig, first: int
) -> Replicas:
    """Return the replicas of the partitions of a new topic; ``first`` is where ``placed`` begins.

    Raises:
        ApiError: the nodes cannot provide the partitions or replicas.
    """
    if topic.assignments:
        return _assigned(topic, nodes)
    factor, count = topic.replication_factor, topic.num_partitions
    if factor == 0 or factor < -1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count == 0 or count < -1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be larger than 0, or -1 for the default, but is {count}.",
        )
    if factor == -1:
        factor = config.default_replication_factor
    if factor > len(nodes):
        brokers = "1 broker" if len(nodes) == 1 else f"{len(nodes)} brokers"
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} cannot be reached: this cluster has {brokers}.",
        )
    if count == -1:
        count = config.num_partitions
    check_amount(count)
    return placed(range(first, first + count), factor, nodes)


def placed(numbers: Iterable[int], factor: int, nodes: Nodes) -> Replicas:
    """Return replicas in turn over the running nodes, then over the others, for each number."""
    up = sorted(nodes.running)
    down = sorted(nodes.keys() - nodes.running)
    replicas = []
    for number in numbers:
        turn = number % max(len(up), 1)
        replicas.append([*up[turn:], *up[:turn], *down][:factor])
    return replicas


def _assigned(topic: CreateTopicsRequest.CreatableTopic, nodes: Nodes) -> Replicas:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("number of partitions", topic.num_partitions),
    ):
        if value != -1:
            raise invalid_request(
                f"With an assignment of replicas the {name} must be -1, but is {value}."
            )
    indexes = [assignment.partition_index for assignment in topic.assignments]
    twice = next((index for index, times in Counter(indexes).items() if times > 1), None)
    if twice is not None:
        raise invalid_replicas(f"Partition {twice} is assigned twice.")
    if sorted(indexes) != list(range(len(indexes))):
        raise invalid_replicas("The assigned partitions must be numbered from 0 without gaps.")
    check_replicas((assignment.broker_ids for assignment in topic.assignments), nodes)
    in_order = sorted(topic.assignments, key=lambda assignment: assignment.partition_index)
    return [assignment.broker_ids for assignment in in_order]


def check_amount(count: int) -> None:
    """Raise ApiError if a request would create too many partitions."""
    if count > MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count} of {MAX_PARTITIONS}.",
        )
