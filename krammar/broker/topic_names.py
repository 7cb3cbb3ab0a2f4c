"""What a topic may be called."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises ApiError(INVALID_TOPIC_EXCEPTION) for a name that no topic can have.

    A folder on disk is called after a topic and a partition: hence the limits.
    """
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = f"'{name}' is taken by the file system"
    elif len(name) > MAX_LENGTH:
        problem = f"it is longer than {MAX_LENGTH} characters"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def colliding(name: str, others: Iterable[str]) -> str | None:
    """The first of ``others`` that names of metrics, which write '.' as '_', cannot tell from ``name``."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == unified:
            return other
    return None
