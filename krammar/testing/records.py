"""The records of a broker in a test, as plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krammar.wire.batches import ControlRecordType, RecordBatch

if TYPE_CHECKING:
    from krammar.broker.log.log import PartitionLog


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a topic.

    ``timestamp``       in milliseconds since 1970
    ``key``, ``value``  as the client sent them, in bytes; None for null
    ``headers``         names and values, in order
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
        committed: whether batches of aborted transactions, and all from the first open transaction on, are left
            out, as for a consumer with ``read_committed``
    """
    found = list(log.batches())
    if committed:
        found = _committed(found)
    return [
        Batch(log.topic, log.partition, log.log_start_offset, batch)
        for batch in found
        if not batch.is_control
    ]


def batch_within(log: PartitionLog, first: int, last: int) -> Batch | None:
    """Return the batch with these offsets; None if it is deleted. Call it in the broker's loop."""
    begin = max(first, log.log_start_offset)
    if log.deleted or begin > last:
        return None
    batch = next(log.batches(begin), None)
    if batch is None or batch.base_offset > last:
        return None
    return Batch(log.topic, log.partition, log.log_start_offset, batch)


def _committed(batches: Iterable[RecordBatch]) -> list[RecordBatch]:
    kept = []
    # By producer id. Markers are in the log after their transactions.
    opened: defaultdict[int, list[RecordBatch]] = defaultdict(list)
    for batch in batches:
        if not batch.is_transactional:
            kept.append(batch)
        elif not batch.is_control:
            opened[batch.producer_id].append(batch)
        else:
            ended = opened.pop(batch.producer_id, [])
            if any(each.type == ControlRecordType.COMMIT for each in batch.control_records()):
                kept += ended
    stable = min((each[0].base_offset for each in opened.values()), default=None)
    return sorted(
        (batch for batch in kept if stable is None or batch.base_offset < stable),
        key=lambda batch: batch.base_offset,
    )
