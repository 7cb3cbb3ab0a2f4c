"""Settings for DescribeConfigs: values, sources and synonyms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_wire import ConfigSource, ConfigType

from krammar.broker.config.broker_config import LISTENER_KEY, BrokerConfig
from krammar.broker.config.definitions import ConfigDef, ConfigError, to_text
from krammar.broker.config.tables import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS

# One setting in several units: at each level, the first key that is set wins.
_UNITS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS = {name: names for names in _UNITS for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
# On a listener, the name of a SASL mechanism may precede these keys.
_BY_MECHANISM = re.compile(
    r"(?:.+\.)?(sasl\.jaas\.config|sasl\.login\.callback\.handler\.class|sasl\.login\.class"
    r"|sasl\.server\.callback\.handler\.class|connections\.max\.reauth\.ms)"
)


class Synonym(NamedTuple):
    """One place where a setting is set. The first in a list wins. ``value`` is None for a secret."""

    name: str
    value: str | None
    source: ConfigSource


class Description(NamedTuple):
    """One setting. ``value`` is None for a secret, or if there is no value."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: list[Synonym]
    type: ConfigType
    sensitive: bool
    read_only: bool
    doc: str | None


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Description]:
    """Describe a topic's settings, given its overrides: all of them, or only those in ``names``."""
    known = {name for name, found in TOPIC_CONFIGS.items() if not found.internal}
    return [
        _entry(config, TOPIC_CONFIGS.get(name), name, overrides, ConfigSource.TOPIC_CONFIG)
        for name in _choose(known | set(overrides), names)
    ]


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Description]:
    """Describe a group's settings, given its overrides: all of them, or only those in ``names``."""
    return [
        _entry(config, GROUP_CONFIGS.get(name), name, overrides, ConfigSource.GROUP_CONFIG)
        for name in _choose(set(GROUP_CONFIGS) | set(overrides), names)
    ]


def describe_broker(config: BrokerConfig, names: Iterable[str] | None = None) -> list[Description]:
    """Describe the settings of a broker: all of them, or only those in ``names``."""
    known = {name for name, found in BROKER_CONFIGS.items() if not found.internal}
    given = set(config.static) | set(config.dynamic_default) | set(config.dynamic)
    return [_broker_entry(config, name) for name in _choose(known | given, names)]


def describe_all_brokers(
    config: BrokerConfig, names: Iterable[str] | None = None
) -> list[Description]:
    """Describe the settings that were set for all brokers at run time; only those in ``names`` if given."""
    wanted = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    found = []
    for name in _choose(config.dynamic_default, names):
        entry = _broker_entry(config, name)
        synonyms = [synonym for synonym in entry.synonyms if synonym.source == wanted]
        definition = _definition(name)
        value = None if entry.sensitive else _shown(definition, config.dynamic_default[name])
        found.append(entry._replace(value=value, source=wanted, synonyms=synonyms))
    return found


def _choose(names: Iterable[str], wanted: Iterable[str] | None) -> list[str]:
    return sorted(names if wanted is None else set(names).intersection(wanted))


def _entry(
    config: BrokerConfig,
    definition: ConfigDef | None,
    name: str,
    overrides: Mapping[str, str],
    source: ConfigSource,
) -> Description:
    """Describe a setting of a topic or a group, as ``source`` tells."""
    sensitive = definition is None or definition.sensitive
    effective = config.topic_value if source == ConfigSource.TOPIC_CONFIG else config.group_value
    value = None if definition is None else to_text(effective(name, overrides))
    synonyms: list[Synonym] = []
    if name in overrides:
        synonyms.append(Synonym(name, value, source))
    if definition is not None and definition.synonym is not None:
        synonyms += _places(config, definition.synonym, sensitive)
    elif definition is not None and source == ConfigSource.GROUP_CONFIG:
        synonyms.append(Synonym(name, definition.default, ConfigSource.DEFAULT_CONFIG))
    return _description(name, value, synonyms, definition, read_only=False)


def _broker_entry(config: BrokerConfig, name: str) -> Description:
    definition = _definition(name)
    sensitive = definition is None or definition.sensitive
    value = None if sensitive else _shown(definition, config.effective(name))
    if name == "node.id":
        value = str(config.node_id)
    read_only = definition is None or definition.read_only or name not in BROKER_CONFIGS
    return _description(name, value, _places(config, name, sensitive), definition, read_only)


def _description(
    name: str,
    value: str | None,
    synonyms: list[Synonym],
    definition: ConfigDef | None,
    read_only: bool,
) -> Description:
    return Description(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        type=ConfigType.UNKNOWN if definition is None else definition.type,
        sensitive=definition is None or definition.sensitive,
        read_only=read_only,
        doc=None if definition is None else definition.doc,
    )


def _places(config: BrokerConfig, name: str, sensitive: bool) -> list[Synonym]:
    defaults = {
        key: BROKER_CONFIGS[key].default for key in _synonyms(name) if key in BROKER_CONFIGS
    }
    levels: Sequence[tuple[Mapping[str, str | None], ConfigSource]] = (
        (config.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static, ConfigSource.STATIC_BROKER_CONFIG),
        (defaults, ConfigSource.DEFAULT_CONFIG),
    )
    found = [
        Synonym(key, None if sensitive else texts[key], source)
        for texts, source in levels
        for key in _synonyms(name)
        if texts.get(key) is not None
    ]
    # As in Kafka, synonyms before the first occurrence of the key itself are not shown.
    first = next((at for at, place in enumerate(found) if place.name == name), len(found))
    return found[first:]


def _synonyms(name: str) -> tuple[str, ...]:
    if name in _SYNONYMS:
        return _SYNONYMS[name]
    match = LISTENER_KEY.fullmatch(name)
    return (name,) if match is None else (name, _base(match[1]))


def _base(key: str) -> str:
    match = _BY_MECHANISM.fullmatch(key)
    return key if match is None else match[1]


def _definition(name: str) -> ConfigDef | None:
    match = LISTENER_KEY.fullmatch(name)
    return BROKER_CONFIGS.get(name if match is None else _base(match[1]))


def _shown(definition: ConfigDef | None, text: str | None) -> str | None:
    if definition is None or text is None:
        return text
    try:
        return to_text(definition.convert(text))
    except ConfigError:
        return text
