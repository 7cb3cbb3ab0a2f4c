"""Message sets: what record batches were before Kafka 0.11, in formats v0 and v1. Read only.

A message set is messages end to end, each behind an offset and its size. Compressed, it becomes
the value of one more message, the wrapper, which carries the codec in its attributes:

- Offsets inside a wrapper v0 are absolute. Inside a wrapper v1 they are relative, and the wrapper's
  own is that of the last message inside (KIP-31).
- A wrapper v1 whose timestamp type is LogAppendTime gives its timestamp to all messages inside
  (KIP-32).
- All are of one format, and there is one level of compression at most.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING

from krammar.wire.compression import Compression, decompress
from krammar.wire.errors import CorruptRecordError, DecodeError

if TYPE_CHECKING:
    from krammar.wire.record_format import Columns

# What a message takes behind its size at least, by its format: crc, magic, attributes, timestamp
# (v1 only), and the lengths of key and value.
MIN_SIZE = (14, 22)

_HEADER = Struct(">qiIBB")  # offset, size, CRC-32 of all that follows it, magic, attributes
_BEFORE_MAGIC = 16
_SIZE_END = 12
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_CODEC = 7
_LOG_APPEND_TIME = 8


def decode_message(
    columns: Columns,
    body: bytes,
    offset: int,
    *,
    origin: int,
    validate_crc: bool,
    max_uncompressed: int,
) -> int:
    """Append the record that a message is, or the records that a wrapper holds, to ``columns``.
    Returns how many bytes were decompressed.

    ``body`` is the message from its magic (0 or 1) on, ``offset`` what stands before the message,
    ``origin`` the position of ``body`` in the bytes it came in, for errors. ``validate_crc`` checks
    the messages inside of a wrapper. Raises DecodeError; ``columns`` is not to be used then.
    """
    magic = body[0]
    attributes = body[1]
    timestamp = _INT64.unpack_from(body, 2)[0] if magic else -1
    key, value = _key_and_value(body, 10 if magic else 2, len(body), "records[0]", origin)
    codec = attributes & _CODEC
    if not codec:
        columns.offsets.append(offset)
        columns.timestamps.append(timestamp)
        columns.keys.append(key)
        columns.values.append(value)
        return 0

    if value is None:
        raise DecodeError("a compressed message without a value", offset=origin)
    if codec >= Compression.ZSTD:
        raise DecodeError(f"messages v{magic} have no compression {codec}", offset=origin)
    inside = decompress(
        value, codec, max_uncompressed=max_uncompressed, broken_lz4_checksum=magic == 0
    )
    start = len(columns)
    _read_messages(columns, inside, magic, validate_crc)
    if magic:
        distance = offset - columns.offsets[-1]
        columns.offsets[start:] = [relative + distance for relative in columns.offsets[start:]]
        if attributes & _LOG_APPEND_TIME:
            columns.timestamps[start:] = [timestamp] * (len(columns) - start)
    return len(inside)


def _read_messages(columns: Columns, buf: bytes, magic: int, validate_crc: bool) -> None:
    """Append the messages of an uncompressed set, of which there is one at least."""
    view = memoryview(buf)
    smallest = _SIZE_END + MIN_SIZE[magic]
    key_at = smallest - 8
    pos = 0
    left = len(buf)
    index = 0
    while left or not index:
        path = f"records[{index}]"
        if left < smallest:
            raise _fault(path, f"needs {smallest} bytes at {{place}}, {left} left", pos)
        offset, size, crc, inner_magic, attributes = _HEADER.unpack_from(buf, pos)
        size += _SIZE_END
        if not smallest <= size <= left:
            raise _fault(path, f"message of {size} bytes at {{place}}, {left} left", pos)
        if inner_magic != magic:
            raise _fault(path, f"a message v{inner_magic} inside of v{magic}", pos)
        if attributes & _CODEC:
            raise _fault(path, "compressed once more", pos)
        end = pos + size
        if validate_crc and zlib.crc32(view[pos + _BEFORE_MAGIC : end]) != crc:
            raise CorruptRecordError(f"{path}: wrong CRC", path=path)
        key, value = _key_and_value(buf, pos + key_at, end, path, None)
        columns.offsets.append(offset)
        columns.timestamps.append(
            _INT64.unpack_from(buf, pos + _BEFORE_MAGIC + 2)[0] if magic else -1
        )
        columns.keys.append(key)
        columns.values.append(value)
        pos = end
        left -= size
        index += 1


def _key_and_value(
    buf: bytes, pos: int, end: int, path: str, origin: int | None
) -> tuple[bytes | None, bytes | None]:
    """The two last fields of the message that ends at ``end``."""
    key = value = None
    (size,) = _INT32.unpack_from(buf, pos)
    pos += 4
    if size != -1:
        left = end - pos - 4  # the value's length comes too
        if not 0 <= size <= left:
            text = f"length of {size} at {{place}}, {left} bytes left"
            raise _fault(f"{path}.key", text, pos - 4, origin)
        key = buf[pos : pos + size]
        pos += size
    (size,) = _INT32.unpack_from(buf, pos)
    pos += 4
    left = end - pos
    # The value is all that is left: nothing may stand behind it.
    if size == left:
        value = buf[pos:end]
    elif size != -1 or left:
        text = f"length of {size} at {{place}}, {left} bytes left"
        raise _fault(f"{path}.value", text, pos - 4, origin)
    return key, value


def _fault(path: str, text: str, at: int, origin: int | None = None) -> DecodeError:
    if origin is None:  # a position in what was decompressed says nothing about the bytes given
        text = text.format(place=f"byte {at} of the uncompressed messages")
        return DecodeError(f"{path}: {text}", path=path)
    at += origin
    return DecodeError(f"{path}: {text.format(place=f'offset {at}')}", path=path, offset=at)
