"""Record batches to Arrow, bounded in size, and cut to offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from krammar.wire.arrow import iter_records
from krammar.wire.records import BatchHeader

# Records in an Arrow batch at most, and bytes of records, about. The JVM takes twice as long for batches
# of 50 MB as for those of 1 to 16 MB.
_ROWS = 32768
_BYTES = 4 << 20


def to_arrow(
    data: bytes,
    headers: Iterable[BatchHeader],
    *,
    check_crcs: bool = True,
    with_headers: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The records of those batches of ``data`` that the headers name; arguments and errors are those of
    ``krammar.wire.arrow.iter_records``."""
    return iter_records(
        data, headers, rows=_ROWS, size=_BYTES, validate_crc=check_crcs, with_headers=with_headers
    )


def clip(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """The rows with offsets from ``first`` to before ``last``; offsets rise."""
    offsets = batch.column("offset")
    if offsets[0].as_py() >= first and offsets[-1].as_py() < last:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, last)))
