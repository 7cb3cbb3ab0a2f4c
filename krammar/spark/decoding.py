"""The columns of records: binary, or typed with the option ``decode``.

The modules that decode are only imported if the option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krammar.spark.errors import OptionError
from krammar.spark.schema import record_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from krammar.spark.options import Options
    from krammar.spark.rows import Rows


def schema_of(options: Options) -> StructType:
    """Return the columns of records, decoded or not.

    Raises:
        OptionError: an option for decoding is wrong, or given without ``decode``; a column does not exist.
    """
    if options.given("decode"):
        from krammar.spark.typed.records import typed_schema

        return _selected(options, typed_schema(options))
    for name in ("decodeVersion", "fields", "mode", "columnNameOfCorruptRecord"):
        if options.given(name):
            raise OptionError(name, "has no meaning without decode")
    return _selected(options, record_schema(options["includeHeaders"]))


def _selected(options: Options, schema: StructType) -> StructType:
    """Return the columns that the option ``columns`` names, in its order."""
    if not options.given("columns"):
        return schema
    for name in options["columns"]:
        if name not in schema.names:
            found = ", ".join(schema.names)
            raise OptionError("columns", f"{name!r} is not a column; there are: {found}")
    return type(schema)([schema[name] for name in options["columns"]])


def rows_of(options: Options, schema: pa.Schema, topic: str, partition: int) -> Rows:
    """Return what builds the rows of a partition.

    Raises:
        OptionError: an option for decoding is wrong.
    """
    if options.given("decode"):
        from krammar.spark.typed.records import TypedRows

        return TypedRows(schema, topic, partition, options)
    from krammar.spark.rows import Rows

    return Rows(schema, topic, partition)
