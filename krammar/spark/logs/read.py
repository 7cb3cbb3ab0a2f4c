"""Reading a task: stretches of whole batches, as Arrow record batches of ``krammar.wire.arrow``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from krammar.spark.batches import clip, to_arrow
from krammar.spark.logs.plan import Task
from krammar.spark.logs.segment import BrokenLogError, Segment, header_at, offset_bounds
from krammar.spark.logs.transactions import is_aborted
from krammar.spark.loss import lost
from krammar.spark.memory import kept_memory
from krammar.wire.batch_crc import check_crc
from krammar.wire.errors import DecodeError
from krammar.wire.records import BatchHeader, read_headers

# Bytes of a file that are in memory at a time, unless one batch is larger.
CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches in a row whose timestamps are of one type, at ``position`` of the file."""

    timestamp_type: int
    position: int
    data: memoryview


def read_task(
    task: Task, *, fail_on_data_loss: bool, min_timestamp: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of a task, with the type of their timestamps.

    Batches without a record at or after ``min_timestamp``, in milliseconds, are left out, control
    batches too. Raises DataLossError for what is broken, with ``fail_on_data_loss``; without, it is
    left out and a warning says so.
    """
    try:
        segment = Segment(task.folder, task.base, task.size)
    except OSError as error:
        lost(f"{task.topic}-{task.partition}: {error}", fail_on_data_loss)
        return
    with segment, kept_memory():
        for stretch in _Walk(segment, task, fail_on_data_loss, min_timestamp).stretches():
            for batch in _decode(segment, stretch, fail_on_data_loss):
                kept = clip(batch, task.first, task.last)
                if kept.num_rows:
                    yield stretch.timestamp_type, kept


class _Walk:
    """Walks over a segment by headers, and puts batches that are wanted together."""

    def __init__(self, segment: Segment, task: Task, fail: bool, min_timestamp: int) -> None:
        self.segment = segment
        self.task = task
        self.fail = fail
        self.min_timestamp = min_timestamp

    def stretches(self) -> Iterator[Stretch]:
        position: int | None = self.task.begin
        while position is not None and position < self.task.end:
            left = self.task.end - position
            data = memoryview(self.segment.read(position, min(CHUNK, left)))
            headers, after = self._headers(data, position)
            # A first batch that is larger than a chunk is read whole, or not at all.
            size = headers[0].size_in_bytes if headers else 0
            if size > len(data) and self._is_wanted(headers[0]):
                data = memoryview(self.segment.read(position, size))
            yield from self._join(headers, data, position)
            position = after

    def _headers(self, data: memoryview, start: int) -> tuple[list[BatchHeader], int | None]:
        """Headers of the batches in a chunk, and where the next chunk begins; None at the end."""
        task = self.task
        headers: list[BatchHeader] = []
        at = 0
        while at < len(data) and start + at < task.end:
            position = start + at
            try:
                header = header_at(bytes(data[at : at + 64]), 0, position)
            except BrokenLogError as error:
                lost(f"{self.segment.path}: {error}", self.fail)
                return headers, None
            if header is None and at and len(data) - at < 64 and start + len(data) < task.size:
                return headers, position
            if header is None or position + header.size_in_bytes > task.size:
                if not task.is_newest:
                    lost(f"{self.segment.path} is cut off at byte {position}", self.fail)
                return headers, None
            low, high = offset_bounds(header)
            if low is not None and low >= task.last:
                return headers, None
            after = at + header.size_in_bytes
            if after > len(data) and at:
                return headers, position
            headers.append(header)
            at = after
            if high >= task.last - 1:
                return headers, None
        return headers, start + at

    def _is_wanted(self, header: BatchHeader) -> bool:
        return (
            not header.is_control
            and header.last_offset >= self.task.first
            and header.max_timestamp >= self.min_timestamp
            and not is_aborted(header, self.task.aborted)
        )

    def _join(self, headers: list[BatchHeader], data: memoryview, start: int) -> Iterator[Stretch]:
        begin = end = 0
        kind = None
        for header in headers:
            wanted = int(header.timestamp_type) if self._is_wanted(header) else None
            if wanted != kind:
                if kind is not None:
                    yield Stretch(kind, start + begin, data[begin:end])
                kind = wanted
                begin = header.position - start
            end = header.position + header.size_in_bytes - start
        if kind is not None:
            yield Stretch(kind, start + begin, data[begin:end])


def _decode(segment: Segment, stretch: Stretch, fail: bool) -> Iterator[pa.RecordBatch]:
    if fail:
        try:
            yield from _to_arrow(stretch.data)
        except DecodeError as error:
            lost(f"{segment.path}, from byte {stretch.position}: {error}", fail)
        return
    try:
        # Nothing is given on before all of it is known to be right.
        yield from list(_to_arrow(stretch.data))
    except DecodeError:
        yield from _decode_one_by_one(segment, stretch)


def _to_arrow(data: memoryview) -> Iterator[pa.RecordBatch]:
    return to_arrow(bytes(data), _checked(data))


def _checked(data: memoryview) -> Iterator[BatchHeader]:
    for header in read_headers(data, allow_partial=False):
        check_crc(data, header)
        yield header


def _decode_one_by_one(segment: Segment, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    for header in read_headers(stretch.data):
        batch = stretch.data[header.position : header.position + header.size_in_bytes]
        try:
            decoded = list(_to_arrow(batch))
        except DecodeError as error:
            lost(f"{segment.path}, byte {stretch.position + header.position}: {error}", False)
            continue
        yield from decoded
