"""Executors in processes of their own, with krammar from a shipped archive only, as docs/spark.md describes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krammar.client import Client
from tests.interop.processes import Krammar
from tests.support.waiting import PATIENCE

LONG = 2 * PATIENCE
ROOT = Path(__file__).parents[3]
PARTITIONS = 4
RECORDS = 200_000

READ = """
import json, os, sys
from pyspark.sql import SparkSession

def executors(batches):
    import krammar, pandas
    for batch in batches:
        row = {"executor": os.path.basename(os.getcwd()), "krammar": krammar.__file__, "rows": len(batch)}
        yield pandas.DataFrame([row])

spark = SparkSession.builder.getOrCreate()
frame = spark.read.format("krammar").option("kafka.bootstrap.servers", sys.argv[1])
frame = frame.option("subscribe", "source").load()
found = frame.select("partition").mapInPandas(executors, "executor string, krammar string, rows long")
print("FOUND", json.dumps([row.asDict() for row in found.collect()]))
"""

COPY = """
import sys
from pyspark.sql import SparkSession

bootstrap, checkpoint, most = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
source = spark.readStream.format("krammar").option("kafka.bootstrap.servers", bootstrap)
source = source.option("subscribe", "source").option("startingOffsets", "earliest")
copy = source.option("maxOffsetsPerTrigger", most).load().select("key", "value").writeStream
copy = copy.format("krammar").option("kafka.bootstrap.servers", bootstrap).option("topic", "copy")
copy.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``environment`` and ``environment.tar.gz``."""
    folder = tmp_path_factory.mktemp("job")
    run = subprocess.check_call
    run([sys.executable, "-m", "venv", "environment"], cwd=folder)
    install = ["environment/bin/pip", "install", "--quiet", f"{ROOT}[spark]", "pandas<3"]
    run(install, cwd=folder)
    left_out = "--exclude=*/site-packages/pyspark"
    run(["tar", "-czf", "environment.tar.gz", left_out, "-C", "environment", "."], cwd=folder)
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krammar]:
    with Krammar(tmp_path_factory.mktemp("broker") / "data") as running:
        with Client(running.bootstrap) as client:
            for name in ("source", "copy"):
                client.admin.create_topic(name, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 50})
        for number in range(RECORDS):
            producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
            if not number & 1023:
                producer.poll(0)
        assert producer.flush(LONG) == 0
        yield running


def submit(folder: Path, job: str, arguments: Sequence[object]) -> subprocess.Popen[str]:
    """Start a driver with two executors of one core each, in a process group of its own."""
    (folder / "job.py").write_text(job)
    command = ["environment/bin/spark-submit", "--master", "local-cluster[2,1,1024]"]
    command += ["--archives", "environment.tar.gz#environment"]
    for setting in ("spark.driver.host=127.0.0.1", "spark.ui.enabled=false"):
        command += ["--conf", setting]
    environ = {**os.environ, "PYSPARK_PYTHON": "./environment/bin/python"}
    environ.pop("PYTHONPATH", None)
    return subprocess.Popen(
        [*command, "job.py", *map(str, arguments)],
        cwd=folder,
        env=environ,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(folder / "log").open("w"),
        start_new_session=True,
    )


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def wait_for_end(driver: subprocess.Popen[str], folder: Path) -> str:
    """Wait until the driver has ended well, and return its output."""
    try:
        output, _ = driver.communicate(timeout=LONG)
    finally:
        if not group_is_gone(driver.pid):
            os.killpg(driver.pid, signal.SIGKILL)
    assert driver.returncode == 0, (folder / "log").read_text()[-5000:]
    return output


def copied(client: Client) -> int:
    ends = client.list_offsets({("copy", index): -1 for index in range(PARTITIONS)})
    return sum(end.offset for end in ends.values())


def test_two_executors_read_with_krammar_from_the_archive(
    environment: Path, broker: Krammar
) -> None:
    output = wait_for_end(submit(environment, READ, [broker.bootstrap]), environment)
    (line,) = [line for line in output.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert sum(row["rows"] for row in found) == RECORDS
    assert {row["executor"] for row in found} == {"0", "1"}
    for row in found:
        assert f"/{row['executor']}/environment/" in row["krammar"], row


def test_a_driver_that_dies_in_the_middle_of_a_write_loses_nothing(
    environment: Path, broker: Krammar
) -> None:
    checkpoint = environment / "checkpoint"
    driver = submit(environment, COPY, [broker.bootstrap, checkpoint, RECORDS // 100])
    with Client(broker.bootstrap) as client:
        deadline = time.monotonic() + LONG
        while copied(client) < RECORDS // 10:
            assert driver.poll() is None, (environment / "log").read_text()[-5000:]
            assert time.monotonic() < deadline, f"{copied(client)} records are copied"
        driver.kill()  # the driver's JVM, which spark-submit has become
        driver.communicate()
        while not group_is_gone(driver.pid):  # its executors end by themselves
            assert time.monotonic() < deadline, "executors are still alive"
            time.sleep(0.1)
        # What one executor had acknowledged may be written again, but nothing is missing.
        assert RECORDS // 10 <= copied(client) < RECORDS
        wait_for_end(
            submit(environment, COPY, [broker.bootstrap, checkpoint, RECORDS]), environment
        )
        written = copied(client)
        values = {record.value for _, record in client.records("copy")}
    assert values == {b"%d" % number for number in range(RECORDS)}
    # At most the micro-batch that was under way is written twice.
    assert RECORDS <= written <= RECORDS + RECORDS // 100
