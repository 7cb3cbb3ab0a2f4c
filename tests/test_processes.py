"""Processes of benchmarks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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
