"""Reads and rewrites the records of batches, without blocking the event loop and with bounds per frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from krammar.util.turns import Budget, in_thread
from krammar.wire.batches import BatchHeader, Record, RecordBatch, TimestampType, encode_batch

_Result = TypeVar("_Result")

# A batch with more bytes or records than this is handled in a thread. A compressed one can expand a thousand times.
_BYTES = 64 << 10
_COMPRESSED_BYTES = 4 << 10
_RECORDS = 500
# Bytes that are added for each record.
_PER_RECORD = 100

# A batch that a broker has cut off ends after these bytes: its offset, its size, and more up to its magic.
CUT_OFF = 17


class TooMuch(Exception):
    """The records of a request or response are more than are decoded for one."""


class Allowance:
    """Time and memory for one request or response.

    Attributes:
        most: the bytes of records that are decoded, with an allowance for each record
    """

    most = 128 << 20

    def __init__(self) -> None:
        self._spent = 0
        self._is_large = False  # the records that were decoded last
        self._budget = Budget(0.005)  # after that, other connections get a turn

    async def run(
        self, header: BatchHeader, function: Callable[..., _Result], *args: object
    ) -> _Result:
        """Return the result of a function that works on a batch: in a thread if it can take long."""
        limit = _COMPRESSED_BYTES if header.attributes & 7 else _BYTES
        if self._is_large or header.size_in_bytes > limit or header.records_count > _RECORDS:
            return await in_thread(function, *args)
        if not self._budget.has_time():
            await self._budget.turn()
        return function(*args)

    def spend(self, records: Sequence[Record]) -> None:
        """Count records that were decoded. Raises TooMuch if they are not the first, and too many."""
        cost = sum(len(each.value or b"") + len(each.key or b"") + _PER_RECORD for each in records)
        if self._spent and self._spent + cost > self.most:
            raise TooMuch
        self._spent += cost
        self._is_large = cost > _BYTES


def rewritten(batch: RecordBatch, records: list[Record]) -> bytes:
    """Encode a batch with other keys, values or headers; all else stays, compression and sequence included.

    A message set v0 or v1 becomes a batch of format v2.

    Raises:
        EncodeError: the batch is too large.
    """
    if batch.magic < 2:
        appended = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
        return encode_batch(
            records,
            compression=batch.compression,
            timestamp_type=TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME,
        )
    return encode_batch(
        records,
        compression=batch.compression,
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        partition_leader_epoch=batch.partition_leader_epoch,
        timestamp_type=batch.timestamp_type,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        has_delete_horizon=batch.has_delete_horizon,
    )


__all__ = ["CUT_OFF", "Allowance", "TooMuch", "rewritten"]
