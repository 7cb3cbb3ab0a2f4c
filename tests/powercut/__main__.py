"""Check all states that power cuts can leave: ``make powercut``, or ``python -m tests.powercut --every 10``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.powercut.recorder import available
from tests.powercut.runs import RUNS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="check one of this many states")
    parser.add_argument("--only", default="", help="run programs whose name contains this text")
    options = parser.parse_args()
    if not available():
        print("powercut: strace is not installed, or may not trace processes", file=sys.stderr)
        return 2
    failures = 0
    for run in RUNS:
        if options.only not in run.name:
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="krammar-powercut-") as folder:
            outcome = run.explore(Path(folder), every=options.every)
        failures += len(outcome.failures)
        print(
            f"{run.name}: {outcome.states} states, {len(outcome.failures)} failures, "
            f"{time.monotonic() - begin:.0f} s",
            flush=True,
        )
        for failure in outcome.failures[:20]:
            print(f"  {failure}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
