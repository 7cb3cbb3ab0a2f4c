"""Headers of batches in a segment's bytes, one at a time and by position."""

from __future__ import annotations

import zlib
from struct import Struct

from krammar.wire.records import BatchHeader, crc32c

# Of all formats: offset, size of the rest, four bytes that differ, magic.
FRAME = Struct(">qiib")
SIZE_END = 12
# Of v2: offset, size, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, count.
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
CRC_COVERS_FROM = 21
LAST_OFFSET_DELTA = Struct(">i")
LAST_OFFSET_DELTA_AT = 23
# Message sets: offset, size, crc, magic, attributes, and in v1 a timestamp.
_MESSAGE_V0 = Struct(">qiIbb")
_MESSAGE_V1 = Struct(">qiIbbq")
# What a batch takes at least, with offset and size, by magic.
MIN_SIZE = (26, 34, HEADER_SIZE)

CODEC = 0x07
LOG_APPEND_TIME = 0x08
DELETE_HORIZON = 0x40


def header_at(data: bytes | memoryview, pos: int, position: int) -> BatchHeader | None:
    """The header of the batch at ``pos``, which is ``position`` of the file.

    None where no batch can begin: a magic that is unknown, a size that is too small, offsets that do
    not rise, or too few bytes for a header. What is behind the header need not be in ``data``.
    """
    left = len(data) - pos
    if left < FRAME.size:
        return None
    base, length, _, magic = FRAME.unpack_from(data, pos)
    if not 0 <= magic <= 2 or length + SIZE_END < MIN_SIZE[magic] or base < 0:
        return None
    if magic == 2:
        if left < HEADER_SIZE:
            return None
        header = BatchHeader(position, *HEADER.unpack_from(data, pos))
        return header if header.last_offset_delta >= 0 and header.records_count >= 0 else None
    if left < MIN_SIZE[magic]:
        return None
    if magic == 1:
        _, _, crc, _, attributes, timestamp = _MESSAGE_V1.unpack_from(data, pos)
    else:
        _, _, crc, _, attributes = _MESSAGE_V0.unpack_from(data, pos)
        timestamp = -1
    count = -1 if attributes & CODEC else 1
    return BatchHeader(
        position,
        base,
        length,
        -1,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        -1,
        -1,
        -1,
        count,
    )


def crc_is_right(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the CRC of a whole batch is the one of its header."""
    if header.magic == 2:
        return crc32c(bytes(batch[CRC_COVERS_FROM:])) == header.crc
    return zlib.crc32(batch[16:]) == header.crc
