"""Checks the replicas of partitions: of requests, and of the metadata log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError


def check_replicas(assignments: Iterable[Sequence[int]], nodes: Container[int]) -> None:
    """Raise ApiError unless each partition is assigned to different nodes of the cluster."""
    for broker_ids in assignments:
        unknown = [broker for broker in broker_ids if broker not in nodes]
        if not broker_ids:
            problem = "an empty list of replicas"
        elif unknown:
            problem = f"broker {unknown[0]}, which is not registered"
        elif len(set(broker_ids)) < len(broker_ids):
            problem = f"broker {Counter(broker_ids).most_common(1)[0][0]} more than once"
        else:
            continue
        raise invalid_replicas(f"The assignment of replicas has {problem}.")


def invalid_replicas(problem: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
