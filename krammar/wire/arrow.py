"""Record batches straight to Arrow columns. Needs pyarrow: ``pip install 'krammar[arrow]'``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import pyarrow as pa

from krammar.wire.compression import DEFAULT_MAX_UNCOMPRESSED
from krammar.wire.errors import DecodeError
from krammar.wire.record_format import Columns
from krammar.wire.records import read_batches

if TYPE_CHECKING:
    from krammar.wire.compression import Data

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("item", _HEADER, nullable=False))

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),  # milliseconds since 1970, or -1
        pa.field("headers", _HEADERS, nullable=False),
    ]
)


def to_arrow(
    data: Data | None,
    *,
    validate_crc: bool = True,
    allow_partial: bool = True,
    include_control: bool = False,
    max_uncompressed: int = DEFAULT_MAX_UNCOMPRESSED,
) -> pa.RecordBatch:
    """All records in ``data`` as one ``pyarrow.RecordBatch`` with the columns of ``SCHEMA``.

    Control batches are left out unless ``include_control``. Arguments and errors are those of
    ``krammar.wire.records.read_batches``, but ``max_uncompressed`` bounds what all compressed
    batches expand to together. DecodeError is raised too where an Arrow column cannot hold the
    records: timestamps beyond 64 bits, more than 2 GiB of keys or values.
    """
    parts = list(
        iter_arrow(
            data,
            validate_crc=validate_crc,
            allow_partial=allow_partial,
            include_control=include_control,
            max_uncompressed=max_uncompressed,
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
    max_uncompressed: int = DEFAULT_MAX_UNCOMPRESSED,
) -> Iterator[pa.RecordBatch]:
    """The same, in pieces of ``rows`` records, so that memory stays small. A piece has more where a
    batch begins in it (twice as many at most) or a compressed message set v0 or v1 (all of it)."""
    columns = Columns()
    left = max_uncompressed
    for batch in read_batches(data, validate_crc=validate_crc, allow_partial=allow_partial):
        if batch.is_control and not include_control:
            continue
        for expanded in batch.fill(columns, rows, left):
            left -= expanded
            if len(columns) >= rows:
                yield to_record_batch(columns)
                columns.clear()
    if columns:
        yield to_record_batch(columns)


def to_record_batch(columns: Columns) -> pa.RecordBatch:
    """The Arrow record batch, by ``SCHEMA``, of records that were decoded into columns.

    Raises DecodeError where they are more than an Arrow column holds.
    """
    try:
        return pa.record_batch(
            [
                # 20 ns a value; offsets and data laid out in Python take 55.
                pa.array(columns.keys, pa.binary()),
                pa.array(columns.values, pa.binary()),
                pa.array(columns.offsets, pa.int64()),
                pa.array(columns.timestamps, pa.int64()),
                _headers(columns),
            ],
            schema=SCHEMA,
        )
    except (OverflowError, TypeError, pa.ArrowException) as error:
        raise DecodeError(f"records that an Arrow column cannot hold: {error}") from None


def _headers(columns: Columns) -> pa.Array:
    count = len(columns)
    if not columns.headers:
        offsets = pa.py_buffer(bytes(4 * (count + 1)))
        empty = pa.array([], _HEADER)
        return pa.Array.from_buffers(_HEADERS, count, [None, offsets], 0, 0, [empty])
    rows = list(map(columns.headers.get, range(count)))
    headers = list(chain.from_iterable(filter(None, rows)))
    items = pa.StructArray.from_arrays(
        [
            pa.array([key for key, _ in headers], pa.string()),
            pa.array([value for _, value in headers], pa.binary()),
        ],
        fields=list(_HEADER),
    )
    ends = accumulate((len(row) if row else 0 for row in rows), initial=0)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=_HEADERS)
