"""Arrow batches of records to the columns that Spark expects."""

from __future__ import annotations

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

    def build(self, batch: pa.RecordBatch, timestamp_type: int) -> pa.RecordBatch:
        """Of a batch with the columns of ``krammar.wire.arrow.SCHEMA``. Raises SparkSourceError for a
        time that Spark cannot hold: some 292 000 years from now."""
        return self.join(self.columns(batch, timestamp_type))

    def join(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def columns(self, batch: pa.RecordBatch, timestamp_type: int) -> dict[str, pa.Array]:
        """All columns, by name, with key and value as they are."""
        count = batch.num_rows
        columns = {
            "key": batch.column("key"),
            "value": batch.column("value"),
            "topic": pa.repeat(self.topic, count),
            "partition": pa.repeat(self.partition, count),
            "offset": batch.column("offset"),
            "timestamp": self._timestamps(batch),
            "timestampType": pa.repeat(pa.scalar(timestamp_type, pa.int32()), count),
        }
        if "headers" in self.schema.names:
            columns["headers"] = headers_of(
                batch.column("headers"), self.schema.field("headers").type
            )
        return columns

    def _timestamps(self, batch: pa.RecordBatch) -> pa.Array:
        wanted = self.schema.field("timestamp").type
        try:
            return batch.column("timestamp").view(_MILLISECONDS).cast(wanted)
        except pa.ArrowInvalid as error:
            raise SparkSourceError(
                f"timestamps of offsets from {batch.column('offset')[0]} on: {error}"
            ) from None


def headers_of(headers: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    """Headers, null where a record has none, as the Kafka connector gives them."""
    empty = pc.equal(pc.list_value_length(headers), 0)
    items = headers.values
    struct = wanted.value_type
    values = pa.StructArray.from_arrays(
        [items.field("key"), items.field("value")], fields=list(struct)
    )
    return pa.ListArray.from_arrays(headers.offsets, values, type=wanted, mask=empty)
