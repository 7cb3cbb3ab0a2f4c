"""Measure Spark's short jobs: micro-batches, first rows, many small partitions, and fewer columns.

python -m tests.bench.spark.short                 everything, about half an hour; writes its section of
                                                  docs/benchmarks.md
python -m tests.bench.spark.short --quick         few rounds, small topics
python -m tests.bench.spark.short --only steady   one part: steady, short_stream, looks, small_partitions, columns, fields
python -m tests.bench.spark.short --zips          as PySpark is installed, not as krammar.spark.session starts it
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import OffsetCommitValue

from tests.bench.broker.measure import WAIT, client
from tests.bench.page import failures, machine, markdown_table, put_file, section, subsection
from tests.bench.spark.jobs import (
    CONNECTOR,
    FORMATS,
    OURS,
    ROWS,
    Jobs,
    Topic,
    fill,
    start_spark,
    without_zips,
)
from tests.bench.spark.steady import SETTINGS, Secured, growing, micro_batches
from tests.interop.apache import class_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
_ALONE = "krammar, one task per partition"
_PARTS = {
    "steady": (
        "Micro-batches of a steady stream",
        "Milliseconds. A topic gets 500 records of 100 B per second; the query has a trigger of one second and the sink `noop`.\n"
        "`constant rows in Python` is a data source that reads nothing and yields as many rows: what Spark itself needs for any\n"
        "Python source with one task per partition. `triggerExecution` is the whole micro-batch.\n\n"
        "In each micro-batch Spark calls the source in Python five times: `latestOffset`, with two round trips to brokers (Metadata,\n"
        "ListOffsets); `reportLatestOffset` and, at the end of the phase `walCommit`, `commit` of the batch before, with none;\n"
        "`partitions`, with two (ListOffsets for earliest offsets, Fetch); and for the rows that this has read. No task runs in\n"
        "Python. Of `addBatch`, this is about 6 ms: 1.3 ms for ListOffsets, 4.5 ms to fetch and convert the rows; the rest is\n"
        "Spark's. In the phase `commitOffsets` Spark writes a file of the checkpoint, and calls nothing in Python.",
    ),
    "short_stream": (
        "A short stream",
        "Milliseconds for a query with `Trigger.AvailableNow` that reads 30 MB of records of 1 kB in one micro-batch, from its start to\n"
        "its end. The start of the Python process that plans is most of the difference to a source in Java.",
    ),
    "looks": (
        "First rows",
        "Milliseconds, with planning. `constant rows in Python` has four tasks that yield ten rows each: what Spark itself needs,\n"
        "two Python processes above all, one for the plan and one for the task. Of krammar, 10 ms of processor time remain if its\n"
        "clients are connected (4 ms to plan, 6 ms for the first batch of 2,048 rows), and 25 ms if not. After `limit` and `head`\n"
        "the client of the task never is: Spark ends a Python worker that has more rows than Spark needs, with its connections.\n"
        "The ten constant rows end by themselves, so their worker runs the next query too.",
    ),
    "small_partitions": (
        "Many small partitions",
        "Milliseconds for `count()` of a topic whose partitions have 100 records each, in three rounds. The connector's consumer\n"
        "asks for the ends of a partition while its next fetch waits 500 ms for records, and gets both answers in that order.",
    ),
    "columns": ("Fewer columns", "Milliseconds for a `count()` of records of 1 kB."),
    "fields": (
        "Fewer fields of decoded messages",
        "Milliseconds for a `count()` of values decoded as `OffsetCommitValue`.",
    ),
}

# Milliseconds by row and column of a table, one for each round.
Times = dict[str, dict[str, list[float]]]


class Short:
    """One run: a session, a broker, and the times by part."""

    def __init__(self, spark: SparkSession, broker: Secured, folder: Path, *, quick: bool) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder
        self.quick = quick
        self.jobs = Jobs(spark, broker, folder)
        self.times: dict[str, Times] = {}
        self.rounds = 2 if quick else 7
        self._made = 0

    def steady(self) -> None:
        times = self.times.setdefault("steady", {})
        for setting in SETTINGS:
            with growing(self.broker, setting):
                for _ in range(1 if self.quick else 2):
                    for name in (OURS, CONNECTOR, ROWS):
                        self._made += 1
                        place = self.folder / f"steady-{self._made}"
                        count = 8 if self.quick else 20
                        found = micro_batches(
                            self.spark, name, self.broker, setting, place, count, warm=4
                        )
                        for durations in found:
                            for phase, took in durations.items():
                                row = f"{setting.title}: {phase}"
                                times.setdefault(row, {}).setdefault(name, []).append(took)
            self._say("steady", setting.title)

    def short_stream(self) -> None:
        topic = Topic(1000, "none", 30_000)
        fill(self.broker, topic)
        self._rounds(
            "short_stream",
            "30 MB",
            {
                OURS: lambda: self.jobs.stream(OURS, topic),
                CONNECTOR: lambda: self.jobs.stream(CONNECTOR, topic),
            },
        )

    def looks(self) -> None:
        topic = Topic(100, "none", 5_000_000 // (10 if self.quick else 1))
        fill(self.broker, topic)
        rows = self.spark.read.format(FORMATS[ROWS]).options(rows="10", tasks="4")
        looks: dict[str, Callable[[DataFrame], object]] = {
            "limit(10).collect()": lambda frame: frame.limit(10).collect(),
            "head()": lambda frame: frame.head(),
            "isEmpty()": lambda frame: frame.isEmpty(),
            "take(20), as show() does": lambda frame: frame.take(20),
        }
        for title, look in looks.items():
            self._rounds(
                "looks",
                title,
                {
                    OURS: lambda look=look: look(self.jobs.load(OURS, topic)),  # type: ignore[misc]
                    CONNECTOR: lambda look=look: look(self.jobs.load(CONNECTOR, topic)),  # type: ignore[misc]
                    ROWS: lambda look=look: look(rows.load()),  # type: ignore[misc]
                },
            )

    def small_partitions(self) -> None:
        partitions = 50 if self.quick else 200
        name = "small"
        admin = AdminClient(client(self.broker))
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT)
        producer = Producer(client(self.broker, linger_ms=200))
        for index in range(100 * partitions):
            producer.produce(name, b"v" * 100, partition=index % partitions)
            if not index & 1023:
                producer.poll(0)
        producer.flush(WAIT)
        self._rounds(
            "small_partitions",
            f"{partitions} partitions",
            {
                OURS: lambda: self._load(OURS, name).count(),
                _ALONE: lambda: self._load(OURS, name, minRecordsPerPartition="1").count(),
                CONNECTOR: lambda: self._load(CONNECTOR, name).count(),
            },
            rounds=3,  # the connector takes a minute
        )

    def columns(self) -> None:
        topic = Topic(1000, "none", 300_000 // (10 if self.quick else 1))
        fill(self.broker, topic)
        self._choices("columns", topic.name, {"columns": "partition,offset"}, {})

    def fields(self) -> None:
        count = 100_000 // (10 if self.quick else 1)
        producer = Producer(client(self.broker, linger_ms=50))
        source = random.Random(1)
        for index in range(count):
            value = OffsetCommitValue(
                version=3,
                offset=index,
                leader_epoch=1,
                metadata=source.randbytes(20).hex(),
                commit_timestamp=1,
            )
            producer.produce("commits", value.encode(3), partition=0)
            producer.poll(0)
        producer.flush(WAIT)
        decode = {"decode": "OffsetCommitValue"}
        self._choices("fields", "commits", {"fields": "offset"}, decode)

    def _choices(
        self, part: str, topic: str, chosen: Mapping[str, str], both: Mapping[str, str]
    ) -> None:
        (text,) = chosen.values()
        self._rounds(
            part,
            "count()",
            {
                f"{part}={text}": lambda: self._load(OURS, topic, **both, **chosen).count(),
                "all": lambda: self._load(OURS, topic, **both).count(),
            },
        )

    def _load(self, contender: str, topic: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(FORMATS[contender]).options(**options)
        return reader.options(subscribe=topic, **self.broker.options("PLAINTEXT")).load()

    def _rounds(
        self,
        part: str,
        row: str,
        jobs: Mapping[str, Callable[[], object]],
        rounds: int | None = None,
    ) -> None:
        """The contenders take turns; the first two rounds do not count."""
        found = self.times.setdefault(part, {}).setdefault(row, {})
        for turn in range(-2, min(self.rounds, rounds or self.rounds)):
            for name, job in jobs.items():
                began = time.perf_counter()
                job()
                if turn >= 0:
                    found.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        self._say(part, row)

    @staticmethod
    def _say(part: str, row: str) -> None:
        print(f"{part}: {row}", file=sys.stderr, flush=True)


def markdown(times: Mapping[str, Times], errors: list[str], *, zips: bool, quick: bool) -> str:
    def lines() -> Iterator[str]:
        yield "## Spark's short jobs"
        yield ""
        yield "`make bench` (`python -m tests.bench.spark.short`) writes this section. Ratios are of medians: above 1, the first column is"
        yield "faster. Brokers, session and contenders are those of the section on Spark. The contenders take turns."
        yield (
            "PySpark is imported from its zip files."
            if zips
            else (
                "Workers import PySpark without its zip files and begin with imports done, as `krammar.spark.session` starts them."
            )
        )
        yield ""
        yield from machine()
        if quick:
            yield ""
            yield "**A quick run: few rounds, small topics, figures for orientation only.**"
        for part, found in times.items():
            yield from subsection(*_PARTS[part], _table(found))
        yield from failures(errors)

    return section("spark_short", "python -m tests.bench.spark.short", lines())


def _table(times: Times) -> list[str]:
    names = list(next(iter(times.values())))
    head = ["Job", *names, *(f"{name} p99" for name in names), *(f"÷ {name}" for name in names[1:])]
    rows = []
    for row, found in times.items():
        if all(max(found.get(name, [0])) < 1 for name in names):
            continue
        middle = {name: median(found.get(name, [0])) for name in names}
        rows.append(
            (
                row,
                *(f"{middle[name]:,.0f}" for name in names),
                *(f"{_p99(found.get(name, [0])):,.0f}" for name in names),
                *(f"{middle[name] / max(middle[names[0]], 0.5):.2f}" for name in names[1:]),
            )
        )
    return markdown_table(head, rows)


def _p99(values: list[float]) -> float:
    return sorted(values)[max(0, -(-len(values) * 99 // 100) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark.short",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, for orientation")
    parser.add_argument("--only", choices=list(_PARTS), help="measure one part")
    parser.add_argument("--zips", action="store_true", help="import PySpark from its zip files")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    options = parser.parse_args()
    errors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="krammar-bench-") as name:
        folder = Path(name)
        with Secured(folder / "broker") as broker:
            broker.add_user()
            home = None if options.zips else without_zips(folder)
            spark = start_spark(folder, class_path("connector"), home)
            try:
                run = Short(spark, broker, folder, quick=options.quick)
                for part in [options.only] if options.only else _PARTS:
                    try:
                        getattr(run, part)()
                    except Exception as error:  # the other parts are measured all the same
                        errors.append(f"{part}: {str(error).partition(chr(10))[0]}")
                        print(errors[-1], file=sys.stderr)
            finally:
                spark.stop()
    text = markdown(run.times, errors, zips=options.zips, quick=options.quick)
    output = options.output or (None if options.only or options.quick else _PAGE)
    if output is None:
        print(f"\n{text}")
    else:
        put_file(output, text)
        print(f"\nwritten to {output}")


if __name__ == "__main__":
    main()
