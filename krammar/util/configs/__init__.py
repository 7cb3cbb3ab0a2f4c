"""Kafka's settings of brokers, topics, groups and clients' metrics: the rows of ``broker.csv``, ``topics.csv`` and others.

The names are those of Apache Kafka 4.4, and so are the defaults, except for listeners and replication factors.
Settings whose names begin with ``krammar.`` belong to krammar's broker alone. The columns are:

``default``   ``-`` if there is none
``values``    the accepted values: ``>=MINIMUM``, ``MINIMUM..MAXIMUM``, ``one_of:`` or ``each_of:`` with names, or
              the name of a validator
``update``    how a broker's setting can be changed while the broker runs
``synonyms``  the broker's settings that supply the default of a topic or group; ``*60000`` converts minutes to
              milliseconds
``entity``    what the value of a topic's or a group's setting names, in the words of the definitions: ``topicName`` or
              ``brokerId``; empty if it names nothing
``flags``     ``no-effect``: accepted, checked and shown, but ignored; ``internal``: never shown

``releases.csv`` has the settings that differ in older releases (``krammar.kafka.version``), with the columns that differ.
``absent`` among the flags is for settings that the release does not have. It has rows for settings that only the release
has, too.
"""

from __future__ import annotations

import csv
from pkgutil import get_data


def config_rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a table by column.

    Args:
        table: ``broker``, ``topics``, ``groups``, ``client_metrics`` or ``releases``.
    """
    # The package may be in an archive.
    # The loader of the package reads the file, also from an archive, and where pyfakefs hides files.
    data = get_data(__package__, f"{table}.csv")
    assert data is not None
    lines = data.decode().splitlines()
    return list(csv.DictReader(lines))
