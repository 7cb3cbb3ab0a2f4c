"""Sessions of ``krammar.spark`` and of Spark itself, each in its own process, because Spark has one JVM per process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyspark

from krammar.spark import daemon, local
from krammar.wire.batches import Record, encode_batch
from tests.samples import ROOT, blocks
from tests.spark.logs_support import write_segment

_SHOW = """
import os
print("python", os.environ["PYSPARK_PYTHON"])
loaded = "krammar.spark.logs.source"
print("worker", spark.sparkContext.parallelize([loaded]).map(lambda name: name in __import__("sys").modules).collect())
print("zips", [path for path in os.environ["SPARK_HOME"].split() if "krammar-spark-" in path] != [])
sockets = spark.conf.get("spark.python.unix.domain.socket.dir")
print("sockets", any(name.endswith(".sock") for name in os.listdir(sockets)), oct(os.stat(sockets).st_mode & 0o777))
spark.stop()
"""


def test_workers_are_forked_with_modules_that_exist() -> None:
    """A name that a version of PySpark lacks would silently cost each new worker its import."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3):
        pytest.skip("older versions of PySpark lack some modules")
    assert [name for name in daemon._MODULES if find_spec(name) is None] == []


def test_a_long_temporary_folder_gets_no_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_folders", [])
    assert local._unix_sockets()["spark.python.unix.domain.socket.enabled"] == "true"
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert local._unix_sockets() == {}


def not_activated() -> dict[str, str]:
    """The environment of a shell in which the virtual environment is not activated."""
    programs = str(Path(sys.executable).parent)
    path = [each for each in os.environ["PATH"].split(os.pathsep) if each != programs]
    # Spark's variables belong to a session that other tests have started, such as one of Spark Connect.
    left_out = ("PYSPARK_", "SPARK_", "VIRTUAL_ENV", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "PATH": os.pathsep.join(path)}


_BUILT = """
import sys
from tests.spark import sessions
spark = sessions.classic({})
frame = spark.read.format("krammar").option("source", "logs").load(sys.argv[1])
print([bytes(row.value) for row in frame.orderBy("offset").collect()])
spark.stop()
"""


def test_a_session_of_sparks_builder(tmp_path: Path) -> None:
    """Its workers are not forked by krammar's daemon, and import PySpark from zip files."""
    _skip_without_java()
    write_segment(tmp_path / "t-0", 0, encode_batch([Record(value=b"a"), Record(value=b"b")]))
    done = subprocess.run(
        [sys.executable, "-c", _BUILT, str(tmp_path)],
        cwd=ROOT,
        env=not_activated(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[b'a', b'b']"


def _skip_without_java() -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")


@pytest.mark.sweep
def test_sample_of_the_readme_in_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    _skip_without_java()
    sample = tmp_path / "sample.py"
    text = "\n".join(blocks("README.md", section="Kafka data in Spark"))
    assert "spark.stop()" in text
    sample.write_text(text.replace("spark.stop()", _SHOW))
    done = subprocess.run(
        [sys.executable, str(sample)],
        cwd=tmp_path,
        env=not_activated(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "|partition|count|" in done.stdout
    assert f"python {sys.executable}" in done.stdout
    assert "zips True" in done.stdout
    assert "sockets True 0o700" in done.stdout
    assert "worker [True]" in done.stdout  # forked by krammar.spark.daemon
