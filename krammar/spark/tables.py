"""Tables of Spark's catalog: ``CREATE TABLE … USING krammar OPTIONS (…)``.

Spark tells a data source in Python the options of a table only when it asks for the columns of a new
table. Queries pass their own options alone. The catalog stores the columns with their metadata and
hands them over in each query, so the options travel in the metadata of one column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from krammar.client.settings import client_settings
from krammar.spark.errors import OptionError
from krammar.spark.option_table import CLIENT_PREFIX, TABLE, Use
from krammar.spark.schema import HEADERS_TYPE

NO_OPTIONS = (
    "no options are given. Spark stores options of a table only with CREATE TABLE name USING krammar "
    "OPTIONS (…), without a list of columns and without AS SELECT: create the table this way, and write "
    "with INSERT INTO name (key, value) …; or give the options in the query: SELECT … FROM name WITH (…)"
)
_PREFIX = "option."
_KEY = "krammar.options"
# A query whose columns match a table's exactly reaches the data source without the table's metadata.
# The last two columns prevent that for the usual query; Spark fills them with null.
_COLUMNS_TO_WRITE = StructType(
    [
        StructField("key", StringType()),
        StructField("value", StringType()),
        StructField("headers", HEADERS_TYPE),
        StructField("partition", IntegerType()),
    ]
)


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that Spark creates, None if it creates none.

    Spark then mixes options with the properties of the table, such as ``provider``, ``owner`` and
    ``comment``, and repeats each option with a prefix.
    """
    if "provider" not in given:
        return None
    options = {
        name.removeprefix(_PREFIX): value
        for name, value in given.items()
        if name.startswith(_PREFIX)
    }
    return options | {name: given[name] for name in ("path",) if name in given}


def columns_of_new_table(options: Mapping[str, str], columns: StructType) -> StructType:
    """Return the columns of a table, with its options in the metadata of the first one.

    Args:
        columns: The columns that the options give when they are read.

    Raises:
        OptionError: An option must not be stored in a catalog.
    """
    names = {name.lower() for name in options}
    for name in names:
        setting = client_settings().lookup(name.removeprefix(CLIENT_PREFIX))
        if setting is not None and setting.secret:
            raise OptionError(
                name,
                "would be stored readably in the catalog and in files written from the table; "
                "use CREATE TEMPORARY VIEW … USING krammar OPTIONS (…), or give the option in each "
                "query: SELECT … FROM name WITH (`…` '…')",
            )
    if "topic" in names and not names & {"subscribe", "subscribepattern", "assign"}:
        columns = _COLUMNS_TO_WRITE
    first, *rest = columns.fields
    stored = StructField(first.name, first.dataType, first.nullable, {_KEY: dict(options)})
    return StructType([stored, *rest])


def stored_options(columns: StructType, use: Use) -> dict[str, str]:
    """Return the options of the table with these columns that concern a use; none without a table.

    A table that is written and read again has options of both kinds. INSERT INTO a table that names one
    topic writes to that topic.
    """
    found: dict[str, str] = {}
    for field in columns.fields:
        metadata: dict[str, Any] = field.metadata or {}
        found.update(metadata.get(_KEY, {}))
    lower = {name.lower(): value for name, value in found.items()}
    kept = {n: v for n, v in lower.items() if n not in TABLE or use in TABLE[n].applies_to}
    if use in (Use.WRITE, Use.WRITE_STREAM) and "topic" not in kept:
        topics = [topic.strip() for topic in lower.get("subscribe", "").split(",")]
        if len(topics) == 1 and topics[0]:
            kept["topic"] = topics[0]
    return kept
