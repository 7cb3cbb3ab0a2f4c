"""Plans of the search over streams, given to Spark: with krammar's source, or with another one of the same options."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from krammar.broker import Cluster
from krammar.spark import errors
from krammar.spark.errors import SparkSourceError
from krammar.spark.offsets import of_json
from tests.spark.stream_search import HASTY, Plan, Query, Run, Setup
from tests.spark.stream_world import World
from tests.spark.support import STARTS, TOO_SLOW
from tests.support.waiting import PATIENCE

# Spark's processes need more time than threads of one process.
PACE = {
    **HASTY,
    "kafka.request.timeout.ms": "2000",
    "kafka.default.api.timeout.ms": "4000",
    "kafka.socket.connection.setup.timeout.ms": "2000",
}


class SparkQuery(Query):
    """A query that Spark runs, with the source ``kind``. A batch step runs it until it has read all there is.

    The moments of a kill become: an error of the sink before or after it has written, and SIGKILL of all Python
    processes of Spark: of those that plan and of those that read.
    """

    kind = "krammar"

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
        frame = self._spark.readStream.format(self.kind).options(**self._options()).load()
        writer = frame.select("topic", "partition", "offset", "value").writeStream.foreachBatch(
            self._write
        )
        now = self.setup.trigger == "now"
        trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": "0 seconds"}
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


def run_with_spark(
    spark: SparkSession, folder: Path, plan: Plan, query_class: type[SparkQuery] = SparkQuery
) -> SparkQuery:
    """Run a plan with Spark, and return its query. Raises Violation if the law is broken."""
    with Cluster.start(properties={"auto.create.topics.enable": "false"}) as cluster:
        world = World(cluster)
        query = query_class(world, plan.setup, spark, folder)
        try:
            Run(world, query, plan).run()
        finally:
            query.stop()
            world.calm()
    return query
