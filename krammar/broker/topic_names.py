"""The rules for topic names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise ApiError(INVALID_TOPIC_EXCEPTION) if no topic can have the name.

    The limits follow from the names of partition folders.
    """
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = f"'{name}' is reserved by the file system"
    elif len(name) > MAX_LENGTH:
        problem = f"it is longer than {MAX_LENGTH} characters"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def colliding(name: str, others: Iterable[str]) -> str | None:
    """Return the first of ``others`` that collides with ``name`` in metric names, which replace '.' by '_'."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    same = (other for other in others if other.replace(".", "_") == unified and other != name)
    return next(same, None)
