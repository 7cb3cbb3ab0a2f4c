"""Converts record batches to Arrow batches of limited size, clips them to offsets, and joins small ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from krammar.util.server_memory import RetainedMemory
from krammar.wire.batches import BatchHeader
from krammar.wire.batches.arrow import iter_records

# The limits of an Arrow batch: records, and approximate bytes. The JVM needs twice as long for batches of 50 MB as
# for batches of 1 to 16 MB.
MOST_ROWS = 32768
_BYTES = 4 << 20


def batches_to_arrow(
    data: bytes,
    headers: Iterable[BatchHeader],
    *,
    rows: int = MOST_ROWS,
    check_crcs: bool = True,
    with_headers: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the given batches in ``data``.

    ``krammar.wire.batches.arrow.iter_records`` describes arguments and errors.
    """
    return iter_records(
        data, headers, rows=rows, size=_BYTES, validate_crc=check_crcs, with_headers=with_headers
    )


def clip(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Return the rows with ``first <= offset < last``; the offsets are ascending."""
    offsets = batch.column("offset")
    if offsets[0].as_py() >= first and offsets[-1].as_py() < last:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, last)))


def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: each one costs Spark as much time as some hundred rows."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= MOST_ROWS or size >= _BYTES:
            yield _joined(waiting)
            waiting = []
            rows = size = 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


@contextlib.contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Let glibc hold up to 32 MiB of freed memory, and return it to the system at the end.

    Reading 100 MB of records of 1 kB takes 0.16 s of processor time instead of 0.24 s.
    """
    memory = RetainedMemory()
    try:
        yield
    finally:
        memory.trim()
