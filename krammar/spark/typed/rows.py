"""Builds the rows of records with decoded key and value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from krammar.spark.errors import MalformedRecordError
from krammar.spark.options import Options
from krammar.spark.rows import Rows
from krammar.spark.schema import record_schema
from krammar.spark.typed.columns import to_array
from krammar.spark.typed.records import record_decoder
from krammar.wire.errors import WireError


def typed_schema(options: Options) -> StructType:
    """Return the columns of decoded records.

    Raises:
        OptionError: ``decode`` names no message, or its version is unknown or missing.
    """
    decoder = record_decoder(options)
    schema = record_schema(
        options["includeHeaders"], decoder.key_type, decoder.value_type, _corrupt_column(options)
    )
    # The option ``fields`` may name no field of the key, or none of the value.
    return StructType([field for field in schema if field.dataType != StructType([])])


def _corrupt_column(options: Options) -> str | None:
    return options["columnNameOfCorruptRecord"] if options["mode"] == "PERMISSIVE" else None


class TypedRows(Rows):
    """Builds rows with decoded ``key`` and ``value``.

    A malformed record raises an error in mode FAILFAST, and is skipped in DROPMALFORMED. In PERMISSIVE its malformed
    parts are null, and one column has its bytes and the reason.
    """

    def __init__(self, schema: pa.Schema, topic: str, partition: int, options: Options) -> None:
        super().__init__(schema, topic, partition)
        self.decoder = record_decoder(options)
        self.mode = options["mode"]
        self.has_key = self.decoder.key_type is not None and "key" in schema.names
        self.has_value = "value" in schema.names
        corrupt_column = _corrupt_column(options)
        self.corrupt_column = corrupt_column if corrupt_column in schema.names else None

    def build(self, batch: pa.RecordBatch, timestamp_type: int) -> pa.RecordBatch:
        """Build the rows of a batch; see ``Rows.build``.

        Raises:
            MalformedRecordError: in mode FAILFAST, a record is malformed.
        """
        indexes: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        corrupt: list[dict[str, Any] | None] = []
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        for index, (key, value) in enumerate(pairs):
            if self.decoder.is_other(key, value):
                if self.mode == "FAILFAST" and (found := self.decoder.unknown_kind(key, value)):
                    raise self._malformed(batch, index, found)
                continue
            key_row, value_row, error = self._decode(key, value)
            if error:
                if self.mode == "DROPMALFORMED":
                    continue
                if self.mode == "FAILFAST":
                    raise self._malformed(batch, index, error)
            indexes.append(index)
            keys.append(key_row)
            values.append(value_row)
            corrupt.append({"key": key, "value": value, "error": error} if error else None)
        if len(indexes) < batch.num_rows:
            batch = batch.take(pa.array(indexes, pa.int64()))
        columns = self.columns(batch, timestamp_type)
        if self.has_key:
            columns["key"] = to_array(keys, self.schema.field("key").type)
        if self.has_value:
            columns["value"] = to_array(values, self.schema.field("value").type)
        if self.corrupt_column is not None:
            name = self.corrupt_column
            columns[name] = to_array(corrupt, self.schema.field(name).type)
        return self.join(columns)

    def _malformed(self, batch: pa.RecordBatch, index: int, error: str) -> MalformedRecordError:
        offset = batch.column("offset")[index]
        return MalformedRecordError(f"{self.topic}-{self.partition}, offset {offset}: {error}")

    def _decode(self, key: bytes | None, value: bytes | None) -> tuple[Any, Any, str]:
        """Decode key and value, if they are columns.

        Returns:
            Both, with None for a malformed one, and the error.
        """
        key_row = value_row = None
        errors = []
        if key is not None and self.has_key:
            try:
                key_row = self.decoder.key(key)
            except WireError as error:
                errors.append(f"key: {error}")
        if value is not None and self.has_value:
            try:
                value_row = self.decoder.value(value)
            except WireError as error:
                errors.append(f"value: {error}")
        return key_row, value_row, "; ".join(errors)
