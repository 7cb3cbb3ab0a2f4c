"""Decides which micro-batches are read where they are planned, instead of by tasks.

A task in Python takes Spark longer than all the rest of a small batch, and longer than the tasks of a source in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING

from krammar.spark.kafka.plan import Task
from krammar.spark.kafka.tasks import KafkaPartition
from krammar.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

# The most offsets, and bytes of Arrow, of a batch that is read where it is planned; and how many batches of a query
# are not: they would wait half a second for imports, which Spark's workers may have done for an earlier query. After a
# batch with too many bytes, so many batches at most are not tried.
_SMALL_OFFSETS = 10_000
_SMALL_BYTES = 1 << 20
_FIRST_BATCHES = 2
_MOST_UNTRIED = 64


class SmallBatches:
    """Reads the small batches of a query."""

    def __init__(self, options: Options) -> None:
        given = map(options.given, ("minPartitions", "maxRecordsPerPartition"))
        self._divided = any(given)  # options set the size of tasks
        self._planned = 0
        self._small_offsets = _SMALL_OFFSETS
        self._untried = 0  # how many of the next batches with more offsets are not tried
        self._pause = 1  # how many were not tried after the last batch with too many bytes

    def rows(
        self, tasks: list[Task], read: Callable[[KafkaPartition], Generator[pa.RecordBatch]]
    ) -> list[pa.RecordBatch] | None:
        """Return the rows of a small batch, or None for a batch that tasks are to read."""
        self._planned += 1
        offsets = sum(task.count for task in tasks)
        if self._divided or self._planned <= _FIRST_BATCHES or not 0 < offsets <= _SMALL_OFFSETS:
            return None
        if self._untried and offsets > self._small_offsets:
            self._untried -= 1
            return None
        rows, size = [], 0
        with closing(read(KafkaPartition(tasks))) as batches:
            for batch in batches:
                rows.append(batch)
                size += batch.nbytes
                if size > _SMALL_BYTES:
                    # Fewer offsets are tried at once, others after more and more batches.
                    self._small_offsets = offsets - 1
                    self._untried = self._pause = min(2 * self._pause, _MOST_UNTRIED)
                    return None
        self._pause = 1
        return rows
