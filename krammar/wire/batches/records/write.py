"""Encodes the records of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from krammar.wire import engine_loading
from krammar.wire.batches.records.explain import explain_write, kind_of
from krammar.wire.batches.records.model import INT64_MAX, INT64_MIN, Record
from krammar.wire.errors import EncodeError
from krammar.wire.primitives import (
    FAILURES,
    Malformed,
    as_bytes,
    as_list,
    encode_varint,
    encode_varlong,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Octets: TypeAlias = bytes | bytearray | memoryview

_TABLE_SIZE = 16384


@cache
def _varints() -> list[bytes]:
    """The varints of 0 to 16383, for lengths, and for offsets except in the largest batches.

    A subscript replaces a call of 0.3 µs. The table is created on first use, in 3 ms.
    """
    return [
        *[bytes((low,)) for low in range(0, 128, 2)],
        *[bytes((low, high)) for high in range(1, 128) for low in range(128, 256, 2)],
        *[bytes((low, high, 1)) for high in range(128, 256) for low in range(128, 256, 2)],
    ]


def encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int
) -> tuple[bytes, int, int]:
    """Encode ``records``, of which there must be at least one.

    Returns:
        The bytes, the difference of the last offset from ``base_offset``, and the latest timestamp.

    Raises:
        EncodeError: a record is invalid.
    """
    for name, number in (("base_offset", base_offset), ("base_timestamp", base_timestamp)):
        if not isinstance(number, int):
            raise EncodeError(f"{name}: needs an int, not {kind_of(number)}", path=name)
    native = engine_loading.ENGINE
    if native is not None:
        try:
            made: tuple[bytes, int, int] = native.encode_records(
                Record, records, base_offset, base_timestamp
            )
            return made
        except FAILURES:
            pass
    try:
        return _encode_records(as_list(records), base_offset, base_timestamp)
    except FAILURES:
        raise explain_write(records, base_offset, base_timestamp) from None


def _encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int
) -> tuple[bytes, int, int]:
    table = _varints()
    size = _TABLE_SIZE
    join = b"".join
    encode = str.encode
    names: dict[str, Octets] = {}  # encoded names of headers, with their lengths
    out: list[bytes] = []
    last = -1
    max_timestamp = records[0].timestamp
    timestamp: Any = object()  # equal to no timestamp
    for record in records:
        offset = record.offset
        if offset == -1:
            last += 1
        else:
            offset -= base_offset
            if offset <= last:
                raise Malformed
            last = offset

        # Consecutive records often have the same timestamp.
        if record.timestamp != timestamp:
            timestamp = record.timestamp
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            n = timestamp - base_timestamp
            if 0 <= n < size:
                prefix = b"\0" + table[n]
            else:
                if timestamp < INT64_MIN:
                    raise Malformed
                prefix = b"\0" + encode_varlong(n)

        key: Octets | None = record.key
        if key is None:
            key = b""
            key_size = b"\1"
        else:
            if key.__class__ is not bytes:
                key = as_bytes(key)
            n = len(key)
            key_size = table[n] if n < size else encode_varint(n)

        value: Octets | None = record.value
        if value is None:
            value = b""
            value_size = b"\1"
        else:
            if value.__class__ is not bytes:
                value = as_bytes(value)
            n = len(value)
            value_size = table[n] if n < size else encode_varint(n)

        # Joining a record for its length, and then again into the result, takes 0.24 µs per record. Adding up
        # lengths takes 0.29, and a growing bytearray 0.33.
        if record._headers:
            headers = as_list(record._headers)
            parts: list[Octets] = [
                prefix,
                table[last] if last < size else encode_varint(last),
                key_size,
                key,
                value_size,
                value,
                table[len(headers)] if len(headers) < size else encode_varint(len(headers)),
            ]
            for name, content in headers:
                try:
                    parts.append(names[name])
                except KeyError:
                    raw = encode(name)
                    parts.append(encode_varint(len(raw)) + raw)
                    names[name] = parts[-1]
                if content is None:
                    parts.append(b"\1")
                else:
                    if content.__class__ is not bytes:
                        content = as_bytes(content)
                    n = len(content)
                    parts.append(table[n] if n < size else encode_varint(n))
                    parts.append(content)
            body = join(parts)
        else:
            body = join(
                (
                    prefix,
                    table[last] if last < size else encode_varint(last),
                    key_size,
                    key,
                    value_size,
                    value,
                    b"\0",
                )
            )
        n = len(body)
        out.append(table[n] if n < size else encode_varint(n))
        out.append(body)
    if max_timestamp > INT64_MAX or base_offset + last > INT64_MAX:
        raise Malformed
    return join(out), last, max_timestamp
