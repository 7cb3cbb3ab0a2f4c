"""One query reads a million records: each of them once, in memory that does not grow with their number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from krammar.broker import Broker

RECORDS = 1_000_000
PARTITIONS = 1
EACH = RECORDS // PARTITIONS
# A task reads 100 MB of values. It may add to a worker: two responses of the broker (8 MiB each), the
# columns built from them, Spark's copy of these, and 32 MiB of freed memory. With four million records the
# peak is the same. A worker that keeps everything it has read needs 100 MB more.
BUFFERS = 120 << 20
# Python with PySpark, PyArrow and the classes of the protocol.
IMPORTED = 128 << 20


@pytest.fixture
def million() -> Iterator[Broker]:
    """Value ``n``, as text of 100 bytes, is in partition ``n % PARTITIONS``."""
    with Broker.start() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("million", PARTITIONS)])["million"].result()
        producer = Producer(
            {
                **servers,
                "linger.ms": "100",
                "batch.num.messages": "10000",
                "queue.buffering.max.messages": str(RECORDS),
            }
        )
        for number in range(RECORDS):
            producer.produce("million", b"%100d" % number, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE) == 0
        yield broker


def test_each_once_in_bounded_memory(spark: SparkSession, million: Broker) -> None:
    frame = (
        spark.read.format("krammar")
        .option("kafka.bootstrap.servers", million.bootstrap_servers)
        .option("subscribe", "million")
        .load()
        .selectExpr("partition", "offset", "cast(trim(cast(value as string)) as bigint) as number")
    )
    before = _workers()
    for process in before:
        (process / "clear_refs").write_text("5")  # its peak is now its present memory
    totals = frame.groupBy("partition").agg(
        *(
            make(column)
            for column in ("number", "offset")
            for make in (F.count, F.sum, F.min, F.max)
        ),
        # Detects swapped numbers, which a sum does not.
        F.sum(F.col("number") * F.col("offset")),
    )
    found = {row[0]: tuple(row[1:]) for row in totals.collect()}
    after = _workers()

    expected = {}
    for partition in range(PARTITIONS):
        numbers = range(partition, RECORDS, PARTITIONS)
        offsets = range(EACH)
        expected[partition] = (
            *(EACH, sum(numbers), numbers[0], numbers[-1]),
            *(EACH, sum(offsets), 0, EACH - 1),
            sum(number * offset for number, offset in zip(numbers, offsets, strict=True)),
        )
    assert found == expected
    if Path("/proc/self/status").exists():
        assert after
    for process, (_, peak) in after.items():
        had, _ = before.get(process, (0, 0))
        assert peak <= max(had, IMPORTED) + BUFFERS, f"{process}: {had} grew to {peak} bytes"


def _workers() -> dict[Path, tuple[int, int]]:
    """What Spark's Python workers below this process have and have had at most, in bytes, where there is
    Linux's /proc."""
    children: dict[int, list[Path]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(stat.parent)
    found = {}
    waiting = [os.getpid()]
    while waiting:
        for process in children.get(waiting.pop(), ()):
            waiting.append(int(process.name))
            try:
                command = (process / "cmdline").read_bytes().split(b"\0")
                status = (process / "status").read_text()
            except OSError:
                continue
            if b"pyspark.worker" in command:
                has, peak = (
                    int(re.findall(rf"{name}:\s*(\d+) kB", status)[0]) * 1024
                    for name in ("VmRSS", "VmHWM")
                )
                found[process] = has, peak
    return found
