"""Converts Arrow batches of records to the columns that Spark expects."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from krammar.spark.errors import SparkSourceError

_MILLISECONDS = pa.timestamp("ms", tz="UTC")


class Rows:
    """Builds the batches of one partition of a topic, with the columns of ``schema``."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self.schema = schema
        self.topic = pa.scalar(topic, pa.string())
        self.partition = pa.scalar(partition, pa.int32())

    def at(self, topic: str, partition: int) -> Self:
        """Return the same for another partition."""
        other = copy(self)
        other.topic = pa.scalar(topic, pa.string())
        other.partition = pa.scalar(partition, pa.int32())
        return other

    def build(self, batch: pa.RecordBatch, timestamp_type: int) -> pa.RecordBatch:
        """Build the rows of a batch with the columns of ``krammar.wire.batches.arrow.SCHEMA``.

        Raises:
            SparkSourceError: a timestamp exceeds Spark's range of 292,000 years.
        """
        return self.join(self.columns(batch, timestamp_type))

    def join(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        """Return a batch with the columns in the schema's order."""
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def columns(self, batch: pa.RecordBatch, timestamp_type: int) -> dict[str, pa.Array]:
        """Return the schema's columns by name, with binary key and value."""
        count = batch.num_rows
        columns: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: batch.column("key"),
            "value": lambda: batch.column("value"),
            "topic": lambda: pa.repeat(self.topic, count),
            "partition": lambda: pa.repeat(self.partition, count),
            "offset": lambda: batch.column("offset"),
            "timestamp": lambda: self._timestamps(batch),
            "timestampType": lambda: pa.repeat(pa.scalar(timestamp_type, pa.int32()), count),
            "headers": lambda: headers_of(
                batch.column("headers"), self.schema.field("headers").type
            ),
        }
        return {name: columns[name]() for name in self.schema.names if name in columns}

    def _timestamps(self, batch: pa.RecordBatch) -> pa.Array:
        wanted = self.schema.field("timestamp").type
        try:
            return batch.column("timestamp").view(_MILLISECONDS).cast(wanted)
        except pa.ArrowInvalid as error:
            raise SparkSourceError(
                f"{self.topic}-{self.partition}, from offset {batch.column('offset')[0]}: a timestamp exceeds"
                f" Spark's range: {error}"
            ) from None


def headers_of(headers: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    """Return the column ``headers``: null for records without headers, as in Spark's Kafka connector."""
    empty = pc.equal(pc.list_value_length(headers), 0)
    items = headers.values
    struct = wanted.value_type
    values = pa.StructArray.from_arrays(
        [items.field("key"), items.field("value")], fields=list(struct)
    )
    return pa.ListArray.from_arrays(headers.offsets, values, type=wanted, mask=empty)
