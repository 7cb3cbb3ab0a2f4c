"""Keywords of KafkaBroker.start: what they set, and the error of each wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from krammar.broker import ConfigError
from krammar.testing import KafkaBroker
from krammar.testing.options import read_options


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"topic": ["orders"]}, "topic: unknown keyword; did you mean \"topics\"?"),
        ({"user": ["bob"], "sasl": "plain"}, 'user: unknown keyword; did you mean "users"?'),
        ({"tsl": True}, 'tsl: unknown keyword; did you mean "tls"?'),
        ({"num_partition": 3}, "num_partition: unknown setting; did you mean \"num.partitions\"?"),
        ({"sasl": "scrm"}, "sasl: 'scrm' is not one of 'plain', 'scram', 'scram-sha-256', "
         "'scram-sha-512'; did you mean \"scram\"?"),
        ({"sasl": True}, "sasl: 'True' is not one of 'plain'"),
        ({"tls": "yes"}, "is neither True nor False"),
        ({"topics": "orders"}, 'is not a mapping such as {"orders": 4}, nor a list of names'),
        ({"topics": 3}, "is not a mapping"),
        ({"topics": {3: 3}}, "topics: '3' is not the name of a topic"),
        ({"topics": {"a b": 1}}, "topics: Topic name is invalid: 'a b' has characters other than"),
        ({"topics": {"orders": 0}}, "topics: orders cannot have 0 partitions"),
        ({"topics": {"orders": "4"}}, "topics: orders cannot have '4' partitions"),
        ({"topics": {"orders": True}}, "topics: orders cannot have True partitions"),
        ({"topics": ["a.b", "a_b"]}, "topics: a.b and a_b collide"),
        ({"users": ["bob"]}, "users: need sasl, one of 'plain', 'scram'"),
        ({"users": "bob", "sasl": "plain"}, "users: are neither a list of names nor a mapping"),
        ({"users": [], "sasl": "plain"}, "users: are empty, so nobody could log in"),
        ({"users": {"": "x"}, "sasl": "plain"}, "users: '' is not the name of a user"),
        ({"users": {"bob": ""}, "sasl": "scram"}, "users: the password of bob is empty or not text"),
        ({"users": ["b b"], "sasl": "plain"}, "has characters that PLAIN's settings do not allow"),
        ({"listeners": "SSL://:0", "tls": True}, "listeners: cannot be combined with sasl and tls"),
        ({"sasl": "plain", "sasl_enabled_mechanisms": "PLAIN"}, "cannot be combined with sasl"),
        ({"tls": True, "ssl_keystore_location": "x"}, "ssl_keystore_location: cannot be combined with"),
    ],
)  # fmt: skip
def test_errors(keywords: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        KafkaBroker.start(**keywords)
    assert error in str(raised.value)


def test_typing_errors_in_the_mapping_are_found_too() -> None:
    with pytest.raises(ConfigError, match='topic: unknown keyword; did you mean "topics"'):
        KafkaBroker.start({"topic": ["orders"]})


def test_names_are_enough() -> None:
    options = read_options(topics=["orders", "payments"], sasl="SCRAM", users=("bob", "carol"))
    assert options.topics == {"orders": None, "payments": None}
    assert options.mechanism == "SCRAM-SHA-512"
    assert list(options.users) == ["bob", "carol"]
    assert options.users["bob"] != options.users["carol"]
    assert all(password not in repr(options) for password in options.users.values())


def test_each_start_has_other_passwords() -> None:
    assert read_options(sasl="plain").users != read_options(sasl="plain").users


def test_topics_and_settings() -> None:
    settings = {"num.partitions": 3}
    with KafkaBroker.start(settings, topics={"orders": 4, "payments": None}) as broker:
        assert broker.topics == {"orders": 4, "payments": 3}
        assert broker.create_topic("refunds") == "refunds"
        assert broker.create_topic("returns", 2) == "returns"
        assert broker.topics == {"orders": 4, "payments": 3, "refunds": 3, "returns": 2}
        with pytest.raises(ConfigError, match="'orders' exists already"):
            broker.create_topic("orders")
        with pytest.raises(ConfigError, match="cannot have 0 partitions"):
            broker.create_topic("more", 0)
