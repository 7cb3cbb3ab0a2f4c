"""The header of a batch. Only this module knows the offsets and sizes inside it.

A batch of format v2 (KIP-98) is a header and the records after it. Each message of a message set v0 or v1 counts
as a separate batch, with a shorter header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from krammar.wire.batches.compression import Compression
from krammar.wire.errors import DecodeError

if TYPE_CHECKING:
    from krammar.wire.batches.compression import Data

# Bits of the attributes.
CODEC = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

# All formats begin with: offset, size of the rest, four bytes that differ, magic.
_FRAME = Struct(">qiib")
# The end of offset and size. The size does not include these bytes.
SIZE_END = 12
MAGIC_AT = 16
# The number of bytes that contain the magic.
FRAME_SIZE = _FRAME.size
# v2: offset, size, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max timestamp,
# producer id, producer epoch, base sequence, count.
_HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = _HEADER.size  # 61
# The same in two parts. The CRC covers the second part and the records.
pack_before_crc = Struct(">qiibI").pack
pack_after_crc = Struct(">hiqqqhii").pack
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
RECORDS_COUNT_AT = HEADER_SIZE - 4
# The low byte of the attributes, which contains all bits that are in use.
_ATTRIBUTES_AT = 22
# v0 and v1: offset, size, CRC, magic, attributes, and in v1 a timestamp.
_MESSAGE_V0 = Struct(">qiIbb")
_MESSAGE_V1 = Struct(">qiIbbq")
# The minimum size of a batch in bytes, with offset and size, by magic.
MIN_SIZE = (26, 34, HEADER_SIZE)
# By magic: the position of the CRC, and the begin of the bytes that it covers (the body of the batch).
CRC_AT = (12, 12, 17)
CRC_COVERS_FROM = (16, 16, 21)
# Format v2: the begin of the body, and the begin of the records in the body.
BODY_AT = CRC_COVERS_FROM[2]
RECORDS_IN_BODY = HEADER_SIZE - BODY_AT


class TimestampType(IntEnum):
    """The meaning of a batch's timestamps (KIP-32)."""

    NO_TIMESTAMP_TYPE = -1  # message sets v0
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True)
class BatchHeader:
    """The header of a batch, with the names of Kafka's protocol guide.

    ``position`` is the position of the batch in the bytes that it was read from.

    Each message of a message set v0 or v1 is a separate batch. Fields that its format does not have are -1, and
    ``last_offset_delta`` is 0. For a compressed message, ``base_offset`` is the offset before the message (in v1
    that of the last record), and ``records_count`` is -1, because it is unknown.
    """

    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        """The size of the complete batch in bytes, with ``base_offset`` and ``batch_length``."""
        return self.batch_length + SIZE_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec. Raises DecodeError if it is unknown."""
        codec = self.attributes & CODEC
        if codec > Compression.ZSTD:
            raise DecodeError(f"unknown compression {codec}", path="attributes")
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        return self.magic > 1 and self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.magic > 1 and self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the time from which compaction can remove tombstones and markers.

        It is in milliseconds since 1970 (KIP-534).
        """
        return self.magic > 1 and self.attributes & DELETE_HORIZON != 0

    def pack(self) -> bytes:
        """Return the bytes of the header, in format v2."""
        return _HEADER.pack(
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        )


def read_headers(data: Data | None, *, allow_partial: bool = True) -> Iterator[BatchHeader]:
    """Read the headers of all batches in ``data``, of any formats, without checking CRCs and records.

    Args:
        data: None, a null ``records`` field, contains no batches.
        allow_partial: ignore an incomplete batch at the end, because brokers cut Fetch responses at a size
            limit. Otherwise it is an error.

    Raises:
        DecodeError: a header is invalid.
    """
    data = octets(data)
    for position, _, magic in frames(data, allow_partial):
        yield BatchHeader(position, *read_fields(data, position, magic))


def size_and_magic(data: Data, pos: int) -> tuple[int, int]:
    """Return the size in bytes and the magic of the batch at ``pos``, without checking them."""
    _, length, _, magic = _FRAME.unpack_from(data, pos)
    return length + SIZE_END, magic


def header_at(data: Data, pos: int, position: int) -> BatchHeader | None:
    """Read the header of the batch at ``pos``. Only the header must be in ``data``.

    Args:
        position: the position of the batch in the file.

    Returns:
        The header, or None if no batch can begin here: the magic is unknown, the size is too small, the offsets
        do not ascend, or the header is incomplete.
    """
    left = len(data) - pos
    if left < FRAME_SIZE:
        return None
    base, length, _, magic = _FRAME.unpack_from(data, pos)
    if not 0 <= magic <= 2 or base < 0 or length + SIZE_END < MIN_SIZE[magic]:
        return None
    if left < MIN_SIZE[magic]:
        return None
    header = BatchHeader(position, *read_fields(data, pos, magic))
    if header.last_offset_delta < 0 or (magic == 2 and header.records_count < 0):
        return None
    return header


def last_offset_at(data: Data, pos: int) -> tuple[int, int] | None:
    """Return the last offset of the batch at ``pos``, and its size in bytes. None if no batch can begin here."""
    left = len(data) - pos
    if left < FRAME_SIZE:
        return None
    last, length, _, magic = _FRAME.unpack_from(data, pos)
    if length < MIN_SIZE[0] - SIZE_END or not 0 <= magic <= 2:
        return None
    if magic == 2:
        if left < HEADER_SIZE:
            return None
        last += _LAST_OFFSET_DELTA.unpack_from(data, pos + _LAST_OFFSET_DELTA_AT)[0]
    return last, length + SIZE_END


def frames(data: Data, allow_partial: bool) -> Iterator[tuple[int, int, int]]:
    """Yield the begin, the end and the magic of each batch. Raises DecodeError."""
    size = len(data)
    pos = 0
    while pos < size:
        left = size - pos
        # The batch is too short for the magic, on which the minimum size depends.
        if left < FRAME_SIZE:
            needed = FRAME_SIZE
        else:
            _, length, _, magic = _FRAME.unpack_from(data, pos)
            if not 0 <= magic <= 2:
                raise DecodeError(
                    f"batch at offset {pos}: unknown magic {magic}",
                    path="magic",
                    offset=pos + MAGIC_AT,
                )
            smallest = MIN_SIZE[magic] - SIZE_END
            if length < smallest:
                raise DecodeError(
                    f"batch at offset {pos}: batch_length is {length}, but at least {smallest} is needed",
                    path="batch_length",
                    offset=pos + 8,
                )
            needed = length + SIZE_END
        if needed > left:
            if allow_partial:
                return
            raise DecodeError(
                f"batch at offset {pos}: needs {needed} bytes, {left} left", offset=pos
            )
        yield pos, pos + needed, magic
        pos += needed


def read_fields(data: Data, pos: int, magic: int) -> tuple[int, ...]:
    """The fields of ``BatchHeader`` after ``position``."""
    if magic > 1:
        return _HEADER.unpack_from(data, pos)
    if magic:
        offset, size, crc, _, attributes, timestamp = _MESSAGE_V1.unpack_from(data, pos)
    else:
        offset, size, crc, _, attributes = _MESSAGE_V0.unpack_from(data, pos)
        timestamp = -1
    count = -1 if attributes & CODEC else 1
    return offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count


def octets(data: Data | None) -> Data:
    """Return ``data`` as a buffer of bytes. None, a null field ``records``, becomes empty."""
    if data is None:
        return b""
    if isinstance(data, memoryview):
        if not data.c_contiguous:
            return data.tobytes()
        if data.ndim != 1 or data.format != "B":
            return data.cast("B")
    return data


def magic_of(batch: Data) -> int | None:
    """Return the magic of the first batch, or None if the data are too short."""
    return batch[MAGIC_AT] if len(batch) > _ATTRIBUTES_AT else None


def codec_of(batch: Data) -> int:
    """Return the number of the codec of a batch of format v2."""
    return batch[_ATTRIBUTES_AT] & CODEC
