"""Streams without Spark: the same calls in the same order, and the same state in a checkpoint."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from krammar.broker import Broker
from krammar.spark.datasource import FailingStreamReader, KrammarDataSource
from krammar.spark.kafka.stream.reader import KafkaStreamReader, PlainStreamReader
from krammar.spark.options import Options
from tests.support.waiting import PATIENCE

Json = dict[str, dict[str, int]]
Where = tuple[str, int, int]


def produce(broker: Broker, topic: str, counts: Mapping[int, int], value: bytes = b"v") -> None:
    """Write these numbers of records to the partitions of a topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE) == 0


def given(broker: Broker, options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark hands them over; ``__`` in a name is a dot."""
    texts = {name.replace("__", "."): str(value) for name, value in options.items()}
    return {"kafka.bootstrap.servers": str(broker.bootstrap_servers), **texts}


@dataclass
class Checkpoint:
    """The ends of batches, and the number of committed ones."""

    ends: list[Json] = field(default_factory=list)
    committed: int = 0


class Query:
    """One run of a query. Offsets and tasks pass through their serialized forms, as between processes."""

    def __init__(
        self,
        broker: Broker,
        checkpoint: Checkpoint | None = None,
        *,
        available_now: bool = False,
        plain: bool = False,
        **options: object,
    ) -> None:
        if not plain:
            pytest.importorskip(
                "pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed"
            )
        self.checkpoint = checkpoint or Checkpoint()
        self.plain = plain
        self.available_now = available_now
        source = KrammarDataSource(given(broker, options))
        self.reader: Any = source.streamReader(source.schema())
        if isinstance(self.reader, FailingStreamReader):
            self.reader.initialOffset()  # raises
        assert isinstance(self.reader, KafkaStreamReader)
        if plain:
            parsed = Options(given(broker, options))
            self.reader = PlainStreamReader(parsed, source.schema())
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit = None if plain else self.reader.getDefaultReadLimit()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def batch(self, *, fail: bool = False, once: bool = False) -> list[Where] | None:
        """Return the records of the next batch in order, or None if there is no batch. With ``fail``, the batch is
        read but not committed, and this run ends."""
        log = self.checkpoint
        if len(log.ends) == log.committed:
            end = self._end(once)
            if log.ends and end == log.ends[-1]:
                return None
            log.ends.append(end)
        elif self.plain and log.committed:
            self.reader.partitions(log.ends[-1], log.ends[-1])
        start = log.ends[log.committed - 1] if log.committed else self._initial()
        end = log.ends[-1]
        tasks = self.reader.partitions(start, end)
        assert pickle.dumps(self.reader.partitions(start, end)) == pickle.dumps(tasks)
        passed = self.passed(start, end)
        found = [
            where
            for task in tasks
            for where in _where(self.reader.read(pickle.loads(pickle.dumps(task))))
        ]
        assert passed in (None, found)
        if not fail:
            log.committed += 1
        return sorted(found)

    def passed(self, start: Json, end: Json) -> list[Where] | None:
        """The rows of a planned batch that the reader has read itself, asked for as Spark does."""
        if not isinstance(self.reader, _SimpleStreamReaderWrapper):
            return None
        return _where(self.reader.getCache(start, end))

    def _initial(self) -> Json:
        return _copy(self.reader.initialOffset())

    def _end(self, once: bool) -> Json:
        if self.plain:
            return _copy(self.reader.latestOffset())
        # PySpark 4.1 does not have it.
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        start = self.checkpoint.ends[-1] if self.checkpoint.ends else self._initial()
        return _copy(self.reader.latestOffset(start, ReadAllAvailable() if once else self.limit))

    def rest(self) -> list[Where]:
        """What all batches have until there is none."""
        found: list[Where] = []
        while (batch := self.batch()) is not None:
            found += batch
        return found


def _where(batches: Iterable[pa.RecordBatch]) -> list[Where]:
    return [
        where
        for batch in batches
        for where in zip(
            batch.column("topic").to_pylist(),
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            strict=True,
        )
    ]


def _copy(offsets: Json) -> Json:
    result: Json = json.loads(json.dumps(offsets))
    return result


def records(topic: str, partition: int, *offsets: range) -> list[Where]:
    """Return topic, partition and offset of records."""
    return [(topic, partition, offset) for each in offsets for offset in each]


def by_partition(found: list[Where]) -> dict[int, int]:
    """Return the number of records of each partition."""
    return dict(sorted(Counter(partition for _, partition, _ in found).items()))
