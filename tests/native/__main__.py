"""The tests of generated code and of record batches, with compiled packages.

    python -m tests.native [PYTEST ARGUMENTS]

Compiles a part of kafka_wire, in which each form of the language and each benchmarked message is, and
all of wafka_wire, in a copy below build/, and runs the tests of the classes that are compiled, and
of krammar.wire, there; with arguments what they say: ``tests`` for all there are. What is compiled
already and still current is not compiled again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.run import run

ROOT = Path(__file__).parents[2]
COPY = ROOT / "build" / "native"

# By definition files; together they take about two minutes on two processors.
COMPILED = {
    "kafka_wire": "headers,metadata,heartbeat,fetch,produce,api_versions,offset_commit,describe_configs,"
    "consumer_protocol,consumer_offsets,control_records,update_raft_voter",
    "wafka_wire": "",
}
DEFAULT = ["-n", "auto", "--dist", "loadgroup", "-m", "", "tests/generated", "tests/wire"]


def main() -> int:
    for package, only in COMPILED.items():
        target = COPY / package
        shutil.copytree(
            ROOT / "generated" / package,
            target,
            ignore=shutil.ignore_patterns("_native", "__pycache__"),
            dirs_exist_ok=True,
        )
        command = [sys.executable, "-m", "krammar", "compile", str(target), "--only", only]
        subprocess.run([*command, "--definitions", str(ROOT / "definitions")], cwd=ROOT, check=True)
    return run(
        sys.executable,
        ["-ptests.native.selection", *(sys.argv[1:] or DEFAULT)],
        ROOT / "build" / "native-pytest",
        env={**os.environ, "PYTHONPATH": f"{COPY}{os.pathsep}{ROOT}"},
    )


if __name__ == "__main__":
    sys.exit(main())
