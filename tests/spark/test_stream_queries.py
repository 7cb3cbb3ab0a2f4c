"""Streaming queries of Spark: restarts, failures, triggers, and the progress report."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from krammar.broker import Broker
from krammar.client import Client
from tests.spark.stream_support import given, produce
from tests.spark.support import rows, started

needs_limits = pytest.mark.skipif(
    find_spec("pyspark.sql.streaming.datasource") is None, reason="sources have limits since 4.2"
)


def stream(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    """Read a broker's topics as a stream."""
    return spark.readStream.format("krammar").options(**given(broker, options)).load()


def start(
    writer: DataStreamWriter, checkpoint: Path, wait: bool = True, **trigger: Any
) -> StreamingQuery:
    """A query, with Trigger.AvailableNow unless another one is given, up to its end; without ``wait`` until it
    has written all there is."""
    trigger = trigger or {"availableNow": True}
    return started(
        writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger),
        checkpoint,
        lambda query: query.awaitTermination() if wait else query.processAllAvailable(),
    )


def offsets(query: StreamingQuery, which: str) -> list[Any]:
    """``startOffset``, ``endOffset`` or ``latestOffset`` of each batch, without the ids of topics."""
    found = [json.loads(progress.json)["sources"][0][which] for progress in query.recentProgress]
    texts = [json.loads(each) if isinstance(each, str) else each for each in found]
    return [each and {name: value for name, value in each.items() if value} for each in texts]


class Sink:
    """Writes each batch to its own file, so that a repeated write changes nothing. Tests let it fail, before or
    after it has written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fail = ""
        self.batches: list[int] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches.append(number)
        if self.fail == "before":
            raise RuntimeError("before writing")
        found = [list(row) for row in frame.select("partition", "offset", "value").collect()]
        lines = sorted([p, o, bytes(value).decode()] for p, o, value in found)
        (self.path / str(number)).write_text(json.dumps(lines))
        if self.fail == "after":
            raise RuntimeError("after writing")

    def records(self) -> list[list[Any]]:
        return [
            each
            for path in sorted(self.path.iterdir(), key=lambda path: int(path.name))
            for each in json.loads(path.read_text())
        ]


@needs_limits
def test_small_batches_are_fetched_once(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path
) -> None:
    """Spark takes the rows that were read at planning, and runs no task that reads them again."""
    metrics = broker.metrics
    client.admin.create_topic("small", 2)
    frame = stream(spark, broker, subscribe="small", startingOffsets="earliest")
    writer = frame.writeStream.format("memory").queryName("small")
    query = start(writer, tmp_path, wait=False, processingTime="0 seconds")
    for _ in range(5):
        produce(broker, "small", {0: 30, 1: 20})
        query.processAllAvailable()
    query.stop()
    found = spark.table("small").select("partition", "offset").collect()
    assert sorted(map(tuple, found)) == [(p, o) for p in (0, 1) for o in range(150 - 50 * p)]
    sent = metrics.value("kafka_server_brokertopicmetrics_bytesout_total", topic="small")
    assert sent == metrics.value("kafka_server_brokertopicmetrics_bytesin_total", topic="small")


@pytest.mark.sweep
@needs_limits
def test_restarts_and_failures_at_every_batch(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path
) -> None:
    """Each batch is stopped after, or fails before or after it is written; records come all the time."""
    client.admin.create_topic("once", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    produced: list[list[Any]] = []
    counts = [0, 0]

    def more(number: int) -> None:
        for _ in range(number):
            partition = sum(counts) % 2
            value = f"value-{sum(counts)}"
            producer.produce("once", value.encode(), partition=partition)
            produced.append([partition, counts[partition], value])
            counts[partition] += 1
        assert producer.flush(PATIENCE) == 0

    (tmp_path / "out").mkdir()
    sink = Sink(tmp_path / "out")
    frame = stream(
        spark, broker, subscribe="once", startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    writer = frame.writeStream.foreachBatch(sink)
    for fail in ("before", "after", "", "after", ""):
        more(12)
        sink.fail = fail
        sink.batches.clear()
        if fail:
            with pytest.raises(StreamingQueryException, match=f"{fail} writing"):
                start(writer, tmp_path / "checkpoint")
            assert len(sink.batches) == 1
        else:
            start(writer, tmp_path / "checkpoint")
    assert sorted(sink.records()) == sorted(produced)
    assert len(produced) == 60


@needs_limits
def test_a_running_query(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path
) -> None:
    """The query starts at the latest offsets. New partitions and topics, headers, tasks, a minimum number of
    records, and the offsets in the progress work."""
    client.admin.create_topic("run-a", 1)
    produce(broker, "run-a", {0: 3}, b"before")
    frame = stream(
        spark,
        broker,
        subscribePattern="run-.*",
        includeHeaders=True,
        minPartitions=4,
        minOffsetsPerTrigger=5,
    )
    writer = frame.writeStream.format("memory").queryName("run")
    query = start(writer, tmp_path, False, processingTime="0 seconds")
    try:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("run-a", None, b"key", partition=0, headers=[("h", b"1"), ("h", None)])
        assert producer.flush(PATIENCE) == 0
        query.processAllAvailable()  # one record is not enough
        assert sum(progress.numInputRows for progress in query.recentProgress) == 0
        client.admin.create_partitions("run-a", 2)
        client.admin.create_topic("run-b", 1)
        produce(broker, "run-a", {1: 2})
        produce(broker, "run-b", {0: 9})
        query.processAllAvailable()
        ends = {"run-a": {"0": 4, "1": 2}, "run-b": {"0": 9}}
        assert offsets(query, "startOffset")[0] is None
        assert offsets(query, "endOffset")[0] == {"run-a": {"0": 3}}
        assert offsets(query, "endOffset")[-1] == ends
        assert offsets(query, "latestOffset")[-1] == ends
        assert sum(progress.numInputRows for progress in query.recentProgress) == 12
    finally:
        query.stop()
    found = rows(spark.table("run"))
    assert [(row.topic, row.partition, row.offset) for row in found] == [
        ("run-a", 0, 3),
        *(("run-a", 1, number) for number in range(2)),
        *(("run-b", 0, number) for number in range(9)),
    ]
    assert found[0].key == b"key"
    assert found[0].value is None
    assert found[0].headers == (("h", b"1"), ("h", None))
    assert found[1].headers is None


@needs_limits
def test_available_now_and_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Files, an aggregation with state, and a checkpoint that Kafka's connector has written."""
    produce(broker, "now", {0: 25})
    frame = stream(
        spark,
        broker,
        subscribe="now",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=10,
        minOffsetsPerTrigger=8,
    )
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))

    def number() -> int:
        return spark.read.parquet(str(tmp_path / "out")).select("offset").distinct().count()

    query = start(writer, tmp_path / "checkpoint")
    sizes = [progress.numInputRows for progress in query.recentProgress]
    assert [size for size in sizes if size] == [10, 10, 5]
    assert offsets(query, "latestOffset")[0] == {"now": {"0": 25}}
    produce(broker, "now", {0: 15})
    # As the connector writes it, without spaces and ids.
    last = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    *lines, end = last.read_text().splitlines()
    assert json.loads(end)["now"] == {"0": 25}
    for path in last.parent.glob(".*.crc"):
        path.unlink()
    last.write_text("\n".join([*lines, '{"now":{"0":25}}']))
    query = start(writer, tmp_path / "checkpoint", once=True)
    assert [progress.numInputRows for progress in query.recentProgress] == [15]
    assert number() == spark.read.parquet(str(tmp_path / "out")).count() == 40


def test_typed_columns(spark: SparkSession, broker: Broker, client: Client, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    produce(broker, "lag", {0: 9})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reads"})
    consumer.commit(offsets=[TopicPartition("lag", 0, 7)], asynchronous=False)
    consumer.close()
    frame = stream(
        spark,
        broker,
        subscribe="__consumer_offsets",
        decode="OffsetCommitValue",
        startingOffsets="earliest",
    )
    chosen = frame.select("key.group", "key.topic", "key.partition", "value.offset")
    start(chosen.writeStream.format("memory").queryName("lag"), tmp_path)
    assert [tuple(row) for row in spark.table("lag").collect()] == [("reads", "lag", 0, 7)]


def test_data_loss_and_other_errors(
    spark: SparkSession, broker: Broker, client: Client, tmp_path: Path
) -> None:
    produce(broker, "lose", {0: 4})

    def writer(**options: object) -> DataStreamWriter:
        frame = stream(spark, broker, **{"startingOffsets": "earliest", **options})
        return frame.writeStream.format("noop")

    start(writer(subscribe="lose"), tmp_path / "lose")
    produce(broker, "lose", {0: 4})
    client.admin.delete_records({("lose", 0): 6})
    with pytest.raises(
        StreamingQueryException,
        match="lose-0: offsets 4 to 5 were deleted before they were read; failOnDataL",
    ):
        start(writer(subscribe="lose"), tmp_path / "lose")
    query = start(writer(subscribe="lose", failOnDataLoss=False), tmp_path / "lose")
    assert [progress.numInputRows for progress in query.recentProgress] == [2]
    with pytest.raises(StreamingQueryException, match="topic 'nothing' does not exist"):
        start(writer(subscribe="lose,nothing"), tmp_path / "nothing")
