"""Authorized operations (KIP-430). This broker has no ACLs, so every client may do everything."""

from __future__ import annotations

from kafka_wire import AclOperation

NOT_ASKED = -(1 << 31)


def _bits(*names: str) -> int:
    return sum(1 << AclOperation[name] for name in names)


GROUP_OPERATIONS = _bits("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
TOPIC_OPERATIONS = GROUP_OPERATIONS | _bits("WRITE", "CREATE", "ALTER")
CLUSTER_OPERATIONS = _bits(
    *("CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    *("CLUSTER_ACTION", "IDEMPOTENT_WRITE"),
)
