"""The tables of broker and topic settings."""

from __future__ import annotations

import pytest

from krammar.broker.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    UpdateMode,
)
from krammar.broker.config.definitions import setting_text

INT64_MAX = 2**63 - 1


def test_tables_are_whole() -> None:
    public = [each for each in TOPIC_CONFIGS.values() if not each.internal]
    assert len(public) == 37
    for definition in TOPIC_CONFIGS.values():
        assert definition.doc.endswith("."), definition.name
        for name, _ in definition.synonyms:
            broker = BROKER_CONFIGS[name]
            assert definition.synonym is not None
            if name == definition.synonym:
                assert broker.mode is UpdateMode.CLUSTER_WIDE
                assert broker.type == definition.type
    assert TOPIC_CONFIGS["retention.ms"].synonym == "log.retention.ms"
    assert TOPIC_CONFIGS["remote.log.copy.disable"].synonym is None
    for name in ("listeners", "num.partitions", "krammar.fsync"):
        assert BROKER_CONFIGS[name].effect
    for name in ("num.network.threads", "replica.fetch.max.bytes", "controller.quorum.voters"):
        assert not BROKER_CONFIGS[name].effect
    for definition in BROKER_CONFIGS.values():
        assert definition.doc.endswith("."), definition.name
        if definition.default_text is not None:
            assert definition.parse(definition.default_text) == definition.default


def test_secrets() -> None:
    secret = {name for name, each in BROKER_CONFIGS.items() if each.secret}
    assert {"ssl.keystore.password", "ssl.key.password", "sasl.jaas.config"} <= secret
    assert "ssl.keystore.location" not in secret


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.5, "0.5"),
        (0.0001, "1.0E-4"),
        (12345678.0, "1.2345678E7"),
        (1234567.0, "1234567.0"),
        (-3e300, "-3.0E300"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (INT64_MAX, "9223372036854775807"),
        (["a", "b"], "a,b"),
        (None, None),
    ],
)
def test_values_are_shown_as_java_shows_them(value: object, text: str | None) -> None:
    assert setting_text(value) == text
