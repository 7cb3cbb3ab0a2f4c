"""Streams of journals without Spark: the same calls in the same order, and the same state in a checkpoint."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from krammar.spark.datasource import FailingStreamReader, KrammarDataSource
from krammar.spark.journal.stream.reader import JournalStreamReader
from tests.spark.stream_support import Checkpoint

Row = dict[str, Any]


class JournalRun:
    """One run of a query. Offsets and tasks pass through their serialized forms, as between processes."""

    def __init__(
        self,
        options: Mapping[str, object],
        checkpoint: Checkpoint | None = None,
        *,
        available_now: bool = False,
    ) -> None:
        self.checkpoint = checkpoint or Checkpoint()
        texts = {name.replace("__", "."): str(value) for name, value in options.items()}
        source = KrammarDataSource({"source": "journal", **texts})
        reader = source.streamReader(source.schema())
        if isinstance(reader, FailingStreamReader):
            reader.initialOffset()  # raises
        assert isinstance(reader, JournalStreamReader)
        self.reader = reader
        if available_now:
            reader.prepareForTriggerAvailableNow()
        self.limit = reader.getDefaultReadLimit()

    def plan(self) -> list[Any] | None:
        """Return the tasks of the next micro-batch, or None if there is none."""
        log = self.checkpoint
        start = log.ends[log.committed - 1] if log.committed else self.reader.initialOffset()
        if len(log.ends) == log.committed:
            end = self.reader.latestOffset(_copy(start), self.limit)
            if end == start:
                return None
            log.ends.append(_copy(end))
        tasks = self.reader.partitions(_copy(start), _copy(log.ends[-1]))
        return pickle.loads(pickle.dumps(tasks))  # type: ignore[no-any-return]

    def read(self, tasks: list[Any]) -> list[Row]:
        """Return the rows of tasks."""
        copy = pickle.loads(pickle.dumps(JournalStreamReader(self.reader._query.options)))
        return [row for task in tasks for batch in copy.read(task) for row in batch.to_pylist()]

    def batch(self, *, commit: bool = True) -> list[bytes] | None:
        """Return the values of the next micro-batch, sorted, or None if there is none."""
        tasks = self.plan()
        if tasks is None:
            return None
        rows = self.read(tasks)
        if commit:
            self.checkpoint.committed += 1
        return sorted(row["value"] for row in rows)

    def all(self) -> list[list[bytes]]:
        """Return the values of all micro-batches that there are."""
        found = []
        while (values := self.batch()) is not None:
            found.append(values)
        return found


@contextmanager
def running(
    options: Mapping[str, object], checkpoint: Checkpoint | None = None, **more: bool
) -> Iterator[JournalRun]:
    """Run a query, and stop it at the end."""
    run = JournalRun(options, checkpoint, **more)
    try:
        yield run
    finally:
        run.reader.stop()


def _copy(offset: Any) -> Any:
    return json.loads(json.dumps(offset))
