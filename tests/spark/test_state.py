"""Streaming queries with state of their own: transformWithState, from a topic to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from krammar.testing import KafkaBroker
from tests.spark.test_stream_queries import needs_limits

_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


class _Count(StatefulProcessor):
    """Counts the rows of each key."""

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timers: Any) -> Iterator[Row]:
        before = self._total.get()[0] if self._total.exists() else 0
        total = before + sum(1 for _ in rows)
        self._total.update((total,))
        yield Row(key=key[0], value=str(total))

    def close(self) -> None:
        pass


@pytest.mark.sweep
@needs_limits
def test_state_survives_a_restart(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    spark.conf.set(_PROVIDER, _ROCKS)
    kafka_broker.create_topic("in", 1)
    servers = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers}
    producer = Producer(kafka_broker.clients.confluent_kafka)
    source = spark.readStream.format("krammar").options(**servers, subscribe="in")
    rows = source.option("startingOffsets", "earliest").load().selectExpr("cast(key AS string) key")
    counts = rows.groupBy("key").transformWithState(
        _Count(), "key string, value string", "Append", "None"
    )
    writer = counts.writeStream.format("krammar").options(**servers, topic="out")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    for _ in range(2):
        for key in ("a", "b", "a"):
            producer.produce("in", b"", key=key)
        assert producer.flush(PATIENCE) == 0
        writer.start().awaitTermination()
    spark.conf.unset(_PROVIDER)
    found = {(record.key, record.value) for record in kafka_broker.records("out")}
    assert found == {(b"a", b"2"), (b"b", b"1"), (b"a", b"4"), (b"b", b"2")}
