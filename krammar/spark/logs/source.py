"""``source=logs``: its columns, the reader that Spark sends to its tasks, and how a task reads a part of a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from krammar.logfiles.damage import UNFINISHED
from krammar.logfiles.segment import Segment
from krammar.logfiles.transactions import is_aborted
from krammar.spark.batches import batches_to_arrow, clip, reuse_freed_memory
from krammar.spark.decoding import rows_of, schema_of
from krammar.spark.errors import OptionError
from krammar.spark.logs.plan import LogTask, find_partitions, plan, select
from krammar.spark.loss import report_loss
from krammar.spark.options import Options
from krammar.spark.paths import paths_of
from krammar.spark.pushdown import FilteringReader
from krammar.spark.schema import arrow_schema
from krammar.wire.batches import BatchHeader, Compression, read_headers
from krammar.wire.batches.crc import check_crc
from krammar.wire.batches.header import HEADER_SIZE, header_at
from krammar.wire.errors import DecodeError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

# Bytes of a file in memory at a time, unless one batch is larger.
CHUNK = 4 << 20


def schema(options: Options) -> StructType:
    return schema_of(options)


def reader(options: Options, schema: StructType) -> LogReader:
    return LogReader(options, schema)


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    raise OptionError("source", "logs are read in batches, not as a stream")


class LogPartition(InputPartition):
    """A task, as Spark sends it to an executor."""

    def __init__(self, task: LogTask) -> None:
        self.task = task


class LogReader(FilteringReader):
    """Reads log folders, with one or more tasks per segment."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__()
        self.options = options
        self.schema = schema

    def partitions(self) -> list[LogPartition]:
        """Plan the tasks; see ``krammar.spark.logs.plan``.

        Raises:
            OptionError: the options contradict each other or the partitions.
            MissingDataError: a path, a partition or a requested timestamp does not exist.
            DataLossError: a log is damaged, or requested offsets do not exist.
        """
        folders = select(self.options, find_partitions(paths_of(self.options)))
        return [LogPartition(task) for task in plan(self.options, folders, self.wanted)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            DataLossError: a batch is corrupt or a file is missing, and ``failOnDataLoss`` is true.
        """
        if not isinstance(partition, LogPartition):
            return  # if there are no tasks, Spark plans one with None
        task = partition.task
        rows = rows_of(self.options, arrow_schema(self.schema), task.topic, task.partition)
        for timestamp_type, batch in read_task(
            task,
            fail_on_data_loss=self.options["failOnDataLoss"],
            min_timestamp=self.wanted.timestamp.low,
        ):
            built = rows.build(batch, timestamp_type)
            if built.num_rows:
                yield built


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive batches with the same timestamp type; ``position`` is where they begin in the file."""

    timestamp_type: int
    position: int
    data: memoryview


def read_task(
    task: LogTask, *, fail_on_data_loss: bool, min_timestamp: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records of a task: the type of their timestamps, and an Arrow record batch.

    Control batches are skipped.

    Args:
        fail_on_data_loss: if false, corrupt batches and missing files are skipped with a warning.
        min_timestamp: batches without a record at or after it are skipped, in milliseconds since 1970.

    Raises:
        DataLossError: a batch is corrupt or a file is missing, and ``fail_on_data_loss`` is true.
    """
    try:
        segment = Segment(task.folder, task.base, task.size)
        segment.fd  # noqa: B018  opens the file
    except OSError as error:
        report_loss(f"{task.topic}-{task.partition}: {error}", fail_on_data_loss)
        return
    with segment, reuse_freed_memory():
        for stretch in _Walk(segment, task, fail_on_data_loss, min_timestamp).stretches():
            for batch in _decode(segment, stretch, fail_on_data_loss):
                clipped = clip(batch, task.first, task.last)
                if clipped.num_rows:
                    yield stretch.timestamp_type, clipped


class _Walk:
    """Reads the headers of a segment, and joins consecutive batches that are needed."""

    def __init__(self, segment: Segment, task: LogTask, fail: bool, min_timestamp: int) -> None:
        self.segment = segment
        self.task = task
        self.fail = fail
        self.min_timestamp = min_timestamp

    def stretches(self) -> Iterator[Stretch]:
        position: int | None = self.task.begin
        while position is not None and position < self.task.end:
            left = self.task.end - position
            data = memoryview(self.segment.read(position, min(CHUNK, left)))
            if not data:  # compaction or truncation replaced the file since
                text = f"the file ends at byte {position}, but had {self.task.size} bytes when it was planned"
                report_loss(f"{self.segment.path}: {text}", self.fail)
                return
            headers, after = self._headers(data, position)
            # A first batch that is larger than a chunk is read whole, or not at all.
            size = headers[0].size_in_bytes if headers else 0
            if size > len(data) and self._is_wanted(headers[0]):
                data = memoryview(self.segment.read(position, size))
            yield from self._join(headers, data, position)
            position = after

    def _headers(self, data: memoryview, start: int) -> tuple[list[BatchHeader], int | None]:
        """Return the headers in a chunk, and where the next chunk begins (None at the end)."""
        task, segment = self.task, self.segment
        is_tail = start + len(data) >= task.size
        headers: list[BatchHeader] = []
        at = 0
        while at < len(data) and start + at < task.end:
            position = start + at
            header = header_at(data, at, position)
            if header is None or not segment.holds(header):
                if header is None and at and len(data) - at < HEADER_SIZE and not is_tail:
                    return headers, position
                error = segment.damage_at(data, at, position)
                if error.damage not in UNFINISHED or not task.is_newest:
                    report_loss(f"{segment.path}: {error}", self.fail)
                return headers, None if error.size is None else position + error.size
            low, high = _offset_bounds(header)
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


def _offset_bounds(header: BatchHeader) -> tuple[int | None, int]:
    """Return the first and the last offset that a batch can have.

    The first is None for compressed message sets, whose header does not contain it.
    """
    if header.magic < 2 and header.compression is not Compression.NONE:
        return None, header.base_offset
    return header.base_offset, header.last_offset


def _decode(segment: Segment, stretch: Stretch, fail: bool) -> Iterator[pa.RecordBatch]:
    if fail:
        try:
            yield from _to_arrow(stretch.data)
        except DecodeError as error:
            report_loss(f"{segment.path}, from byte {stretch.position}: {error}", fail)
        return
    try:
        # No record is returned before the whole stretch is decoded.
        yield from list(_to_arrow(stretch.data))
    except DecodeError:
        yield from _decode_one_by_one(segment, stretch)


def _to_arrow(data: memoryview) -> Iterator[pa.RecordBatch]:
    return batches_to_arrow(bytes(data), _checked(data))


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
            report_loss(
                f"{segment.path}, byte {stretch.position + header.position}: {error}", False
            )
            continue
        yield from decoded
