"""Authorized operations (KIP-430). This broker has no ACLs, so every client may do everything."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire import AclOperation

NOT_ASKED = -(1 << 31)


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


GROUP_OPERATIONS = _bits(
    (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
TOPIC_OPERATIONS = _bits(
    (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
CLUSTER_OPERATIONS = _bits(
    (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    )
)
