"""Topic settings: a topic's overrides, the broker's dynamic and static settings, defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from krammar.broker.config.definitions import ConfigDef, ConfigError
from krammar.broker.config.tables import BROKER_CONFIGS, TOPIC_CONFIGS
from krammar.broker.log.log_config import LogConfig

# The topic's setting for each field of LogConfig; the level depends on the codec.
_KEYS = {
    field.name: field.name.replace("_", ".")
    for field in fields(LogConfig)
    if field.name != "compression_level"
}


class TopicSettings:
    """The defaults of topic settings that result from the broker's settings.

    ``levels`` are the broker's settings as text, the weakest first.
    """

    def __init__(self, *levels: Mapping[str, str]) -> None:
        self._defaults = {
            name: _default(definition, levels) for name, definition in TOPIC_CONFIGS.items()
        }

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raise ConfigError for an unknown key, an invalid value, or values that contradict each other."""
        for name in overrides:
            if name not in TOPIC_CONFIGS:
                api = f"Unknown topic config name: {name}"
                raise ConfigError(name, None, "is not a topic setting", api=api)
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
            raise ConfigError("remote.storage.enable", "true", "is not supported", api=api)

    def value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """Return the effective value of a setting; overrides that cannot be converted are ignored."""
        if name in overrides:
            try:
                return TOPIC_CONFIGS[name].convert(overrides[name])
            except ConfigError:
                pass
        return self._defaults[name]

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Build the settings of a topic's logs. Invalid overrides are ignored."""

        def value(name: str) -> Any:
            return self.value(name, overrides)

        values = {name: value(key) for name, key in _KEYS.items()}
        values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        values["segment_bytes"] = value("internal.segment.bytes") or values["segment_bytes"]
        return LogConfig(**values, compression_level=_level(value))


def _level(value: Callable[[str], Any]) -> int | None:
    """Return the level of a topic's codec; None for the codec's default."""
    codec = value("compression.type")
    if codec not in ("gzip", "lz4", "zstd"):
        return None
    level: int = value(f"compression.{codec}.level")
    # Kafka's lz4 is the fast compressor at its default level, and the high one at all others.
    return None if codec == "lz4" and level == 9 else level


def _default(definition: ConfigDef, levels: tuple[Mapping[str, str], ...]) -> Any:
    """Return the default that the broker's settings supply.

    Within a level, the first synonym that is set wins. A stronger level takes precedence over a weaker one,
    whichever synonym it sets.
    """
    for level in reversed(levels):
        for name, factor in definition.synonyms:
            if name not in level:
                continue
            try:
                value = BROKER_CONFIGS[name].parse(level[name])
            except ConfigError:
                # Only dynamic settings can be invalid here: the file is checked when it is read.
                continue
            # A negative number of hours or minutes means no limit, as -1 milliseconds does.
            if definition.name == "retention.ms" and value < 0:
                return -1
            return value if factor == 1 else value * factor
    return None if definition.default is None else definition.parse(definition.default)


def check_times(texts: Mapping[str, str]) -> None:
    """Raise ConfigError for a retention of zero or a segment age below one.

    Kafka refuses them in addition to the ranges of the settings.
    """
    for name, factor in TOPIC_CONFIGS["retention.ms"].synonyms:
        if name in texts and BROKER_CONFIGS[name].parse(texts[name]) * factor == 0:
            api = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
            raise ConfigError(name, texts[name], "must be 1 or more, or -1 for no limit", api=api)
    if "log.roll.ms" in texts and BROKER_CONFIGS["log.roll.ms"].parse(texts["log.roll.ms"]) < 1:
        api = "log.roll.ms must be greater than or equal to 1"
        raise ConfigError("log.roll.ms", texts["log.roll.ms"], "must be 1 or more", api=api)
