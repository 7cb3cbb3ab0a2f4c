"""Times of whole processes: generating all of Kafka, and importing what was generated."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
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


def generate(*, rounds: int) -> tuple[float, float]:
    """Seconds of ``krammar gen`` over all definitions: into an empty folder, and once more with
    nothing changed. Both are of the whole command, from the start of Python to its end."""
    cold, warm = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "krammar.cli", "gen", "definitions", "-o", out]
            cold.append(_seconds(command))
            warm.append(_seconds(command))
    return median(cold), median(warm)


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


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


def _environment(cache: str) -> dict[str, str]:
    """The environment, but with bytecode kept: in a folder of its own, so that no run depends on
    what an earlier one left in the tree."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": cache}
