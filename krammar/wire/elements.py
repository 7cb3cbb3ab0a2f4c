"""Counts the array elements of a message without creating objects.

An array element becomes an object of hundreds of bytes, even if it has few bytes in the frame. So a server that
reads frames from untrusted clients counts first, up to its limit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from krammar.wire.errors import DecodeError
from krammar.wire.primitives import Malformed, uvarint

if TYPE_CHECKING:
    from krammar.wire.layout import Layout

# Layouts are imported when the first large message is counted: servers need them for nothing else.

# The maximum number of array elements that servers accept in a request. They serve nobody else while they decode it.
# A topic of 10,000 partitions with replicas has 20,001.
MAX_ELEMENTS = 25_000

# A step over a value: its kind, and the details of the kind.
FIXED, TEXT, COMPACT_TEXT, ARRAY, STRUCT, TAGS = range(6)
Step = tuple[int, Any]


class TooManyElements(DecodeError):
    """A message has more array elements than the reader accepts."""


class _Unknown(Exception):
    """The layout has a type that no request of Kafka has."""


def check_elements(message: Any, version: int, data: bytes, pos: int, limit: int) -> None:
    """Raise TooManyElements if a message has more than ``limit`` array elements and tagged fields.

    Invalid bytes raise no error here. The decoder reports them, and reads no more elements before that place
    than were counted.

    Args:
        message: the class.
        pos: the begin of the message in ``data``.
    """
    try:
        _walk(steps_of(message, version), data, pos, 1, limit + 1)
    except (IndexError, Malformed, _Unknown):
        return
    except OverflowError:
        raise TooManyElements(
            f"{message.__name__} v{version}: more than {limit} array elements"
        ) from None


@lru_cache(maxsize=1024)
def steps_of(message: Any, version: int) -> tuple[Step, ...]:
    """Return the steps over a message. Those of a flexible version end with its tagged fields."""
    return _steps(message._layout(version))


def _steps(layout: Layout) -> tuple[Step, ...]:
    steps: list[Step] = []
    for item in layout.fields:
        step = _step(item.type)
        if step[0] == FIXED and steps and steps[-1][0] == FIXED:
            step = FIXED, steps.pop()[1] + step[1]
        steps.append(step)
    if layout.flexible:
        steps.append((TAGS, {item.tag: (_step(item.type),) for item in layout.tags}))
    return tuple(steps)


def _step(kind: Any) -> Step:
    from krammar.wire.layout import Array, Nested, Scalar, Text

    if isinstance(kind, Scalar):
        return FIXED, kind.width
    if isinstance(kind, Text) and kind.prefix in ("int16", "int32"):
        return TEXT, 2 if kind.prefix == "int16" else 4
    if isinstance(kind, Text) and kind.prefix == "uvarint":
        return COMPACT_TEXT, None
    if isinstance(kind, Array) and kind.prefix in ("int32", "uvarint"):
        width = kind.element.width if isinstance(kind.element, Scalar) else 0
        inner: tuple[Step, ...] = (_step(kind.element),)
        if isinstance(kind.element, Nested) and not kind.element.nullable:
            inner = _steps(kind.element.layout)
        return ARRAY, (kind.prefix == "uvarint", width, inner)
    if isinstance(kind, Nested):
        return STRUCT, (kind.nullable, _steps(kind.layout))
    raise _Unknown


def _walk(
    steps: tuple[Step, ...], data: bytes, pos: int, number: int, left: int
) -> tuple[int, int]:
    """Step over ``number`` values. Returns the position after them and the rest of the limit.

    Raises OverflowError at the limit, and IndexError at the end of the data.
    """
    left -= number
    if left < 0:
        raise OverflowError
    for _ in range(number):
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
                    pos, left = _walk_tags(what, data, pos, count, left)
            elif kind == TEXT:
                size = int.from_bytes(data[pos : pos + what], "big", signed=True)
                pos += what + max(size, 0)
            elif kind == ARRAY:
                compact, width, inner = what
                if compact:
                    count = data[pos]
                    pos += 1
                    if count > 127:
                        count, pos = uvarint(data, pos, count)
                    count -= 1
                else:
                    count = int.from_bytes(data[pos : pos + 4], "big", signed=True)
                    pos += 4
                if pos > len(data):
                    raise IndexError
                if width:
                    left -= max(count, 0)
                    if left < 0:
                        raise OverflowError
                    pos += max(count, 0) * width
                elif count > 0:
                    pos, left = _walk(inner, data, pos, count, left)
            else:
                nullable, inner = what
                if nullable:
                    pos += 1
                    if data[pos - 1] != 1:
                        continue
                pos, left = _walk(inner, data, pos, 1, left)
    return pos, left


def _walk_tags(
    known: dict[int, tuple[Step, ...]], data: bytes, pos: int, count: int, left: int
) -> tuple[int, int]:
    if count > 127:
        count, pos = uvarint(data, pos, count)
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
