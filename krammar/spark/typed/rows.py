"""Rows of records whose key and value are decoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from krammar.spark.errors import MalformedRecordError, OptionError
from krammar.spark.options import Options
from krammar.spark.rows import Rows
from krammar.spark.schema import record_schema
from krammar.spark.typed.columns import to_array
from krammar.spark.typed.records import RecordDecoder, record_decoder
from krammar.wire.errors import WireError


def schema_of(options: Options) -> StructType:
    """The columns of records, decoded or not. Raises OptionError."""
    headers = options["includeHeaders"]
    decoder = record_decoder(options)
    if decoder is None:
        for name in ("decodeVersion", "mode", "columnNameOfCorruptRecord"):
            if options.given(name):
                raise OptionError(name, "has no meaning without decode")
        return record_schema(headers)
    return record_schema(headers, decoder.key_type, decoder.value_type, _corrupt_column(options))


def rows_of(options: Options, schema: pa.Schema, topic: str, partition: int) -> Rows:
    """What builds the rows of a partition."""
    decoder = record_decoder(options)
    if decoder is None:
        return Rows(schema, topic, partition)
    return TypedRows(schema, topic, partition, decoder, options)


def _corrupt_column(options: Options) -> str | None:
    return options["columnNameOfCorruptRecord"] if options["mode"] == "PERMISSIVE" else None


class TypedRows(Rows):
    """Rows with ``key`` and ``value`` decoded.

    A record that cannot be is an error in mode FAILFAST and left out in DROPMALFORMED; in PERMISSIVE
    what cannot be read of it is null, and one column has its bytes and the reason.
    """

    def __init__(
        self,
        schema: pa.Schema,
        topic: str,
        partition: int,
        decoder: RecordDecoder,
        options: Options,
    ) -> None:
        super().__init__(schema, topic, partition)
        self.decoder = decoder
        self.mode = options["mode"]
        self.corrupt_column = _corrupt_column(options)

    def build(self, batch: pa.RecordBatch, timestamp_type: int) -> pa.RecordBatch:
        """Raises MalformedRecordError."""
        kept: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        corrupt: list[dict[str, Any] | None] = []
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        for index, (key, value) in enumerate(pairs):
            if self.decoder.is_other(key, value):
                continue
            key_row, value_row, error = self._decode(key, value)
            if error:
                if self.mode == "DROPMALFORMED":
                    continue
                if self.mode == "FAILFAST":
                    raise MalformedRecordError(
                        f"{self.topic}-{self.partition}, offset {batch.column('offset')[index]}:"
                        f" {error}"
                    )
            kept.append(index)
            keys.append(key_row)
            values.append(value_row)
            corrupt.append({"key": key, "value": value, "error": error} if error else None)
        if len(kept) < batch.num_rows:
            batch = batch.take(pa.array(kept, pa.int64()))
        columns = self.columns(batch, timestamp_type)
        if self.decoder.key_type is not None:
            columns["key"] = to_array(keys, self.schema.field("key").type)
        columns["value"] = to_array(values, self.schema.field("value").type)
        if self.corrupt_column is not None:
            name = self.corrupt_column
            columns[name] = to_array(corrupt, self.schema.field(name).type)
        return self.join(columns)

    def _decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any, str]:
        """The rows of key and value, as far as they can be read, and why not further."""
        key_row = value_row = None
        errors = []
        if key is not None and self.decoder.key_type is not None:
            try:
                key_row = self.decoder.key(key)
            except WireError as error:
                errors.append(f"key: {error}")
        if value is not None:
            try:
                value_row = self.decoder.value(value)
            except WireError as error:
                errors.append(f"value: {error}")
        return key_row, value_row, "; ".join(errors)
