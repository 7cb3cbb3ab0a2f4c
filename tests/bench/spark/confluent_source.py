"""A data source in Python that consumes with confluent-kafka: the least that one would write by hand.

A task for each partition, which librdkafka consumes, and Arrow columns of the messages; the columns are
those of Spark's own connector but the headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long,"
    " timestamp timestamp, timestampType int"
)
_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_WAIT = 60
_MESSAGES = 4000

Offsets = dict[str, int]


@dataclass
class Span(InputPartition):
    """Offsets of a partition, from ``begin`` to before ``end``."""

    partition: int
    begin: int
    end: int


class ConfluentSource(DataSource):
    """``format("confluent")`` with ``kafka.bootstrap.servers`` and ``subscribe``, a topic."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self.options)


class _Reader:
    def __init__(self, options: Mapping[str, str]) -> None:
        self.servers = options["kafka.bootstrap.servers"]
        self.topic = options["subscribe"]

    def consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 8 << 20,
                "queued.max.messages.kbytes": 65536,
                # By default it pauses for a second once it has 100,000 records in its queue.
                "fetch.queue.backoff.ms": 1,
                "log_level": 2,
            }
        )

    def watermarks(self) -> dict[int, tuple[int, int]]:
        from confluent_kafka import TopicPartition

        consumer = self.consumer()
        try:
            found = consumer.list_topics(self.topic, _WAIT).topics[self.topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(self.topic, number), _WAIT)
                for number in found
            }
        finally:
            consumer.close()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from confluent_kafka import TopicPartition

        assert isinstance(partition, Span)
        number, position, end = partition.partition, partition.begin, partition.end
        consumer = self.consumer()
        consumer.assign([TopicPartition(self.topic, number, position)])
        moment = pa.timestamp("us", tz="UTC")
        try:
            while position < end:
                messages = consumer.consume(min(_MESSAGES, end - position), _WAIT)
                count = len(messages)
                if not count or messages[-1].error() is not None:
                    raise RuntimeError(f"{self.topic}-{number}: stopped at {position} of {end}")
                times = [message.timestamp() for message in messages]
                arrays = [
                    pa.array([message.key() for message in messages], pa.binary()),
                    pa.array([message.value() for message in messages], pa.binary()),
                    pa.repeat(pa.scalar(self.topic), count),
                    pa.repeat(pa.scalar(number, pa.int32()), count),
                    pa.array([message.offset() for message in messages], pa.int64()),
                    pa.array([when * 1000 for _, when in times], pa.int64()).cast(moment),
                    # librdkafka counts from 1.
                    pa.array([kind - 1 for kind, _ in times], pa.int32()),
                ]
                yield pa.record_batch(arrays, names=list(_NAMES))
                position = messages[-1].offset() + 1
        finally:
            consumer.close()


class BatchReader(_Reader, DataSourceReader):
    def partitions(self) -> list[Span]:
        return [Span(number, low, high) for number, (low, high) in self.watermarks().items()]


class StreamReader(_Reader, DataSourceStreamReader):
    def initialOffset(self) -> Offsets:
        return {str(number): low for number, (low, _) in self.watermarks().items()}

    def latestOffset(self) -> Offsets:  # type: ignore[override]
        return {str(number): high for number, (_, high) in self.watermarks().items()}

    def partitions(self, start: Offsets, end: Offsets) -> list[Span]:
        return [
            Span(int(number), start[number], high)
            for number, high in end.items()
            if start[number] < high
        ]
