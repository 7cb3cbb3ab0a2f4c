"""What settings mean for a topic: its own, those of the broker at run time, those of the file, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from krammar.broker.config.broker_configs import BROKER_CONFIGS
from krammar.broker.config.definitions import ConfigDef, ConfigError
from krammar.broker.config.topic_configs import TOPIC_CONFIGS
from krammar.broker.storage.log_config import LogConfig


class TopicSettings:
    """The broker's settings as topics see them, from the weakest to the strongest."""

    def __init__(self, *levels: Mapping[str, str]) -> None:
        self._defaults = {
            name: _default(definition, levels) for name, definition in TOPIC_CONFIGS.items()
        }

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raises ConfigError for an unknown key, a bad value, and values that do not go together."""
        for name in overrides:
            if name not in TOPIC_CONFIGS:
                api = f"Unknown topic config name: {name}"
                raise ConfigError(name, None, "is no topic setting", api=api)
        values = self._defaults | {
            name: TOPIC_CONFIGS[name].parse(text) for name, text in overrides.items()
        }
        least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
        if least > most:
            name = "min.compaction.lag.ms"
            api = f"conflict topic config setting {name} ({least}) > max.compaction.lag.ms ({most})"
            raise ConfigError(name, str(least), f"is above max.compaction.lag.ms, {most}", api=api)
        if values["remote.storage.enable"]:
            api = (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
            raise ConfigError("remote.storage.enable", "true", "is not offered", api=api)

    def value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """The value in force, which a text of another type does not change."""
        if name in overrides:
            try:
                return TOPIC_CONFIGS[name].convert(overrides[name])
            except ConfigError:
                pass
        return self._defaults[name]

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        def value(name: str) -> Any:
            return self.value(name, overrides)

        return LogConfig(
            cleanup_policy=frozenset(value("cleanup.policy")),
            segment_bytes=value("internal.segment.bytes") or value("segment.bytes"),
            segment_ms=value("segment.ms"),
            segment_index_bytes=value("segment.index.bytes"),
            index_interval_bytes=value("index.interval.bytes"),
            retention_ms=value("retention.ms"),
            retention_bytes=value("retention.bytes"),
            max_message_bytes=value("max.message.bytes"),
            message_timestamp_type=value("message.timestamp.type"),
            message_timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
            min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=value("min.compaction.lag.ms"),
            max_compaction_lag_ms=value("max.compaction.lag.ms"),
            delete_retention_ms=value("delete.retention.ms"),
            file_delete_delay_ms=value("file.delete.delay.ms"),
            compression_type=value("compression.type"),
        )


def _default(definition: ConfigDef, levels: tuple[Mapping[str, str], ...]) -> Any:
    """What the broker says for a topic's key. In a level the first of its synonyms that is set wins, and a
    higher level goes before a lower one whichever synonym it names."""
    for level in reversed(levels):
        for name, factor in definition.synonyms:
            if name not in level:
                continue
            try:
                value = BROKER_CONFIGS[name].parse(level[name])
            except ConfigError:
                # The file's were checked when it was read.
                continue
            # A negative number of hours or minutes stands for no limit, as -1 milliseconds does.
            if definition.name == "retention.ms" and value < 0:
                return -1
            return value if factor == 1 else value * factor
    return None if definition.default is None else definition.parse(definition.default)


def check_times(texts: Mapping[str, str]) -> None:
    """Raises ConfigError for a broker's retention of no time at all, or a negative age of segments: Kafka
    refuses them beyond the keys' own ranges."""
    for name, factor in TOPIC_CONFIGS["retention.ms"].synonyms:
        if name in texts and BROKER_CONFIGS[name].parse(texts[name]) * factor == 0:
            api = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            raise ConfigError(name, texts[name], "has to be 1 or more, or -1 for no limit", api=api)
    if "log.roll.ms" in texts and BROKER_CONFIGS["log.roll.ms"].parse(texts["log.roll.ms"]) < 1:
        api = "log.roll.ms must be greater than or equal to 1"
        raise ConfigError("log.roll.ms", texts["log.roll.ms"], "has to be 1 or more", api=api)
