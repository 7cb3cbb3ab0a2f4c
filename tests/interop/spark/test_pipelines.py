"""Spark's declarative pipelines: a table from a topic, and a topic from the table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

pytest.importorskip("pyspark.pipelines", reason="PySpark 4.1 is not installed")

from krammar.client import Client
from krammar.testing import KafkaBroker
from tests.samples import blocks
from tests.spark.support import STARTS, TOO_SLOW

# It starts a server of Spark Connect, and loads YAML.
for needed in ("grpc", "grpc_status", "google.rpc", "pandas", "yaml", "zstandard"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

LONG = 4 * PATIENCE
_SPEC = """\
name: copy
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""


def run_pipeline(folder: Path) -> None:
    """Run the pipeline; again if Spark has given up the Python worker of a source: no batch has run then."""
    for number in range(1, STARTS + 1):
        done = attempt(folder)
        if TOO_SLOW not in done.stdout or number == STARTS:
            break
    assert done.returncode == 0, done.stdout


def attempt(folder: Path) -> subprocess.CompletedProcess[str]:
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ["PATH"]])
    settings = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")
    command = ["spark-pipelines", "run"]
    for setting in (*settings, "spark.driver.memory=1g", "spark.ui.enabled=false"):
        command += ["--conf", setting]
    # Spark's environment variables belong to a session that other tests have started.
    kept = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    return subprocess.run(
        command,
        cwd=folder,
        env={**kept, "PATH": path, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG,
    )


def test_the_sample_of_the_page(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    servers = str(kafka_broker.bootstrap_servers)
    (sample,) = blocks("docs/spark-streaming.md", section="Declarative pipelines", language="")
    (tmp_path / "transformations").mkdir()
    text = sample.replace("localhost:9092", servers)
    assert servers in text
    (tmp_path / "transformations" / "copy.py").write_text(text)
    (tmp_path / "spark-pipeline.yml").write_text(
        _SPEC.format(storage=(tmp_path / "storage").as_uri())
    )
    kafka_broker.create_topic("orders", 2)
    kafka_broker.create_topic("copy", 1)
    values = [b"%d" % number for number in range(10)]
    with Client(servers) as client, client.producer() as producer:
        for value in values:
            producer.send("orders", value, key=value)
    run_pipeline(tmp_path)
    found = [(record.key, record.value) for record in kafka_broker.records("copy")]
    assert sorted(found) == sorted((value, value) for value in values)
