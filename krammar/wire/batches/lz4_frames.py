"""The frames of lz4: how large their content can be, and checksums of old versions of Kafka.

The format (LZ4 Frame Format 1.6): magic, flags, block size, optional content size and dictionary, and header checksum;
then blocks after their little-endian sizes, whose highest bit marks an uncompressed block; then an empty block and the
checksum of the content.
"""

from __future__ import annotations

from struct import Struct

from krammar.wire.errors import DecodeError

_MAGIC = b"\x04\x22\x4d\x18"
_HAS_DICTIONARY = 1
_HAS_CONTENT_CHECKSUM = 4
_HAS_CONTENT_SIZE = 8
_HAS_BLOCK_CHECKSUM = 16
_STORED = 0x80000000
_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_UINT32 = Struct("<I")


def _header_end(view: memoryview, pos: int) -> int:
    """The end of the header of the frame at ``pos``, after its checksum byte."""
    if view[pos : pos + 4] != _MAGIC:
        raise DecodeError("lz4: not a frame")
    flags = view[pos + 4]
    size = 7
    if flags & _HAS_CONTENT_SIZE:
        size += 8
    if flags & _HAS_DICTIONARY:
        size += 4
    if pos + size > len(view):
        raise DecodeError("lz4: truncated")
    return pos + size


def lz4_bound(view: memoryview) -> int:
    """Return the maximum size of the uncompressed content, in bytes. Raises DecodeError."""
    most = 0
    pos = 0
    size = len(view)
    while pos < size:
        flags = view[pos + 4]
        largest = _BLOCK_SIZES.get(view[pos + 5] >> 4 & 7, 0)
        block_trailer = 4 if flags & _HAS_BLOCK_CHECKSUM else 0
        pos = _header_end(view, pos)
        while True:
            (length,) = _UINT32.unpack_from(view, pos)
            pos += 4
            if length == 0:
                break
            stored = length & _STORED
            length &= ~_STORED
            # A byte of a block adds at most 255 bytes to the uncompressed size.
            most += length if stored else min(largest, 255 * length)
            pos += length + block_trailer
            if pos > size:
                raise DecodeError("lz4: truncated")
        if flags & _HAS_CONTENT_CHECKSUM:
            pos += 4
    return most


def mend_lz4(data: bytes | bytearray | memoryview) -> bytes:
    """Correct the checksum in the header of a frame. Old versions of Kafka included the magic (KIP-57)."""
    view = memoryview(data)
    if len(view) < 7:
        raise DecodeError("lz4: truncated")
    end = _header_end(view, 0)
    checksum = _xxh32(bytes(view[4 : end - 1])) >> 8 & 255
    return b"".join((view[: end - 1], bytes((checksum,)), view[end:]))


def _xxh32(data: bytes) -> int:
    """xxHash with 32 bits and seed 0, for fewer than 16 bytes, which need no stripes."""
    value = 0x165667B1 + len(data)
    words = len(data) & ~3
    for pos in range(0, words, 4):
        value += int.from_bytes(data[pos : pos + 4], "little") * 0xC2B2AE3D
        value = _rotate(value, 17) * 0x27D4EB2F
    for byte in data[words:]:
        value += byte * 0x165667B1
        value = _rotate(value, 11) * 0x9E3779B1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> 32 - bits
