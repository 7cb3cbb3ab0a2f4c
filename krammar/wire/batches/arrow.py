"""Decodes record batches directly to Arrow columns. Needs pyarrow: ``pip install 'krammar[arrow]'``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from krammar.util.extras import require

try:
    import pyarrow as pa
except ImportError:
    require("krammar.wire.batches.arrow", "arrow")
    raise


from krammar.wire import engine_loading
from krammar.wire.batches import arrow_columns
from krammar.wire.batches.arrow_columns import (
    HEADER,
    HEADERS,
    SCHEMA,
    Part,
    no_headers,
    of_buffers,
    to_record_batch,
)
from krammar.wire.batches.batch import read_batches
from krammar.wire.batches.bounds import Bounds, default_bounds
from krammar.wire.batches.compression import Compression, decompress
from krammar.wire.batches.crc import check_crc
from krammar.wire.batches.header import (
    CODEC,
    HEADER_SIZE,
    RECORDS_COUNT_AT,
    BatchHeader,
    TimestampType,
    read_headers,
)
from krammar.wire.batches.records.model import MIN_RECORD_SIZE, Columns
from krammar.wire.batches.records.read import decode_records
from krammar.wire.errors import DecodeError

if TYPE_CHECKING:
    from krammar.wire.batches.compression import Data

__all__ = ["SCHEMA", "iter_arrow", "iter_records", "to_arrow", "to_record_batch"]

# Pieces: batches that are decoded together.

# Decoding fewer records together is not faster.
FEW = 128


@dataclass(slots=True)
class _Batch:
    """The rest of a batch of format v2.

    It has ``count`` records from number ``index`` on, between the positions ``begin`` and ``end`` of a buffer.
    ``origin`` is as for ``decode_records``.
    """

    header: BatchHeader
    begin: int
    end: int
    count: int
    origin: int | None
    index: int = 0

    @property
    def appended(self) -> bool:
        return self.header.timestamp_type == TimestampType.LOG_APPEND_TIME

    def advance(self, position: int, count: int) -> None:
        """Raise DecodeError if bytes follow the last record."""
        self.begin = position
        self.count -= count
        self.index += count
        if not self.count and position != self.end:
            error = DecodeError(
                f"{self.end - position} bytes after the last record",
                path=f"records[{self.index}]",
                offset=-1 if self.origin is None else position + self.origin,
            )
            raise _at(self.header, error)


_Runs = list[tuple[_Batch, int]]  # a batch and a number of its records


class ArrowPieces:
    """Collects batches until they have enough records for a piece."""

    def __init__(
        self,
        data: bytes,
        rows: int,
        size: int,
        validate_crc: bool,
        max_uncompressed: int | None,
        bounds: Bounds | None,
        together: bool,
        with_headers: bool,
    ) -> None:
        self.data = data
        self.rows = max(rows, 1)
        self.size = size
        self.validate_crc = validate_crc
        bounds = default_bounds() if bounds is None else bounds
        self.left = bounds.uncompressed
        if max_uncompressed is not None:
            self.left = max_uncompressed
            bounds = replace(bounds, uncompressed=max_uncompressed)
        elif together:
            self.left = 2 * bounds.uncompressed
        self.bounds = bounds
        self.together = together
        self.with_headers = with_headers
        # Records with headers are decoded one by one. After the first one, more are likely.
        self.one_by_one = not arrow_columns.USABLE
        self.columns = Columns()
        self.columns_size = 0
        # Batches that are decoded together. They are in ``data``, or in these buffers.
        self.waiting: deque[_Batch] = deque()
        self.expanded: list[bytes] = []
        self.waiting_rows = self.waiting_size = 0

    def add(self, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        if header.magic < 2:
            yield from self._decode_waiting()
            yield from self._add_messages(header)
            return
        begin = header.position + HEADER_SIZE
        end = header.position + header.size_in_bytes
        codec = header.attributes & CODEC
        # Compaction can remove all records of a batch and leave its header. Then nothing is compressed.
        compressed = codec != Compression.NONE and begin < end
        if self.waiting and compressed != bool(self.expanded):
            yield from self._decode_waiting()
        if compressed:
            payload = self._expand(header, codec)
            begin = sum(map(len, self.expanded))
            end = begin + len(payload)
        count = header.records_count
        if not 0 <= count <= (end - begin) // MIN_RECORD_SIZE:
            error = DecodeError(
                f"{count} records in {end - begin} bytes",
                path="records_count",
                offset=header.position + RECORDS_COUNT_AT,
            )
            raise _at(header, error)
        try:
            self.bounds.check_count(count)
            if compressed:
                self.bounds.check_headers(payload, 0, len(payload), count)
            else:
                self.bounds.check_headers(self.data, begin, end, count)
        except DecodeError as error:
            raise _at(header, error) from None
        batch = _Batch(header, begin, end, count, None if compressed else 0)
        if not count:
            batch.advance(begin, 0)
            return
        if compressed:
            self.expanded.append(payload)
        self.waiting.append(batch)
        self.waiting_rows += count
        self.waiting_size += end - begin
        if self.waiting_rows >= self.rows or self.waiting_size >= self.size:
            yield from self._decode_waiting()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rest."""
        yield from self._decode_waiting()
        yield from self._flush_columns()

    def _expand(self, header: BatchHeader, codec: int) -> bytes:
        end = header.position + header.size_in_bytes
        compressed = memoryview(self.data)[header.position + HEADER_SIZE : end]
        try:
            payload = decompress(compressed, codec, bounds=self._bounds_left())
        except DecodeError as error:
            raise _at(header, error) from None
        if self.together:
            self.left -= len(payload)
        return payload

    def _bounds_left(self) -> Bounds:
        """The limits of the next batch."""
        if self.left >= self.bounds.uncompressed:
            return self.bounds
        return replace(self.bounds, uncompressed=self.left)

    def _add_messages(self, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        end = header.position + header.size_in_bytes
        (batch,) = read_batches(
            memoryview(self.data)[header.position : end], validate_crc=self.validate_crc
        )
        batch.position = header.position
        self.columns_size += header.size_in_bytes
        expanded = batch.messages(self.columns, self._bounds_left())
        self.columns_size += expanded
        if self.together:
            self.left -= expanded
        if len(self.columns) >= self.rows or self.columns_size >= self.size:
            yield from self._flush_columns()

    def _decode_waiting(self) -> Iterator[pa.RecordBatch]:
        waiting, expanded = self.waiting, self.expanded
        self.waiting, self.expanded = deque(), []
        self.waiting_rows = self.waiting_size = 0
        buf = self.data
        if expanded:
            buf = expanded[0] if len(expanded) == 1 else b"".join(expanded)
            expanded.clear()
        while waiting:
            runs = self._next_runs(waiting)
            piece = self._decode_together(buf, runs)
            if piece is not None:
                yield from self._flush_columns()
                yield piece
                continue
            for batch, count in runs:
                self._decode_one_by_one(buf, batch, count)
            if len(self.columns) >= self.rows or self.columns_size >= self.size:
                yield from self._flush_columns()

    def _next_runs(self, waiting: deque[_Batch]) -> _Runs:
        """The records of a piece. A large batch is split, assuming that its records have the same size."""
        runs: _Runs = []
        rows = max(self.rows - len(self.columns), 1)
        size = max(self.size - self.columns_size, 1)
        while waiting and rows > 0 and size > 0:
            batch = waiting[0]
            bytes_left = batch.end - batch.begin
            count = min(batch.count, rows)
            if bytes_left > size:
                count = max(min(count, batch.count * size // bytes_left), 1)
            runs.append((batch, count))
            if count < batch.count:
                break
            waiting.popleft()
            rows -= count
            size -= bytes_left
        return runs

    def _decode_together(self, buf: bytes, runs: _Runs) -> pa.RecordBatch | None:
        """The records as a piece, or None if they must be decoded one by one."""
        if sum(count for _, count in runs) < FEW:
            return None
        native = engine_loading.ENGINE
        if native is not None:
            return self._decode_by_engine(native, buf, runs)
        if self.one_by_one:
            return None
        if len(buf) > arrow_columns.LARGEST:
            return None
        places: list[int] = []
        ends: list[int] = []
        parts = []
        try:
            for batch, count in runs:
                header, begin = batch.header, batch.begin
                end = arrow_columns.walk_records(buf, begin, count, places, ends)
                if end > batch.end:
                    return None
                base = header.max_timestamp if batch.appended else header.base_timestamp
                parts.append(Part(end, count, header.base_offset, base, batch.appended))
            found = arrow_columns.decode_columns(
                buf, parts, places, ends, skip_headers=not self.with_headers
            )
        except arrow_columns.HeadersError:
            self.one_by_one = True
            return None
        except arrow_columns.FAILURES:
            return None
        for (batch, count), part in zip(runs, parts, strict=True):
            batch.advance(part.end, count)
        columns = [found.keys, found.values, found.offsets, found.timestamps]
        return pa.record_batch([*columns, no_headers(len(places))], schema=SCHEMA)

    def _decode_by_engine(self, native: Any, buf: bytes, runs: _Runs) -> pa.RecordBatch | None:
        """The same with the engine, which also decodes headers."""
        parts = []
        for batch, count in runs:
            header = batch.header
            base = header.max_timestamp if batch.appended else header.base_timestamp
            parts.append((batch.begin, count, header.base_offset, base, batch.appended))
        try:
            found = native.decode_arrow(buf, parts, self.with_headers)
        except arrow_columns.FAILURES:
            return None
        ends, keys, values, offsets, timestamps, headers = found
        if any(end > batch.end for (batch, _), end in zip(runs, ends, strict=True)):
            return None
        for (batch, count), end in zip(runs, ends, strict=True):
            batch.advance(end, count)
        rows = len(offsets) // 8
        columns = [
            of_buffers(pa.binary(), rows, *keys),
            of_buffers(pa.binary(), rows, *values),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offsets)]),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(timestamps)]),
        ]
        if headers is None:
            columns.append(no_headers(rows))
        else:
            count, starts, name_ends, names, *of_values = headers
            items = pa.StructArray.from_arrays(
                [
                    of_buffers(pa.string(), count, None, name_ends, names, 0),
                    of_buffers(pa.binary(), count, *of_values),
                ],
                fields=list(HEADER),
            )
            starts = pa.py_buffer(starts)
            columns.append(pa.Array.from_buffers(HEADERS, rows, [None, starts], 0, 0, [items]))
        return pa.record_batch(columns, schema=SCHEMA)

    def _decode_one_by_one(self, buf: bytes, batch: _Batch, count: int) -> None:
        columns, header = self.columns, batch.header
        start, begin = len(columns), batch.begin
        try:
            end = decode_records(
                columns,
                buf,
                begin,
                count,
                header.base_offset,
                header.base_timestamp,
                batch.index,
                batch.origin,
            )
            if end > batch.end:
                raise DecodeError("the records are longer than the batch")
        except DecodeError as error:
            raise _at(header, error) from None
        if batch.appended:
            columns.timestamps[start:] = [header.max_timestamp] * count
        self.columns_size += end - begin
        batch.advance(end, count)

    def _flush_columns(self) -> Iterator[pa.RecordBatch]:
        self.columns_size = 0
        if self.columns:
            yield to_record_batch(self.columns)
            self.columns.clear()


def _at(header: BatchHeader, error: DecodeError) -> DecodeError:
    error.args = (f"batch at offset {header.position}: {error}",)
    return error


# Decoding.

# The approximate size of a piece, in bytes of records. An Arrow column can contain 2 GiB.
_MOST = 256 << 20


def to_arrow(
    data: Data | None,
    *,
    validate_crc: bool = True,
    allow_partial: bool = True,
    include_control: bool = False,
    max_uncompressed: int | None = None,
    bounds: Bounds | None = None,
) -> pa.RecordBatch:
    """Decode all records in ``data`` to one ``pyarrow.RecordBatch`` with the columns of ``SCHEMA``.

    Other arguments and errors are as for ``krammar.wire.batches.read_batches``.

    Args:
        include_control: include the records of control batches.
        max_uncompressed: the maximum uncompressed size of all compressed batches together, in bytes; by
            default twice the limit of one batch.
        bounds: the limits of a batch, by default those of the environment.

    Raises:
        DecodeError: the bytes are invalid, or do not fit into Arrow columns: timestamps beyond 64 bits, or more
            than 2 GiB of keys or values.
    """
    parts = list(
        iter_arrow(
            data,
            validate_crc=validate_crc,
            allow_partial=allow_partial,
            include_control=include_control,
            max_uncompressed=max_uncompressed,
            bounds=bounds,
        )
    )
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return to_record_batch(Columns())
    parts = pa.Table.from_batches(parts).combine_chunks().to_batches()
    if len(parts) > 1:
        raise DecodeError("more than 2 GiB of keys, values or headers for one Arrow column")
    return parts[0]


def iter_arrow(
    data: Data | None,
    *,
    rows: int = 65536,
    validate_crc: bool = True,
    allow_partial: bool = True,
    include_control: bool = False,
    max_uncompressed: int | None = None,
    bounds: Bounds | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode as ``to_arrow`` does, in pieces of ``rows`` records, which bounds memory.

    A piece with the begin of a message set v0 or v1 can have twice as many records. A compressed message set is
    always in one piece.
    """
    octets = b"" if data is None else bytes(data)
    yield from iter_records(
        octets,
        (
            header
            for header in read_headers(octets, allow_partial=allow_partial)
            if _is_right(octets, header, validate_crc)
            and (include_control or not header.is_control)
        ),
        rows=rows,
        validate_crc=validate_crc,
        max_uncompressed=max_uncompressed,
        bounds=bounds,
        together=True,
    )


def _is_right(data: bytes, header: BatchHeader, validate_crc: bool) -> bool:
    if validate_crc:
        check_crc(data, header)
    return True


def iter_records(
    data: bytes,
    headers: Iterable[BatchHeader],
    *,
    rows: int,
    size: int = _MOST,
    validate_crc: bool = True,
    max_uncompressed: int | None = None,
    bounds: Bounds | None = None,
    together: bool = False,
    with_headers: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Decode the batches of ``data`` with these headers. The CRCs of batches are not checked.

    Args:
        rows: the approximate number of records per piece.
        size: the approximate size of a piece, in bytes of records.
        validate_crc: check the CRCs of messages in compressed message sets v0 and v1.
        max_uncompressed: the maximum uncompressed size of each batch, in bytes.
        bounds: the limits of a batch, by default those of the environment.
        together: ``max_uncompressed`` is for all batches together.
        with_headers: decode the headers of records. Otherwise the column contains empty lists.

    Raises:
        DecodeError: as for ``to_arrow``.
    """
    reader = ArrowPieces(
        data, rows, size, validate_crc, max_uncompressed, bounds, together, with_headers
    )
    for header in headers:
        yield from reader.add(header)
    yield from reader.flush()
