"""Brokers are killed, stopped and started, and partitions move, while Spark reads and writes: exactly the
records, once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.interop import content
from tests.interop.spark.alike import OURS, load
from tests.interop.spark.cluster import Cluster
from tests.interop.spark.gate import PATIENCE, Gate, through

# Topics, with the records of each of their partitions. A task gives rows when it has 32768 of them: that
# of ``long`` does so in its midst.
LONG, STEADY = "long", "steady"
COUNTS = {LONG: [120_000], STEADY: [10_000] * 6}


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> str:
    """Their values say where they are."""
    source = content.producer(
        cluster.bootstrap, enable_idempotence=True, queue_buffering_max_messages=1_000_000
    )
    for topic, counts in COUNTS.items():
        cluster.create(topic, len(counts))
        for partition, count in enumerate(counts):
            for offset in range(count):
                source.produce(topic, value_at(partition, offset), partition=partition)
            content.flush(source)
    return ",".join(COUNTS)


def value_at(partition: int, offset: int) -> bytes:
    return (b"%d %d " % (partition, offset)).ljust(100, b".")


def check(found: pa.Table, counts: dict[str, list[int]] = COUNTS) -> None:
    """All records, each once, with the right values."""
    found = found.select(["topic", "partition", "offset", "value"])
    found = found.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    got = zip(*(column.to_pylist() for column in found.columns), strict=True)
    wanted = (
        (topic, partition, offset, value_at(partition, offset))
        for topic in sorted(counts)
        for partition, count in enumerate(counts[topic])
        for offset in range(count)
    )
    for one, other in zip(got, wanted, strict=True):
        assert one == other


class Running(threading.Thread):
    """Something beside the test; ``result`` waits for what it gives."""

    def __init__(self, work: Callable[[], pa.Table]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: pa.Table | None = None
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except Exception as error:
            self._error = error

    def result(self) -> pa.Table:
        self.join(PATIENCE)
        assert not self.is_alive(), "the query does not end"
        if self._error is not None:
            raise self._error
        return self._result


def leader(cluster: Cluster, topic: str, partition: int) -> int:
    found: int = cluster.partitions(topic)[partition].leader
    return found


def reader_options(cluster: Cluster, topics: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topics,
        # Small answers: much is still to be fetched when a task waits.
        "kafka.max.partition.fetch.bytes": "100000",
    }


def test_a_batch_goes_on(spark: SparkSession, cluster: Cluster, topics: str) -> None:
    """A broker is killed, started again, another one stopped, and partitions move, each in the midst."""
    frame = load(spark, OURS, reader_options(cluster, topics))
    with Gate() as gate:
        held = frame.mapInArrow(through(gate.port), frame.schema)
        query = Running(held.toArrow)
        gate.wait(2)
        gone = leader(cluster, LONG, 0)  # which the first task has read from
        cluster.kill(gone)
        gate.let_through(3)
        gate.wait(1)
        cluster.start(gone)
        other = next(node for node in cluster.brokers if node != gone)
        cluster.stop(other)
        gate.let_through(2)
        gate.wait(1)
        stays = [node for node in cluster.brokers if node != other]
        cluster.reassign(STEADY, {n: stays[n % 2 :] + stays[: n % 2] for n in range(6)})
        gate.open()
        check(query.result())
    cluster.start(other)


def test_a_stream_from_topic_to_topic_goes_on(
    spark: SparkSession, cluster: Cluster, topics: str, tmp_path: Path
) -> None:
    """Before each of three micro-batches something happens to the brokers. Records are written once too, since no
    task fails."""
    target = "copied"
    cluster.create(target, 6)
    gone = leader(cluster, STEADY, 0)
    other = next(node for node in cluster.brokers if node != gone)
    happenings: list[Callable[[], None]] = [
        lambda: cluster.kill(gone),
        lambda: cluster.start(gone),
        lambda: cluster.reassign(STEADY, {0: [other, gone], 1: [gone]}),
    ]

    def copy(frame: DataFrame, number: int) -> None:
        if number < len(happenings):
            happenings[number]()
        rows = frame.select("key", "value", "partition")
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": target}
        rows.write.format(OURS).options(**options).mode("append").save()

    options = reader_options(cluster, STEADY)
    query = (
        spark.readStream.format(OURS)
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="20000")
        .load()
        .writeStream.foreachBatch(copy)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(2 * int(PATIENCE)), "the query does not end"
    finally:
        query.stop()
    assert cluster.brokers[gone].process is not None
    found = load(spark, OURS, reader_options(cluster, target)).toArrow()
    check(found, {target: COUNTS[STEADY]})
