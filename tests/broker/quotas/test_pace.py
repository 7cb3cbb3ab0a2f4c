"""The pace of new connections, without a broker."""

from __future__ import annotations

import pytest

from krammar.broker.config import BrokerConfig
from krammar.broker.quotas.pace import ConnectionPace

NOW = 1_700_000_000_000
RATE = "max_connection_creation_rate"


def pace(**settings: str) -> tuple[ConnectionPace, BrokerConfig]:
    listeners = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    config = BrokerConfig.defaults(
        listeners=listeners,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        **settings,
    )
    return ConnectionPace(config), config


def test_they_are_served_one_after_another() -> None:
    found, config = pace(**{RATE: "10"})
    other = config.listeners[1]
    delays = [found.delay_ms(other, NOW) for _ in range(104)]
    # Ten full windows can be used at once.
    assert delays == [0] * 100 + [100, 200, 300, 400]
    # After the last of these, one more is served every 100 ms.
    assert found.delay_ms(other, NOW + 400) == 100
    assert found.delay_ms(other, NOW + 60_000) == 0


def test_nobody_waits_longer_than_a_window_for_the_one_before() -> None:
    found, config = pace(**{RATE: "0", "quota_window_size_seconds": "2"})
    other = config.listeners[1]
    assert [found.delay_ms(other, NOW) for _ in range(3)] == [2000, 4000, 6000]


@pytest.mark.parametrize("inner", ["PLAINTEXT", "OTHER"])
def test_the_listener_between_brokers_has_only_its_own_limit(inner: str) -> None:
    found, config = pace(**{RATE: "0", "inter_broker_listener_name": inner})
    waiting = [each.name for each in config.listeners if found.delay_ms(each, NOW)]
    assert waiting == [each.name for each in config.listeners if each.name != inner]
    assert len(waiting) == 1
