"""Turns messages into the columns that Spark expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import journal_wire as wire
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from krammar.journal import Envelope, get_clock, get_flags, time_of
from krammar.spark.errors import OptionError
from krammar.spark.journal.rows_out import message_class
from krammar.spark.options import Options
from krammar.spark.schema import HEADERS_TYPE, arrow_schema
from krammar.spark.typed.messages import to_array
from krammar.spark.typed.types import Mapped, mapped_class
from krammar.wire.message import Codec

# The limits of an Arrow batch: rows, and approximate bytes of keys and values.
_ROWS = 4096
_BYTES = 4 << 20


def read_class(options: Options) -> type[Codec]:
    """Return the class of the messages: that of the option ``decode``, or ``journal_wire.Row``.

    Raises:
        OptionError: ``decode`` names no class of messages.
    """
    return message_class("decode", options["decode"]) if options.given("decode") else wire.Row


def journal_schema(options: Options) -> StructType:
    """Return the columns of journals.

    Raises:
        OptionError: ``decode`` names no class of messages, or excludes ``includeHeaders``.
    """
    typed = _typed(options)
    fields = [StructField("uuid", StringType())]
    if typed is None:
        fields += [StructField("key", BinaryType()), StructField("value", BinaryType())]
        if options["includeHeaders"]:
            fields.append(StructField("headers", HEADERS_TYPE))
    else:
        if options.given("includeHeaders"):
            raise OptionError("includeHeaders", "has no meaning with source=journal and decode")
        fields.append(StructField("value", typed.type))
    return StructType(
        [
            *fields,
            StructField("journal", StringType()),
            StructField("beginOffset", LongType()),
            StructField("endOffset", LongType()),
            StructField("timestamp", TimestampType()),  # of the UUID
            StructField("flags", IntegerType()),
        ]
    )


def _typed(options: Options) -> Mapped | None:
    return mapped_class(read_class(options)) if options.given("decode") else None


def batches(options: Options, envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of envelopes as Arrow record batches."""
    schema = journal_schema(options)
    typed = _typed(options)
    convert = _plain if typed is None else typed.to_spark
    assert convert is not None
    columns = arrow_schema(schema)
    names = schema.names
    rows: list[dict[str, Any]] = []
    size = 0
    for envelope in envelopes:
        row = {"value": convert(envelope.message)} if typed else _plain(envelope.message)
        uuid = envelope.message.get_uuid()
        row["uuid"] = str(uuid)
        row["journal"] = envelope.journal
        row["beginOffset"] = envelope.begin
        row["endOffset"] = envelope.end
        if uuid.version == 1:
            clock = get_clock(uuid)
            # The clock is 0 in an acknowledgement that ends its producer.
            row["timestamp"] = time_of(clock) // 1000 if clock else None
            row["flags"] = int(get_flags(uuid))
        else:
            row["timestamp"] = row["flags"] = None
        rows.append(row)
        size += envelope.end - envelope.begin if typed else _size(row)
        if len(rows) >= _ROWS or size >= _BYTES:
            yield _batch(rows, names, columns)
            rows, size = [], 0
    if rows:
        yield _batch(rows, names, columns)


def _batch(rows: list[dict[str, Any]], names: list[str], schema: pa.Schema) -> pa.RecordBatch:
    columns = [to_array([row[name] for row in rows], schema.field(name).type) for name in names]
    return pa.record_batch(columns, schema=schema)


def _plain(message: wire.Row) -> dict[str, Any]:
    return {
        "key": message.key,
        "value": message.value,
        # Null if there are none, as for records of topics.
        "headers": [{"key": h.key, "value": h.value} for h in message.headers] or None,
    }


def _size(row: dict[str, Any]) -> int:
    return len(row["key"] or b"") + len(row["value"] or b"")
