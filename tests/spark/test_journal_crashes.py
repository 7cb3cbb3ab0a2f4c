"""Queries that write to journals, killed wherever they change anything: what readers of committed messages
see is each row once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import journal_wire as wire
from pyspark.sql import SparkSession

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import FileJournals, ReadCommittedIter, ReadUncommittedIter, TopicJournals
from tests.spark.journal_crash_driver import BATCHES, TASKS, values_of
from tests.spark.journal_pipeline_driver import FIRST, SECOND
from tests.spark.journal_spark_driver import (
    DRIVER_ACKNOWLEDGING,
    DRIVER_PUBLISHING,
    FAULTS,
    WORKER,
    run,
)

STEPS = {
    "before publishing",
    "publishing",
    "between publishing and intents",
    "storing intents",
    "between intents and acknowledgements",
    "appending acknowledgements",
    "after the acknowledgements",
    "before Spark's commit",
}


class Driver:
    """Runs queries in processes that may be killed."""

    def __init__(self, module: str = "tests.spark.journal_crash_driver") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, options: Mapping[str, object], topic: str, at: int = 0, begin: str = ""
    ) -> str | None:
        """Run until call number ``at``, or until the step ``begin``, and say what was being done then; None if
        all was done before. With -1 it is run by a process that is not killed, and from which the others are
        forked."""
        assert self.process.stdin is not None and self.process.stdout is not None
        order = {"options": options, "topic": topic, "at": at, "begin": begin}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert not answer["failed"], answer["step"]
        return answer["step"] if answer["killed"] else None

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.close()


def committed(journals: FileJournals | TopicJournals, topic: str) -> list[str]:
    names = [spec.name for spec in journals.list(topic)]
    found = []
    for name in names:
        with ReadCommittedIter(journals.reader(name), wire.Row) as messages:
            found += [(envelope.message.value or b"").decode() for envelope in messages]
    return found


def written(journals: FileJournals | TopicJournals, topic: str) -> int:
    """Return the number of messages, committed or not, without acknowledgements."""
    count = 0
    for spec in journals.list(topic):
        with ReadUncommittedIter(journals.reader(spec.name), wire.Row) as messages:
            count += sum(envelope.message.value is not None for envelope in messages)
    return count


ALL = sorted(value for batch in range(BATCHES) for value in values_of(batch))


def options_of(folder: Path, **more: str) -> dict[str, str]:
    (folder / "checkpoint").mkdir(parents=True)
    return {"delivery": "journal", "checkpointLocation": str(folder / "checkpoint"), **more}


# Where each step begins, and at each n-th call.
every_call = pytest.mark.parametrize("stride", [10, pytest.param(1, marks=pytest.mark.sweep)])


@every_call
def test_files_killed_at_every_call(driver: Driver, tmp_path: Path, stride: int) -> None:
    chance = random.Random(6)
    warm = tmp_path / "warm"
    driver.run(options_of(warm, path=str(warm / "journals")), "orders", -1)
    wasted = 0
    at = 0
    step: str | None = ""
    begins = sorted(STEPS)
    while step is not None:
        # How many calls there are differs from run to run: each step is met by its name first.
        begin = begins.pop() if begins else ""
        at += 0 if begin else stride
        folder = tmp_path / f"{at}{begin}"
        options = options_of(folder, path=str(folder / "journals"), journalsPerTopic="2")
        step = driver.run(options, "orders", at, begin)
        assert not begin or step == begin
        if step is not None and at % 3 == 0:
            # And once more, somewhere in the second run.
            driver.run(options, "orders", chance.randrange(1, 40))
        if step is not None:
            assert driver.run(options, "orders") is None
        with FileJournals(folder / "journals") as journals:
            assert sorted(committed(journals, "orders")) == ALL, f"killed at call {at}, {step}"
            wasted += written(journals, "orders") - len(ALL)
    # Some of the batches were published more than once, or this has tested nothing.
    assert wasted > TASKS, f"{at} calls"


@every_call
def test_topics_killed_at_every_request(driver: Driver, tmp_path: Path, stride: int) -> None:
    wasted = 0
    begins = sorted(STEPS)
    with Broker.start() as broker, Client(broker.bootstrap_servers) as client:
        at = 0
        client.admin.create_topic("warm", 2)
        servers = {"kafka.bootstrap.servers": str(broker.bootstrap_servers)}
        driver.run(options_of(tmp_path / "warm", **servers), "warm", -1)
        step: str | None = ""
        while step is not None:
            begin = begins.pop() if begins else ""
            at += 0 if begin else stride
            topic = f"orders-{at}-{len(begins)}"
            client.admin.create_topic(topic, 2)
            options = options_of(tmp_path / topic, **servers)
            step = driver.run(options, topic, at, begin)
            assert not begin or step == begin
            if step is not None:
                assert driver.run(options, topic) is None
            with TopicJournals(str(broker.bootstrap_servers)) as journals:
                assert sorted(committed(journals, topic)) == ALL, f"killed at call {at}, {step}"
                wasted += written(journals, topic) - len(ALL)
    assert wasted > TASKS, f"{at} calls"


@pytest.mark.sweep
def test_a_query_of_spark_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """A worker while it publishes, which Spark runs again; the driver between intents and acknowledgements of the
    same batch; and the driver of the next run while workers publish."""
    for name in ("in", "faults"):
        (tmp_path / name).mkdir()
    expected = []
    for number in range(3):
        texts = [f"{number}-{line}" for line in range(8)]
        expected += texts
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(texts))
        os.utime(tmp_path / "in" / f"{number}.txt", (1_700_000_000 + number,) * 2)
    environment = {
        # A session of Spark Connect here leaves variables that would make the drivers its clients too.
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        FAULTS: str(tmp_path / "faults"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    with Broker.start() as broker, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("orders", 2)
        servers = str(broker.bootstrap_servers)
        command = [sys.executable, "-m", "tests.spark.journal_spark_driver"]
        command += [str(tmp_path), servers, "orders"]

        def run_until_killed(*faults: str) -> None:
            for fault in faults:
                (tmp_path / "faults" / fault).touch()
            with open(tmp_path / "output", "wb") as output:
                done = subprocess.run(command, env=environment, stdout=output, stderr=output)
            left = [path.name for path in (tmp_path / "faults").glob("*-*")]
            assert done.returncode == -signal.SIGKILL and not left, (
                left,
                (tmp_path / "output").read_text()[-3000:],
            )

        with TopicJournals(servers) as journals:
            run_until_killed(WORKER, DRIVER_ACKNOWLEDGING)
            assert committed(journals, "orders") == []
            assert written(journals, "orders") > 8
            run_until_killed(DRIVER_PUBLISHING)
            # Only the rows of the first batch that the first run has published.
            assert sorted(committed(journals, "orders")) == expected[:8]
            run(spark, "krammar", tmp_path, servers, "orders")
            assert sorted(committed(journals, "orders")) == expected
            assert written(journals, "orders") > len(expected) + 1


# A pipeline: a query writes a journal, and another one reads it as a stream and writes the next journal.

kills = pytest.mark.parametrize("count", [6, pytest.param(30, marks=pytest.mark.sweep)])


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Driver]:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")
    driver = Driver("tests.spark.journal_pipeline_driver")
    yield driver
    driver.close()


@kills
def test_a_pipeline_in_files_is_killed(pipeline: Driver, tmp_path: Path, count: int) -> None:
    def places(topic: str) -> dict[str, str]:
        root = tmp_path / topic
        with FileJournals(root) as journals:
            for number in range(2):
                journals.create(f"{topic}{FIRST}/{number}")
        return {"path": str(root)}

    def check(topic: str) -> None:
        with FileJournals(tmp_path / topic) as journals:
            for name in (FIRST, SECOND):
                assert sorted(committed(journals, topic + name)) == ALL

    kill(pipeline, tmp_path, count, places, check)


@kills
def test_a_pipeline_in_topics_is_killed(pipeline: Driver, tmp_path: Path, count: int) -> None:
    with Broker.start() as broker, Client(broker.bootstrap_servers) as client:
        servers = str(broker.bootstrap_servers)

        def places(topic: str) -> dict[str, str]:
            for name in (FIRST, SECOND):
                client.admin.create_topic(topic + name, 2)
            return {"kafka.bootstrap.servers": servers}

        def check(topic: str) -> None:
            with TopicJournals(servers) as journals:
                for name in (FIRST, SECOND):
                    assert sorted(committed(journals, topic + name)) == ALL

        kill(pipeline, tmp_path, count, places, check)


def kill(
    pipeline: Driver,
    folder: Path,
    count: int,
    places: Callable[[str], dict[str, str]],
    check: Callable[[str], None],
) -> None:
    """Kill runs of pipelines ``count`` times, each somewhere. A pipeline whose run was not killed is complete."""
    chance = random.Random(count)
    killed: list[str] = []
    number = 0

    def options(topic: str) -> dict[str, object]:
        (folder / "checkpoints" / topic).mkdir(parents=True)
        return {"places": places(topic), "folder": str(folder / "checkpoints" / topic)}

    pipeline.run(options("warm"), "warm", -1)
    while len(killed) < count:
        number += 1
        topic = f"p{number}"
        given = options(topic)
        while (step := pipeline.run(given, topic, chance.randrange(20, 200))) is not None:
            killed.append(step)
            assert len(killed) < 10 * count
        check(topic)
    assert len(set(killed)) > 3, killed
