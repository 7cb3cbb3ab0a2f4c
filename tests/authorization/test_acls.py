"""Decisions by ACLs: the index against rules written out one by one, and the rules of Kafka's StandardAuthorizer."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from kafka_wire import AclOperation, AclPatternType, AclPermissionType, AclResourceType

from krammar.authorization.acls import Acl, AclFilter, Authorizer, Requester

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
ALICE = Requester("User:alice", "10.0.0.1")

NAMES = ["a", "ab", "abc", "b", "*"]
ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "*"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    st.sampled_from([ALLOW, DENY]),
)


def acl(operation: int, name: str = "a", *, deny: bool = False, prefix: bool = False) -> Acl:
    """An ACL of alice's on topics."""
    return Acl(
        TOPIC,
        name,
        PREFIXED if prefix else LITERAL,
        "User:alice",
        "*",
        operation,
        DENY if deny else ALLOW,
    )


def authorizer(*acls: Acl, **options: bool) -> Authorizer:
    found = Authorizer(["User:admin"], allow_without_acl=options.get("allow_without_acl", False))
    for each in acls:
        found.add(each)
    return found


def allows(*acls: Acl, operation: int = READ, name: str = "a", client: Requester = ALICE) -> bool:
    return authorizer(*acls).allows(client, operation, TOPIC, name)


def written_out(
    acls: list[Acl], client: Requester, operation: int, kind: int, name: str, open_: bool
) -> bool:
    """The rules, without an index."""
    concerning = [
        each
        for each in acls
        if each.resource_type == kind
        and (
            name.startswith(each.resource_name)
            if each.pattern_type == PREFIXED
            else each.resource_name in (name, "*")
        )
    ]
    if not concerning:
        return open_
    mine = [
        each
        for each in concerning
        if each.principal in ("User:*", client.principal) and each.host in ("*", client.host)
    ]
    if any(each.permission_type == DENY and each.operation in (operation, ALL) for each in mine):
        return False
    enough = {operation, ALL} | ({READ, WRITE} if operation == DESCRIBE else set())
    return any(each.permission_type == ALLOW and each.operation in enough for each in mine)


@given(st.lists(ACLS, max_size=6), st.booleans())
def test_the_index_decides_as_the_rules_do(acls: list[Acl], open_: bool) -> None:
    found = authorizer(*acls, allow_without_acl=open_)
    clients = [ALICE, Requester("User:bob", "10.0.0.2"), Requester("User:carol", "10.0.0.1")]
    for client, operation, kind, name in product(
        clients, (READ, WRITE, DESCRIBE), (TOPIC, GROUP), (*NAMES, "abcd", "")
    ):
        expected = written_out(acls, client, operation, kind, name, open_)
        assert found.allows(client, operation, kind, name) is expected
        assert found.allows(client, operation, kind, name) is expected  # remembered


@given(st.lists(ACLS, max_size=6), st.lists(ACLS, max_size=6))
def test_removed_acls_leave_nothing(kept: list[Acl], removed: list[Acl]) -> None:
    found = authorizer(*kept, *removed)
    for each in removed:
        assert each in found
        found.remove(each)
    fresh = authorizer(*kept)
    for left, right in ((found._literal, fresh._literal), (found._prefixed, fresh._prefixed)):
        assert {key: sorted(acls) for key, acls in left.items()} == {
            key: sorted(acls) for key, acls in right.items()
        }
    assert {k: v for k, v in found._lengths.items() if v} == fresh._lengths


@given(st.lists(ACLS, max_size=6))
def test_a_right_to_any_resource_is_a_right_to_one_that_could_exist(acls: list[Acl]) -> None:
    found = authorizer(*acls)
    own = [each for each in acls if each.operation in (READ, ALL)]
    # Names that patterns tell apart: each pattern's own, longer ones, and one that no ACL is about.
    names = [name + more for name in ("a", "ab", "abc", "b", "z", "*") for more in ("", "~")]
    possible = any(written_out(own, ALICE, READ, TOPIC, name, False) for name in names)
    assert found.allows_any(ALICE, READ, TOPIC) is possible


def test_a_denial_wins_over_any_permission() -> None:
    assert not allows(acl(ALL), acl(READ, "", prefix=True, deny=True))
    assert not allows(acl(READ), acl(ALL, "*", deny=True))
    assert allows(acl(READ), acl(WRITE, deny=True))


def test_a_rule_that_neither_allows_nor_denies_has_no_effect() -> None:
    other = acl(READ)._replace(permission_type=AclPermissionType.UNKNOWN)
    assert not allows(other)
    assert allows(other, acl(READ))


def test_permissions_imply_to_describe_and_denials_imply_nothing() -> None:
    for operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL):
        assert allows(acl(operation), operation=DESCRIBE)
    assert not allows(acl(AclOperation.CREATE), operation=DESCRIBE)
    assert allows(acl(AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE_CONFIGS)
    assert allows(acl(DESCRIBE), acl(READ, deny=True), operation=DESCRIBE)


def test_a_super_user_may_do_everything() -> None:
    admin = Requester("User:admin", "10.0.0.1")
    assert allows(acl(ALL, "*", deny=True), client=admin)


def test_a_resource_without_acls_is_refused_unless_the_setting_says_otherwise() -> None:
    other = acl(READ, "b")
    assert not authorizer(other).allows(ALICE, READ, TOPIC, "a")
    assert authorizer(other, allow_without_acl=True).allows(ALICE, READ, TOPIC, "a")
    # An ACL about the resource, whoever's it is, closes it.
    bob = acl(READ)._replace(principal="User:bob")
    assert not authorizer(bob, allow_without_acl=True).allows(ALICE, READ, TOPIC, "a")


def test_decisions_follow_new_acls_and_their_memory_is_bounded() -> None:
    found = authorizer(acl(READ, "", prefix=True))
    for number in range(10_005):
        assert found.allows(ALICE, READ, TOPIC, f"t{number}")
    assert len(found._decisions) <= 10_000
    found.remove(acl(READ, "", prefix=True))
    assert not found.allows(ALICE, READ, TOPIC, "t1")


@given(ACLS)
def test_filters_select_by_each_field(each: Acl) -> None:
    assert AclFilter().selects(each)
    exact = AclFilter(
        *(each.resource_type, each.resource_name, each.pattern_type, each.principal, each.host),
        *(each.operation, each.permission_type),
    )
    assert exact.selects(each)
    for field in ("resource_name", "principal", "host"):
        assert not exact._replace(**{field: "other"}).selects(each)
    match = AclFilter(pattern_type=AclPatternType.MATCH, resource_name="abz")
    assert match.selects(each) is each.covers("abz")
