"""Measure Spark reading and writing with krammar, with Spark's own Kafka connector, and by confluent-kafka.

    python -m tests.bench.spark                 everything, some minutes; writes its section of
                                                docs/benchmarks.md
    python -m tests.bench.spark --quick         two rounds, a tenth of the records
    python -m tests.bench.spark --only count    one part: count, parquet, stream, journals, last_percent, write

A missed aim is said aloud and in the report, and does not change the exit code: speed is no test.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.broker.contenders import Ours
from tests.bench.page import put_file
from tests.bench.spark.jobs import (
    CONFLUENT,
    CONNECTOR,
    JOURNALS,
    LOGS,
    OURS,
    Jobs,
    Topic,
    end_spark,
    fill,
    fill_journal,
    long_topic,
    start_spark,
    topics,
    without_zips,
)
from tests.bench.spark.report import Report
from tests.interop.apache import class_path
from tests.interop.processes import Server, Unavailable

_PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
_PARTS = ("count", "parquet", "stream", "journals", "last_percent", "write")
_UNZIPPED = "unzipped_stream"


def main() -> None:
    options = _options()
    jars: str | None = None
    missing = []
    if shutil.which("java") is None:
        print("left out: Spark needs Java")
        return
    try:
        import pyspark  # noqa: F401
    except ImportError:
        print("left out: PySpark is not installed")
        return
    try:
        jars = class_path("connector")
    except Unavailable as reason:
        missing.append(f"Spark's own connector is left out: {reason}.")
    report = Report(missing, jars or "", quick=options.quick)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="krammar-bench-") as name:
        folder = Path(name)
        # Records have times of their own, which retention would find old.
        with Ours(folder / "broker", properties={"log.retention.ms": "-1"}) as broker:
            spark = start_spark(folder, jars)
            try:
                bench = Bench(Jobs(spark, broker, folder), broker, report, quick=options.quick)
                if options.only != "last_percent":  # which has a topic of its own
                    bench.fill()
                for part in _PARTS:
                    if options.only in (None, part):
                        getattr(bench, part)()
                if options.only in (None, _UNZIPPED):
                    end_spark(spark)
                    spark = bench.jobs.spark = start_spark(folder, jars, without_zips(folder))
                    bench.stream(_UNZIPPED)
            finally:
                spark.stop()
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)

    output = options.output or (None if options.only or options.quick else _PAGE)
    if output is None:
        print(f"\n{report.markdown()}")
    else:
        put_file(output, report.markdown())
        print(f"\nwritten to {output}")
    for target in report.targets():
        print(f"{'met   ' if target.met else 'MISSED'}  {target.promise}: {target.measured}")


class Bench:
    """The parts of a run. In each the contenders take turns, so that all meet the same weather."""

    def __init__(self, jobs: Jobs, broker: Server, report: Report, *, quick: bool) -> None:
        self.jobs = jobs
        self.broker = broker
        self.report = report
        self.quick = quick
        self.topics = topics(quick=quick)
        self.connector = [CONNECTOR] if report.jars else []

    def fill(self) -> None:
        for topic in self.topics:
            began = time.perf_counter()
            fill(self.broker, topic)
            self._say(f"written {topic.title:24} {time.perf_counter() - began:6.1f} s")

    def count(self) -> None:
        names = [OURS, *self.connector, CONFLUENT, LOGS]
        # Java compiles what runs often: the first topic gets more of a warm-up than the others.
        for index, topic in enumerate(self.topics):
            warm = 1 if self.quick or index else 3
            self._rounds("count", topic, names, self.jobs.count, topic.records, 4, warm)

    def parquet(self) -> None:
        names = [OURS, *self.connector, CONFLUENT, LOGS]
        for index, topic in enumerate(self.topics):
            warm = not index
            self._rounds("parquet", topic, names, self.jobs.parquet, topic.records, 3, warm)
            found = self.jobs.rows_in_parquet()
            if found != topic.records:
                self.report.errors.append(f"parquet, {topic.title}: {found} rows")

    def stream(self, part: str = "stream") -> None:
        names = [OURS, *self.connector, CONFLUENT]
        for index, topic in enumerate(self.topics):
            warm = not index
            self._rounds(part, topic, names, self.jobs.stream, topic.records, 3, warm)

    def journals(self) -> None:
        """The first topic, of 1 kB without compression, and the same records as rows of journals."""
        topic = self.topics[0]
        fill_journal(self.broker, topic)
        names = [OURS, JOURNALS]
        self._rounds("journals", topic, names, self.jobs.stream, topic.records, 3)

    def last_percent(self) -> None:
        names = [OURS, *self.connector]
        topic = long_topic(quick=self.quick)
        began = time.perf_counter()
        fill(self.broker, topic)
        self._say(f"written {topic.records:,} records {time.perf_counter() - began:6.1f} s")
        expected = topic.records - topic.records * 99 // 100
        self._rounds("last_percent", topic, names, self.jobs.last_percent, expected, 3)
        names.append(CONFLUENT)
        self._rounds("long_count", topic, names, self.jobs.count, topic.records, 2)
        self._rounds("long_stream", topic, names, self.jobs.stream, topic.records, 2)

    def write(self) -> None:
        names = [OURS, *self.connector]
        for size in (1000, 100):
            full = next(topic for topic in self.topics if topic.size == size)
            self.jobs.prepare_write(full)
            self._rounds("write", full, names, self.jobs.write, full.records, 3)

    def _rounds(
        self,
        part: str,
        topic: Topic,
        names: Sequence[str],
        job: Callable[[str, Topic], int],
        expected: int,
        rounds: int,
        warm: int = 1,
    ) -> None:
        if self.quick:
            rounds = 2
        alive = list(names)
        for turn in range(-warm, rounds):
            for name in list(alive):
                with self._guard(name, f"{part}, {topic.title}", alive):
                    cost = self.jobs.measure(lambda name=name: job(name, topic), expected)  # type: ignore[misc]
                    if turn >= 0:
                        self.report.add(part, topic, name, cost)
                        said = (
                            f"{cost.clock:6.2f} s, processors {cost.spark:6.2f} s in Spark"
                            f" {cost.broker:5.2f} s in the broker"
                        )
                        self._say(f"{part:17}{topic.title:24} {name:22} {said}")

    @contextmanager
    def _guard(self, name: str, what: str, alive: list[str]) -> Iterator[None]:
        """Who fails at something is said to have failed, and sits it out; the others are measured."""
        try:
            yield
        except Exception as error:
            text = next(filter(None, str(error).splitlines()), repr(error))
            self.report.errors.append(f"{name}, {what}: {text}")
            self._say(self.report.errors[-1])
            alive.remove(name)

    @staticmethod
    def _say(what: str) -> None:
        print(what, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, for orientation")
    parser.add_argument("--only", choices=[*_PARTS, _UNZIPPED], help="measure one part")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    return parser.parse_args()


if __name__ == "__main__":
    main()
