"""What is measured, each in a process of its own because of its memory: ``python -m tests.bench.scale.jobs``."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from krammar.client import Client

PATTERN = "topic-.*"
PHASES = ("triggerExecution", "latestOffset", "walCommit", "addBatch", "commitOffsets")
_PATIENCE = 120


class Report:
    """The steps of a job: seconds, processor seconds, and megabytes afterwards."""

    def __init__(self) -> None:
        self.steps: dict[str, list[float]] = {}
        self.facts: dict[str, int] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began, used = time.perf_counter(), time.process_time()
        yield
        clock, processor = time.perf_counter() - began, time.process_time() - used
        self.steps[name] = [clock, processor, peak(os.getpid())]


def peak(pid: int) -> float:
    """Return the most megabytes that a process has had in memory; 0 for one that has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def metadata(servers: str, report: Report) -> None:
    """The client's Metadata of all topics: the first request, and another one."""
    report.facts["memory before"] = round(peak(os.getpid()))
    with Client(servers) as client:
        for name in ("first", "again"):
            with report.step(name):
                topics = client.cluster.refresh(None, client.cluster.deadline("asking"))
        report.facts["topics"] = len(topics)
        report.facts["partitions"] = sum(len(topic.partitions) for topic in topics)


def batch(servers: str, report: Report) -> None:
    """The plan of a batch, as Spark's process for planning makes it."""
    from krammar.spark.datasource import KrammarDataSource

    source = KrammarDataSource({"kafka.bootstrap.servers": servers, "subscribePattern": PATTERN})
    reader: Any = source.reader(source.schema())
    report.facts["memory before"] = round(peak(os.getpid()))
    with report.step("plan"):
        tasks = reader.partitions()
    report.facts["tasks"] = len(tasks)


def micro_batches(servers: str, report: Report) -> None:
    """The plans of two micro-batches, as Spark's process for the query makes them."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from krammar.spark.datasource import KrammarDataSource

    source = KrammarDataSource(
        {
            "kafka.bootstrap.servers": servers,
            "subscribePattern": PATTERN,
            "startingOffsets": "earliest",
        }
    )
    reader: Any = source.streamReader(source.schema())
    report.facts["memory before"] = round(peak(os.getpid()))
    with report.step("initialOffset"):
        start = reader.initialOffset()
    report.facts["offsets in JSON, bytes"] = len(json.dumps(start))
    for number in (1, 2):
        with report.step(f"latestOffset {number}"):
            end = reader.latestOffset(start, ReadAllAvailable())
        with report.step(f"partitions {number}"):
            tasks = reader.partitions(start, end)
        start = end
    report.facts["tasks"] = len(tasks)
    report.facts["connections"] = len(os.listdir("/proc/self/fd"))
    reader.stop()


def spark(servers: str, report: Report) -> None:
    """A session that plans a batch, and a query that begins at the newest offsets: a micro-batch without rows."""
    import krammar.spark

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    session = krammar.spark.session("local[2]", settings)
    session.sparkContext.setLogLevel("OFF")
    options = {"kafka.bootstrap.servers": servers, "subscribePattern": PATTERN}
    session.range(1).count()
    java = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    report.facts["JVM before, MB"] = round(_java_peak(java))
    with report.step("plan of a batch"):
        frame = session.read.format("krammar").options(**options).load()
        report.facts["tasks"] = frame.rdd.getNumPartitions()
    report.facts["JVM after the plan, MB"] = round(_java_peak(java))
    with tempfile.TemporaryDirectory() as place, report.step("query"):
        writer = session.readStream.format("krammar").options(**options).load().writeStream
        writer = writer.format("noop").option("checkpointLocation", place)
        query = writer.trigger(once=True).start()
        if not query.awaitTermination(_PATIENCE):
            raise RuntimeError(f"the query has not ended: {query.status}")
        for progress in query.recentProgress:
            took: Any = progress.durationMs
            report.facts |= {phase: took[phase] for phase in PHASES}
    report.facts["JVM after the query, MB"] = round(_java_peak(java))
    session.stop()


def _java_peak(pid: int) -> float:
    """Return the peak of a JVM, which a shell script has started."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return max(peak(int(each)) for each in [pid, *below])


JOBS: dict[str, Callable[[str, Report], None]] = {
    each.__name__: each for each in (metadata, batch, micro_batches, spark)
}


def main() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    report = Report()
    JOBS[sys.argv[1]](sys.argv[2], report)
    print(json.dumps({"steps": report.steps, "facts": report.facts}))


if __name__ == "__main__":
    main()
