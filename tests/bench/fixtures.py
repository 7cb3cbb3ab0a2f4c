"""Start times of the brokers of docs/fixtures.md: ``python -m tests.bench.fixtures`` writes them into the page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from krammar.testing import KafkaBroker, KafkaCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fixtures.md"
BEGIN, END = "<!-- times -->\n", "<!-- end of the times -->\n"
ROUNDS = 50

_KINDS: list[tuple[str, dict[str, Any]]] = [
    ("`kafka_broker`, without a mark", {}),
    ('`topics={"orders": 4}`', {"topics": {"orders": 4}}),
    ('`sasl="scram"`', {"sasl": "scram"}),
    ("`tls=True`", {"tls": True}),
    ('`sasl="scram", tls=True`', {"sasl": "scram", "tls": True}),
]

# From the start of the imports until the first broker of a process is ready.
_FIRST = """
from time import perf_counter
start = perf_counter()
from krammar.testing import KafkaBroker
KafkaBroker.start()
print(perf_counter() - start)
"""


def _ms(seconds: list[float]) -> str:
    # The shortest: other processes only add to a time of a few milliseconds.
    return f"{min(seconds) * 1000:.1f} ms"


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    result = action()
    return perf_counter() - start, result


def _first_starts(rounds: int = 15) -> list[float]:
    """Seconds in new interpreters with compiled bytecode at hand."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", _FIRST]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, check=True)
            for _ in range(rounds + 1)
        ]
    return [float(run.stdout) for run in runs[1:]]


def table() -> str:
    """Measure, and return the page's part."""
    first = _first_starts()
    lines = []
    for name, keywords in _KINDS:
        KafkaBroker.start(**keywords).close()
        starts, resets, closes = [], [], []
        for _ in range(ROUNDS):
            seconds, broker = _timed(lambda keywords=keywords: KafkaBroker.start(**keywords))
            starts.append(seconds)
            resets.append(_timed(broker.reset)[0])
            closes.append(_timed(broker.close)[0])
        lines.append(f"| {name} | {_ms(starts)} | {_ms(closes)} | {_ms(resets)} |")
    starts, closes = [], []
    for _ in range(ROUNDS):
        seconds, cluster = _timed(KafkaCluster.start)
        starts.append(seconds)
        closes.append(_timed(cluster.close)[0])
    lines.append(f"| `kafka_cluster`, three nodes | {_ms(starts)} | {_ms(closes)} | |")
    return f"""\
The times of krammar are the shortest of {ROUNDS}, on two cores; `python -m tests.bench.fixtures` measures them. The first
broker of a process, with the imports, is ready after {_ms(first)}. There are no figures of testcontainers: containers
cannot run on the machine that measured.

| | Start | Stop | `reset()` |
|---|--:|--:|--:|
{chr(10).join(lines)}
"""


def main() -> None:
    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}{table()}{END}{tail}", "utf-8")


if __name__ == "__main__":
    main()
