"""A query of Spark in its own process, whose workers and driver are killed.

A fault is an empty file in the folder FAULTS. It happens once, and the file is removed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from krammar.journal import AsyncAppend, Publisher
from krammar.journal.mapping import Mapping
from krammar.spark.datasource import KrammarDataSource
from krammar.spark.journal import delivery
from krammar.spark.journal.delivery import JournalDelivery
from krammar.spark.journal.intents import StoredIntents
from krammar.spark.journal.rows_out import Published
from tests.spark import sessions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FAULTS = "KRAMMAR_TEST_FAULTS"

WORKER = "worker-is-publishing"
DRIVER_PUBLISHING = "driver-is-killed-while-a-worker-publishes"
DRIVER_ACKNOWLEDGING = "driver-is-killed-between-intents-and-acknowledgements"


def strike(fault: str) -> None:
    folder = Path(os.environ[FAULTS])
    try:
        (folder / fault).unlink()
    except FileNotFoundError:
        return
    if fault != WORKER:
        for pid in (folder / "driver").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyPublisher(Publisher):
    def publish_uncommitted(self, mapping: Mapping, message: Any) -> AsyncAppend:
        append = super().publish_uncommitted(mapping, message)
        if any(Path(os.environ[FAULTS]).glob("*-*")):
            append.result()  # so that there is something to be seen twice
            strike(WORKER)
            strike(DRIVER_PUBLISHING)
        return append


class FaultyDelivery(JournalDelivery):
    def write(self, batches: Iterable[pa.RecordBatch]) -> Published:
        delivery.Publisher = FaultyPublisher  # type: ignore[attr-defined]
        return super().write(batches)

    def _append(self, stored: StoredIntents) -> None:
        strike(DRIVER_ACKNOWLEDGING)
        super()._append(stored)


class FaultyDataSource(KrammarDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        delivery.JournalDelivery = FaultyDelivery  # type: ignore[misc]
        return super().streamWriter(schema, overwrite)


def run(spark: SparkSession, source: str, folder: Path, servers: str, topic: str) -> None:
    """Run the query until all existing files are written."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
    query = (
        lines.load(str(folder / "in"))
        .repartition(2)
        .selectExpr("value as key", "value")
        .writeStream.format(source)
        .options(delivery="journal", topic=topic, checkpointLocation=str(folder / "checkpoint"))
        .option("kafka.bootstrap.servers", servers)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(folder: Path, servers: str, topic: str) -> None:
    spark = sessions.classic({"spark.master": "local[2,3]"})
    assert spark.sparkContext._jvm is not None
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    Path(os.environ[FAULTS], "driver").write_text(f"{os.getpid()} {jvm}")
    spark.dataSource.register(FaultyDataSource)
    run(spark, FaultyDataSource.name(), folder, servers, topic)


if __name__ == "__main__":
    # So that Spark's workers import what they would otherwise be sent.
    from tests.spark import journal_spark_driver

    journal_spark_driver.main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
