"""ACLs of the test kit: ``acls``, ``allow`` and ``deny``, with the broker in this process and in one of its own."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_wire import ErrorCode, MetadataRequest

from krammar.broker import ConfigError
from krammar.testing import KafkaBroker
from tests.authorization.support import log_in
from tests.broker.support import RawClient

_ORDERS = MetadataRequest(topics=[MetadataRequest.Topic(name="orders")])


def _code(client: RawClient) -> int:
    (topic,) = client.call(_ORDERS).topics
    code: int = topic.error_code
    return code


@pytest.mark.parametrize("process", [False, True])
def test_rules_are_added_while_the_test_runs(process: bool) -> None:
    users = {"alice": "alice", "bob": "bob"}
    rules = [{"allow": "alice", "operation": "read", "topic": "ord*"}]
    with KafkaBroker.start(
        topics=["orders"], sasl="plain", users=users, acls=rules, process=process
    ) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with log_in(port, "alice") as alice, log_in(port, "bob") as bob:
            assert _code(alice) == 0
            assert _code(bob) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            broker.allow("bob", ["describe"], topic="orders")
            broker.allow("bob", ["describe"], topic="orders")  # once
            assert _code(bob) == 0
            broker.deny("*", topic="orders")
            assert _code(alice) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"acls": [{"allow": "a"}]}, "acls: a rule says on what"),
        ({"acls": {"allow": "a", "topic": "x"}}, "acls: .* write a list of rules"),
        ({"acl": []}, 'did you mean "acls"'),
    ],
)
def test_wrong_rules_are_errors(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KafkaBroker.start(**keywords)


def test_rules_need_a_broker_with_acls() -> None:
    with KafkaBroker.start() as broker:
        with pytest.raises(ConfigError, match=r"acls: are off; start the broker with acls=\[\]"):
            broker.allow("alice", topic="x")
        with pytest.raises(ConfigError, match="operation: 'reed' is unknown"):
            broker.allow("alice", "reed", topic="x")


@pytest.mark.parametrize("process", [False, True])
def test_users_need_no_passwords(process: bool) -> None:
    with KafkaBroker.start(
        topics=["orders"],
        sasl="plain",
        plain_any_password=True,
        acls=[{"allow": "carol", "operation": "read", "topic": "orders"}],
        process=process,
    ) as broker:
        for user, codes in (("carol", 0), ("dave", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
            settings = broker.clients_as(user).kafka_python
            assert settings["sasl_plain_username"] == user
            assert settings["sasl_plain_password"]
            with log_in(int(broker.bootstrap_servers.rpartition(":")[2]), user) as client:
                assert _code(client) == codes
