"""The definitions of the settings of brokers, topics and groups, from the tables of ``krammar.util.configs``."""

from __future__ import annotations

from kafka_wire import ConfigType

from krammar.broker.config.definitions import ConfigDef, UpdateMode, parse_validator
from krammar.util.configs import config_rows

_NO_DOC = "Known for compatibility; this broker does not act on it."


def _table(name: str) -> dict[str, ConfigDef]:
    return {row["name"]: _definition(row) for row in config_rows(name)}


def _definition(row: dict[str, str]) -> ConfigDef:
    flags = row["flags"].split()
    synonyms = row.get("synonyms")
    return ConfigDef(
        row["name"],
        ConfigType[row["type"].upper()],
        None if row["default"] == "-" else row["default"],
        parse_validator(row["values"]),
        row["doc"] or _NO_DOC,
        ((row["name"], 1),) if synonyms is None else tuple(map(_synonym, synonyms.split())),
        UpdateMode(row.get("update", "read-only")),
        effect="no-effect" not in flags,
        internal="internal" in flags,
    )


def _synonym(text: str) -> tuple[str, int]:
    name, _, factor = text.partition("*")
    return name, int(factor or 1)


BROKER_CONFIGS = _table("broker")
TOPIC_CONFIGS = _table("topics")
GROUP_CONFIGS = _table("groups")
