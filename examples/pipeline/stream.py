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

# Longer than orders are late, as events.LATEST_MS has it.
WATERMARK = "20 minutes"


@dataclass(frozen=True)
class Revenue:
    """A row of the result: a window, which begins ``begin_ms`` after 1970, and a country."""

    begin_ms: int
    country: str
    orders: int
    cents: int


@dataclass(frozen=True)
class Job:
    """The query: what it reads, where it writes, and how much it takes at once."""

    bootstrap: str
    topic: str
    output: Path
    checkpoint: Path
    offsets_per_batch: int

    def orders(self, spark: SparkSession) -> DataFrame:
        """The topic as a stream, each value a struct with the fields of ``OrderPlaced``."""
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
        """A window is written once, when no order for it can come any more."""
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
        """It takes all there is, a micro-batch after the other, and ends. The checkpoint says where it
        goes on."""
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
        """How many micro-batches the checkpoint has the offsets of."""
        return self._count("offsets")

    def committed(self) -> int:
        """How many of them are done."""
        return self._count("commits")

    def _count(self, folder: str) -> int:
        return sum(path.name.isdigit() for path in (self.checkpoint / folder).glob("*"))


def run_stream(spark: SparkSession, job: Job, report: Report, stop_after: int | None = None) -> int:
    """Run the query to its end, or stop it once that many of its micro-batches are done, in the middle
    of the next. How many records it has read, as it says itself.

    Raises StreamingQueryException where the query fails.
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
    """What the query says of each micro-batch, when it is done."""
    last = -1
    while True:
        # Asked before: what a query that has ended says is complete.
        active = query.isActive
        for progress in query.recentProgress:
            # One that had nothing to do says so too, under the number of the next.
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
    """Hours and minutes of ISO 8601; Spark begins at 1970, when it knows no time yet."""
    return "  -  " if not moment or moment.startswith("1970") else moment[11:16]


def result(spark: SparkSession, job: Job) -> list[Revenue]:
    """What is in the Parquet files, in order."""
    rows = (
        spark.read.parquet(str(job.output))
        .selectExpr("unix_millis(begin) as begin_ms", "country", "orders", "cents")
        .orderBy("begin_ms", "country")
        .collect()
    )
    return [Revenue(*row) for row in rows]


def compare(found: list[Revenue], tally: Tally, until_ms: int) -> list[str]:
    """How the result differs from what was produced for the windows that begin before ``until_ms``, one
    line a window and country; nothing if each is there once, with the right sums."""
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
        wrong.append(f"{len(found) - len(seen)} rows are there more than once")
    return wrong
