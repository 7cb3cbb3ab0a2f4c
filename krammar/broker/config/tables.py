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
from importlib.resources import files

from kafka_wire import ConfigType

from krammar.broker.config.definitions import ConfigDef, UpdateMode, parse_validator

_NO_DOC = "Known for compatibility; this broker does not act on it."


def _table(file: str) -> dict[str, ConfigDef]:
    # The package may be in an archive.
    lines = files(__package__).joinpath(file).read_text("utf-8").splitlines()
    return {row["name"]: _definition(row) for row in csv.DictReader(lines)}


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


BROKER_CONFIGS = _table("broker.csv")
TOPIC_CONFIGS = _table("topics.csv")
GROUP_CONFIGS = _table("groups.csv")
