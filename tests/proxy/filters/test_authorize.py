"""Authorize: ACLs at the proxy, by login, operation and resource."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import AllocateProducerIdsRequest, ErrorCode, HeartbeatRequest, MetadataRequest

from krammar.authorization.rules import acls_of
from krammar.client import At
from krammar.client import Client as KrammarClient
from krammar.client.errors import (
    ClusterAuthorizationFailed,
    TopicAuthorizationFailed,
)
from krammar.proxy import Filter
from krammar.proxy.filters.authorize import Authorize
from krammar.proxy.filters.deny import Deny
from tests.proxy.filters.support import Client, address, fetch, produce, through

RULES = [
    {"allow": "alice", "operation": ["read", "write"], "topic": "orders*"},
    {"allow": "alice", "operation": "idempotent_write", "cluster": True},
    {"allow": "guest", "operation": "read", "topic": "orders"},
    {"deny": "guest", "operation": "read", "topic": "orders-secret"},
]
USERS = {"alice": "a-secret", "guest": "g-secret", "admin": "admin-secret"}


def test_each_user_may_do_what_the_rules_allow(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    chain = Authorize(RULES, super_users=["admin"], audit=str(audit))
    with through(chain, sasl="plain", users=USERS, topics=["orders", "orders-secret"]) as started:
        broker, proxy = started

        def client(user: str) -> KrammarClient:
            settings = broker.clients_as(user).krammar
            return KrammarClient(**settings | {"bootstrap_servers": proxy.bootstrap_servers})

        with client("alice") as alice:
            with alice.producer() as producer:
                producer.send("orders", b"x")
            with pytest.raises(TopicAuthorizationFailed):
                alice.admin.create_topic("more")
            with pytest.raises(ClusterAuthorizationFailed):
                alice.admin.log_dirs()
        with client("guest") as guest:
            found = guest.records("orders", begin=At.EARLIEST, end=At.LATEST)
            assert [record.value for _, record in found] == [b"x"]
            with pytest.raises(TopicAuthorizationFailed):
                guest.partitions("orders-secret")
            with guest.producer(enable_idempotence=False) as producer:
                failed = producer.send("orders", b"y")
                with pytest.raises(TopicAuthorizationFailed):
                    failed.result(10)
        with client("admin") as admin:
            admin.admin.create_topic("more")
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {line["principal"] for line in lines} >= {"User:alice", "User:guest", "User:admin"}
    refused = [(line["principal"], line["api"]) for line in lines if line["refused"]]
    assert ("User:guest", "Produce") in refused
    assert ("User:admin", "CreateTopics") not in refused


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_by_name_and_by_id(version: int) -> None:
    """A client without a login is ANONYMOUS."""
    rules = [{"allow": "ANONYMOUS", "operation": ["write", "read"], "topic": "orders"}]
    with through(Authorize(rules), topics=["orders", "secret"]) as (broker, proxy):
        with Client(address(broker)) as direct:
            asked = MetadataRequest(topics=None)
            ids = {t.name: t.topic_id for t in direct.ask(asked, 12).response.topics}
        found = produce(proxy, version, {("orders", 0): [b"a"], ("secret", 0): [b"b"]}, ids=ids)
        assert found["orders", 0].error_code == 0
        assert found["secret", 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not broker.records("secret")
        if version > 3:
            assert fetch(proxy, version, "orders", ids=ids).records
            refused = fetch(proxy, version, "secret", ids=ids)
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with Client(address(proxy)) as client:
            everything = client.ask(MetadataRequest(topics=None), 12).response
            assert [topic.name for topic in everything.topics] == ["orders"]


def test_a_group_is_refused_and_apis_between_brokers_too() -> None:
    rules = [{"allow": "*", "operation": "all", "topic": "*"}]
    with through(Authorize(rules)) as (_, proxy), Client(address(proxy)) as client:
        group = HeartbeatRequest(group_id="workers", member_id="m")
        answered = client.ask(group, 4).response
        assert answered.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        answered = client.ask(AllocateProducerIdsRequest(broker_id=1), 0).response
        assert answered.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("alice", "'alice' is no rule"),
        ({"topic": "x"}, "a rule says who"),
        ({"allow": "a", "deny": "b", "topic": "x"}, "it has allow and deny"),
        ({"allow": "a"}, "a rule says on what"),
        ({"allow": "a", "topic": ""}, "the name of a resource is text"),
        ({"allow": 3, "topic": "x"}, "the user is text, not 3"),
        ({"allow": "a", "cluster": "yes"}, "cluster: write true"),
        (
            {"allow": "a", "topic": "x", "operation": "reed"},
            "operation: 'reed' is unknown; did you",
        ),
        ({"allow": "a", "topik": "x"}, "a rule has no 'topik'; did you mean"),
        ({"allow": "a", "topic": "x", "host": 1}, "host is text"),
    ],
)
def test_wrong_rules_are_named(rule: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        acls_of(rule)
    with pytest.raises(ValueError, match=f"^rules: .*{message}"):
        Authorize([rule])


def test_other_arguments() -> None:
    with pytest.raises(ValueError, match=r"^rules: .*write a list of rules"):
        Authorize({"allow": "a", "topic": "x"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^super_users = 'admin'"):
        Authorize([], super_users="admin")
    with pytest.raises(OSError, match="No such file"):
        Authorize([], audit="/nowhere/audit.jsonl")


@pytest.mark.parametrize("make", [lambda: Authorize([]), lambda: Deny(apis=["CreateTopics"])])
def test_filters_share_no_names_of_messages(make: Callable[[], Filter]) -> None:
    """Each instance handles a message once, however many others there are."""
    first, second = (make().methods() for _ in range(2))
    assert [named for named, _ in first] == [named for named, _ in second]
    assert len({(named.message, method) for named, method in second}) == len(second)
