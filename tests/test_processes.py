"""Processes of benchmarks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.processes import answers

_ROOT = Path(__file__).parents[1]
_PROGRAM = """
import signal, sys
from pathlib import Path
from tests.interop.processes import Krammar
with Krammar(Path(sys.argv[1]) / "data") as broker:
    print(broker.port, flush=True)
    signal.pause()
"""


def test_a_benchmark_that_is_ended_by_sigterm_ends_its_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        assert answers(port)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert not answers(port)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_benchmark_of_a_large_cluster_ends_its_processes() -> None:
    command = [sys.executable, "-m", "tests.bench.scale", "--quick"]
    with subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert (
            process.stderr.readline() == "metadata\n"
        )  # the cluster runs, and the first job begins
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert not [child for child in children if Path("/proc", child).exists()]
