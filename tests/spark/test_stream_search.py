"""Random plans for streams: brokers that disturb their answers, and queries that are stopped and killed.

``tests.spark.stream_search`` has the plans and the law; here they run, without Spark and with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from krammar.broker import Cluster
from krammar.spark import errors
from krammar.spark.errors import SparkSourceError
from krammar.spark.kafka.stream.planner import StreamPlanner
from krammar.spark.kafka.stream.snapshots import StreamSnapshots
from krammar.spark.offsets import of_json
from tests.spark.stream_search import (
    HASTY,
    Plan,
    Query,
    Run,
    Setup,
    failure,
    random_plan,
    search,
    shrunk,
)
from tests.spark.stream_world import World
from tests.spark.support import STARTS, TOO_SLOW
from tests.support.waiting import PATIENCE

FEW = 24
CHUNK = 50
MANY = range(1000, 1500, CHUNK)


@pytest.mark.parametrize(
    "seeds",
    [
        range(FEW),
        *(pytest.param(range(n, n + CHUNK), marks=pytest.mark.search) for n in MANY),
    ],
    ids=lambda seeds: f"{seeds.start} to {seeds.stop - 1}",
)
def test_random_plans(seeds: range) -> None:
    assert search(seeds) == []


@pytest.mark.parametrize(
    "text",
    [
        # A broker refuses an offset that it has.
        "loss=false most=3 start=latest select=assign rows=tasks | batch | produce b 0 1"
        " | error Fetch OFFSET_OUT_OF_RANGE b 2 | batch",
        # A topic is created again between two runs, and is as long as before.
        "loss=false | produce b 0 2 | batch | stop | recreate b 1 | produce b 0 2",
        "loss=true | produce a 0 3 | batch | stop | recreate a 2 | produce a 0 5 | batch",
        # It has fewer partitions, and gets those that the old one had.
        "loss=false | produce a 1 3 | batch | recreate a 1 | produce a 0 1 | batch | grow a"
        " | produce a 1 4 | batch",
    ],
)
def test_plans_that_have_failed(text: str) -> None:
    assert failure(Plan.parse(text)) == ""


# With Spark.


# Spark's processes need more time than threads of one process.
PACE = {
    **HASTY,
    "kafka.request.timeout.ms": "2000",
    "kafka.default.api.timeout.ms": "4000",
    "kafka.socket.connection.setup.timeout.ms": "2000",
}


class SparkQuery(Query):
    """A query that Spark runs. A batch step runs it until it has read all there is.

    The moments of a kill become: an error of the sink before or after it has written, and SIGKILL of all Python
    processes of Spark: of those that plan and of those that read.
    """

    def __init__(self, world: World, setup: Setup, spark: SparkSession, folder: Path) -> None:
        super().__init__(world, setup)
        self.pace = PACE
        self._spark = spark
        self._checkpoint = folder / "checkpoint"
        self._running: StreamingQuery | None = None
        self._kill = ""

    def batch(self, kill: str = "", after: int = -1) -> bool:
        self._kill = "planned" if after >= 0 else kill
        before = len(self.ends)
        try:
            self._until_all_is_read()
        except PySparkException as error:
            failure = self._failure(error)
            self.failures.append(failure)
            self.stop()
            raise failure from error
        finally:
            self._read_checkpoint()
        return len(self.ends) > before

    def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _until_all_is_read(self) -> None:
        for _ in range(STARTS):
            try:
                if self._running is None or not self._running.isActive:
                    self._running = self._started()
                if self.setup.trigger == "now":
                    assert self._running.awaitTermination(PATIENCE)
                    self._running = None
                else:
                    self._running.processAllAvailable()
                return
            except PySparkException as error:
                if TOO_SLOW not in str(error):
                    raise
                self.stop()

    def _started(self) -> StreamingQuery:
        frame = self._spark.readStream.format("krammar").options(**self._options()).load()
        writer = frame.select("topic", "partition", "offset", "value").writeStream.foreachBatch(
            self._write
        )
        now = self.setup.trigger == "now"
        trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": "0 s"}
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def _write(self, frame: DataFrame, number: int) -> None:
        kill, self._kill = self._kill, ""
        if kill in ("ended", "stored", "planned"):
            kill_pythons()
        rows = [(row[0], row[1], row[2], bytes(row[3])) for row in frame.collect()]
        if kill == "read":
            raise RuntimeError("before writing")
        self.sink.batches[number] = rows
        if kill == "written":
            raise RuntimeError("after writing")

    def _read_checkpoint(self) -> None:
        files = (self._checkpoint / "offsets").glob("[0-9]*")
        found = sorted(files, key=lambda file: int(file.name))
        self.ends = [file.read_text().splitlines()[-1] for file in found]
        if self.ends:
            self.world.note_read(of_json(json.loads(self.ends[-1])))

    @staticmethod
    def _failure(error: PySparkException) -> SparkSourceError:
        """The error of the source, as an exception of its class; SparkSourceError for errors of Spark."""
        found = re.search(r"krammar\.spark\.errors\.(\w+): (.*)", str(error))
        if found is None:
            return SparkSourceError(str(error)[:500])
        kind = getattr(errors, found[1])
        return kind("", found[2]) if kind is errors.OptionError else kind(found[2])


def kill_pythons() -> None:
    """Kill all Python processes that Spark's JVM has started."""
    parents: dict[int, int] = {}
    pythons = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(entry.name)] = int(
                entry.joinpath("stat").read_text().split(")")[-1].split()[1]
            )
            if (
                "pyspark" in entry.joinpath("cmdline").read_text()
                and "java" not in entry.joinpath("comm").read_text()
            ):
                pythons.add(int(entry.name))
    for pid in pythons:
        above = parents.get(pid, 0)
        while above and above != os.getpid():
            above = parents.get(above, 0)
        if above:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


SPARK_PLANS = [
    "trigger=now | produce a 0 3 | batch | less fewer-partitions 2 | produce a 1 2 | batch"
    " | less no-topics all | batch | calm | batch-killed written | kill 2 | produce b 0 4 | batch-killed planned",
    "trigger=now loss=false most=3 select=subscribePattern | produce a 0 5 | produce b 0 4 | batch-killed read"
    " | recreate a 2 | produce a 0 9 | batch | grow b | produce b 1 3 | less lower-ends all | batch",
    "trigger=steady level=read_committed | produce a 0 2 | begin a 1 3 | batch | batch | produce a 0 1 | batch"
    " | batch | lead a 0 3 | commit | batch | stop | recreate b 2 | produce b 0 3 | batch | batch-killed stored",
]


def run_with_spark(spark: SparkSession, folder: Path, plan: Plan) -> SparkQuery:
    """Run a plan with Spark, and return its query."""
    with Cluster.start(properties={"auto.create.topics.enable": "false"}) as cluster:
        world = World(cluster)
        query = SparkQuery(world, plan.setup, spark, folder)
        try:
            Run(world, query, plan).run()
        finally:
            query.stop()
            world.calm()
    return query


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.sweep) for n in (1, 2))])
def test_with_spark(spark: SparkSession, tmp_path: Path, number: int) -> None:
    query = run_with_spark(spark, tmp_path, Plan.parse(SPARK_PLANS[number]))
    assert len(query.ends) >= 3


@pytest.mark.search
@pytest.mark.parametrize("seed", range(40))
def test_random_plans_with_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    plan = random_plan(seed)
    setup = replace(plan.setup, reader="limited")
    query = run_with_spark(spark, tmp_path, replace(plan, setup=setup, steps=plan.steps[:16]))
    assert query.ends, str(plan)


# The search itself.


def test_a_plan_is_a_line_of_text() -> None:
    plans = [random_plan(seed) for seed in range(200)]
    assert [Plan.parse(str(plan)) for plan in plans] == plans
    assert random_plan(7) == plans[7]
    assert len(set(map(str, plans))) == len(plans)


def _no_offsets(self: StreamSnapshots, known: Any) -> dict[Any, int]:
    """Take every lower end for a loss."""
    return {}


def _nothing_absent(self: StreamPlanner, start: Any, snapshot: Any) -> None:
    """Forget partitions that the brokers do not report."""


@pytest.mark.parametrize(
    ("owner", "name", "fault", "text", "smallest"),
    [
        (
            StreamSnapshots,
            "_existing_offsets",
            _no_offsets,
            "loss=false | produce b 0 1 | produce a 0 6 | batch | grow b | less lower-ends all | lead a 0 2"
            " | batch | stop | calm | batch",
            "produce a 0 6 | batch | less lower-ends all | batch",
        ),
        (
            StreamPlanner,
            "_note_absent",
            _nothing_absent,
            "loss=false select=subscribePattern | produce b 0 1 | produce a 0 2 | batch | less no-topics all"
            " | batch-killed stored | batch | produce a 0 1 | calm",
            "produce a 0 2 | batch | less no-topics all | batch",
        ),
    ],
)
def test_it_finds_faults(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    fault: Callable[..., Any],
    text: str,
    smallest: str,
) -> None:
    """And leaves out the steps that do not matter."""
    plan = Plan.parse(text)
    assert failure(plan) == ""
    monkeypatch.setattr(owner, name, fault)
    found, why = shrunk(plan, failure(plan))
    assert "records arrived twice" in why
    assert " | ".join(found.steps) == smallest
