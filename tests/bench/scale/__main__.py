"""Measure a large cluster, simulated: 300 nodes and 100,000 partitions that consist of answers, without data.

python -m tests.bench.scale            about three minutes; writes its section of docs/benchmarks.md
python -m tests.bench.scale --quick    10,000 partitions; prints only
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.page import failures, machine, markdown_table, put_file, section, subsection
from tests.bench.scale.cluster import IN_TOPIC, RECORDS
from tests.bench.scale.jobs import JOBS, PHASES, peak
from tests.bench.tap import cpu, started

_PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
_NODES = 300
_BETWEEN = {"tap": ["tap", "--quiet"], "proxy": ["proxy"]}
_PATIENCE = 300


@dataclass
class Found:
    """The steps and facts of one job; see ``jobs.Report``."""

    steps: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)


def run(job: str, port: int) -> Found:
    """Run a job in a process of its own."""
    command = (sys.executable, "-m", "tests.bench.scale.jobs", job, f"127.0.0.1:{port}")
    with (
        tempfile.TemporaryFile("w+") as log,
        started(*command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        out, _ = process.communicate(timeout=_PATIENCE)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"{job}: {log.read().strip().splitlines()[-1]}")
    return Found(**json.loads(out.splitlines()[-1]))


@contextmanager
def between(arguments: list[str], upstream: int) -> Iterator[tuple[int, int]]:
    """Start a tap or a proxy; its port and process."""
    command = [sys.executable, "-m", "krammar.cli", *arguments, "--listen", "127.0.0.1:0"]
    with (
        tempfile.TemporaryFile() as out,
        started(
            *command, "--upstream", f"127.0.0.1:{upstream}", stdout=out, stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("listening on "):
                yield int(line.split()[2].rpartition(":")[2]), process.pid
                return
        raise RuntimeError(f"{arguments[0]} does not start")


def measure(port: int, errors: list[str]) -> dict[str, Found]:
    """Run all jobs, and the first one through tap and proxy too."""
    found: dict[str, Found] = {}

    def attempt(name: str, job: str, at: int) -> None:
        print(name, file=sys.stderr, flush=True)
        try:
            found[name] = run(job, at)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            errors.append(f"{name}: {error}")

    for job in JOBS:
        attempt(job, job, port)
    for kind, arguments in _BETWEEN.items():
        with between(arguments, port) as (own, pid):
            before = cpu(pid)
            attempt(kind, "metadata", own)
            if kind in found:
                # Milliseconds for each of the two responses.
                found[kind].facts["cpu"] = round((cpu(pid) - before) * 1000 / 2)
                found[kind].facts["memory"] = round(peak(pid))
                found[kind].facts["files"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return found


_METADATA = "Metadata of all topics"
_STEPS = {
    ("metadata", "first"): f"Client: {_METADATA}, first request",
    ("metadata", "again"): f"Client: {_METADATA}, next request",
    ("tap", "again"): f"Client: {_METADATA} through the tap",
    ("proxy", "again"): f"Client: {_METADATA} through the proxy",
    ("batch", "plan"): "Spark source: plan of a batch",
    ("micro_batches", "initialOffset"): "Spark source: start of a stream, `initialOffset`",
    ("micro_batches", "latestOffset 1"): "Spark source: first micro-batch, `latestOffset`",
    ("micro_batches", "partitions 1"): "Spark source: first micro-batch, `partitions`",
    ("micro_batches", "latestOffset 2"): "Spark source: next micro-batch, `latestOffset`",
    ("micro_batches", "partitions 2"): "Spark source: next micro-batch, `partitions`",
}


def lines(found: dict[str, Found], partitions: int, errors: list[str]) -> Iterator[str]:
    yield "## A large cluster"
    yield ""
    yield "`make bench` (`python -m tests.bench.scale`) writes this section. The cluster is simulated: one process answers for"
    yield f"{_NODES} nodes, each with a port of its own, with {partitions:,} partitions in topics of {IN_TOPIC}. It has no data; each partition"
    yield f"gets {RECORDS} records between two micro-batches. Each job is a process of its own. The seconds include the time in which that"
    yield "one process answers for all nodes; compare the processor time, which is that of the job. Memory is the highest"
    yield "resident memory of the process until then."
    yield ""
    yield from machine()
    rows = []
    for (job, step), title in _STEPS.items():
        if job in found:
            clock, used, memory = found[job].steps[step]
            rows.append((title, f"{clock:.2f}", f"{used:.2f}", f"{memory:,.0f}"))
    head = ("Job", "seconds", "CPU s", "memory, MB")
    yield from subsection("Client and source", "", markdown_table(head, rows))
    kinds = [kind for kind in _BETWEEN if kind in found]
    between_rows = [
        (
            kind,
            f"{found[kind].facts['cpu']:,}",
            f"{found[kind].facts['memory']:,}",
            f"{found[kind].facts['files']:,}",
        )
        for kind in kinds
    ]
    note = f"What the process in between needs for {_METADATA}. It opens a port for each node that a response names."
    head = ("Process", "CPU ms per response", "memory, MB", "open files")
    yield from subsection("Tap and proxy", note, markdown_table(head, between_rows))
    if "spark" in found:
        yield from subsection("Spark's driver", _SPARK, _of_spark(found["spark"]))
    if "batch" in found and "micro_batches" in found:
        yield from subsection("Limits that follow", "", _limits(found, partitions))
    yield from failures(errors)


_SPARK = """\
A session of `krammar.spark.session("local[2]")` with a heap of 1 GB plans a batch, and then runs a query from the newest
offsets on, with one micro-batch without rows. Memory is the highest resident memory of the JVM until then."""


def _of_spark(found: Found) -> list[str]:
    facts = found.facts
    seconds = {name: step[0] for name, step in found.steps.items()}
    rows = [
        ("session", "", f"{facts['JVM before, MB']:,}"),
        (
            f"plan of a batch, {facts['tasks']:,} tasks",
            f"{seconds['plan of a batch']:.1f}",
            f"{facts['JVM after the plan, MB']:,}",
        ),
        ("query", f"{seconds['query']:.1f}", f"{facts['JVM after the query, MB']:,}"),
        *((f"phase `{phase}` of it", f"{facts[phase] / 1000:.1f}", "") for phase in PHASES),
    ]
    return markdown_table(("Job", "seconds", "JVM, MB"), rows)


def _limits(found: dict[str, Found], partitions: int) -> list[str]:
    batch, stream = found["batch"], found["micro_batches"]
    used = stream.steps["latestOffset 2"][1] + stream.steps["partitions 2"][1]
    size = stream.facts["offsets in JSON, bytes"]
    growth = stream.steps["partitions 2"][2] - stream.facts["memory before"]
    return [
        f"- A batch needs {batch.steps['plan'][1] / partitions * 1e6:.0f} µs of processor time per partition for its plan, a micro-batch"
        f" {used / partitions * 1e6:.0f} µs. With {partitions:,} partitions, a trigger of less than {used:.1f} s has no effect.",
        f"- The process that plans a stream holds {growth * 1e6 / partitions / 1000:.1f} kB per partition, besides its imports.",
        f"- A micro-batch stores {size / partitions:.0f} bytes per partition in the checkpoint, and Spark passes them to Python in each call.",
        f"- The client keeps a connection to each leader: {stream.facts['connections']} open files here. Tap and proxy need three for each"
        " node: a port, and a connection on each side. The usual limit of 1,024 open files suffices for about 330 nodes.",
        f"- Name the topics with `subscribe` if you can: `subscribePattern` asks for the metadata of all {partitions:,} partitions each time.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="10,000 partitions, for orientation")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    options = parser.parse_args()
    partitions = 10_000 if options.quick else 100_000
    errors: list[str] = []
    command = (sys.executable, "-m", "tests.bench.scale.cluster", str(_NODES), str(partitions))
    with started(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = measure(int(process.stdout.readline()), errors)
    written = list(lines(found, partitions, errors))
    print("\n".join(written))
    output = options.output or (None if options.quick else _PAGE)
    if output is not None:
        put_file(output, section("scale", "python -m tests.bench.scale", written))


if __name__ == "__main__":
    main()
