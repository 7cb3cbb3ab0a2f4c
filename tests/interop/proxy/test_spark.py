"""Spark's connector and krammar's source through a proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql import SparkSession

from krammar.client import Client
from tests.interop import content
from tests.interop.proxy.conftest import Through
from tests.interop.spark.alike import OURS, THEIRS

COUNT = 1_000


@pytest.mark.parametrize("kind", [OURS, THEIRS])
def test_batches_and_streams(
    spark: SparkSession, broker: Through, kind: str, tmp_path: Path
) -> None:
    """Write a batch, copy it with a stream of two runs, and read the copy."""
    source, copy = f"{kind}-source", f"{kind}-copy"
    for name in (source, copy):
        content.create(content.admin(broker.bootstrap), name, 2)
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    columns = ("cast(id as string) as key", "concat('order ', id) as value")

    def write(first: int, end: int) -> None:
        rows = spark.range(first, end).selectExpr(*columns)
        rows.write.format(kind).mode("append").options(**options, topic=source).save()

    def run() -> None:
        read = spark.readStream.format(kind).options(
            **options, subscribe=source, startingOffsets="earliest"
        )
        written = read.load().select("key", "value").writeStream.format(kind)
        query = (
            written.options(**options, topic=copy, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    write(0, COUNT // 2)
    run()
    write(COUNT // 2, COUNT)
    run()
    found = spark.read.format(kind).options(**options, subscribe=copy).load()
    rows = found.selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted((int(key), value) for key, value in rows) == [
        (number, f"order {number}") for number in range(COUNT)
    ]
    with Client(broker.bootstrap) as client:
        assert {source, copy} <= set(client.topics())
        for name in (source, copy):
            client.admin.delete_topic(name)
