"""The compression codecs of record batches, with a limit for the uncompressed size.

gzip uses the standard library, the others ``cramjam``, which is imported when a codec is first used (11 ms).
cramjam has no limit, but never writes past the end of a given buffer. So the headers in lz4 and zstd frames are
read first to bound the uncompressed size. snappy data begins with the size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Any

from krammar.wire.batches.bounds import Bounds, default_bounds
from krammar.wire.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from typing import TypeAlias

    Data: TypeAlias = bytes | bytearray | memoryview

# Frames of lz4: how large their content can be, and checksums of old versions of Kafka.
#
# The format (LZ4 Frame Format 1.6): magic, flags, block size, optional content size and dictionary, and header
# checksum; then blocks after their little-endian sizes, whose highest bit marks an uncompressed block; then an empty
# block and the checksum of the content.

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_HAS_DICTIONARY = 1
_HAS_CONTENT_CHECKSUM = 4
_HAS_CONTENT_SIZE = 8
_HAS_BLOCK_CHECKSUM = 16
_STORED = 0x80000000
_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_UINT32 = Struct("<I")


def _header_end(view: memoryview, pos: int) -> int:
    """The end of the header of the frame at ``pos``, after its checksum byte."""
    if view[pos : pos + 4] != _LZ4_MAGIC:
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


# Frames of zstd: how large their content can be.
#
# The format (RFC 8878, section 3.1): magic, a descriptor byte with the size of the remaining header, then blocks
# after three little-endian bytes (last?, type, size), then a checksum.

_ZSTD_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_BYTES = (0, 1, 2, 4)
_LARGEST_BLOCK = 128 * 1024


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
        if magic != _ZSTD_MAGIC:
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


# The codecs.


class Compression(IntEnum):
    """The codec in the three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4  # KIP-110: record batches v2 only


# The levels of KIP-390. Level 1 of lz4 is its fast compressor, which is Kafka's default.
_LEVELS = {
    Compression.GZIP: (-1, 9, -1),
    Compression.LZ4: (1, 17, 1),
    Compression.ZSTD: (-131072, 22, 3),
}


def compress(data: Data, codec: int, level: int | None = None) -> bytes:
    """Compress ``data`` in the form that Kafka's Java clients write.

    Args:
        level: the level (KIP-390): -1 to 9 for gzip, 1 to 17 for lz4, -131072 to 22 for zstd. None is Kafka's
            default.

    Raises:
        EncodeError: the codec is unknown, or does not have this level.
    """
    if codec == Compression.NONE:
        return data if isinstance(data, bytes) else bytes(data)
    try:
        compressor = _COMPRESSORS[codec]
    except (KeyError, TypeError):
        raise EncodeError(f"unknown compression {codec!r}", path="compression") from None
    return compressor(data, _checked_level(codec, level))


def compress_in_pieces(data: Data, codec: int, level: int | None = None) -> list[bytes]:
    """Compress ``data`` like ``compress``, whose result is the pieces joined.

    Only gzip of more than 1 MiB has several. Who joins them with other bytes needs the memory of the result once less.
    """
    if codec == Compression.GZIP and len(data) > _LARGE:
        return [*_gzip_pieces(data, _checked_level(codec, level))]
    return [compress(data, codec, level)]


def _checked_level(codec: int, level: int | None) -> int:
    lowest, highest, default = _LEVELS.get(Compression(codec), (0, 0, 0))
    if level is None:
        return default
    if not isinstance(level, int) or not lowest <= level <= highest:
        raise EncodeError(
            f"{Compression(codec).name.lower()} has no level {level!r}", path="compression_level"
        )
    return level


def decompress(
    data: Data,
    codec: int,
    *,
    max_uncompressed: int | None = None,
    bounds: Bounds | None = None,
    broken_lz4_checksum: bool = False,
) -> bytes:
    """Decompress ``data``.

    Args:
        max_uncompressed: the maximum size of the result in bytes, instead of the limit in ``bounds``.
        bounds: the limits, by default those of the environment.
        broken_lz4_checksum: accept any checksum in the headers of lz4 frames. In message sets v0 it is
            computed over the wrong bytes (KIP-57).

    Raises:
        BatchLimitError: the result is larger than the limits allow.
        DecodeError: the data are invalid.
    """
    if codec == Compression.NONE:
        return bytes(data)
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise DecodeError(f"unknown compression {codec}")
    if broken_lz4_checksum and codec == Compression.LZ4:

        data = mend_lz4(data)
    if bounds is None:
        bounds = default_bounds()
    if max_uncompressed is not None:
        bounds = replace(bounds, uncompressed=max_uncompressed)
    try:
        return decompressor(data, bounds.expanded(len(data)))
    except _TooBig:
        raise bounds.too_long(len(data)) from None
    except DecodeError:
        raise
    except Exception as error:  # the errors of the codecs have no other common base class
        name = Compression(codec).name.lower()
        raise DecodeError(f"{name}: {error}") from None


class _TooBig(Exception):
    """The result is larger than allowed."""


def _fill(into: Callable[[Any, Any], int], data: Data, most: int, max_uncompressed: int) -> bytes:
    """Decompress ``data`` into a buffer of ``most`` bytes, the maximum size of the result."""
    if most <= max_uncompressed:
        out = bytearray(most)
        return bytes(memoryview(out)[: into(data, out)])
    # `most` is only an upper bound, so the result can still fit.
    out = bytearray(max_uncompressed)
    try:
        size = into(data, out)
    except Exception as error:
        if "whole buffer" in str(error):
            raise _TooBig from None
        raise
    return bytes(memoryview(out)[:size])


# gzip (RFC 1952). zlib is as fast as cramjam (both 2.5 ms for 1.1 MB of text) and accepts a limit.

# Input is passed in pieces, because zlib copies the bytes after a member. With thousands of empty members it
# would copy the rest of the input each time.
_PIECE = 16 * 1024


# More at once would need twice the memory of the result: zlib collects blocks and joins them, BytesIO grows in place.
_LARGE = 1 << 20


def _gzip(data: Data, level: int) -> bytes:
    if len(data) <= _LARGE:
        return zlib.compress(data, level, wbits=31)
    out = BytesIO()
    for piece in _gzip_pieces(data, level):
        out.write(piece)
    return out.getvalue()


def _gzip_pieces(data: Data, level: int) -> Iterator[bytes]:
    compressor = zlib.compressobj(level, wbits=31)
    view = memoryview(data)
    for start in range(0, len(view), _LARGE):
        yield compressor.compress(view[start : start + _LARGE])
    yield compressor.flush()


def _gunzip(data: Data, max_uncompressed: int) -> bytes:
    view = memoryview(data)
    pos = 0
    out = BytesIO()
    left = max_uncompressed
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            piece = view[pos : pos + _PIECE]
            if not piece:
                raise DecodeError("gzip: truncated")
            expanded = member.decompress(piece, left + 1)
            left -= len(expanded)
            if left < 0:
                raise _TooBig
            out.write(expanded)
            pos += len(piece) - len(member.unconsumed_tail) - len(member.unused_data)
        if pos == len(view):
            return out.getvalue()


# snappy is raw, or in the blocks of the xerial library: a header of eight magic bytes and two versions, then
# blocks, each after its size as int32. Kafka's Java clients write blocks, librdkafka writes raw snappy.

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK = 32 * 1024
_INT32 = Struct(">i")


def _snappy(data: Data, level: int) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out.append(_INT32.pack(len(block)))
        out.append(block)
    return b"".join(out)


def _unsnappy(data: Data, max_uncompressed: int) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    blocks: list[memoryview] = []
    # The versions after the magic are ignored, because some writers use the wrong byte order.
    if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        size = len(view)
        pos = len(_XERIAL_HEADER)
        while pos < size:
            if view[pos : pos + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # concatenated streams
                pos += len(_XERIAL_HEADER)
                continue
            (length,) = _INT32.unpack_from(view, pos)
            pos += 4
            if not 0 <= length <= size - pos:
                raise DecodeError(f"snappy: block of {length} bytes, {size - pos} left")
            blocks.append(view[pos : pos + length])
            pos += length
        if pos > size:
            raise DecodeError("snappy: truncated")
    else:
        blocks.append(view)
    sizes = [snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > max_uncompressed:
        raise _TooBig
    for size, block in zip(sizes, blocks, strict=True):
        # The densest element has three bytes and copies 64.
        if size > 32 * len(block):
            raise DecodeError(f"snappy: {len(block)} bytes cannot expand to {size}")
    out = bytearray(sum(sizes))
    rest = memoryview(out)
    for size, block in zip(sizes, blocks, strict=True):
        if snappy.decompress_raw_into(block, rest[:size]) != size:
            raise DecodeError("snappy: a block is shorter than its size says")
        rest = rest[size:]
    return bytes(out)


# lz4 and zstd write frames.


def _lz4(data: Data, level: int) -> bytes:
    from cramjam import lz4

    # Kafka does not read blocks that refer to earlier ones (KIP-57).
    compressor = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _unlz4(data: Data, max_uncompressed: int) -> bytes:
    from cramjam import lz4

    return _fill(lz4.decompress_into, data, lz4_bound(memoryview(data)), max_uncompressed)


def _zstd(data: Data, level: int) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=level))


def _unzstd(data: Data, max_uncompressed: int) -> bytes:
    from cramjam import zstd

    return _fill(zstd.decompress_into, data, zstd_bound(memoryview(data)), max_uncompressed)


_COMPRESSORS: dict[int, Callable[[Data, int], bytes]] = {
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}

_DECOMPRESSORS: dict[int, Callable[[Data, int], bytes]] = {
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
