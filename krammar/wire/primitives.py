"""The functions that the hot path of generated code calls: varints, tables of array codecs, uuids, tags.

On bad input they raise ``Malformed``, or the errors of ``struct``, ``bytes`` and ``list``, without a position.
``krammar.wire.layout`` then walks the same bytes or the same value again and raises the precise error. So
precise errors cost the hot path nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from struct import Struct, error, pack
from typing import Any
from uuid import UUID, SafeUUID

# Modules that older releases generated import it from here.
from krammar.wire.limits import MAX_ZERO_WIDTH as MAX_ZERO_WIDTH

NULL_UUID = UUID(int=0)

# The minimum number of bytes of a length or count, by its form. "uvarint" is the number plus one, as in Kafka's
# flexible versions, and "unsigned" the number itself.
LENGTH_SIZES = {"int16": 2, "int32": 4, "uvarint": 1, "varint": 1, "unsigned": 1}


class Malformed(Exception):
    """Raised inside codecs. Public functions never raise it."""


# What codecs raise for bytes or values that their layout does not allow.
FAILURES = (
    Malformed,
    error,
    IndexError,
    KeyError,
    ValueError,
    OverflowError,
    TypeError,
    AttributeError,
)


class _Table(dict[int, Callable[..., Any]]):
    """``UNPACK["i"][n](buffer, offset)`` reads n big-endian values of one type; ``PACK["i"][n](*values)`` writes them.

    The formats of short arrays are cached: an array of three takes 60 ns, and 240 ns with a format string
    that each call builds.
    """

    __slots__ = ("code", "method")

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self.code, self.method = code, method

    def __missing__(self, n: int) -> Callable[..., Any]:
        if n < 0:
            raise Malformed
        function: Callable[..., Any] = getattr(Struct(f">{n}{self.code}"), self.method)
        if n <= 256:
            self[n] = function
        return function


UNPACK = {code: _Table(code, "unpack_from") for code in "?bBhiqHIQfd"}
PACK = {code: _Table(code, "pack") for code in "?bBhiqHIQfd"}


@cache
def unpack_compact(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """``unpack_compact(code)[n](buffer, offset)`` reads the n - 1 values of an array whose compact
    count is the one byte n, up to 127; 0, which is null, is malformed. A list: indexing one is quicker
    than a dictionary with ``__missing__``, by a twelfth of the time to decode a Metadata response.
    """

    def null(buffer: bytes, offset: int) -> tuple[Any, ...]:
        raise Malformed

    return [null, *(Struct(f">{n}{code}").unpack_from for n in range(127))]


class PackGroup(dict[tuple[int, ...], Callable[..., bytes]]):
    """``group[lengths](*values)`` writes fixed-width fields and integer arrays with one call.

    ``segments`` are, for each array, the codes of the fields before it, of its count ("B" for a
    compact one, given as length plus one) and of its elements.
    """

    __slots__ = ("segments",)

    def __init__(self, *segments: tuple[str, str, str]) -> None:
        super().__init__()
        self.segments = segments

    def __missing__(self, lengths: tuple[int, ...]) -> Callable[..., bytes]:
        if max(lengths) > 126:
            return partial(self._pack_long, lengths)
        codes = "".join(
            f"{before}{count}{n}{element}"
            for (before, count, element), n in zip(self.segments, lengths, strict=True)
        )
        pack = Struct(">" + codes).pack
        if len(self) < 1024:
            self[lengths] = pack
        return pack

    def _pack_long(self, lengths: tuple[int, ...], *values: Any) -> bytes:
        """The same where a compact count may take more than one byte."""
        out = b""
        at = 0
        for (before, count, element), n in zip(self.segments, lengths, strict=True):
            end = at + len(before.replace("16s", "s"))
            out += pack(">" + before, *values[at:end])
            out += UVARINT[values[end]] if count == "B" else pack(">i", values[end])
            out += PACK[element][n](*values[end + 1 : end + 1 + n])
            at = end + 1 + n
        return out


# bool fields: `struct` would take any object for a truth value.
BOOL = {True: True, False: False}


def encode_uvarint(value: int) -> bytes:
    """Unsigned base-128 of 0 to 2**32 - 1."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise Malformed
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _UvarintTable(dict[int, bytes]):
    """``UVARINT[n]`` is the encoding of n. One-byte encodings and recent two-byte ones are cached."""

    __slots__ = ()

    def __missing__(self, value: int) -> bytes:
        encoded = encode_uvarint(value)
        if value < 2048:
            self[value] = encoded
        return encoded


UVARINT = _UvarintTable((n, bytes((n,))) for n in range(128))


def uvarint(buf: bytes, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint of at most five bytes. ``first`` is its first byte, at ``pos - 1``.

    Returns the value and the position after it.
    """
    if first > 127:
        # The lengths of most record batches have two or three bytes. Without a loop these take half the time.
        second = buf[pos]
        if second < 128:
            return first - 128 | second << 7, pos + 1
        third = buf[pos + 1]
        if third < 128:
            return first - 128 | (second & 127) << 7 | third << 14, pos + 2
    value = first & 127
    shift = 7
    while first > 127:
        if shift > 28:
            raise Malformed
        first = buf[pos]
        pos += 1
        value |= (first & 127) << shift
        shift += 7
    if value > 0xFFFFFFFF:
        raise Malformed
    return value, pos


def count(buf: bytes, pos: int, first: int) -> tuple[int, int]:
    """Read a compact length or count like ``uvarint``. Raises Malformed for null, which is 0 in any number of bytes."""
    value, pos = uvarint(buf, pos, first)
    if value == 0:
        raise Malformed
    return value, pos


def zigzag(buf: bytes, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of a zig-zag varint of 32 bits. ``first`` is its first byte, at ``pos - 1``."""
    value, pos = uvarint(buf, pos, first)
    return (value >> 1) ^ -(value & 1), pos


def varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a zig-zag varint of 32 bits. Returns the value and the position after it."""
    first = buf[pos]
    if first < 128:
        return (first >> 1) ^ -(first & 1), pos + 1
    return zigzag(buf, pos + 1, first)


def read_uvarint(buf: bytes, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of 32 bits, at most five bytes. Returns the value and the position after it."""
    first = buf[pos]
    if first < 128:
        return first, pos + 1
    return uvarint(buf, pos + 1, first)


def varlong(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a zig-zag varint of 64 bits, at most ten bytes. Returns the value and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise Malformed
    if value > 0xFFFFFFFFFFFFFFFF:
        raise Malformed
    return (value >> 1) ^ -(value & 1), pos


def read_uvarlong(buf: bytes, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of 64 bits, at most ten bytes. Returns the value and the position after it."""
    # Not a part of ``varlong``, because records contain many of those, and a call takes a third of its time.
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise Malformed
    if value > 0xFFFFFFFFFFFFFFFF:
        raise Malformed
    return value, pos


def encode_varint(value: int) -> bytes:
    """Encode a 32-bit integer as a zig-zag varint."""
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise Malformed
    return UVARINT[(value << 1) ^ (value >> 31)]


def encode_varlong(value: int) -> bytes:
    """Encode a 64-bit integer as a zig-zag varint."""
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise Malformed
    zigzagged = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzagged > 127:
        out.append(zigzagged & 127 | 128)
        zigzagged >>= 7
    out.append(zigzagged)
    return bytes(out)


def encode_uvarlong(value: int) -> bytes:
    """Encode an unsigned integer of 64 bits in base 128."""
    if not 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        raise Malformed
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# UUID() takes 1.2 µs to check and convert its many kinds of arguments. Setting its two slots takes 0.3 µs;
# UUID.__setattr__ forbids assignment, so this calls the slots' descriptors.
_set_int = UUID.int.__set__  # type: ignore[attr-defined,misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined,misc]
_unknown_safety = SafeUUID.unknown
_from_bytes = int.from_bytes
_new = object.__new__


def decode_uuid(raw: bytes) -> UUID:
    """Decode the 16 bytes of a uuid."""
    number = _from_bytes(raw, "big")
    if number:
        value = _new(UUID)
        _set_int(value, number)
        _set_is_safe(value, _unknown_safety)
        return value
    # The slice is empty at the end of the data. For a shorter slice that is not empty, the next read fails.
    if len(raw) != 16:
        raise Malformed
    return NULL_UUID


def as_list(value: Any) -> list[Any] | tuple[Any, ...]:
    """Return the value of an array field. Raises Malformed unless it is a list or a tuple.

    A subclass with its own ``__iter__`` or ``__len__`` is refused: the count that is written could be wrong.
    """
    cls = type(value)
    if cls is list or cls is tuple:
        return value  # type: ignore[no-any-return]
    if isinstance(value, (list, tuple)) and cls.__iter__ in _ITERS and cls.__len__ in _LENS:
        return value
    raise Malformed


_ITERS, _LENS = (list.__iter__, tuple.__iter__), (list.__len__, tuple.__len__)


def as_bytes(value: Any) -> Any:
    """Return the value of a ``bytes`` field, which may be any buffer. ``len`` of the result is its size in bytes."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        return value if value.nbytes == len(value) and value.contiguous else value.tobytes()
    raise Malformed


def read_unknown_tags(value: Any, buf: bytes, pos: int, n: int) -> int:
    """Read the tagged fields of a struct that knows none into ``_unknown_tags``. Returns the position after them.

    ``n`` is their number, or the first byte of a longer varint.
    """
    if n > 127:
        n, pos = uvarint(buf, pos, n)
    tags: dict[int, bytes] = {}
    before = -1
    for _ in range(n):
        tag, size, pos = read_tag(buf, pos, before)
        tags[tag] = buf[pos : pos + size]
        pos += size
        before = tag
    value._unknown_tags = tags
    return pos


def read_tag(buf: bytes, pos: int, before: int) -> tuple[int, int, int]:
    """Read the head of a tagged field (KIP-482). Returns tag, size in bytes, and the position of its bytes.

    Raises Malformed unless the tag is greater than ``before``.
    """
    tag = buf[pos]
    pos += 1
    if tag > 127:
        tag, pos = uvarint(buf, pos, tag)
    size = buf[pos]
    pos += 1
    if size > 127:
        size, pos = uvarint(buf, pos, size)
    if tag <= before or size > len(buf) - pos:
        raise Malformed
    return tag, size, pos


def write_tags(
    parts: list[bytes],
    known: list[tuple[int, list[bytes]]],
    unknown: dict[int, bytes] | None,
    numbers: Sequence[int] = (),
) -> None:
    """Append count, then tag, size and bytes of each tagged field in ascending order of tags.

    ``known`` are those to write of the layout's own tags, which are ``numbers``; no unknown tag may
    be one of them.
    """
    fields = [(tag, b"".join(pieces)) for tag, pieces in known]
    if unknown:
        for tag, data in unknown.items():
            if tag in numbers:
                raise Malformed
            fields.append((tag, bytes(as_bytes(data))))
        fields.sort()
    parts.append(UVARINT[len(fields)])
    for tag, data in fields:
        parts.append(UVARINT[tag])
        parts.append(UVARINT[len(data)])
        parts.append(data)
