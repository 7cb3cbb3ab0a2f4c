"""ACLs, and their decision: may a principal at a host do an operation on a resource?

The rules are those of Kafka's StandardAuthorizer:

- A super user may do everything.
- An ACL concerns a resource if its pattern is the resource's name, a prefix of it, or ``*``.
- A denial wins over any permission, whatever the length of their patterns.
- To read, write, delete or alter a resource implies to describe it, and to alter its configs implies to describe
  them. A denial implies nothing.
- A resource that no ACL concerns is refused, unless ``allow.everyone.if.no.acl.found`` says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from kafka_wire import (
    AccessControlEntryRecord,
    AclOperation,
    AclPatternType,
    AclPermissionType,
)

WILDCARD = "*"
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"

_DENY, _ALLOW = AclPermissionType.DENY, AclPermissionType.ALLOW
_LITERAL, _PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
_ANY = 1  # the same number in all enumerations of filters

# The operations that allow another one (KIP-11).
_IMPLIED_BY = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_ALLOWED_BY = {
    operation: frozenset({operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())})
    for operation in AclOperation
}
# Names of resources come from clients, so their number is not bounded by that of the ACLs.
_MOST_DECISIONS = 10_000


class Requester(NamedTuple):
    """Who asks: a principal such as ``User:alice``, and the IP address it comes from."""

    principal: str
    host: str


class Acl(NamedTuple):
    """A rule that allows or denies one operation on the resources of a pattern to one principal.

    The fields are those of ``AccessControlEntryRecord``; ``*`` means all names, all hosts, and in ``User:*`` for
    everyone.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def of(cls, record: AccessControlEntryRecord) -> Acl:
        """Return the ACL of a record in the metadata log."""
        return cls(*(getattr(record, name) for name in cls._fields))

    def covers(self, name: str) -> bool:
        """Whether the pattern applies to a resource with this name."""
        if self.pattern_type == _PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    def is_about(self, client: Requester) -> bool:
        return self.principal in (client.principal, EVERYONE) and self.host in (
            client.host,
            WILDCARD,
        )

    def decides(self, operation: int) -> bool:
        """Whether the rule allows or denies the operation, perhaps because it is implied."""
        if self.permission_type == _DENY:
            return self.operation in (operation, AclOperation.ALL)
        # A log folder can have a record of another type, which allows nothing.
        return (
            self.permission_type == _ALLOW
            and self.operation in _ALLOWED_BY[AclOperation(operation)]
        )


class AclFilter(NamedTuple):
    """Selects ACLs, as DescribeAcls and DeleteAcls do. None and ``ANY`` select all values of a field.

    The pattern type ``MATCH`` selects the ACLs that apply to a resource with the name.
    """

    resource_type: int = _ANY
    resource_name: str | None = None
    pattern_type: int = _ANY
    principal: str | None = None
    host: str | None = None
    operation: int = _ANY
    permission_type: int = _ANY

    def selects(self, acl: Acl) -> bool:
        return (
            self.resource_type in (_ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (_ANY, acl.operation)
            and self.permission_type in (_ANY, acl.permission_type)
            and self._selects_pattern(acl)
        )

    def _selects_pattern(self, acl: Acl) -> bool:
        if self.pattern_type == AclPatternType.MATCH:
            return self.resource_name is None or acl.covers(self.resource_name)
        return self.pattern_type in (_ANY, acl.pattern_type) and self.resource_name in (
            None,
            acl.resource_name,
        )


class Authorizer:
    """Decides by the ACLs that are in force.

    Args:
        super_users: principals that may do everything
        allow_without_acl: whether a resource that no ACL concerns is open to everyone
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_without_acl: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_without_acl = allow_without_acl
        # The ACLs by type of resource and name of the pattern, and by type the lengths of prefixes, with their number.
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        self._lengths: dict[int, Counter[int]] = {}
        self._decisions: dict[tuple[Requester, int, int, str], bool] = {}

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._index(acl).get(acl[:2], ())

    def add(self, acl: Acl) -> None:
        """Put an ACL in force."""
        self._decisions.clear()
        self._index(acl).setdefault(acl[:2], []).append(acl)
        if acl.pattern_type == _PREFIXED:
            self._lengths.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1

    def remove(self, acl: Acl) -> None:
        """Take an ACL out of force that is in force."""
        self._decisions.clear()
        index, pattern = self._index(acl), acl[:2]
        index[pattern].remove(acl)
        if not index[pattern]:
            del index[pattern]
        if acl.pattern_type == _PREFIXED:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            lengths += Counter()  # without those that no prefix has any more

    def _index(self, acl: Acl) -> dict[tuple[int, str], list[Acl]]:
        return self._prefixed if acl.pattern_type == _PREFIXED else self._literal

    def allows(self, client: Requester, operation: int, resource_type: int, name: str) -> bool:
        """Return whether a client may do an operation on the resource with this name."""
        key = (client, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(*key)
        return decision

    def _decide(self, client: Requester, operation: int, resource_type: int, name: str) -> bool:
        if client.principal in self.super_users:
            return True
        found = allowed = False
        for acl in self._concerning(resource_type, name):
            found = True
            if acl.is_about(client) and acl.decides(operation):
                if acl.permission_type == _DENY:
                    return False
                allowed = True
        return allowed or (not found and self.allow_without_acl)

    def _concerning(self, resource_type: int, name: str) -> Iterator[Acl]:
        for literal in (name, WILDCARD):
            yield from self._literal.get((resource_type, literal), ())
        for length in self._lengths.get(resource_type, ()):
            # A name shorter than the prefix does not match it; a slice would.
            if length <= len(name):
                yield from self._prefixed.get((resource_type, name[:length]), ())

    def allows_any(self, client: Requester, operation: int, resource_type: int) -> bool:
        """Return whether a client may do an operation on at least one resource of a type that could exist.

        It asks for the operation itself, not for one that implies it, as Kafka's ``authorizeByResourceType`` does.
        """
        # A name that no ACL is about: super users, and what applies without ACLs.
        if self.allows(client, operation, resource_type, "hardcode"):
            return True
        allowed: list[Acl] = []
        literal_denials: set[str] = set()
        prefix_denials: set[str] = set()
        for index in (self._literal, self._prefixed):
            for (kind, name), acls in index.items():
                if kind != resource_type:
                    continue
                for acl in acls:
                    if not acl.is_about(client) or acl.operation not in (
                        operation,
                        AclOperation.ALL,
                    ):
                        continue
                    if acl.permission_type == _ALLOW:
                        allowed.append(acl)
                    elif acl.pattern_type == _PREFIXED:
                        prefix_denials.add(name)
                    elif name == WILDCARD:
                        return False
                    else:
                        literal_denials.add(name)
        return any(not _is_denied(acl, literal_denials, prefix_denials) for acl in allowed)


def _is_denied(acl: Acl, literal_denials: set[str], prefix_denials: set[str]) -> bool:
    """Whether denials take everything that an ACL allows."""
    name = acl.resource_name
    if acl.pattern_type == _LITERAL:
        if name == WILDCARD:
            return False
        if name in literal_denials:
            return True
    return any(prefix in prefix_denials for prefix in accumulate(name))
