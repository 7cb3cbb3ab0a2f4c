"""The records of a response to Fetch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from krammar.client.errors import CorruptBatchError
from krammar.client.metadata import TopicPartition
from krammar.client.settings import Settings
from krammar.wire.batches import (
    BatchHeader,
    ControlRecordType,
    Record,
    RecordBatch,
    read_batches,
    read_headers,
)
from krammar.wire.batches.crc import check_crc
from krammar.wire.errors import DecodeError

_FIRST_OFFSET = attrgetter("first_offset")


@dataclass(slots=True)
class Fetched:
    """The records of a partition in one response. Iterating yields the records.

    ``begin``, ``end``  the offsets that it covers: ``begin``, up to but not including ``end``
    ``data``            all batches of the response
    ``headers``         the headers of the visible batches, in order: without control batches, and with
                        ``read_committed`` without aborted ones. The first batch may have records before
                        ``begin``, the last one after ``end``; iterating skips them.
    ``size``            bytes of all batches in the response, including those that are not visible
    ``high_watermark``, ``last_stable_offset``, ``log_start_offset``  the log's; -1 if unknown
    """

    at: TopicPartition
    begin: int
    end: int
    data: bytes = field(repr=False)
    headers: list[BatchHeader]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    check_crcs: bool = field(default=True, repr=False)

    @property
    def batches(self) -> list[RecordBatch]:
        """The visible batches, each with a copy of its bytes."""
        view = memoryview(self.data)
        found = []
        for header in self.headers:
            end = header.position + header.size_in_bytes
            # Batches were checked when they arrived; a message set's CRCs are checked when it is decoded.
            check = self.check_crcs and header.magic < 2
            (batch,) = read_batches(view[header.position : end], validate_crc=check)
            batch.position = header.position
            found.append(batch)
        return found

    def __iter__(self) -> Iterator[Record]:
        """Yield the records.

        Raises:
            DecodeError: a record is malformed.
        """
        for batch in self.batches:
            if batch.magic > 1 and batch.base_offset >= self.begin and batch.last_offset < self.end:
                yield from batch
                continue
            for record in batch:
                if self.begin <= record.offset < self.end:
                    yield record


@dataclass(slots=True)
class FetchedBatches:
    """The batches of a partition in a response, from the offset ``begin`` on.

    ``headers``    those of the visible batches, see ``Fetched``
    ``following``  the offset after the last complete batch
    ``epoch``      the leader epoch of the last batch; -1 if unknown
    ``damage``     the error of the first corrupt batch, if there is one
    """

    headers: list[BatchHeader]
    following: int
    epoch: int = -1
    damage: CorruptBatchError | None = None


def read_answer(
    at: TopicPartition,
    answer: Any,
    begin: int,
    end: int | None,
    *,
    committed: bool,
    check_crcs: bool,
) -> FetchedBatches:
    """Find the visible batches in the answer for a partition.

    Args:
        end: the offset at which reading ends, if any.
        committed: leave out the batches of aborted transactions.
    """
    data = answer.records
    aborted = deque(sorted(answer.aborted_transactions or (), key=_FIRST_OFFSET))
    open_aborted: set[int] = set()
    found = FetchedBatches([], begin)
    view = memoryview(data)
    number = 0
    try:
        for batch in read_headers(data):
            if check_crcs:
                check_crc(view, batch)
            number += 1
            last = batch.last_offset
            if last < begin and batch.magic > 1:
                continue
            found.following = max(found.following, last + 1)
            if batch.partition_leader_epoch >= 0:
                found.epoch = batch.partition_leader_epoch
            if committed:
                while aborted and aborted[0].first_offset <= last:
                    open_aborted.add(aborted.popleft().producer_id)
            if batch.is_control:
                if committed and _is_abort(view, batch):
                    open_aborted.discard(batch.producer_id)
                continue
            if batch.is_transactional and batch.producer_id in open_aborted:
                continue
            if end is None or batch.base_offset < end:
                found.headers.append(batch)
    except DecodeError as error:
        found.damage = _damage(at, data, number, found.following, str(error))
    return found


def known_end(answer: Any, settings: Settings) -> int:
    """Return the end of the log in an answer; with ``read_committed``, the last stable offset."""
    if settings.read_committed and answer.last_stable_offset >= 0:
        return int(answer.last_stable_offset)
    return int(answer.high_watermark)


def _is_abort(data: memoryview, header: BatchHeader) -> bool:
    end = header.position + header.size_in_bytes
    (batch,) = read_batches(data[header.position : end], validate_crc=False)
    control = batch.control_records()
    return bool(control) and control[0].type == ControlRecordType.ABORT


def _damage(
    at: TopicPartition, data: bytes, number: int, following: int, why: str
) -> CorruptBatchError:
    """Return the error for batch ``number`` of a response, with the offset after it if its header is valid."""
    offset, next_offset = following, None
    try:
        for index, header in enumerate(read_headers(data)):
            if index == number:
                offset = max(following, header.base_offset)
                next_offset = header.next_offset if header.next_offset > following else None
                break
    except DecodeError:
        pass
    return CorruptBatchError(at.topic, at.partition, offset, next_offset, why)
