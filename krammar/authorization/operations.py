"""The bit fields of authorized operations in responses (KIP-430)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kafka_wire import AclOperation

from krammar.authorization.acls import CLUSTER_NAME
from krammar.authorization.table import CLUSTER, DESCRIBE, GROUP, TOPIC

# The value for a client that did not ask.
NOT_ASKED = -(1 << 31)

_OF_ALL = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_OPERATIONS: dict[int, tuple[AclOperation, ...]] = {
    GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_OF_ALL),
    TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_OF_ALL,
    ),
    CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_OF_ALL,
    ),
}

# Whether a client may do an operation on the resource of a type with a name.
May = Callable[[int, int, str], bool]


def bits(resource_type: int, may: Callable[[AclOperation], bool] = lambda operation: True) -> int:
    """Return the bit field of those operations on a resource that are allowed; without ``may``, of all."""
    return sum(1 << operation for operation in _OPERATIONS[resource_type] if may(operation))


def restrict(response: Any, may: May) -> None:
    """Replace the bit fields of a response, as far as it has any, by those of a client."""
    for struct, field, resource_type, name in _fields(response):
        if getattr(struct, field) == NOT_ASKED:
            continue
        # Who may not describe the cluster does not learn what else is allowed.
        hidden = resource_type == CLUSTER and not may(DESCRIBE, CLUSTER, name)
        allowed = 0
        if not hidden:
            allowed = bits(resource_type, partial(_may, may, resource_type, name))
        setattr(struct, field, allowed)


def _may(may: May, resource_type: int, name: str, operation: int) -> bool:
    return may(operation, resource_type, name)


def _fields(response: Any) -> Iterator[tuple[Any, str, int, str]]:
    """Yield the structs with bit fields, the field, and the resource that it is about."""
    if hasattr(response, "cluster_authorized_operations"):
        yield response, "cluster_authorized_operations", CLUSTER, CLUSTER_NAME
    for topic in getattr(response, "topics", ()):
        if topic.name and not topic.error_code:
            yield topic, "topic_authorized_operations", TOPIC, topic.name
    for group in getattr(response, "groups", ()):
        if not group.error_code:
            yield group, "authorized_operations", GROUP, group.group_id
