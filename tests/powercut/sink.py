"""Spark's sink for journals in files: its tasks and its driver, and what must be true after a power cut.

``python -m tests.powercut.sink FOLDER`` publishes and commits micro-batches as Spark calls the sink.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.powercut.disk import State
from tests.spark.test_journal_intents import Query, committed

BATCHES = [[["0a", "0b"], ["0c"]], [["1a"]], [["2a"], ["2b"]], [["3a"]]]


def main() -> None:
    folder = Path(sys.argv[1])
    for number, tasks in enumerate(BATCHES):
        # A driver has one writer for the tasks, and one for the commit.
        query = Query(folder)
        published = query.publish(number, *tasks)
        query.commit(number, published)
        print(f"committed {number}", flush=True)


def problems(folder: Path, state: State) -> Iterator[str]:
    """Yield which rows are lost or written twice if Spark continues after a power cut.

    Spark runs the batches again whose commit it does not know.
    """
    for number in range(len(state.marks), len(BATCHES)):
        Query(folder).run(number, *BATCHES[number])
    Query(folder).run(len(BATCHES), ["end"])
    expected = sorted([row for tasks in BATCHES for rows in tasks for row in rows] + ["end"])
    found = committed(folder)
    if found != expected:
        yield f"readers see {found}"


if __name__ == "__main__":
    main()
