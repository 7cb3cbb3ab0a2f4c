"""Topic settings: precedence, units, limits."""

from __future__ import annotations

from functools import partial

import pytest

from krammar.broker.config import (
    BrokerConfig,
    ConfigError,
)
from krammar.broker.config.overrides import check_topic


@pytest.mark.parametrize(
    ("text", "retention", "roll"),
    [
        ("", 168 * 3600_000, 168 * 3600_000),
        ("log.retention.hours=2\nlog.roll.hours=3", 2 * 3600_000, 3 * 3600_000),
        ("log.retention.minutes=3\nlog.retention.hours=2", 3 * 60_000, 168 * 3600_000),
        ("log.retention.ms=7\nlog.retention.minutes=3\nlog.roll.ms=5", 7, 5),
        ("log.retention.ms=-1", -1, 168 * 3600_000),
        ("log.retention.ms=-5", -1, 168 * 3600_000),
        ("log.retention.hours=-1", -1, 168 * 3600_000),
    ],
)
def test_units_of_time(text: str, retention: int, roll: int) -> None:
    log = BrokerConfig.from_properties(text).topic_config({})
    assert (log.retention_ms, log.segment_ms) == (retention, roll)


def test_topic_before_broker_before_default() -> None:
    config = BrokerConfig.from_properties(
        "log.segment.bytes=2000000\nlog.cleanup.policy=compact\nmessage.max.bytes=500"
    )
    log = config.topic_config({"segment.bytes": "3000000", "max.message.bytes": " 600 "})
    assert log.segment_bytes == 3000000
    assert log.max_message_bytes == 600
    assert log.compacts and not log.deletes
    assert log.index_interval_bytes == 4096


def test_every_topic_key_reaches_the_log() -> None:
    log = BrokerConfig.defaults().topic_config(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "compression.zstd.level": "-7",
            "delete.retention.ms": "1",
            "file.delete.delay.ms": "2",
            "index.interval.bytes": "3",
            "internal.segment.bytes": "4",
            "max.compaction.lag.ms": "5",
            "max.message.bytes": "6",
            "message.timestamp.after.max.ms": "7",
            "message.timestamp.before.max.ms": "8",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.25",
            "min.compaction.lag.ms": "4",
            "retention.bytes": "9",
            "retention.ms": "10",
            "segment.bytes": "2000000",
            "segment.index.bytes": "11",
            "segment.ms": "12",
        }
    )
    assert log == type(log)(
        cleanup_policy=frozenset({"compact", "delete"}),
        compression_type="zstd",
        compression_level=-7,
        delete_retention_ms=1,
        file_delete_delay_ms=2,
        index_interval_bytes=3,
        segment_bytes=4,
        max_compaction_lag_ms=5,
        max_message_bytes=6,
        message_timestamp_after_max_ms=7,
        message_timestamp_before_max_ms=8,
        message_timestamp_type="LogAppendTime",
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=4,
        retention_bytes=9,
        retention_ms=10,
        segment_index_bytes=11,
        segment_ms=12,
    )


@pytest.mark.parametrize(
    ("overrides", "api"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        (
            {"retention.ms": "abc"},
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"segment.bytes": "5"},
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"cleanup.policy": "x"},
            "Invalid value x for configuration cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            {"preallocate": "yes"},
            "Invalid value yes for configuration preallocate: "
            "Expected value to be either true or false",
        ),
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: "
            "Value must be no more than 1",
        ),
        (
            {"leader.replication.throttled.replicas": "x"},
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in "
            "the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_topic_settings_are_refused_in_kafkas_words(overrides: dict[str, str], api: str) -> None:
    config = BrokerConfig.defaults()
    for check in (partial(check_topic, config.topics), config.topic_config):
        with pytest.raises(ConfigError) as caught:
            check(overrides)
        assert caught.value.api == api


def test_settings_of_another_version_do_not_keep_a_topic_from_opening() -> None:
    log = BrokerConfig.defaults().topic_config(
        {"message.format.version": "3.0", "segment.bytes": "1000", "retention.ms": "soon"},
        check=False,
    )
    assert log.segment_bytes == 1 << 30
    assert log.retention_ms == 168 * 3600_000
