"""A pipeline of two queries, whose process is killed: the first writes a journal, the second one reads it as a stream and
writes another journal.

See ``tests.spark.journal_crash_driver``; what Spark stores in its checkpoints is in files.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa

from krammar.spark.datasource import KrammarDataSource
from tests.spark.journal_crash_driver import (
    BATCHES,
    TASKS,
    Fault,
    commit,
    publish,
    rows_of,
    serve,
)

FIRST, SECOND = "first", "second"


def drive(order: dict[str, Any], fault: Fault) -> None:
    """A run of both queries: the micro-batches that are not committed yet.

    The second query also runs while the transaction of a micro-batch of the first one is open.
    """
    places, folder = order["options"]["places"], Path(order["options"]["folder"])
    first = _sink(places, folder / "writer")
    relay = Relay(places, folder / "relay", order["topic"], fault)
    for number in range(BATCHES):
        done = folder / "writer" / f"commit-{number}"
        if done.exists():
            continue
        fault.enter("before publishing")
        tasks = [rows_of(order["topic"] + FIRST, number, task) for task in range(TASKS)]
        messages = publish(first, number, tasks, fault)
        relay.run()
        fault.enter("between publishing and intents")
        commit(first, number, messages)
        fault.enter("before Spark's commit")
        done.touch()
        relay.run()
    relay.run()
    relay.reader.stop()


def _sink(places: dict[str, str], checkpoint: Path) -> dict[str, str]:
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").touch()
    return {"delivery": "journal", "checkpointLocation": str(checkpoint), **places}


class Relay:
    """One run of the second query."""

    def __init__(self, places: dict[str, str], folder: Path, topic: str, fault: Fault) -> None:
        self.fault = fault
        self.folder = folder
        self.topic = topic + SECOND
        self.sink = _sink(places, folder)
        options = {"source": "journal", "subscribe": topic + FIRST, **places}
        source = KrammarDataSource(options)
        self.reader: Any = source.streamReader(source.schema())
        self.number = len(list(folder.glob("commit-*")))

    def run(self) -> None:
        """Run all micro-batches that there are."""
        while self._batch():
            self.number += 1

    def _batch(self) -> bool:
        self.fault.enter("planning")
        reader, stored = self.reader, self.folder / f"offset-{self.number}"
        before = self.folder / f"offset-{self.number - 1}"
        start = json.loads(before.read_text()) if self.number else reader.initialOffset()
        if not stored.exists():
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return False
            temporary = stored.with_suffix(".tmp")
            temporary.write_text(json.dumps(end))
            self.fault.enter("storing an offset")
            os.replace(temporary, stored)
        planned = reader.partitions(start, json.loads(stored.read_text()))
        self.fault.enter("reading")
        tasks = [
            [self._rows(batch) for batch in reader.read(task)]
            for task in pickle.loads(pickle.dumps(planned))
        ]
        messages = publish(self.sink, self.number, tasks, self.fault)
        self.fault.enter("between publishing and intents")
        commit(self.sink, self.number, messages)
        self.fault.enter("before Spark's commit")
        (self.folder / f"commit-{self.number}").touch()
        return True

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.repeat(self.topic, batch.num_rows),
                "key": batch.column("key"),
                "value": batch.column("value").cast(pa.string()),
            }
        )


if __name__ == "__main__":
    serve(drive)
