"""Brokers are killed, stopped and started, and partitions move, while Spark reads and writes: exactly the
records, once. Only records of an interrupted micro-batch can appear twice."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyarrow as pa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.interop import content
from tests.interop.spark.alike import OURS, load
from tests.interop.spark.cluster import Cluster
from tests.interop.spark.gate import Gate, through

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
    """Runs a function in a thread; ``result`` waits for its result."""

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


# The sink of streams: each task has a batch of rows and more behind it while it waits at the gate.
ROWS_IN_ARROW = 500
ROWS_IN_TASK = 3000
AHEAD = 3
TASKS = len(COUNTS[STEADY])
KEYS = 8  # of each partition that is read
# So that what goes ahead is more than Spark keeps in buffers.
PADDING = "array(named_struct('key', 'padding', 'value', cast(repeat('.', 500) as binary))) headers"


@contextmanager
def copying(
    spark: SparkSession, cluster: Cluster, target: str, folder: Path, *, to_end: bool = False
) -> Iterator[tuple[StreamingQuery, Gate]]:
    """A query by the sink itself; with ``to_end``, it ends when all existing records are written. Records of one
    partition has a few keys of its own."""
    options = reader_options(cluster, STEADY)
    limit = str(TASKS * ROWS_IN_TASK)
    frame = (
        spark.readStream.format(OURS)
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        .load()
        .selectExpr(f"concat(partition, '-', offset % {KEYS}) key", "value", PADDING)
    )
    with Gate() as gate:
        query = (
            frame.mapInArrow(through(gate.port, AHEAD), frame.schema)
            .writeStream.format(OURS)
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("topic", target)
            # Many requests.
            .option("kafka.batch.size", "8192")
            .option("checkpointLocation", str(folder))
            .trigger(**({"availableNow": True} if to_end else {"processingTime": "0 seconds"}))
            .start()
        )
        try:
            yield query, gate
        finally:
            query.stop()
            # Its tasks are still there for a moment, and would write on if the gate opened now.
            cluster.until(lambda: running_tasks(spark) == 0)


def running_tasks(spark: SparkSession) -> int:
    found = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(executor.numRunningTasks() for executor in found)


def ends(cluster: Cluster, topic: str) -> dict[int, int]:
    """Where its partitions end."""
    asked = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for partition in cluster.partitions(topic)
    }
    found = cluster.admin.list_offsets(asked, request_timeout=PATIENCE)
    return {at.partition: future.result(PATIENCE).offset for at, future in found.items()}


def until_more_than(cluster: Cluster, topic: str, rows: int) -> None:
    def there() -> bool:
        """what tasks write before they are done"""
        return sum(ends(cluster, topic).values()) > rows

    cluster.until(there)


def by_key(found: pa.Table) -> dict[bytes, list[int]]:
    """Offsets that were read, in order of where they are now."""
    found = found.sort_by([("partition", "ascending"), ("offset", "ascending")])
    result: dict[bytes, list[int]] = defaultdict(list)
    for key, value in zip(*(found[name].to_pylist() for name in ("key", "value")), strict=True):
        partition, offset = map(int, value.split()[:2])
        assert key == b"%d-%d" % (partition, offset % KEYS)
        assert value == value_at(partition, offset)
        result[key].append(offset)
    return result


def test_the_sink_of_streams_goes_on(
    spark: SparkSession, cluster: Cluster, topics: str, tmp_path: Path
) -> None:
    """Tasks have written half of their rows when a broker is killed, started again, and when the partitions
    they write to move; then the query is stopped in its third micro-batch and goes on from its checkpoint,
    while another broker is killed. That micro-batch is written again, and all others once."""
    target = "sunk"
    cluster.create(target, 6)
    # Another test leaves a partition with one replica. Of a partition that has fewer than have to acknowledge
    # Kafka makes no broker the leader that was killed, though it is back.
    cluster.reassign(STEADY, {number: list(cluster.brokers) for number in range(TASKS)})
    of_batch = TASKS * ROWS_IN_TASK
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(setting, str(ROWS_IN_ARROW))
    try:
        with copying(spark, cluster, target, tmp_path) as (query, gate):
            gate.let_through(TASKS)
            gate.wait(2)
            until_more_than(cluster, target, of_batch)
            gone = leader(cluster, target, 0)
            cluster.kill(gone)
            gate.let_through(2)
            gate.wait(2)
            cluster.start(gone)
            # Away from where the tasks that wait have found them.
            wanted: dict[int, list[int]] = {}
            for number, now in cluster.partitions(target).items():
                stays = [node for node in cluster.brokers if node != now.leader]
                wanted[number] = stays[number % 2 :] + stays[: number % 2]
            cluster.reassign(target, wanted)
            gate.let_through(4)
            gate.wait(2)
            until_more_than(cluster, target, 2 * of_batch)
            gate.let_through(2)
            gate.wait(2)
            until_more_than(cluster, target, 2 * of_batch + 2 * ROWS_IN_TASK)
        assert query.exception() is None

        with copying(spark, cluster, target, tmp_path, to_end=True) as (query, gate):
            gate.wait(2)
            # Two replicas are all that have to have a record: without one of them none is written.
            other = wanted[0][0]
            gate.open()
            cluster.kill(other)
            cluster.start(other)
            assert query.awaitTermination(2 * int(PATIENCE)), "the query does not end"
            again = [each["batchId"] for each in query.recentProgress if each["numInputRows"]]
        assert again == [2, 3]

        before = ends(cluster, target)
        with copying(spark, cluster, target, tmp_path, to_end=True) as (query, gate):
            gate.open()
            assert query.awaitTermination(int(PATIENCE)), "the query does not end"
        assert ends(cluster, target) == before
    finally:
        spark.conf.unset(setting)

    found = by_key(load(spark, OURS, reader_options(cluster, target)).toArrow())
    assert len(found) == TASKS * KEYS
    first, last = 2 * ROWS_IN_TASK, 3 * ROWS_IN_TASK
    twice: dict[bytes, int] = {}
    for key, offsets in found.items():
        partition, rest = map(int, key.split(b"-"))
        wanted_once = list(range(rest, COUNTS[STEADY][partition], KEYS))
        stopped = [offset for offset in wanted_once if first <= offset < last]
        begun = len([offset for offset in wanted_once if offset < first])
        twice[key] = len(offsets) - len(wanted_once)
        # What was written of it before the stop is its beginning, and ahead of all of it.
        assert offsets[:begun] + offsets[begun + twice[key] :] == wanted_once
        assert offsets[begun : begun + twice[key]] == stopped[: twice[key]]
    # Two tasks were done with it, and others had begun.
    of_task = {p: sum(twice[b"%d-%d" % (p, rest)] for rest in range(KEYS)) for p in range(TASKS)}
    assert sum(count == ROWS_IN_TASK for count in of_task.values()) == 2
    assert sum(of_task.values()) > 2 * ROWS_IN_TASK
