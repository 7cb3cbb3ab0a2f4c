"""Counts the array elements of a message without creating objects.

An array element becomes an object of hundreds of bytes, even if it has few bytes in the frame. So a server that
reads frames from untrusted clients counts first, up to its limit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from krammar.wire.errors import DecodeError, UnsupportedVersionError
from krammar.wire.limits import MAX_ZERO_WIDTH
from krammar.wire.primitives import (
    LENGTH_SIZES,
    Malformed,
    read_uvarint,
    read_uvarlong,
    uvarint,
    varint,
    varlong,
)

if TYPE_CHECKING:
    from krammar.wire.layout import Layout

# Layouts are imported when the first large message is counted: servers need them for nothing else.

# The maximum number of array elements that servers accept in a request. They serve nobody else while they decode it.
# A topic of 10,000 partitions with replicas has 20,001.
MAX_ELEMENTS = 25_000

# A step over a value: its kind, and the details of the kind.
FIXED, TEXT, COMPACT_TEXT, ARRAY, STRUCT, TAGS, VARINT, VARINT_TEXT, NUMBER, SIZED, VERSIONED = (
    range(11)
)
Step = tuple[int, Any]


class TooManyElements(DecodeError):
    """A message has more array elements than the reader accepts."""


def check_elements(message: Any, version: int, data: bytes, pos: int, limit: int) -> None:
    """Raise TooManyElements if a message has more than ``limit`` array elements, nested structs and tagged fields.

    Invalid bytes raise no error here. The decoder reports them, and reads no more elements before that place
    than were counted.

    Args:
        message: the class.
        pos: the begin of the message in ``data``.
    """
    if _exceeds(steps_of(message, version), data, pos, limit):
        raise TooManyElements(f"{message.__name__} v{version}: more than {limit} array elements")


def check_empty(message: Any, version: int, data: bytes, pos: int) -> None:
    """Raise Malformed if a message has more than ``MAX_ZERO_WIDTH`` array elements that take no bytes.

    The codecs of messages that can have such elements call it. Arrays nest, so a limit for each array would let
    8 kB become millions of objects.
    """
    if _exceeds(steps_of(message, version, True), data, pos, MAX_ZERO_WIDTH):
        raise Malformed


def _exceeds(steps: tuple[Step, ...], data: bytes, pos: int, limit: int) -> bool:
    try:
        _walk(steps, data, pos, 1, limit)
    except (IndexError, Malformed, UnsupportedVersionError):
        pass
    except OverflowError:
        return True
    return False


_VARINTS = {
    "varint": varint,
    "varlong": varlong,
    "uvarint": read_uvarint,
    "uvarlong": read_uvarlong,
}


@lru_cache(maxsize=1024)
def steps_of(message: Any, version: int, empty: bool = False) -> tuple[Step, ...]:
    """Return the steps over a message. Those of a flexible version end with its tagged fields.

    Args:
        empty: count only elements that take no bytes.
    """
    return _steps(message._layout(version), empty)


def _steps(layout: Layout, empty: bool) -> tuple[Step, ...]:
    from krammar.wire.layout import Scalar

    lengths = {item.name for item in layout.fields if item.length_of}
    steps: list[Step] = []
    for item in layout.fields:
        step = _step(item.type, empty)
        if item.name in lengths and isinstance(item.type, Scalar):
            step = NUMBER, (step[1], item.type.code.islower(), item.name)
        elif step[0] == FIXED and steps and steps[-1][0] == FIXED:
            step = FIXED, steps.pop()[1] + step[1]
        steps.append(step)
    if layout.flexible:
        known = {item.tag: (_step(item.type, empty),) for item in layout.tags}
        steps.append((TAGS, (not empty, known)))
    return tuple(steps)


def _step(kind: Any, empty: bool) -> Step:
    from krammar.wire.layout import Array, Nested, Scalar, Sized, Text, VarInteger, Versioned

    match kind:
        case Scalar():
            return FIXED, kind.width
        case VarInteger():
            return VARINT, _VARINTS[kind.name]
        case Text(prefix="uvarint"):
            return COMPACT_TEXT, None
        case Text(prefix="varint"):
            return VARINT_TEXT, varint
        case Text(prefix="unsigned"):
            return VARINT_TEXT, read_uvarint
        case Text():
            return TEXT, LENGTH_SIZES[kind.prefix]
        case Array(element=element):
            width = element.width if isinstance(element, Scalar) else 0
            inner: tuple[Step, ...] = (_step(element, empty),)
            if isinstance(element, Nested) and not element.nullable:
                inner = _steps(element.layout, empty)
            counts = not empty or not element.min_size
            return ARRAY, (kind.prefix, counts, width, inner)
        case Nested():
            return STRUCT, (kind.nullable, not empty, _steps(kind.layout, empty))
        case Versioned():
            return VERSIONED, (kind, empty)
        case Sized():
            return SIZED, (kind.length_field, kind.minus)
    raise NotImplementedError(f"elements of {kind!r} are not counted")


def _walk(
    steps: tuple[Step, ...], data: bytes, pos: int, number: int, left: int
) -> tuple[int, int]:
    """Step over ``number`` values. Returns the position after them and the rest of the limit.

    It must not stop where the decoder goes on, because elements after that place would not be counted.
    Raises OverflowError at the limit, and IndexError at the end of the data.
    """
    lengths: dict[str, int] = {}
    for _ in range(number):
        if pos > len(data):
            raise IndexError
        for kind, what in steps:
            if kind == FIXED:
                pos += what
            elif kind == COMPACT_TEXT:
                size = data[pos]
                pos += 1
                if size > 127:
                    size, pos = uvarint(data, pos, size)
                if size:
                    pos += size - 1
            elif kind == TAGS:
                count = data[pos]
                pos += 1
                if count:
                    counts, known = what
                    pos, left = _walk_tags(counts, known, data, pos, count, left)
            elif kind == TEXT:
                size = int.from_bytes(data[pos : pos + what], "big", signed=True)
                pos += what + max(size, 0)
            elif kind == ARRAY:
                prefix, counts, width, inner = what
                if prefix == "uvarint":
                    count = data[pos]
                    pos += 1
                    if count > 127:
                        count, pos = uvarint(data, pos, count)
                    count -= 1
                elif prefix == "varint":
                    count, pos = varint(data, pos)
                elif prefix == "unsigned":
                    count, pos = read_uvarint(data, pos)
                else:
                    size = LENGTH_SIZES[prefix]
                    count = int.from_bytes(data[pos : pos + size], "big", signed=True)
                    pos += size
                if pos > len(data):
                    raise IndexError
                if count <= 0:
                    continue
                if counts:
                    left -= count
                    if left < 0:
                        raise OverflowError
                if width:
                    pos += count * width
                else:
                    pos, left = _walk(inner, data, pos, count, left)
            elif kind == STRUCT:
                nullable, counts, inner = what
                if nullable:
                    pos += 1
                    if data[pos - 1] != 1:
                        continue
                left -= counts
                if left < 0:
                    raise OverflowError
                pos, left = _walk(inner, data, pos, 1, left)
            elif kind == VARINT:
                _, pos = what(data, pos)
            elif kind == VARINT_TEXT:
                size, pos = what(data, pos)
                pos += max(size, 0)
            elif kind == NUMBER:
                size, signed, name = what
                lengths[name] = int.from_bytes(data[pos : pos + size], "big", signed=signed)
                pos += size
            elif kind == SIZED:
                name, minus = what
                if lengths[name] < minus:
                    raise Malformed
                pos += lengths[name] - minus
            else:
                versioned, empty = what
                if versioned.nullable:
                    pos += 1
                    if data[pos - 1] != 1:
                        continue
                version = int.from_bytes(data[pos : pos + 2], "big", signed=True)
                cls = versioned.cls
                inner = steps_of(cls, cls._known_version(version), empty)
                left -= not empty
                if left < 0:
                    raise OverflowError
                pos, left = _walk(inner, data, pos, 1, left)
    return pos, left


def _walk_tags(
    counts: bool, known: dict[int, tuple[Step, ...]], data: bytes, pos: int, count: int, left: int
) -> tuple[int, int]:
    if count > 127:
        count, pos = uvarint(data, pos, count)
    if counts:
        left -= count
        if left < 0:
            raise OverflowError
    for _ in range(count):
        pair = []
        for _ in range(2):
            value = data[pos]
            pos += 1
            if value > 127:
                value, pos = uvarint(data, pos, value)
            pair.append(value)
        tag, size = pair
        inner = known.get(tag)
        if inner is not None:
            _, left = _walk(inner, data, pos, 1, left)
        pos += size
    return pos, left
