"""ACLs as people write them: tables of a TOML file, or keywords in Python.

    {allow = "alice", operation = ["read", "describe"], topic = "orders"}
    {deny = "*", operation = "write", topic = "audit-*", host = "10.0.0.7"}

The user is a name, a principal such as ``User:alice``, or ``*`` for everyone. A name of a topic, group or
transactional id that ends with ``*`` is a prefix, and ``*`` alone means all names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_wire import AclOperation, AclPatternType, AclPermissionType, AclResourceType

from krammar.authorization.acls import CLUSTER_NAME, WILDCARD, Acl
from krammar.util.diagnostics import did_you_mean

_RESOURCES = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "cluster": AclResourceType.CLUSTER,
}
_PERMISSIONS = {"allow": AclPermissionType.ALLOW, "deny": AclPermissionType.DENY}
_KEYS = (*_PERMISSIONS, "operation", *_RESOURCES, "host")
_OPERATIONS = {
    each.name.lower(): each for each in AclOperation if each.name not in ("UNKNOWN", "ANY")
}


def acls_of(rule: Mapping[str, Any]) -> list[Acl]:
    """Return the ACLs of a rule: one for each operation.

    Args:
        rule: ``allow`` or ``deny`` with a user; ``operation`` with one or a list, by default all; one of ``topic``,
            ``group``, ``transactional_id`` with a name, or ``cluster`` with true; and, by choice, ``host`` with an IP address

    Raises:
        ValueError: the rule is invalid; the text says why.
    """
    if not isinstance(rule, Mapping):
        raise ValueError(f'{rule!r} is no rule: write {{allow = "alice", topic = "orders"}}')
    for key in rule:
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS) or f"it has {', '.join(_KEYS)}"
            raise ValueError(f"a rule has no {key!r}; {hint}")
    permission, user = _one(rule, _PERMISSIONS, 'who: allow = "alice"')
    resource, name = _one(rule, _RESOURCES, 'on what: topic = "orders", or cluster = true')
    pattern = AclPatternType.LITERAL
    if resource == AclResourceType.CLUSTER:
        if name is not True:
            raise ValueError(f"cluster: write true, not {name!r}")
        name = CLUSTER_NAME
    name = _text("the name of a resource", name)
    if name.endswith(WILDCARD) and name != WILDCARD:
        name, pattern = name.removesuffix(WILDCARD), AclPatternType.PREFIXED
    user = _text("the user", user)
    asked = rule.get("operation", "all")
    return [
        Acl(
            resource,
            name,
            pattern,
            user if ":" in user else f"User:{user}",
            _text("host", rule.get("host", WILDCARD)),
            operation,
            permission,
        )
        for operation in map(_operation, [asked] if isinstance(asked, str) else asked)
    ]


def all_acls(rules: Iterable[Mapping[str, Any]]) -> list[Acl]:
    """Return the ACLs of rules. Raises ValueError."""
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        raise ValueError(f"{rules!r}: write a list of rules")
    return [acl for rule in rules for acl in acls_of(rule)]


def _one(rule: Mapping[str, Any], kinds: Mapping[str, Any], what: str) -> tuple[Any, Any]:
    given = [key for key in kinds if key in rule]
    if len(given) != 1:
        raise ValueError(
            f"a rule says {what}" + (f"; it has {' and '.join(given)}" if given else "")
        )
    return kinds[given[0]], rule[given[0]]


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is text, not {value!r}")
    return value


def _operation(word: Any) -> AclOperation:
    found = _OPERATIONS.get(str(word).lower().replace("-", "_"))
    if found is None:
        hint = did_you_mean(str(word), _OPERATIONS) or f"it is one of {', '.join(_OPERATIONS)}"
        raise ValueError(f"operation: {word!r} is unknown; {hint}")
    return found
