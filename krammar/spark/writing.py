"""The interface between writers and deliveries, and the report of a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa


class Count(NamedTuple):
    """The rows written to one topic; ``size`` is the bytes of their keys and values."""

    rows: int = 0
    size: int = 0


@dataclass
class Written(WriterCommitMessage):
    """The rows that a task has written, by topic. All of them are acknowledged."""

    topics: dict[str, Count] = field(default_factory=dict)

    def add(self, topic: str, rows: int, size: int) -> None:
        """Add rows of a topic; ``size`` is the bytes of their keys and values."""
        known = self.topics.get(topic, Count())
        self.topics[topic] = Count(known.rows + rows, known.size + size)


Messages = Sequence[WriterCommitMessage | None]


class WriteDelivery(Protocol):
    """Writes rows to topics. The driver creates it and sends it to the tasks.

    Its methods raise SparkSourceError.
    """

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of a task; called in the task."""

    def commit(self, messages: Messages, batch_id: int | None) -> None:
        """Finish a write whose tasks have all succeeded; called on the driver.

        Args:
            messages: what the tasks' ``write`` returned.
            batch_id: the number of a stream's micro-batch; None for a batch write.
        """

    def abort(self, messages: Messages, batch_id: int | None) -> None:
        """Clean up a failed write; called on the driver. The messages of failed tasks are None."""
