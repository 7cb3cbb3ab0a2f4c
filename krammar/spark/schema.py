"""The columns of records, which match Spark's Kafka connector, and their Arrow schema."""

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
    """Return the columns of records. All are nullable, as in Spark's Kafka connector.

    Args:
        key: the type of decoded keys; binary without it.
        value: the type of decoded values; binary without it.
        corrupt_record: the name of the column for malformed records.
    """
    schema = StructType(
        [
            StructField("key", BinaryType() if key is None else key),
            StructField("value", BinaryType() if value is None else value),
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
    """Return the Arrow schema that Spark expects for these columns.

    Spark compares it with the schema of the first batch. Timestamps are microseconds in UTC.
    """
    # PySpark 4.2 added the argument. Before, the zone was always UTC.
    extra: dict[str, Any] = {}
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        extra["timezone"] = "UTC"
    return to_arrow_schema(schema, **extra)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects for a column."""
    return arrow_schema(StructType([StructField("column", kind)])).field(0).type


def check_schema(given: StructType, expected: StructType) -> None:
    """Raise SchemaError unless both schemas have the same names and types.

    As in Spark's Kafka connector, the options determine the columns.
    """
    if _shape(given) != _shape(expected):
        raise SchemaError(
            "the options determine the columns, so remove the schema or change it: the columns are "
            f"{expected.simpleString()}, not {given.simpleString()}"
        )


def _shape(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
