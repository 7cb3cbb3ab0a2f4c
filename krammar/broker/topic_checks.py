"""The rules for the names and the replicas of topics, in requests and in the metadata log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError, invalid_request
from krammar.logfiles.names import METADATA_TOPIC, topic_problem


def check_topic_name(name: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) if no topic can have the name."""
    problem = topic_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_new_topic(name: str) -> None:
    """Raise ApiError if no topic can be created with the name; INVALID_REQUEST for that of the metadata log."""
    if name == METADATA_TOPIC:
        raise invalid_request(f"{METADATA_TOPIC} cannot be created.")
    check_topic_name(name)


def colliding(name: str, others: Iterable[str]) -> str | None:
    """Return the first of ``others`` that collides with ``name`` in metric names, which replace '.' by '_'."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    same = (other for other in others if other.replace(".", "_") == unified and other != name)
    return next(same, None)


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
