"""Errors as users see them, also for modes that Spark does not offer to data sources in Python."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from krammar.broker import Broker
from krammar.client import Client
from krammar.spark.limits import HAS_LIMITS
from tests.spark.test_stream_queries import needs_limits

# The last lines of a traceback, which fit on a screen. Before PySpark 4.2, the plan of a stream follows.
LAST = 15 if HAS_LIMITS else 25


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a record in the topic t."""
    with Broker.start() as broker:
        with Client(broker.bootstrap_servers) as client, client.producer() as producer:
            producer.send("t", b"value", key=b"key")
        yield broker


@pytest.fixture(scope="module")
def nowhere() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def shown(action: Callable[[], object]) -> list[str]:
    """The lines that Python prints for the error of an action, without the stack of the JVM, which Spark Connect and
    PySpark 4.1 add."""
    with pytest.raises(PySparkException) as error:
        action()
    text, *_ = "".join(traceback.format_exception(error.value)).split("\n\nJVM stacktrace:")
    return [line for line in text.splitlines() if not line.startswith("\tat ")]


def read(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    return spark.read.format("krammar").options(**given(servers, options)).load()


def stream(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    return spark.readStream.format("krammar").options(**given(servers, options)).load()


def given(servers: str, options: dict[str, str]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.krammar.retry.bootstrap": "false",
        "kafka.max.block.ms": "2000",
        "subscribe": "t",
        **options,
    }


def run(frame: DataFrame, folder: Path, **options: str) -> None:
    """Run a stream to its end."""
    writer = frame.writeStream.format("noop").options(**options)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()


def write(spark: SparkSession, servers: str) -> None:
    options = given(servers, {"topic": "out"})
    del options["subscribe"]
    frame = spark.createDataFrame([("v",)], ["value"])
    frame.write.format("krammar").mode("append").options(**options).save()


def write_stream(spark: SparkSession, servers: str, nowhere: str, folder: Path) -> None:
    options = given(nowhere, {"topic": "out", "checkpointLocation": str(folder)})
    del options["subscribe"]
    frame = stream(spark, servers, startingOffsets="earliest").select("key", "value")
    writer = frame.writeStream.format("krammar").options(**options).trigger(availableNow=True)
    writer.start().awaitTermination()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxTriggerDelay": "1s"}, "option 'maxTriggerDelay': has no meaning without minOffsets"),
        ({"endingOffsets": "latest"}, "option 'endingOffsets': "),
    ],
)
@needs_limits
def test_the_reason_is_the_last_line_for_wrong_options_of_a_stream(
    spark: SparkSession, broker: Broker, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    servers = str(broker.bootstrap_servers)
    lines = shown(lambda: run(stream(spark, servers, **options), tmp_path))
    assert not any("UnboundLocalError" in line for line in lines)
    # Spark prints its state after the traceback.
    after = next(at for at, line in enumerate(lines) if line.startswith("=== Streaming Query"))
    traceback_lines = [line for line in lines[:after] if line.strip() and "SQLSTATE" not in line]
    assert sentence in traceback_lines[-1]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("read", "no server can be reached"),
        ("stream", "no server can be reached"),
        ("write", "no server can be reached"),
        ("write stream", "no server can be reached"),
        ("option", "option 'subscribes': is unknown; did you mean \"subscribe\"?"),
        ("missing topic", "topic 'nope' does not exist"),
        ("missing topic in a stream", "topic 'nope' does not exist"),
        ("missing offset", "t-0 begins at offset 50, but ends at 1"),
        ("malformed", "t-0, offset 0: the key is of kind"),
        ("malformed in a stream", "t-0, offset 0: the key is of kind"),
    ],
)
def test_our_sentence_is_within_the_last_lines(
    spark: SparkSession, broker: Broker, nowhere: str, tmp_path: Path, case: str, sentence: str
) -> None:
    servers = str(broker.bootstrap_servers)
    strict = {"decode": "OffsetCommitValue", "mode": "FAILFAST", "startingOffsets": "earliest"}
    actions: dict[str, Callable[[], object]] = {
        "read": lambda: read(spark, nowhere).count(),
        "stream": lambda: run(stream(spark, nowhere), tmp_path),
        "write": lambda: write(spark, nowhere),
        "write stream": lambda: write_stream(spark, servers, nowhere, tmp_path),
        # Spark Connect loads when it needs the columns.
        "option": lambda: read(spark, servers, subscribes="t").schema,
        "missing topic": lambda: read(spark, servers, subscribe="nope").count(),
        "missing topic in a stream": lambda: run(
            stream(spark, servers, subscribe="nope"), tmp_path
        ),
        "missing offset": lambda: read(spark, servers, startingOffsets='{"t": {"0": 50}}').count(),
        "malformed": lambda: read(spark, servers, **strict).collect(),
        "malformed in a stream": lambda: run(stream(spark, servers, **strict), tmp_path),
    }
    lines = shown(actions[case])
    text = "\n".join(lines[-LAST:])
    assert sentence in text, "\n".join(lines)
    chained = ("was the direct cause", "another exception occurred")
    assert not any(word in line for line in lines for word in chained), "\n".join(lines)


# Spark decides about these before it asks a data source in Python.


def test_output_mode_update(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    servers = str(broker.bootstrap_servers)
    counts = stream(spark, servers).groupBy("key").count()
    frame = counts.selectExpr("key", "cast(count as string) AS value")
    writer = (
        frame.writeStream.format("krammar")
        .outputMode("update")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "updated")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    assert "krammar does not support Update mode" in "\n".join(
        shown(lambda: writer.start().awaitTermination())
    )


def test_output_mode_update_in_foreach_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """The way that docs/spark.md names."""
    servers = str(broker.bootstrap_servers)
    counts = stream(spark, servers, startingOffsets="earliest").groupBy("key").count()

    def save(frame: DataFrame, _: int) -> None:
        (
            frame.selectExpr("key", "cast(count as string) AS value")
            .write.format("krammar")
            .mode("append")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", "counts")
            .save()
        )

    writer = counts.writeStream.outputMode("update").foreachBatch(save)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    with Client(servers) as client:
        assert [(r.key, r.value) for _, r in client.records("counts")] == [(b"key", b"1")]


def test_continuous_processing(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    frame = stream(spark, str(broker.bootstrap_servers))
    writer = frame.writeStream.format("console").option("checkpointLocation", str(tmp_path))
    lines = shown(lambda: writer.trigger(continuous="1 second").start())
    assert "krammar does not support continuous processing" in lines[-1]


@needs_limits
@pytest.mark.parametrize("sink", ["krammar", "console"])
def test_real_time_mode(spark: SparkSession, broker: Broker, tmp_path: Path, sink: str) -> None:
    servers = str(broker.bootstrap_servers)
    writer = (
        stream(spark, servers)
        .writeStream.format(sink)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path))
        .trigger(realTime="5 seconds")
    )
    if sink == "krammar":
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", "out")
    lines = shown(lambda: writer.start().awaitTermination())
    assert "Streaming real-time mode has the following limitation" in "\n".join(lines)
