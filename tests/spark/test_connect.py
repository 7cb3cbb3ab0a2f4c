"""Spark Connect: tests of the other files once more, with its sessions, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from tests.spark.sessions import MODE

HERE = Path(__file__).parent
# All pass, but a JVM of its own is slow at first: `python -m tests.spark.versions` runs all.
CHOSEN = (
    "connect_only.py",
    "test_kafka.py::test_every_codec_null_and_header",
    "test_functions.py::test_there_and_back",
    "test_functions.py::test_malformed_bytes",
    "test_pushdown.py::test_register_turns_it_on",
    "test_write.py::test_all_columns",
    "test_write.py::test_from_topic_to_topic",
)


@pytest.mark.sweep
@pytest.mark.skipif(os.environ.get(MODE) == "connect", reason="this is that process")
def test_over_spark_connect(tmp_path: Path) -> None:
    for name in ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard"):
        try:
            found = find_spec(name)
        except ModuleNotFoundError:  # of its parent
            found = None
        if found is None:
            pytest.skip(f"{name} is not installed, which pyspark[connect] needs")
    command = [sys.executable, "-m", "pytest", "--color=no", "-p", "no:cacheprovider"]
    command += ["--basetemp", str(tmp_path / "tests"), *(str(HERE / test) for test in CHOSEN)]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        command,
        cwd=HERE.parent.parent,
        env={**environment, MODE: "connect"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
