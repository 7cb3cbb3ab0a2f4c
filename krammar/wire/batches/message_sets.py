"""Reads message sets, the formats v0 and v1 that preceded record batches before Kafka 0.11.

A message set is a sequence of messages, each after its offset and size. A compressed message set is the value
of another message, the wrapper, whose attributes contain the codec:

- Offsets inside a wrapper v0 are absolute. Inside a wrapper v1 they are relative, and the offset of the wrapper
  is that of the last inner message (KIP-31).
- If the timestamp type of a wrapper v1 is LogAppendTime, all inner messages have its timestamp (KIP-32).
- All messages have the same format, and there is at most one level of compression.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING

from krammar.wire.batches.compression import Compression, decompress
from krammar.wire.batches.header import (
    CODEC,
    CRC_COVERS_FROM,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MIN_SIZE,
    SIZE_END,
    read_fields,
)
from krammar.wire.errors import CorruptRecordError, DecodeError

if TYPE_CHECKING:
    from krammar.wire.batches.bounds import Bounds
    from krammar.wire.batches.records.model import Columns

_INT64 = Struct(">q")
_INT32 = Struct(">i")


def decode_message(
    columns: Columns,
    body: bytes,
    offset: int,
    *,
    origin: int,
    validate_crc: bool,
    bounds: Bounds,
) -> int:
    """Append the record of a message, or the records of a wrapper, to ``columns``.

    Args:
        body: the message from its magic (0 or 1) on.
        offset: the offset before the message.
        origin: the position of ``body`` in its data, for errors.
        validate_crc: check the CRCs of messages inside a wrapper.
        bounds: the limits of a wrapper.

    Returns:
        The number of decompressed bytes.

    Raises:
        DecodeError: the message is invalid. ``columns`` must not be used any more.
    """
    magic = body[0]
    attributes = body[1]
    timestamp = _INT64.unpack_from(body, 2)[0] if magic else -1
    key, value = _key_and_value(body, 10 if magic else 2, len(body), "records[0]", origin)
    codec = attributes & CODEC
    if not codec:
        columns.offsets.append(offset)
        columns.timestamps.append(timestamp)
        columns.keys.append(key)
        columns.values.append(value)
        return 0

    if value is None:
        raise DecodeError("a compressed message has no value", offset=origin)
    if codec >= Compression.ZSTD:
        raise DecodeError(f"messages v{magic} have no compression {codec}", offset=origin)
    inside = decompress(value, codec, bounds=bounds, broken_lz4_checksum=magic == 0)
    start = len(columns)
    _read_messages(columns, inside, magic, validate_crc, bounds)
    if magic:
        distance = offset - columns.offsets[-1]
        columns.offsets[start:] = [relative + distance for relative in columns.offsets[start:]]
        if attributes & LOG_APPEND_TIME:
            columns.timestamps[start:] = [timestamp] * (len(columns) - start)
    return len(inside)


def _read_messages(
    columns: Columns, buf: bytes, magic: int, validate_crc: bool, bounds: Bounds
) -> None:
    """Append the messages of an uncompressed set, which has at least one."""
    view = memoryview(buf)
    smallest = MIN_SIZE[magic]
    key_at = smallest - 8
    pos = 0
    left = len(buf)
    index = 0
    while left or not index:
        path = f"records[{index}]"
        if left < smallest:
            raise _fault(path, f"needs {smallest} bytes at {{place}}, {left} left", pos)
        offset, size, _, _, crc, attributes, _, timestamp, *_ = read_fields(buf, pos, magic)
        inner_magic = buf[pos + MAGIC_AT]
        size += SIZE_END
        if not smallest <= size <= left:
            raise _fault(path, f"message of {size} bytes at {{place}}, {left} left", pos)
        if inner_magic != magic:
            raise _fault(path, f"a message v{inner_magic} inside a message v{magic}", pos)
        if attributes & CODEC:
            raise _fault(path, "compressed a second time", pos)
        end = pos + size
        if validate_crc and zlib.crc32(view[pos + CRC_COVERS_FROM[magic] : end]) != crc:
            raise CorruptRecordError(f"{path}: wrong CRC", path=path)
        key, value = _key_and_value(buf, pos + key_at, end, path, None)
        columns.offsets.append(offset)
        columns.timestamps.append(timestamp)
        columns.keys.append(key)
        columns.values.append(value)
        pos = end
        left -= size
        index += 1
        if index > bounds.records:
            bounds.check_count(index)


def _key_and_value(
    buf: bytes, pos: int, end: int, path: str, origin: int | None
) -> tuple[bytes | None, bytes | None]:
    """Read the last two fields, key and value, of the message that ends at ``end``."""
    key = value = None
    (size,) = _INT32.unpack_from(buf, pos)
    pos += 4
    if size != -1:
        left = end - pos - 4  # the length of the value follows
        if not 0 <= size <= left:
            text = f"length of {size} at {{place}}, {left} bytes left"
            raise _fault(f"{path}.key", text, pos - 4, origin)
        key = buf[pos : pos + size]
        pos += size
    (size,) = _INT32.unpack_from(buf, pos)
    pos += 4
    left = end - pos
    # The value must end at the end of the message.
    if size == left:
        value = buf[pos:end]
    elif size != -1 or left:
        text = f"length of {size} at {{place}}, {left} bytes left"
        raise _fault(f"{path}.value", text, pos - 4, origin)
    return key, value


def _fault(path: str, text: str, at: int, origin: int | None = None) -> DecodeError:
    if origin is None:  # the message was compressed, so it has no offset in the data
        text = text.format(place=f"byte {at} of the uncompressed messages")
        return DecodeError(f"{path}: {text}", path=path)
    at += origin
    return DecodeError(f"{path}: {text.format(place=f'offset {at}')}", path=path, offset=at)
