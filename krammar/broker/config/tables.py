"""The settings of brokers, topics and groups: the rows of ``broker.csv``, ``topics.csv`` and ``groups.csv``.

The names are those of Apache Kafka 4.4, and so are the defaults, except for listeners and replication factors.
Settings whose names begin with ``krammar.`` belong to this broker alone. The columns are:

``default``   ``-`` if there is none
``values``    the accepted values: ``>=MINIMUM``, ``MINIMUM..MAXIMUM``, ``one_of:`` or ``each_of:`` with names, or
              the name of a validator
``update``    how a broker's setting can be changed while the broker runs
``synonyms``  the broker's settings that supply the default of a topic or group; ``*60000`` converts minutes to milliseconds
``flags``     ``no-effect``: accepted, checked and shown, but ignored; ``internal``: never shown
"""

from __future__ import annotations

import csv
from pathlib import Path

from kafka_wire import ConfigType

from krammar.broker.config.definitions import (
    ConfigDef,
    UpdateMode,
    Validator,
    address,
    any_list,
    assignors,
    between,
    cluster_id,
    each_of,
    filled_list,
    filled_string,
    gzip_level,
    one_of,
    throttled_replicas,
)

_NO_DOC = "Known for compatibility; this broker does not act on it."
_VALIDATORS: dict[str, Validator | None] = {
    "": None,
    "address": address,
    "any_list": any_list,
    "assignors": assignors,
    "cluster_id": cluster_id,
    "filled_list": filled_list,
    "filled_string": filled_string,
    "gzip_level": gzip_level,
    "throttled_replicas": throttled_replicas,
}


def _table(file: str) -> dict[str, ConfigDef]:
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return {row["name"]: _definition(row) for row in csv.DictReader(lines)}


def _definition(row: dict[str, str]) -> ConfigDef:
    flags = row["flags"].split()
    return ConfigDef(
        row["name"],
        ConfigType[row["type"].upper()],
        None if row["default"] == "-" else row["default"],
        _validator(row["values"]),
        row["doc"] or _NO_DOC,
        tuple(map(_synonym, row.get("synonyms", "").split())),
        UpdateMode(row.get("update", "read-only")),
        effect="no-effect" not in flags,
        internal="internal" in flags,
    )


def _validator(values: str) -> Validator | None:
    if values in _VALIDATORS:
        return _VALIDATORS[values]
    if values.startswith(">="):
        return between(_number(values[2:]), None)
    kind, colon, names = values.partition(":")
    if not colon:
        low, high = map(_number, values.split(".."))
        return between(low, high)
    if kind == "each_of":
        return each_of(*names.split())
    return one_of(*names.split(), ignore_case=kind == "any_case")


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _synonym(text: str) -> tuple[str, int]:
    name, _, factor = text.partition("*")
    return name, int(factor or 1)


BROKER_CONFIGS = _table("broker.csv")
TOPIC_CONFIGS = _table("topics.csv")
GROUP_CONFIGS = _table("groups.csv")
