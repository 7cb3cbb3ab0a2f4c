"""Tasks that fail, and tasks that Spark runs twice at the same time: the sinks keep their promises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark", reason="PySpark is not installed")

import journal_wire as wire
import pyspark

from krammar.journal import ReadCommittedIter, TopicJournals
from krammar.testing import KafkaBroker
from tests.interop.spark.repeated_tasks_driver import ROWS, TOPICS
from tests.ports import free_port

LONG = 5 * PATIENCE
ROOT = Path(__file__).parents[3]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """A master with two workers, which have different addresses: Spark repeats no task on the same one."""
    home = Path(pyspark.__path__[0])
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    commands = [[f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port)]]
    for host in ("127.0.0.2", "127.0.0.3"):
        place = ["--work-dir", str(folder / host), "--cores", "2", "--memory", "512m"]
        commands.append([f"{package}.worker.Worker", "--host", host, *place, url])
    with ExitStack() as stack, (folder / "cluster.log").open("w") as log:
        for command in commands:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", *command[:1], "--webui-port", "0", *command[1:]],
                env=environment,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait, PATIENCE)
            stack.callback(process.terminate)
        yield url


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker with the records that the driver has written."""
    if sys.platform != "linux":
        pytest.skip("other systems have no 127.0.0.2")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")
    folder = tmp_path_factory.mktemp("driver")
    with KafkaBroker.start() as broker, spark_cluster(folder) as master:
        for topic in TOPICS.values():
            broker.create_topic(topic, 2)
        command = [sys.executable, "-m", "tests.interop.spark.repeated_tasks_driver", master]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [*command, str(broker.bootstrap_servers), str(folder)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        assert done.stdout.count("saved") == len(TOPICS), done.stdout + done.stderr
        yield broker


@pytest.mark.parametrize("how", ["fails", "is slow"])
def test_journal_delivery_commits_each_row_once(written: KafkaBroker, how: str) -> None:
    with TopicJournals(str(written.bootstrap_servers)) as journals:
        found = [
            int(envelope.message.value)
            for spec in journals.list(TOPICS[how, "journal"])
            for envelope in ReadCommittedIter(journals.reader(spec.name), wire.Row)
        ]
    assert sorted(found) == list(range(ROWS))


@pytest.mark.parametrize("how", ["fails", "is slow"])
def test_delivery_at_least_once_loses_no_row(written: KafkaBroker, how: str) -> None:
    records = written.records(TOPICS[how, "at-least-once"])
    found = Counter(int(record.value or b"") for record in records)
    assert sorted(found) == list(range(ROWS))
    # Records of the first attempt exist too.
    assert set(found.values()) == {1, 2}
