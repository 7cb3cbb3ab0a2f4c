"""Measure Spark at size: large topics and records, skewed, compacted and half aborted ones, and a long stream.

python -m tests.bench.spark.size                  everything, about twenty minutes and 5 GB of disk; writes its section
                                                  of docs/benchmarks.md
python -m tests.bench.spark.size --quick          two rounds, a twentieth of the records
python -m tests.bench.spark.size --only compacted one part
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.broker.contenders import Ours
from tests.bench.broker.measure import WAIT, client
from tests.bench.page import failures, machine, markdown_table, put_file, section, subsection
from tests.bench.spark.jobs import CONNECTOR, FORMATS, OURS, end_spark, start_spark, without_zips
from tests.interop.apache import class_path
from tests.interop.processes import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
_CONTENDERS = (OURS, CONNECTOR)
_MEGABYTE = 1 << 20
_STREAM = "stream"
_CHECKED = (100, 500)  # micro-batches


@dataclass(frozen=True)
class Load:
    """A topic: its records, and how many of them a reader must find; None if that is counted."""

    title: str
    records: int
    size: int  # bytes of a value
    partitions: int = 4
    config: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[int], int] = lambda index: -1  # the partition of a record; -1: its turn
    per_key: int = 0  # records of each key; 0: no keys
    transaction: int = 0  # records of each transaction; every second one is aborted


_LOADS = {
    "small": Load("5 million records of 100 B", 5_000_000, 100),
    "large": Load("400,000 records of 5 kB", 400_000, 5000),
    "skewed": Load(
        "1 million records of 1 kB, 90 % of them in one of 4 partitions",
        1_000_000,
        1000,
        place=lambda index: 0 if index % 10 else 1 + index // 10 % 3,
    ),
    "partitions": Load("1 million records of 100 B in 200 partitions", 1_000_000, 100, 200),
    "huge": Load("100 records of 10 MB", 100, 10_000_000, config={"max.message.bytes": "20000000"}),
    "compacted": Load(
        "2 million records of 100 B with 100,000 keys, compacted",
        2_000_000,
        100,
        config={
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
        },
        per_key=20,
    ),
    "aborted": Load(
        "1 million records of 100 B, half of them aborted; read_committed",
        1_000_000,
        100,
        transaction=1000,
    ),
}
_OPTIONS = {"aborted": {"kafka.isolation.level": "read_committed"}}
_BROKER = {
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "200",
    "message.max.bytes": "20000000",
    "socket.request.max.bytes": "200000000",
}


@dataclass
class Found:
    """Of one contender: seconds of each round, and the highest resident memory in bytes of a session's processes."""

    seconds: list[float] = field(default_factory=list)
    jvm: int = 0
    worker: int = 0


class AtSize:
    """The parts of a run on one broker, each with Spark sessions of its own."""

    def __init__(self, broker: Server, folder: Path, jars: str, *, quick: bool) -> None:
        self.broker = broker
        self.folder = folder
        self.jars = jars
        self.home = without_zips(folder)
        self.quick = quick
        self.found: dict[str, dict[str, Found]] = {}
        self.growth: list[tuple[str, ...]] = []

    def load(self, part: str) -> None:
        """Count a topic by both contenders in turns, then once by each in a session of its own for its memory."""
        load = _LOADS[part]
        count = max(load.records // (20 if self.quick else 1), 8)
        expected = fill(self.broker, part, load, count)
        self._say(f"{part}: written")
        found = self.found.setdefault(part, {name: Found() for name in _CONTENDERS})
        spark = start_spark(self.folder, self.jars, self.home)
        try:
            for turn in range(-1, 2 if self.quick else 3):
                for name in _CONTENDERS:
                    began = time.perf_counter()
                    self._count(spark, name, part, expected)
                    if turn >= 0:
                        found[name].seconds.append(time.perf_counter() - began)
        finally:
            end_spark(spark)
        for name in _CONTENDERS:
            spark = start_spark(self.folder, self.jars, self.home)
            try:
                self._count(spark, name, part, expected)
                found[name].jvm, found[name].worker = peaks()
            finally:
                end_spark(spark)
            self._say(f"{part}: {name} {median(found[name].seconds):.2f} s")

    def _count(self, spark: SparkSession, name: str, part: str, expected: int) -> None:
        options = {"subscribe": part, "kafka.bootstrap.servers": self.broker.bootstrap}
        reader = spark.read.format(FORMATS[name]).options(**options, **_OPTIONS.get(part, {}))
        # With count() alone, the connector's rows would have no values.
        frame = reader.load().selectExpr("sum(length(value)) AS bytes", "count(offset) AS records")
        records = frame.collect()[0]["records"]
        if records != expected:
            raise RuntimeError(f"{name}: {records:,} records, not {expected:,}")

    def stream(self) -> None:
        """One query with hundreds of micro-batches: memory and descriptors early and late."""
        last = _CHECKED[-1] // (10 if self.quick else 1)
        checked = [number // (10 if self.quick else 1) for number in _CHECKED]
        load = Load("", 0, 100)
        fill(self.broker, _STREAM, load, 20 * (last + 1))
        for name in _CONTENDERS:
            spark = start_spark(self.folder, self.jars, self.home)
            try:
                query = (
                    spark.readStream.format(FORMATS[name])
                    .option("kafka.bootstrap.servers", self.broker.bootstrap)
                    .options(
                        subscribe=_STREAM, startingOffsets="earliest", maxOffsetsPerTrigger="20"
                    )
                    .load()
                    .writeStream.format("noop")
                    .option("checkpointLocation", str(self.folder / f"stream-{name}"))
                    .start()
                )
                for number in checked:
                    wait_for_batch(query, number)
                    jvm, workers = held()
                    self.growth.append(
                        (
                            name,
                            f"{number:,}",
                            *(f"{each.resident // _MEGABYTE:,}" for each in (jvm, workers)),
                            *(f"{each.files:,}" for each in (jvm, workers)),
                            str(workers.processes),
                        )
                    )
                    self._say(f"stream: {' '.join(self.growth[-1])}")
                query.stop()
            finally:
                end_spark(spark)

    @staticmethod
    def _say(what: str) -> None:
        print(what, file=sys.stderr, flush=True)


def wait_for_batch(query: object, number: int) -> None:
    """Return when a query has ended a micro-batch. Raises RuntimeError if it fails, or takes over 20 minutes."""
    deadline = time.monotonic() + 1200
    while True:
        progress = query.lastProgress  # type: ignore[attr-defined]
        if progress is not None and progress["batchId"] >= number:
            return
        if time.monotonic() > deadline or not query.isActive:  # type: ignore[attr-defined]
            raise RuntimeError(f"no micro-batch {number}: {query.exception()}")  # type: ignore[attr-defined]
        time.sleep(0.2)


def fill(broker: Server, topic: str, load: Load, count: int) -> int:
    """Write ``count`` records to a new topic, and return how many of them are to be read."""
    admin = AdminClient(client(broker))
    new = NewTopic(topic, load.partitions, 1, config=dict(load.config))
    admin.create_topics([new])[topic].result(WAIT)
    settings = {
        "linger.ms": 50,
        "batch.size": 1_000_000,
        "message.max.bytes": 20_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    if load.transaction:
        settings["transactional.id"] = topic
    producer = Producer(client(broker) | settings)
    if load.transaction:
        producer.init_transactions(WAIT)
    source = random.Random(1)
    pieces = [source.randbytes(load.size) for _ in range(64 if load.size < _MEGABYTE else 4)]
    keys = count // load.per_key if load.per_key else 0
    kept = 0
    for index in range(count):
        if load.transaction and index % load.transaction == 0:
            producer.begin_transaction()
        place = load.place(index)
        key = b"%d" % (index % keys) if keys else None
        value = pieces[index % len(pieces)]
        # A compacted topic keeps each key in one partition.
        partition = (index if place < 0 else place) % load.partitions
        while True:
            try:
                producer.produce(topic, value, key, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        if not index & 1023:
            producer.poll(0)
        if load.transaction and (index + 1) % load.transaction == 0:
            if index // load.transaction % 2:
                producer.abort_transaction(WAIT)
            else:
                producer.commit_transaction(WAIT)
                kept += load.transaction
    if producer.flush(600):
        raise RuntimeError(f"{topic}: not all records were written")
    if keys:
        return compacted(broker, topic, load, count)
    return kept if load.transaction else count


def compacted(broker: Server, topic: str, load: Load, count: int) -> int:
    """Wait until the broker has compacted a topic, and return how many records it has."""
    deadline = time.monotonic() + WAIT
    while True:
        found = stored(broker, topic, load.partitions)
        if found < count // 2 and found == stored(broker, topic, load.partitions):
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic}: {found:,} of {count:,} records are left")
        time.sleep(1)


def stored(broker: Server, topic: str, partitions: int) -> int:
    """Count the records of a topic."""
    settings = {"group.id": "counting", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(client(broker) | settings)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    records = ended = 0
    while ended < partitions:
        for message in consumer.consume(10_000, 1):
            if message.error():
                ended += 1
            else:
                records += 1
    consumer.close()
    return records


@dataclass
class Held:
    """What processes hold: resident bytes, open files, and how many processes they are."""

    resident: int = 0
    files: int = 0
    processes: int = 0


def held() -> tuple[Held, Held]:
    """What the session's JVM holds, and Python's workers in all."""
    jvm, workers = Held(), Held()
    for pid, java in processes():
        of = jvm if java else workers
        of.resident += memory(pid, "VmRSS")
        of.files += len(list(Path(f"/proc/{pid}/fd").iterdir()))
        of.processes += 1
    return jvm, workers


def peaks() -> tuple[int, int]:
    """The highest resident memory in bytes of the session's JVM, and of its largest worker."""
    found = [(memory(pid, "VmHWM"), java) for pid, java in processes()]
    return (
        max((each for each, java in found if java), default=0),
        max((each for each, java in found if not java), default=0),
    )


def memory(pid: int, name: str) -> int:
    """A line of a process's status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def processes() -> Iterator[tuple[int, bool]]:
    """The session's processes, and whether each of them is the JVM."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    jvms = {
        pid
        for pid, parent in parents.items()
        if parent == os.getpid() and Path(f"/proc/{pid}/exe").resolve().name == "java"
    }
    for pid in parents:
        above = pid
        while above and above not in jvms:
            above = parents.get(above, 0)
        if above:
            yield pid, pid in jvms


def markdown(run: AtSize, errors: list[str]) -> str:
    def lines() -> Iterator[str]:
        yield "## Spark at size"
        yield ""
        yield "`make bench` (`python -m tests.bench.spark.size`) writes this section. Each job reads all records and sums the lengths of"
        yield "their values. Seconds are medians of rounds in which the two take turns in one session. Memory is the highest resident"
        yield "memory of the JVM and of the largest Python worker, in a session that ran the job once and nothing else; the JVM has a heap"
        yield "of 1 GB. The ratio is of seconds: above 1, krammar is faster."
        yield ""
        yield from machine()
        if run.quick:
            yield ""
            yield "**A quick run: few rounds, small topics, figures for orientation only.**"
        head = ["Topic"]
        head += [f"{name}, s" for name in _CONTENDERS] + ["Ratio"]
        head += [f"{name}, JVM, MB" for name in _CONTENDERS] + [f"{OURS}, worker, MB"]
        rows = []
        for part, found in run.found.items():
            ours, theirs = (found[name] for name in _CONTENDERS)
            if not (ours.seconds and theirs.seconds):
                continue
            times = [median(each.seconds) for each in (ours, theirs)]
            rows.append(
                (
                    _LOADS[part].title,
                    *(f"{each:.2f}" for each in times),
                    f"{times[1] / times[0]:.2f}",
                    *(f"{each // _MEGABYTE:,}" for each in (ours.jvm, theirs.jvm, ours.worker)),
                )
            )
        yield from subsection("Batch reads", "", markdown_table(head, rows))
        if run.growth:
            head = ["", "Micro-batch", "JVM, MB", "Workers, MB", "JVM, files", "Workers, files"]
            yield from subsection(
                "A long stream",
                "One query reads 20 records per micro-batch, without pauses. The table has the resident memory and the open files after\n"
                "100 and after 500 micro-batches.",
                markdown_table([*head, "Workers"], run.growth),
            )
        yield from failures(errors)

    return section("spark_size", "python -m tests.bench.spark.size", lines())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark.size",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, for orientation")
    parser.add_argument("--only", choices=[*_LOADS, _STREAM], help="measure one part")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    options = parser.parse_args()
    errors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="krammar-bench-") as name:
        folder = Path(name)
        jars = class_path("connector")
        parts = [options.only] if options.only else [*_LOADS, _STREAM]
        run: AtSize | None = None
        for part in parts:
            # A broker for each part, whose folder is removed before the next one.
            with (
                tempfile.TemporaryDirectory(prefix="krammar-bench-") as data,
                Ours(Path(data) / "broker", properties=_BROKER) as broker,
            ):
                run = run or AtSize(broker, folder, jars, quick=options.quick)
                run.broker = broker
                try:
                    run.stream() if part == _STREAM else run.load(part)
                except Exception as error:  # the other parts are measured all the same
                    errors.append(f"{part}: {str(error).partition(chr(10))[0]}")
                    print(errors[-1], file=sys.stderr)
    assert run is not None
    text = markdown(run, errors)
    output = options.output or (None if options.only or options.quick else _PAGE)
    if output is None:
        print(f"\n{text}")
    else:
        put_file(output, text)
        print(f"\nwritten to {output}")


if __name__ == "__main__":
    main()
