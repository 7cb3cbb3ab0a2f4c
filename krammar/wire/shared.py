"""The functions that codecs for all versions of a message call, for lengths that depend on the version.

``compact`` is whether a length is an unsigned varint of the length plus one, with 0 for null (KIP-482). Otherwise
it is an int16 before a string, and an int32 before bytes and arrays, negative for null. Errors are as in
``krammar.wire.primitives``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from krammar.wire.primitives import (
    UVARINT,
    Malformed,
    as_bytes,
    as_list,
    read_unknown_tags,
    uvarint,
    write_tags,
)

_read_int16 = Struct(">h").unpack_from
_read_int32 = Struct(">i").unpack_from
_int16 = Struct(">h").pack
_int32 = Struct(">i").pack


def read_nullable_count(buf: bytes, pos: int, compact: bool) -> tuple[int, int]:
    """Read the length of bytes or an array, negative for null. Returns it and the position after it."""
    if not compact:
        return _read_int32(buf, pos)[0], pos + 4
    count = buf[pos]
    pos += 1
    if count > 127:
        count, pos = uvarint(buf, pos, count)
    return count - 1, pos


def read_count(buf: bytes, pos: int, compact: bool) -> tuple[int, int]:
    """Read a length as ``read_nullable_count``. Raises Malformed for null."""
    count, pos = read_nullable_count(buf, pos, compact)
    if count < 0:
        raise Malformed
    return count, pos


def read_string(buf: bytes, pos: int, compact: bool) -> tuple[str, int]:
    """Read a string. Returns it and the position after it."""
    # The length is read here, because one more call would take a third of the time of this function.
    if compact:
        size = buf[pos] - 1
        pos += 1
        if size > 126:
            size, pos = uvarint(buf, pos, size + 1)
            size -= 1
    else:
        size = _read_int16(buf, pos)[0]
        pos += 2
    if size < 0:
        raise Malformed
    end = pos + size
    return buf[pos:end].decode(), end


def read_nullable_string(buf: bytes, pos: int, compact: bool) -> tuple[str | None, int]:
    """Read a string or null. Returns it and the position after it."""
    if compact:
        size = buf[pos] - 1
        pos += 1
        if size > 126:
            size, pos = uvarint(buf, pos, size + 1)
            size -= 1
    else:
        size = _read_int16(buf, pos)[0]
        pos += 2
    if size < 0:
        return None, pos
    end = pos + size
    return buf[pos:end].decode(), end


def read_bytes(buf: bytes, pos: int, compact: bool, view: Any) -> tuple[Any, int]:
    """Read bytes as a slice of ``view``. Returns them and the position after them."""
    size, pos = read_count(buf, pos, compact)
    return view[pos : pos + size], pos + size


def read_nullable_bytes(buf: bytes, pos: int, compact: bool, view: Any) -> tuple[Any, int]:
    """Read bytes or null, as ``read_bytes``."""
    size, pos = read_nullable_count(buf, pos, compact)
    return (None, pos) if size < 0 else (view[pos : pos + size], pos + size)


def read_tags(value: Any, buf: bytes, pos: int) -> int:
    """Read the tagged fields of a struct that knows none. Returns the position after them."""
    count = buf[pos]
    pos += 1
    return read_unknown_tags(value, buf, pos, count) if count else pos


def write_string(parts: list[bytes], value: str, compact: bool) -> None:
    """Append a string."""
    data = value.encode()
    parts.append(UVARINT[len(data) + 1] if compact else _int16(len(data)))
    parts.append(data)


def write_nullable_string(parts: list[bytes], value: str | None, compact: bool) -> None:
    """Append a string or null."""
    if value is None:
        parts.append(b"\0" if compact else b"\xff\xff")
    else:
        write_string(parts, value, compact)


def write_bytes(parts: list[bytes], value: Any, compact: bool) -> None:
    """Append bytes."""
    data: Any = value if value.__class__ is bytes else as_bytes(value)
    parts.append(UVARINT[len(data) + 1] if compact else _int32(len(data)))
    parts.append(data)


def write_nullable_bytes(parts: list[bytes], value: Any, compact: bool) -> None:
    """Append bytes or null."""
    if value is None:
        parts.append(b"\0" if compact else b"\xff\xff\xff\xff")
    else:
        write_bytes(parts, value, compact)


def write_count(parts: list[bytes], values: Any, compact: bool) -> Sequence[Any]:
    """Append the count of an array. Returns the array."""
    found = values if values.__class__ is list else as_list(values)
    parts.append(UVARINT[len(found) + 1] if compact else _int32(len(found)))
    return found


def write_nullable_count(parts: list[bytes], values: Any, compact: bool) -> Sequence[Any]:
    """Append the count of an array or of null. Returns the array; empty for null."""
    if values is None:
        parts.append(b"\0" if compact else b"\xff\xff\xff\xff")
        return ()
    return write_count(parts, values, compact)


def write_unknown_tags(parts: list[bytes], value: Any) -> None:
    """Append the tagged fields of a struct that knows none."""
    if value._unknown_tags:
        write_tags(parts, [], value._unknown_tags)
    else:
        parts.append(b"\0")
