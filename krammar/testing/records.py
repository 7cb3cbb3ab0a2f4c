"""The records of a broker in a test, as plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from krammar.logfiles.transactions import is_aborted
from krammar.wire.batches import RecordBatch

if TYPE_CHECKING:
    from krammar.broker.log.log import PartitionLog


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a topic.

    Attributes:
        timestamp: in milliseconds since 1970
        key, value: as the client sent them, in bytes; None for null
        headers: names and values, in order
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a log, with what its records lack."""

    topic: str
    partition: int
    first_offset: int
    content: RecordBatch

    def records(self) -> list[Record]:
        """Decode the records, without those that were deleted on request."""
        return [
            Record(
                self.topic,
                self.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in self.content
            if record.offset >= self.first_offset
        ]


def batches_of(log: PartitionLog, *, committed: bool) -> list[Batch]:
    """Read the batches of a log, without control batches. Call it in the broker's loop.

    Args:
        committed: whether batches of aborted transactions, and all from the first open transaction
            on, are left out, as for a consumer with ``read_committed``
    """
    end = log.last_stable_offset if committed else log.end_offset
    aborted = log.reader.aborted_entries(log.log_start_offset, end) if committed else []
    return [
        Batch(log.topic, log.partition, log.log_start_offset, batch)
        for batch in log.reader.batches()
        if batch.base_offset < end and not batch.is_control and not is_aborted(batch, aborted)
    ]


def batch_within(log: PartitionLog, first: int, last: int) -> Batch | None:
    """Return the batch with these offsets; None if it is deleted. Call it in the broker's loop."""
    begin = max(first, log.log_start_offset)
    if log.deleted or begin > last:
        return None
    batch = next(log.reader.batches(begin), None)
    if batch is None or batch.base_offset > last:
        return None
    return Batch(log.topic, log.partition, log.log_start_offset, batch)
