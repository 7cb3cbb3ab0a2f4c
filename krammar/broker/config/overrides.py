"""The settings of topics, groups and clients' metrics: their overrides, the broker's dynamic and static settings, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from krammar.broker.config.definitions import ConfigDef, ConfigError
from krammar.broker.log.log_config import LogConfig

# The broker's settings as text, the strongest first: for this broker, for all brokers, in the file.
Levels = tuple[Mapping[str, str], ...]
# The topic's setting for each field of LogConfig; the level depends on the codec.
_KEYS = {
    field.name: field.name.replace("_", ".")
    for field in fields(LogConfig)
    if field.init and field.name != "compression_level"
}


def in_force(definition: ConfigDef, levels: Levels, broker: Mapping[str, ConfigDef]) -> Any:
    """Return the value that the broker's settings supply, or else the default.

    Within a level, the first synonym that is set wins. A stronger level takes precedence over a
    weaker one, whichever synonym it sets. ``broker`` has the definitions of the broker's settings.
    """
    for level in levels:
        for name, factor in definition.synonyms:
            if name not in level:
                continue
            try:
                value = broker[name].parse(level[name])
            except ConfigError:
                # Only dynamic settings can be invalid here: the file is checked when it is read.
                continue
            # A negative number of hours or minutes means no limit, as -1 milliseconds does.
            if definition.name == "retention.ms" and value < 0:
                return -1
            return value if factor == 1 else value * factor
    return definition.default


class Overridable:
    """The settings that each resource of a kind can override. The defaults result from the broker's settings."""

    def __init__(
        self,
        kind: str,
        definitions: Mapping[str, ConfigDef],
        levels: Levels,
        broker: Mapping[str, ConfigDef],
    ) -> None:
        self.definitions = definitions
        self._kind = kind
        self._defaults = {
            name: in_force(each, levels, broker) for name, each in definitions.items()
        }

    def knows(self, name: str) -> bool:
        """Return whether the release has a setting."""
        return name in self.definitions and not self.definitions[name].absent

    def parse(self, overrides: Mapping[str, str]) -> dict[str, Any]:
        """Return all values. Raises ConfigError for an unknown key or an invalid value."""
        for name in overrides:
            if not self.knows(name):
                api = f"Unknown {self._kind} config name: {name}"
                raise ConfigError(name, None, f"is not a {self._kind} setting", api=api)
        return self._defaults | {
            name: self.definitions[name].parse(text) for name, text in overrides.items()
        }

    def value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """Return the effective value of a setting.

        An invalid override is ignored: another version may have allowed it.
        """
        if name in overrides:
            try:
                return self.definitions[name].parse(overrides[name])
            except ConfigError:
                pass
        return self._defaults[name]


def check_topic(topics: Overridable, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError if a topic cannot have these settings; its ``api`` is Kafka's message."""
    values = topics.parse(overrides)
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


def log_config(topics: Overridable, overrides: Mapping[str, str]) -> LogConfig:
    """Build the settings of a topic's logs. Invalid overrides are ignored."""
    values = {name: topics.value(key, overrides) for name, key in _KEYS.items()}
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    internal = topics.value("internal.segment.bytes", overrides)
    values["segment_bytes"] = internal or values["segment_bytes"]
    codec, level = values["compression_type"], None
    if codec in ("gzip", "lz4", "zstd"):
        level = topics.value(f"compression.{codec}.level", overrides)
        # Kafka's lz4 is the fast compressor at its default level, and the high one at all others.
        if codec == "lz4" and level == 9:
            level = None
    return LogConfig(**values, compression_level=level)
