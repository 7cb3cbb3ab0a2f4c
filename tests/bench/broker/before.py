"""Compare this broker with the one of another checkout, both in one run.

    git worktree add /tmp/before main~50
    python -m tests.bench.broker.before /tmp/before      some minutes; prints a table

The brokers take turns, and each turn begins with the other one. A row gives the median over all turns of the ratio of
the two: broker's processor time per record and per request, records per second, and latency. 1.00 is no change; for
processor time and latency, less is better.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench.broker.contenders import Ours
from tests.bench.broker.measure import Cell, Latency, Speed, throughput

_CELLS = (
    Cell(100, "none", 1, 800_000),
    Cell(1000, "none", 4, 250_000),
    Cell(1000, "lz4", 1, 250_000),
    Cell(10_000, "none", 1, 25_000),
)
_LATENCIES = 2000


class _Checkout(Ours):
    """The broker of a checkout, with the engine if the checkout has it."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        # Memory that the system has never used, or has returned to its host, costs a virtual machine 10 µs a page,
        # which is five times what the broker needs for its bytes. So a deleted topic frees its memory for the next
        # one.
        super().__init__(folder, properties={"log.segment.delete.delay.ms": "0"})
        self.checkout = checkout

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.checkout), str(self.checkout / "generated")])
        # From the current folder, `python -m` would import this krammar.
        return {**super().environment(), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def processor_time(self) -> float:
        """Seconds, exact to the nanosecond: the difference between two versions is less than a tick."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.broker.before",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", type=Path, help="a checkout to compare with")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument(
        "--quick", action="store_true", help="one turn of a twentieth: shows that it works"
    )
    parser.add_argument(
        "--folder", type=Path, help="data is stored here; /dev/shm removes the noise of a disk"
    )
    options = parser.parse_args()
    if not (options.checkout / "krammar").is_dir():
        parser.error(f"{options.checkout} is no checkout of krammar")

    part = 20 if options.quick else 1
    cells = [replace(cell, records=cell.records // part) for cell in _CELLS]
    turns = 1 if options.quick else options.turns

    ratios: dict[str, list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="krammar-bench-", dir=options.folder) as name,
        ExitStack() as stack,
    ):
        brokers = [
            stack.enter_context(_Checkout(Path(name) / label, checkout.resolve()))
            for label, checkout in (
                ("before", options.checkout),
                ("now", Path(__file__).parents[3]),
            )
        ]
        # Two processors: one for the brokers, one for the client. Moving between them costs up to a tenth.
        for broker in brokers:
            assert broker.process is not None
            os.sched_setaffinity(broker.process.pid, {0})
        os.sched_setaffinity(0, {1})
        latencies = [Latency(broker) for broker in brokers]
        for turn in range(-1, turns):  # the first turn warms up
            order = (0, 1) if turn % 2 else (1, 0)
            for number, cell in enumerate(cells):
                speeds = {
                    each: throughput(brokers[each], cell, f"t-{number}-{turn + 1}")
                    for each in order
                }
                if turn >= 0:
                    for what, before, now in zip(
                        ("produce", "consume"), speeds[0], speeds[1], strict=True
                    ):
                        _add(ratios, f"{what} {cell.name}", before, now)
            asked = {}
            for each in order:
                used = brokers[each].processor_time()
                found = latencies[each].ask(_LATENCIES // part)
                asked[each] = statistics.median(found), brokers[each].processor_time() - used
            if turn >= 0:
                ratios["one record in flight, latency"].append(asked[1][0] / asked[0][0])
                ratios["one record in flight, processor"].append(asked[1][1] / asked[0][1])
            print(f"turn {turn + 1} of {turns}", file=sys.stderr)
    for what, found in ratios.items():
        low, _, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
        print(f"{what:42} {statistics.median(found):5.2f}   quartiles {low:.2f} to {high:.2f}")


def _add(ratios: dict[str, list[float]], what: str, before: Speed, now: Speed) -> None:
    ratios[f"{what}, processor"].append(now.processor / before.processor)
    ratios[f"{what}, rate"].append(now.rate / before.rate)


if __name__ == "__main__":
    main()
