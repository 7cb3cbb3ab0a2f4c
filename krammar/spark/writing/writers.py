"""The writers that Spark calls, for batches and for streams. They pass all calls to a delivery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from krammar.spark.errors import OptionError, SparkSourceError
from krammar.spark.kafka.rows_out import OutColumns
from krammar.spark.kafka.sink import AtLeastOnce
from krammar.spark.option_table import Use
from krammar.spark.options import Options
from krammar.spark.writing.delivery import Messages, WriteDelivery, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def _check(options: Options, use: Use) -> None:
    if options.source != "kafka":
        raise OptionError("source", f"{options.source!r} can be read, but not written")
    options.check_use(use)


def delivery_of(options: Options, schema: StructType, use: Use) -> WriteDelivery:
    """Return the delivery that the options request.

    Raises:
        OptionError: an option is missing or does not fit.
        SchemaError: a column is missing or has another type.
        SparkSourceError: delivery=journal cannot finish an earlier write.
    """
    if options["delivery"] == "journal":
        from krammar.spark.journal import delivery  # loaded only if it is used

        return delivery.journal_delivery(options, schema, use)
    if options.given("failOnDataLoss"):
        raise OptionError(
            "failOnDataLoss", f"has no meaning in {use.value} without delivery=journal"
        )
    return AtLeastOnce(options, OutColumns.of(schema, options["topic"]))


class KafkaWriter(DataSourceArrowWriter):
    """Writes the rows of ``df.write``."""

    def __init__(self, delivery: WriteDelivery) -> None:
        self.delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.delivery.write(iterator)

    def commit(self, messages: Messages) -> None:
        self.delivery.commit(messages, None)

    def abort(self, messages: Messages) -> None:
        self.delivery.abort(messages, None)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch of ``df.writeStream``."""

    def __init__(self, delivery: WriteDelivery) -> None:
        self.delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.delivery.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        self.delivery.commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        self.delivery.abort(messages, batchId)


def writer(options: Options, schema: StructType, overwrite: bool) -> KafkaWriter:
    """Return the writer of a batch.

    Raises:
        OptionError: an option is missing or does not fit.
        SchemaError: a column is missing or has another type.
        SparkSourceError: the mode is not append.
    """
    _check(options, Use.WRITE)
    if overwrite:
        raise SparkSourceError("mode overwrite is not supported: use mode append")
    return KafkaWriter(delivery_of(options, schema, Use.WRITE))


def stream_writer(options: Options, schema: StructType) -> KafkaStreamWriter:
    """Return the writer of a stream.

    As in Spark's Kafka connector, output mode complete appends all rows of each micro-batch.

    Raises:
        OptionError: an option is missing or does not fit.
        SchemaError: a column is missing or has another type.
    """
    _check(options, Use.WRITE_STREAM)
    return KafkaStreamWriter(delivery_of(options, schema, Use.WRITE_STREAM))
