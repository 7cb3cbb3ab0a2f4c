"""Settings for DescribeConfigs: values, sources and synonyms. The values of secrets are None."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from kafka_wire import ConfigSource, ConfigType, DescribeConfigsResponse

from krammar.broker.config.broker_config import LISTENER_KEY, BrokerConfig
from krammar.broker.config.definitions import (
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
    setting_text,
    tables_of,
)

# One setting in several units: at each level, the first key that is set wins.
_SYNONYMS = {
    name: tuple(name for name, _ in definition.synonyms)
    for definition in TOPIC_CONFIGS.values()
    for name, _ in definition.synonyms
}
# On a listener, the name of a SASL mechanism may precede these keys.
_BY_MECHANISM = re.compile(
    r"(?:.+\.)?(sasl\.jaas\.config|sasl\.login\.callback\.handler\.class|sasl\.login\.class"
    r"|sasl\.server\.callback\.handler\.class|connections\.max\.reauth\.ms)"
)


Description = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym
# The texts of the broker's settings, the strongest first.
Places = tuple[tuple[Mapping[str, str | None], ConfigSource], ...]


def describe_broker(config: BrokerConfig, names: Iterable[str] | None = None) -> list[Description]:
    """Describe the settings of a broker: all of them, or only those in ``names``."""
    known = _public(config.tables.broker).union(*config.levels)
    return [_broker_entry(config, name, _places(config)) for name in _choose(known, names)]


def describe_all_brokers(
    config: BrokerConfig, names: Iterable[str] | None = None
) -> list[Description]:
    """Describe the settings that were set for all brokers at run time; only those in ``names`` if given."""
    places = _places(config)[1:2]
    return [_broker_entry(config, name, places) for name in _choose(config.dynamic_default, names)]


def _public(definitions: Mapping[str, ConfigDef]) -> set[str]:
    return {name for name, definition in definitions.items() if not definition.internal}


def _choose(names: Iterable[str], wanted: Iterable[str] | None) -> list[str]:
    return sorted(names if wanted is None else set(names).intersection(wanted))


def describe_overrides(
    config: BrokerConfig,
    source: ConfigSource,
    overrides: Mapping[str, str],
    names: Iterable[str] | None = None,
) -> list[Description]:
    """Describe the settings of a resource other than a broker: all of them, or only those in ``names``.

    Args:
        source: TOPIC_CONFIG, GROUP_CONFIG or CLIENT_METRICS_CONFIG
        overrides: the settings of the topic, the group, or the subscription to clients' metrics
    """
    settings = {
        ConfigSource.TOPIC_CONFIG: config.topics,
        ConfigSource.GROUP_CONFIG: config.groups,
        ConfigSource.CLIENT_METRICS_CONFIG: config.client_metrics,
    }[source]
    found = []
    for name in _choose(_public(settings.definitions).union(overrides), names):
        definition = settings.definitions.get(name)
        value = None if definition is None else setting_text(settings.value(name, overrides))
        synonyms = [Synonym(name=name, value=value, source=source)] if name in overrides else []
        if definition is not None and definition.synonym is not None:
            synonyms += _synonyms(definition.synonym, definition.secret, _places(config))
        elif definition is not None and source == ConfigSource.GROUP_CONFIG:
            synonyms.append(
                Synonym(
                    name=name, value=definition.default_text, source=ConfigSource.DEFAULT_CONFIG
                )
            )
        found.append(_description(name, value, synonyms, definition, read_only=False))
    return found


def _broker_entry(config: BrokerConfig, name: str, places: Places) -> Description:
    definition = config.tables.broker.get(_general(name))
    sensitive = definition is None or definition.secret
    synonyms = _synonyms(name, sensitive, places)
    value = _shown(definition, synonyms[0].value) if synonyms else None
    if name == "node.id":
        value = str(config.node_id)
    read_only = definition is None or definition.read_only or name not in config.tables.broker
    return _description(name, value, synonyms, definition, read_only)


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
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        config_type=ConfigType.UNKNOWN if definition is None else definition.type,
        is_sensitive=definition is None or definition.secret,
        read_only=read_only,
        documentation=None if definition is None else definition.doc,
    )


@cache
def _defaults(release: str | None) -> dict[str, str | None]:
    """Return the defaults of a release."""
    return {name: each.default_text for name, each in tables_of(release).broker.items()}


def _places(config: BrokerConfig) -> Places:
    return (
        (config.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static, ConfigSource.STATIC_BROKER_CONFIG),
        (_defaults(config.kafka_version), ConfigSource.DEFAULT_CONFIG),
    )


def _synonyms(name: str, sensitive: bool, places: Places) -> list[Synonym]:
    keys = _SYNONYMS.get(name) or dict.fromkeys((name, _general(name)))
    found = [
        Synonym(name=key, value=None if sensitive else texts[key], source=source)
        for texts, source in places
        for key in keys
        if texts.get(key) is not None
    ]
    # As in Kafka, synonyms before the first occurrence of the key itself are not shown.
    first = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def _general(name: str) -> str:
    """Return the name of a setting without the prefixes for a listener and a mechanism."""
    of_listener = LISTENER_KEY.fullmatch(name)
    if of_listener is None:
        return name
    by_mechanism = _BY_MECHANISM.fullmatch(of_listener[1])
    return of_listener[1] if by_mechanism is None else by_mechanism[1]


def _shown(definition: ConfigDef | None, text: str | None) -> str | None:
    if definition is None or text is None:
        return text
    try:
        return setting_text(definition.parse(text))
    except ConfigError:
        return text
