"""Writing to topics of live brokers, in batches and as a stream."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from krammar.client import Client, ClientError, Settings
from krammar.client.produce import Producer
from krammar.spark.brokers import broker_errors, settings_of
from krammar.spark.errors import OptionError, SparkSourceError
from krammar.spark.kafka.rows_out import OutColumns, groups
from krammar.spark.options import Options, Use

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

# Kafka's 16 KiB are for records that come one by one; here there are many at once, and what a request
# costs is shared by more of them.
_BATCH_SIZE = 256 * 1024
_COLLECT_AFTER = 100_000


class Count(NamedTuple):
    """Of one topic; ``size`` is bytes of keys and values."""

    rows: int = 0
    size: int = 0


@dataclass
class Written(WriterCommitMessage):
    """What a task has written, by topic: all of it is acknowledged."""

    topics: dict[str, Count] = field(default_factory=dict)

    def add(self, topic: str, rows: int, size: int) -> None:
        known = self.topics.get(topic, Count())
        self.topics[topic] = Count(known.rows + rows, known.size + size)


Messages = Sequence[WriterCommitMessage | None]


class Delivery(Protocol):
    """How rows get into topics. It is made on the driver and is sent to the tasks."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """In a task: write its rows. Raises SparkSourceError."""

    def commit(self, messages: Messages, batch_id: int | None) -> None:
        """On the driver, when all tasks have done it; ``batch_id`` is that of a stream."""

    def abort(self, messages: Messages, batch_id: int | None) -> None:
        """On the driver, when a task has failed for good: its message is None."""


class AtLeastOnce:
    """Each task sends its rows by an idempotent producer of its own, and ends when the brokers have
    acknowledged all of them. What a task that failed has sent stays, and is sent again where Spark
    repeats the task."""

    def __init__(self, options: Options, columns: OutColumns) -> None:
        settings = settings_of(options)
        if "batch.size" not in options.client:
            settings = settings.with_(batch_size=_BATCH_SIZE)
        self.settings: Settings = settings
        self.columns = columns

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Raises RowError and BrokerError."""
        written = Written()
        # Nothing is connected before there is a row.
        with Client(self.settings) as client, _seldom_collected():
            producer = client.producer()
            try:
                with broker_errors(self.settings, "writing"):
                    for batch in batches:
                        self._send(producer, batch, written)
                    producer.close()
            finally:
                # After an error nothing is waited for: the task has failed.
                with suppress(ClientError):
                    producer.close(0)
        return written

    def _send(self, producer: Producer, batch: pa.RecordBatch, written: Written) -> None:
        for group in groups(batch, self.columns, producer.partition_count):
            producer.send_columns(
                group.topic, group.values, group.keys, group.headers, partition=group.partition
            )
            written.add(group.topic, len(group.values), group.size)

    def commit(self, messages: Messages, batch_id: int | None) -> None:
        _log.info("written%s: %s", _of_batch(batch_id), _totals(messages) or "nothing")

    def abort(self, messages: Messages, batch_id: int | None) -> None:
        if totals := _totals(messages):
            _log.warning("failed%s; what is written stays: %s", _of_batch(batch_id), totals)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let Python look for cycles among a hundred thousand new objects, not each few hundred: records
    have none. 1.0 million rows of 100 bytes a second with it, 0.64 without (client and Arrow alone).
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _of_batch(batch_id: int | None) -> str:
    return "" if batch_id is None else f" in batch {batch_id}"


def _totals(messages: Messages) -> str:
    total = Written()
    for message in messages:
        if isinstance(message, Written):
            for topic, count in message.topics.items():
                total.add(topic, *count)
    texts = (f"{topic}: {rows} rows, {size} bytes" for topic, (rows, size) in total.topics.items())
    return "; ".join(texts)


def _check(options: Options, use: Use) -> None:
    if options.source != "kafka":
        raise OptionError("source", f"{options.source} can be read, but not written")
    options.check_use(use)


def delivery_of(options: Options, schema: StructType, use: Use) -> Delivery:
    """What the options ask for. Raises OptionError, SchemaError for columns that do not fit, and
    SparkSourceError where delivery=journal cannot finish what it has begun before."""
    if options["delivery"] == "journal":
        from krammar.spark.journal import delivery  # which imports this module

        return delivery.delivery_of(options, schema, use)
    return AtLeastOnce(options, OutColumns.of(schema, options["topic"]))


class KafkaWriter(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.delivery.write(iterator)

    def commit(self, messages: Messages) -> None:
        self.delivery.commit(messages, None)

    def abort(self, messages: Messages) -> None:
        self.delivery.abort(messages, None)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``, for each micro-batch."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.delivery.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        self.delivery.commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        self.delivery.abort(messages, batchId)


def writer(options: Options, schema: StructType, overwrite: bool) -> KafkaWriter:
    """Raises SparkSourceError for the mode, OptionError and SchemaError."""
    _check(options, Use.WRITE)
    if overwrite:
        raise SparkSourceError("mode overwrite: topics are appended to; only mode append is there")
    return KafkaWriter(delivery_of(options, schema, Use.WRITE))


def stream_writer(options: Options, schema: StructType) -> KafkaStreamWriter:
    """In output mode complete all rows of each micro-batch are appended, as Spark's own Kafka connector
    has it. Raises OptionError and SchemaError."""
    _check(options, Use.WRITE_STREAM)
    return KafkaStreamWriter(delivery_of(options, schema, Use.WRITE_STREAM))
