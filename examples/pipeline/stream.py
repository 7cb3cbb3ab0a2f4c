"""Revenue by window and country: a streaming aggregation of typed records into Parquet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipeline.events import WINDOW_MINUTES, Tally
from examples.pipeline.report import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

# Longer than the delay of orders, events.LATEST_MS.
WATERMARK = "20 minutes"


@dataclass(frozen=True)
class Revenue:
    """A row of the result: a window and a country. ``begin_ms`` is in milliseconds since 1970."""

    begin_ms: int
    country: str
    orders: int
    cents: int


@dataclass(frozen=True)
class Job:
    """The query: what it reads, where it writes, and the size of its micro-batches."""

    bootstrap: str
    topic: str
    output: Path
    checkpoint: Path
    offsets_per_batch: int

    def orders(self, spark: SparkSession) -> DataFrame:
        """Return the topic as a stream; values are structs with the fields of ``OrderPlaced``."""
        return (
            spark.readStream.format("krammar")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self.offsets_per_batch))
            .option("decode", "shop.OrderPlaced")
            .load()
        )

    def revenue(self, spark: SparkSession) -> DataFrame:
        """Return the revenue. A window is written once, when no order for it can arrive any more."""
        from pyspark.sql import functions as F

        window = F.window("timestamp", f"{WINDOW_MINUTES} minutes")
        return (
            self.orders(spark)
            .withWatermark("timestamp", WATERMARK)
            .groupBy(window.alias("window"), F.col("value.country").alias("country"))
            .agg(F.count("*").alias("orders"), F.sum("value.total").alias("cents"))
            .select(F.col("window.start").alias("begin"), "country", "orders", "cents")
        )

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start a query that reads all records in micro-batches, and ends. It continues from its checkpoint."""
        return (
            self.revenue(spark)
            .writeStream.format("parquet")
            .outputMode("append")
            .option("path", str(self.output))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def begun(self) -> int:
        """Return how many micro-batches have begun."""
        return self._count("offsets")

    def committed(self) -> int:
        """Return how many micro-batches are done."""
        return self._count("commits")

    def _count(self, folder: str) -> int:
        return sum(path.name.isdigit() for path in (self.checkpoint / folder).glob("*"))


def run_stream(spark: SparkSession, job: Job, report: Report, stop_after: int | None = None) -> int:
    """Run the query to its end, or stop it in the middle of a micro-batch.

    Args:
        stop_after: after how many micro-batches to stop.

    Returns:
        How many records the query reports.

    Raises:
        StreamingQueryException: the query has failed.
    """
    read = 0
    with _running(job.start(spark)) as query:
        for number, batch in enumerate(_batches(query), 1):
            read += batch.numInputRows
            watermark = batch.eventTime.get("watermark", "")
            report.say(
                f"batch {batch.batchId:>3}  {batch.numInputRows:>8,} orders"
                f"   watermark {_clock(watermark)}"
                f"   {batch.durationMs['triggerExecution'] / 1000:5.1f} s"
            )
            if number == stop_after:
                break
    return read


@contextmanager
def _running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def _batches(query: StreamingQuery) -> Iterator[StreamingQueryProgress]:
    """Yield the progress of each micro-batch when it is done."""
    last = -1
    while True:
        # Read this first: if the query has ended, its progress is complete.
        active = query.isActive
        for progress in query.recentProgress:
            # A micro-batch without records is reported too, under the number of the next one.
            if progress.batchId > last and "addBatch" in progress.durationMs:
                last = progress.batchId
                yield progress
        if not active:
            error = query.exception()
            if error is not None:
                raise error
            return
        time.sleep(0.1)


def _clock(moment: str) -> str:
    """Return hours and minutes of ISO 8601. Spark's first watermark, before any record, is 1970."""
    return "  -  " if not moment or moment.startswith("1970") else moment[11:16]


def result(spark: SparkSession, job: Job) -> list[Revenue]:
    """Return the content of the Parquet files, sorted."""
    rows = (
        spark.read.parquet(str(job.output))
        .selectExpr("unix_millis(begin) as begin_ms", "country", "orders", "cents")
        .orderBy("begin_ms", "country")
        .collect()
    )
    return [Revenue(*row) for row in rows]


def compare(found: list[Revenue], tally: Tally, until_ms: int) -> list[str]:
    """Compare the result with the produced orders, for windows that begin before ``until_ms``.

    Returns:
        One line per difference; an empty list if each window and country appears once with the right sums.
    """
    produced = {
        at: (count, tally.cents[at]) for at, count in tally.orders.items() if at[0] < until_ms
    }
    seen = {(row.begin_ms, row.country): (row.orders, row.cents) for row in found}
    wrong = [
        f"window {at}, {country}: produced {produced.get((at, country))} orders and cents, "
        f"found {seen.get((at, country))}"
        for at, country in sorted(produced.keys() | seen.keys())
        if produced.get((at, country)) != seen.get((at, country))
    ]
    if len(seen) != len(found):
        wrong.append(f"{len(found) - len(seen)} rows are duplicates")
    return wrong
