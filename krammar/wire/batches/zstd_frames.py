"""The frames of zstd: how large their content can be.

The format (RFC 8878, section 3.1): magic, a descriptor byte with the size of the remaining header, then blocks after three
little-endian bytes (last?, type, size), then a checksum.
"""

from __future__ import annotations

from struct import Struct

from krammar.wire.errors import DecodeError

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_BYTES = (0, 1, 2, 4)
_LARGEST_BLOCK = 128 * 1024
_UINT32 = Struct("<I")


def zstd_bound(view: memoryview) -> int:
    """Return the maximum size of the uncompressed content, in bytes. Raises DecodeError."""
    most = 0
    pos = 0
    size = len(view)
    while pos < size:
        (magic,) = _UINT32.unpack_from(view, pos)
        pos += 4
        if magic & ~15 == _SKIPPABLE_MAGIC:
            (length,) = _UINT32.unpack_from(view, pos)
            pos += 4 + length
            continue
        if magic != _MAGIC:
            raise DecodeError("zstd: not a frame")
        descriptor = view[pos]
        single_segment = descriptor >> 5 & 1
        sized = _CONTENT_SIZE_BYTES[descriptor >> 6] or single_segment
        pos += 1
        pos += 1 - single_segment  # the size of the window
        pos += _DICTIONARY_BYTES[descriptor & 3]
        content_size = int.from_bytes(view[pos : pos + sized], "little") + 256 * (sized == 2)
        pos += sized
        expanded = 0
        last = 0
        while not last:
            if pos + 3 > size:
                raise DecodeError("zstd: truncated")
            header = view[pos] | view[pos + 1] << 8 | view[pos + 2] << 16
            pos += 3
            last = header & 1
            kind = header >> 1 & 3
            length = header >> 3
            if kind == 0:  # uncompressed
                expanded += length
                pos += length
            elif kind == 1:  # one byte, `length` times
                expanded += length
                pos += 1
            else:
                expanded += _LARGEST_BLOCK
                pos += length
        # Blocks can be much smaller than the limit. If the frame contains its size, that is the limit.
        most += min(expanded, content_size) if sized else expanded
        if descriptor & 4:
            pos += 4
    if pos > size:
        raise DecodeError("zstd: truncated")
    return most
