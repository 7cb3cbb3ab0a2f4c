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
from krammar.spark.journal.row_columns import RowColumns
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


class JournalRows:
    """Builds Arrow record batches with the columns of ``journal_schema``.

    Attributes:
        is_typed: whether messages are decoded to a column of Spark's types

    Raises:
        OptionError: like ``journal_schema``.
    """

    def __init__(self, options: Options) -> None:
        self._schema = arrow_schema(journal_schema(options))
        self._typed = _typed(options)
        self.is_typed = self._typed is not None

    def of_envelopes(self, envelopes: Iterable[Envelope]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of messages in batches of limited size."""
        found: list[Envelope] = []
        size = 0
        for envelope in envelopes:
            found.append(envelope)
            if self._typed is None:
                message = envelope.message
                size += len(message.key or b"") + len(message.value or b"")
            else:
                size += envelope.end - envelope.begin
            if len(found) >= _ROWS or size >= _BYTES:
                yield self._of_some(found)
                found, size = [], 0
        if found:
            yield self._of_some(found)

    def _of_some(self, envelopes: list[Envelope]) -> pa.RecordBatch:
        messages = [envelope.message for envelope in envelopes]
        uuids = UuidColumns.of(message.get_uuid() for message in messages)
        return self._built(
            uuids,
            {
                "key": lambda: [message.key for message in messages],
                "value": lambda: _values(messages, self._typed),
                "headers": lambda: [_headers(message) for message in messages],
                "journal": lambda: [envelope.journal for envelope in envelopes],
                "beginOffset": lambda: [envelope.begin for envelope in envelopes],
                "endOffset": lambda: [envelope.end for envelope in envelopes],
            },
        )

    def of_columns(
        self, journal: str, begins: pa.Array, ends: pa.Array, rows: RowColumns
    ) -> pa.RecordBatch:
        """Return the rows of a journal, at least one, with their offsets."""
        count = len(begins)
        return self._built(
            rows.uuids,
            {
                "key": rows.keys,
                "value": rows.values,
                "headers": lambda: pa.nulls(count),
                "journal": lambda: pa.repeat(pa.scalar(journal), count),
                "beginOffset": lambda: begins,
                "endOffset": lambda: ends,
            },
        )

    def _built(self, uuids: UuidColumns, others: dict[str, Callable[[], Any]]) -> pa.RecordBatch:
        schema = self._schema
        columns = {
            "uuid": uuids.texts,
            "timestamp": uuids.timestamps,
            "flags": uuids.flags,
            **others,
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
