"""``python -m tests.random_definitions --protocols 10000 --seed 1``: a long search, with progress."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from multiprocessing.queues import Queue
from queue import Empty

from tests.random_definitions.worker import search_here, start

# Each search is this long at most: hypothesis remembers all protocols of one.
CHUNK = 250


def main() -> int:
    """Search in several processes. Returns 1 if a protocol failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_definitions", description=__doc__)
    parser.add_argument("--protocols", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    starts = range(0, options.protocols, CHUNK)
    tasks = [
        (options.seed + number, min(CHUNK, options.protocols - start))
        for number, start in enumerate(starts)
    ]
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    done: Queue[int] = context.Queue()
    # A new process for each search: Python never frees the code of imported modules completely.
    with context.Pool(options.jobs, start, (done,), maxtasksperchild=1) as pool:
        results = [pool.apply_async(search_here, task) for task in tasks]
        tried, failures = 0, 0
        while results or not done.empty():
            for result in [each for each in results if each.ready()]:
                results.remove(result)
                if text := result.get():
                    failures += 1
                    print(text, flush=True)
            try:
                tried += done.get(timeout=1)
            except Empty:
                continue
            if tried % 50 == 0:
                print(
                    f"{tried} of {options.protocols} protocols, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    print(
        f"{options.protocols} protocols with seeds {tasks[0][0]} to {tasks[-1][0]}: {failures} failures, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
