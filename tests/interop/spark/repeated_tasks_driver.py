"""A driver with two executors, whose tasks fail or are repeated: ``test_repeated_tasks.py`` runs it.

The first attempt of one task writes some of its rows. Then it fails, or waits until Spark runs it a second time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS = 400
# Long enough that Spark passes a batch of ten rows on at once.
_LENGTH = 10_000
# The batch of the first attempt that it ends with, out of ten.
_BATCH = 6
_FAILS, _IS_SLOW = "fails", "is slow"
# The topics that are written, by what happens and the delivery.
TOPICS = {
    (how, delivery): f"{how}-{delivery}".replace(" ", "-")
    for how in (_FAILS, _IS_SLOW)
    for delivery in ("journal", "at-least-once")
}
_PAUSE = 2.0  # until the sink has sent what it has
_LATE = 60.0  # seconds, longer than all other tasks


def repeated(how: str) -> Any:
    """Return what a task does with its rows."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        first = context.partitionId() == 0 and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if first and number == _BATCH and how == _FAILS:
                time.sleep(_PAUSE)
                raise RuntimeError("the first attempt fails")
            if first and number == _BATCH and how == _IS_SLOW:
                time.sleep(_LATE)
            yield batch.slice(half)

    return work


def main() -> None:
    master, servers, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.task.maxFailures": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        # Several batches per task, so that the sink gets rows before its input ends.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
        "spark.local.dir": folder,
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(0, ROWS, numPartitions=4).selectExpr(f"rpad(id, {_LENGTH}, ' ') AS value")
    for (how, delivery), topic in TOPICS.items():
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": delivery}
        options["kafka.batch.size"] = str(_LENGTH)
        if delivery == "journal":
            options["intents"] = os.path.join(folder, "intents")
        writer = rows.mapInArrow(repeated(how), "value string").write.format("krammar")
        writer.mode("append").options(**options).save()
        print("saved", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
