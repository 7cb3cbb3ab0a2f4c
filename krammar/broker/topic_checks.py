"""The rules for topic names."""

from __future__ import annotations

from collections.abc import Iterable

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
