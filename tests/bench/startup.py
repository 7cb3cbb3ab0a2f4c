"""Times of whole processes: generating all of Kafka, and importing what was generated."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]

# The package first, then the class: what a program pays for the first message it names.
_IMPORT = """
from time import perf_counter
start = perf_counter()
import kafka_wire
package = perf_counter()
kafka_wire.{name}
print(package - start, perf_counter() - package)
"""


# A request and a response of an own protocol with some of everything.
_MANY = """\
M{key}Request => key {key}, max version 3, flexible v2+
  Name: string
  Count: int32 // v1+
  Rows: [=>]
    Id: int64
    Label: nullable-string // v1+, ignorable
    Values: [int32]
  Extra: string // v3+, tag 0

M{key}Response =>
  ErrorCode: int16
  Items: [=>]
    Name: string
    Sizes: [int32] // v2+"""

# What the figures were before rarely used messages shared one codec for all versions, and before black formatted
# only long lines. Both were measured on machines of one kind.
BEFORE = {
    "cold": "20.9 s (40.6 s of processors)",
    "warm": "340.7 ms",
    "many": "not within 300 s",
    "lines": "131,281",
    "package": "10.7 ms",
    "MetadataResponse": "4.8 ms",
    "FetchResponse": "5.0 ms",
    "StreamsGroupDescribeResponse": "5.0 ms",
    "HeartbeatRequest": "4.5 ms",
}


@dataclass(frozen=True)
class Run:
    """Seconds of one command: on the clock, and of all processors together."""

    clock: float
    processor: float


def generate(*, rounds: int) -> tuple[Run, Run]:
    """``krammar gen`` over all definitions: into an empty folder, and once more with nothing changed.
    Both are of the whole command, from the start of Python to its end."""
    cold, warm = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "krammar.cli", "gen", "definitions", "-o", out]
            cold.append(_run(command))
            warm.append(_run(command))
    return _median(cold), _median(warm)


def generate_many(messages: int) -> Run:
    """``krammar gen`` of one package with many requests of an own protocol, into an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "definitions", "many")
        source.mkdir(parents=True)
        for first in range(0, messages // 2, 5):
            text = "\n\n".join(_MANY.format(key=key) for key in range(first, first + 5))
            (source / f"part_{first}.krm").write_text(f"{text}\n", encoding="utf-8")
        command = ["gen", str(source.parent), "-o", str(Path(folder, "out"))]
        return _run([sys.executable, "-m", "krammar.cli", *command])


def generated_lines() -> int:
    """The lines of Python in generated/."""
    files = (ROOT / "generated").rglob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def _median(runs: list[Run]) -> Run:
    return Run(median(run.clock for run in runs), median(run.processor for run in runs))


def imports(names: list[str], *, rounds: int) -> tuple[float, dict[str, float]]:
    """Seconds of ``import kafka_wire`` in a new interpreter with compiled bytecode at hand, and behind
    it those until each class of ``names`` is there, what it imports included."""
    package: list[float] = []
    classes: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as cache:
        for turn in range(rounds + 1):
            for name in names:
                done = subprocess.run(
                    [sys.executable, "-c", _IMPORT.format(name=name)],
                    env=_environment(cache),
                    cwd=ROOT,
                    check=True,
                    capture_output=True,
                    text=True,
                )
                if turn == 0:
                    continue  # this one wrote the bytecode
                first, second = map(float, done.stdout.split())
                package.append(first)
                classes[name].append(second)
    return median(package), {name: median(seconds) for name, seconds in classes.items()}


def _run(command: list[str]) -> Run:
    clock, processor = time.perf_counter(), _processor()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return Run(time.perf_counter() - clock, _processor() - processor)


def _processor() -> float:
    """Processor time of all child processes that have ended, and of theirs."""
    times = os.times()
    return times.children_user + times.children_system


def _environment(cache: str) -> dict[str, str]:
    """The environment, but with bytecode kept: in a folder of its own, so that no run depends on
    what an earlier one left in the tree."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": cache}
