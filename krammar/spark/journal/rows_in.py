"""Turns messages into the columns that Spark expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

from krammar.journal import Envelope
from krammar.spark.errors import OptionError
from krammar.spark.journal.rows_out import message_class
from krammar.spark.journal.uuid_columns import UuidColumns
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
    columns = arrow_schema(journal_schema(options))
    typed = _typed(options)
    found: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        found.append(envelope)
        if typed is None:
            message = envelope.message
            size += len(message.key or b"") + len(message.value or b"")
        else:
            size += envelope.end - envelope.begin
        if len(found) >= _ROWS or size >= _BYTES:
            yield _batch(found, columns, typed)
            found, size = [], 0
    if found:
        yield _batch(found, columns, typed)


def _batch(envelopes: list[Envelope], schema: pa.Schema, typed: Mapped | None) -> pa.RecordBatch:
    messages = [envelope.message for envelope in envelopes]
    uuids = UuidColumns([message.get_uuid() for message in messages])
    columns: dict[str, Callable[[], Any]] = {
        "uuid": uuids.texts,
        "key": lambda: [message.key for message in messages],
        "value": lambda: _values(messages, typed),
        "headers": lambda: [_headers(message) for message in messages],
        "journal": lambda: [envelope.journal for envelope in envelopes],
        "beginOffset": lambda: [envelope.begin for envelope in envelopes],
        "endOffset": lambda: [envelope.end for envelope in envelopes],
        "timestamp": uuids.timestamps,
        "flags": uuids.flags,
    }
    arrays = [_array(columns[name](), schema.field(name).type) for name in schema.names]
    return pa.record_batch(arrays, schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    return column.cast(kind) if isinstance(column, pa.Array) else to_array(column, kind)


def _values(messages: list[Any], typed: Mapped | None) -> list[Any]:
    if typed is None:
        return [message.value for message in messages]
    convert = typed.to_spark
    assert convert is not None
    return [convert(message) for message in messages]


def _headers(message: wire.Row) -> list[dict[str, Any]] | None:
    # Null if there are none, as for records of topics.
    return [{"key": h.key, "value": h.value} for h in message.headers] or None
