"""Systems without the file locks of Unix: everything can be imported, and starting a broker raises one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

_SENTENCE = (
    "the broker needs the file locks of Unix (Python's module fcntl), which this system does not have: on Windows, "
    "run Python in WSL"
)
_START = """
import os, sys
for name in ("fcntl", "resource"):
    sys.modules[name] = None
del os.register_at_fork, os.fork
from krammar.broker import Broker, Cluster
from krammar.testing import KafkaBroker, KafkaCluster
for start in (Broker.start, Cluster.start, KafkaBroker.start, KafkaCluster.start):
    for process in (False, True):
        try:
            start(process=process)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_starting_a_broker() -> None:
    done = run("-c", _START)
    assert done.stderr == ""
    assert done.stdout.splitlines() == 8 * [f"StorageError: {_SENTENCE}"]


def test_the_command(tmp_path: Path) -> None:
    program = "import sys; sys.modules['fcntl'] = None; from krammar.cli import main; main()"
    done = run("-c", program, "broker", "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {_SENTENCE}\n"
    assert not (tmp_path / "data").exists()


def test_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import sys; sys.modules['fcntl'] = None")
    (tmp_path / "test_it.py").write_text("def test_it(kafka_broker): ...")
    done = run("-m", "pytest", "-p", "no:cacheprovider", str(tmp_path))
    assert done.returncode == 1
    assert _SENTENCE in done.stdout


@pytest.mark.parametrize("module", ["krammar.testing", "krammar.client", "krammar.proxy"])
def test_imports(module: str) -> None:
    assert run("-c", f"import sys; sys.modules['fcntl'] = None; import {module}").returncode == 0
