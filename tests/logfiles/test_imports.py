"""Code that reads log folders loads no part of the broker, and loads decoders only if they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from krammar.logfiles.names import stem
from krammar.wire.batches import Record, encode_batch

READ = """
import sys
from krammar.spark.logs.source import LogReader, schema
from krammar.spark.options import Options

options = Options({"source": "logs", "path": sys.argv[1], **dict(a.split("=") for a in sys.argv[2:])})
reader = LogReader(options, schema(options))
rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
packages = ("krammar.spark.typed", "krammar.broker")
print(rows, *(package for package in packages if any(m.startswith(package) for m in sys.modules)))
"""
INSPECT = """
import sys
from krammar.inspect.files import inspect_path

items = list(inspect_path(sys.argv[1], records=True))
print(len(items), any(m.startswith(("krammar.broker", "krammar.spark")) for m in sys.modules))
"""


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data = encode_batch([Record(value=b"one"), Record(value=b"two")])
    (folder / f"{stem(0)}.log").write_bytes(data)
    return folder


def run(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_spark_reads_topics_without_the_broker(partition: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    assert run(READ, partition, "kafka.isolation.level=read_committed") == "2"
    decoded = run(READ, partition, "decode=OffsetCommitValue", "mode=PERMISSIVE")
    assert decoded == "2 krammar.spark.typed"


def test_inspect_reads_without_the_broker(partition: Path) -> None:
    assert run(INSPECT, partition) == "4 False"
