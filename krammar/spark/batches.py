"""Record batches to Arrow, bounded in size, and cut to offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from krammar.wire.arrow import to_record_batch
from krammar.wire.record_format import Columns
from krammar.wire.records import RecordBatch

# Records in an Arrow batch at most, about.
_ROWS = 32768
# Bytes of batches, and of what they expand to, that are collected for an Arrow batch.
_BYTES = 16 << 20


def to_arrow(batches: Iterable[RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As ``krammar.wire.arrow.iter_arrow``, but its limit for what compressed batches expand to is for
    each of them, and pieces are bounded by bytes too. Raises DecodeError."""
    columns = Columns()
    size = 0
    for batch in batches:
        size += batch.size_in_bytes
        for expanded in batch.fill(columns, _ROWS):
            size += expanded
            if len(columns) >= _ROWS or (size >= _BYTES and columns):
                yield to_record_batch(columns)
                columns.clear()
                size = 0
    if columns:
        yield to_record_batch(columns)


def clip(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """The rows with offsets from ``first`` to before ``last``; offsets rise."""
    offsets = batch.column("offset")
    if offsets[0].as_py() >= first and offsets[-1].as_py() < last:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, last)))
