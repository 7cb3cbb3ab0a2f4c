"""Decodes the records of a batch."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from krammar.wire import engine_loading
from krammar.wire.batches.records.explain import explain_read
from krammar.wire.batches.records.model import Columns, Record, header_key
from krammar.wire.batches.records.varint_bytes import FIRST_BYTES, LOW_BITS
from krammar.wire.primitives import FAILURES, Malformed, varint, varlong

if TYPE_CHECKING:
    from krammar.wire.batches.records.model import Header


def read_records(
    buf: bytes,
    pos: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    appended_at: int | None = None,
    first: int = 0,
    origin: int | None = 0,
) -> tuple[list[Record], int]:
    """Decode ``count`` records at ``pos``. Returns them and the position after them.

    Args:
        appended_at: the timestamp of all records, or None if they contain timestamps.
        first: as for ``decode_records``.
        origin: as for ``decode_records``.

    Raises:
        DecodeError: a record is invalid.
    """
    native = engine_loading.ENGINE
    if native is not None:
        own = appended_at is None
        timestamp = base_timestamp if own else appended_at
        try:
            read: tuple[list[Record], int] = native.decode_records(
                Record, buf, pos, count, base_offset, timestamp, own
            )
            return read
        except FAILURES:
            pass
    columns = Columns()
    end = decode_records(columns, buf, pos, count, base_offset, base_timestamp, first, origin)
    if appended_at is not None:
        columns.timestamps = [appended_at] * count
    return columns.records(), end


def decode_records(
    columns: Columns,
    buf: bytes,
    pos: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    first: int = 0,
    origin: int | None = 0,
) -> int:
    """Append ``count`` records at ``pos`` to ``columns``. Returns the position after them.

    Args:
        first: the number of the first record in its batch, for errors.
        origin: the position of ``buf`` in its message, or None if the records were compressed; for errors.

    Raises:
        DecodeError: a record is invalid. ``columns`` must not be used any more.
    """
    try:
        return _decode_records(columns, buf, pos, count, base_offset, base_timestamp)
    except FAILURES:
        raise explain_read(buf, pos, count, first, origin) from None


def _decode_records(
    columns: Columns, buf: bytes, pos: int, count: int, base_offset: int, base_timestamp: int
) -> int:
    # Slices are not compared with the remaining size. A slice beyond the end of the buffer leaves `pos` after
    # the end, so the next subscript fails.
    offsets = columns.offsets
    timestamps = columns.timestamps
    keys = columns.keys
    values = columns.values
    with_headers = columns.headers
    # All headers with the same name share one str, which is faster and needs less memory.
    names: dict[bytes, str] = {}
    first = FIRST_BYTES
    low = LOW_BITS
    base_offset_3 = base_offset - 8192
    size = len(buf)
    for _ in repeat(None, count):
        # length, attributes
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            end = pos + n + 1
            pos += 2
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            end = pos + byte_2 * 64 + low[byte] + 2
            pos += 3
        else:
            n, pos = varint(buf, pos)
            end = pos + n
            pos += 1

        # timestamp
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            timestamps.append(base_timestamp + n)
            pos += 1
        elif n == -2 and (byte_2 := buf[pos + 1]) < 128:
            timestamps.append(byte_2 * 64 + low[byte] + base_timestamp)
            pos += 2
        else:
            n, pos = varlong(buf, pos)
            timestamps.append(base_timestamp + n)

        # offset
        byte = buf[pos]
        n = first[byte]
        if n >= 0:
            offsets.append(base_offset + n)
            pos += 1
        elif n != -2:
            n, pos = varint(buf, pos)
            offsets.append(base_offset + n)
        elif (byte_2 := buf[pos + 1]) < 128:
            offsets.append(byte_2 * 64 + low[byte] + base_offset)
            pos += 2
        elif (byte_3 := buf[pos + 2]) < 128:
            offsets.append((byte_3 * 128 + byte_2) * 64 + low[byte] + base_offset_3)
            pos += 3
        else:
            n, pos = varint(buf, pos)
            offsets.append(base_offset + n)

        # key
        n = first[buf[pos]]
        pos += 1
        if n >= 0:
            stop = pos + n
            keys.append(buf[pos:stop])
            pos = stop
        elif n == -1:
            keys.append(None)
        else:
            n, pos = varint(buf, pos - 1)
            if n >= 0:
                stop = pos + n
                keys.append(buf[pos:stop])
                pos = stop
            elif n == -1:
                keys.append(None)
            else:
                raise Malformed

        # value
        byte = buf[pos]
        n = first[byte]
        pos += 1
        if n >= 0:
            stop = pos + n
            values.append(buf[pos:stop])
            pos = stop
        elif n == -1:
            values.append(None)
        elif n == -2 and (byte_2 := buf[pos]) < 128:
            pos += 1
            stop = byte_2 * 64 + low[byte] + pos
            values.append(buf[pos:stop])
            pos = stop
        else:
            n, pos = varint(buf, pos - 1)
            if n >= 0:
                stop = pos + n
                values.append(buf[pos:stop])
                pos = stop
            elif n == -1:
                values.append(None)
            else:
                raise Malformed

        # headers
        byte = buf[pos]
        pos += 1
        if byte:
            n = first[byte]
            if n < 0:
                n, pos = varint(buf, pos - 1)
                if n < 0:
                    raise Malformed
            headers: list[Header] = []
            left = n
            while left:
                left -= 1
                n = first[buf[pos]]
                pos += 1
                if n < 0:
                    n, pos = varint(buf, pos - 1)
                    if n < 0:
                        raise Malformed
                stop = pos + n
                raw = buf[pos:stop]
                try:
                    name = names[raw]
                except KeyError:
                    name = names[raw] = header_key(raw)
                n = first[buf[stop]]
                pos = stop + 1
                if n < -1:
                    n, pos = varint(buf, stop)
                if n >= 0:
                    stop = pos + n
                    headers.append((name, buf[pos:stop]))
                    pos = stop
                elif n == -1:
                    headers.append((name, None))
                else:
                    raise Malformed
            if pos > size:
                raise Malformed
            with_headers[len(values) - 1] = headers
        if pos != end:
            raise Malformed
    return pos
