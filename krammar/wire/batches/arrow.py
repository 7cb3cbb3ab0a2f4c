"""Decodes record batches directly to Arrow columns. Needs pyarrow: ``pip install 'krammar[arrow]'``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from krammar.util.extras import require

try:
    import pyarrow as pa
except ImportError:
    require("krammar.wire.batches.arrow", "arrow")
    raise


from krammar.wire.batches.arrow_pieces import ArrowPieces
from krammar.wire.batches.arrow_schema import SCHEMA, to_record_batch
from krammar.wire.batches.bounds import Bounds
from krammar.wire.batches.crc import check_crc
from krammar.wire.batches.header import BatchHeader, read_headers
from krammar.wire.batches.records.model import Columns
from krammar.wire.errors import DecodeError

if TYPE_CHECKING:
    from krammar.wire.batches.compression import Data

__all__ = ["SCHEMA", "iter_arrow", "iter_records", "to_arrow", "to_record_batch"]

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
