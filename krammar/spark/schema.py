"""Columns of what is read: those of Spark's own Kafka connector, and their Arrow schema."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from krammar.spark.errors import SchemaError

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


def record_schema(
    include_headers: bool,
    key: DataType | None = None,
    value: DataType | None = None,
    corrupt_record: str | None = None,
) -> StructType:
    """The columns of records, all nullable as the Kafka connector's are.

    ``key`` and ``value`` are the types of these columns, binary unless they are decoded;
    ``corrupt_record`` is the name of the column for records that cannot be.
    """
    schema = StructType(
        [
            StructField("key", key or BinaryType()),
            StructField("value", value or BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
        ]
    )
    if include_headers:
        schema = schema.add(StructField("headers", HEADERS_TYPE))
    if corrupt_record is not None:
        schema = schema.add(StructField(corrupt_record, CORRUPT_RECORD_TYPE))
    return schema


CORRUPT_RECORD_TYPE = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("error", StringType()),
    ]
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches with these columns.

    Spark compares it with the first batch's; timestamps are microseconds in UTC.
    """
    # Spark 4.2 added the argument; before it, the zone was always UTC.
    extra: dict[str, Any] = {}
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        extra["timezone"] = "UTC"
    return to_arrow_schema(schema, **extra)


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type that Spark expects of a column."""
    return arrow_schema(StructType([StructField("column", kind)])).field(0).type


def check_schema(given: StructType, expected: StructType) -> None:
    """Raises SchemaError if ``given`` has not the names and types of ``expected``.

    As in the Kafka connector the options decide the columns, not the user.
    """
    if _shape(given) != _shape(expected):
        raise SchemaError(
            "the columns follow from the options and cannot be chosen: they are "
            f"{expected.simpleString()}, not {given.simpleString()}"
        )


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
