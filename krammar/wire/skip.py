"""Walks over the bytes of a message without creating objects: where marked fields are, and how many elements there are.

An array element becomes an object of hundreds of bytes, even if it has few bytes in the frame. So a server that reads
frames from untrusted clients counts first, up to its limit. A filter that changes names in frames asks for their
places.

The engine walks over programs (``krammar/wire/engine/walk.c``). What it declines, the functions here decide by layouts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from krammar.wire.engine_loading import ENGINE
from krammar.wire.errors import DecodeError, UnsupportedVersionError
from krammar.wire.limits import MAX_ZERO_WIDTH
from krammar.wire.primitives import (
    LENGTH_SIZES,
    Malformed,
    read_uvarint,
    read_uvarlong,
    varint,
    varlong,
)

if TYPE_CHECKING:
    from krammar.wire.layout import Layout

# Layouts are imported when pure Python walks for the first time: servers need them for nothing else.

# The maximum number of array elements that servers accept in a request. They serve nobody else while they decode it.
# A topic of 10,000 partitions with replicas has 20,001.
MAX_ELEMENTS = 25_000

# The mark of tagged fields, of the definition or unknown. No entity has this name.
TAGGED = "tagged field"
# A mark; where the field begins, where its content begins, and where it ends. A length is before the content of texts,
# tag and size are before that of tagged fields. The content of null is at -1.
Place = tuple[str, int, int, int]

Found = tuple[int, list[Place]] | None
Walker = Callable[[bytes | bytearray | memoryview, int, int], Found]

_Step = Callable[["_Walk", int], int]
_ENDLESS = sys.maxsize


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
    program = program_of(message, version)
    exceeds = None if program is None else program.exceeds(data, pos, limit)
    if exceeds is None:
        exceeds = _exceeds(message, version, data, pos, limit)
    if exceeds:
        raise TooManyElements(f"{message.__name__} v{version}: more than {limit} array elements")


def program_of(message: Any, version: int) -> Any:
    """Return the program of a class at a version, or None if pure Python has to walk."""
    if ENGINE is None:
        return None
    return message._programs.get(version) or message._load_program(version)


def _exceeds(message: Any, version: int, data: bytes, pos: int, limit: int) -> bool:
    try:
        _struct_of(message, version, ())(_Walk(data, limit, None), pos)
    except OverflowError:
        return True
    except (IndexError, Malformed):
        pass
    return False


def check_empty(message: Any, version: int, data: bytes, pos: int) -> None:
    """Raise Malformed if a message has more than ``MAX_ZERO_WIDTH`` array elements that take no bytes, or is invalid.

    The codecs in pure Python of messages that can have such elements call it. Arrays nest, so a limit for each array
    would let 8 kB become millions of objects.

    Raises:
        IndexError: as Malformed.
    """
    _struct_of(message, version, ())(_Walk(data, _ENDLESS, None), pos)


def walk_of(message: Any, version: int, marks: tuple[str, ...]) -> Walker:
    """Return a function that finds the marked fields of a message.

    ``walk(data, begin, end)`` returns the position after the message at ``begin``, and the places in the order of the
    bytes. The message ends at ``end`` at most. It returns None if the bytes are not those of such a message. Texts
    are not checked to be UTF-8. Null has to be written as encoding writes it, so that the bytes between places are
    what decoding and encoding would give.

    Args:
        message: the class.
        marks: the entities of fields, and ``TAGGED``. Each element of an array of such values has a place.

    Raises:
        UnsupportedVersionError: the class does not have this version.
    """
    marks = tuple(map(sys.intern, marks))  # the engine compares them quicker
    program = program_of(message, version)
    places = None if program is None else program.places
    step = _struct_of(message, version, marks)

    def walk(data: bytes | bytearray | memoryview, begin: int, end: int) -> Found:
        found: Found = None if places is None else places(data, begin, end, marks)
        return _places_in(step, data, begin, end) if found is None else found

    return walk


def _places_in(step: _Step, data: bytes | bytearray | memoryview, begin: int, end: int) -> Found:
    found: list[Place] = []
    try:
        return step(_Walk(bytes(memoryview(data)[:end]), _ENDLESS, found), begin), found
    except (IndexError, Malformed):
        return None


class _Walk:
    """The state of a walk: the data, how many elements are left, those without bytes, and the places if wanted."""

    __slots__ = ("data", "empty", "left", "lengths", "places", "size")

    def __init__(self, data: bytes, left: int, places: list[Place] | None) -> None:
        self.data = data
        self.size = len(data)
        self.left = left
        self.places = places
        self.empty = 0
        self.lengths: dict[tuple[str, str], int] = {}

    def count(self, number: int) -> None:
        """Count elements. Raises OverflowError at the limit."""
        self.left -= number
        if self.left < 0:
            raise OverflowError

    def passed(self, pos: int, size: int) -> int:
        """Return the position after ``size`` bytes. Raises Malformed if there are fewer."""
        if size > self.size - pos:
            raise Malformed
        return pos + size

    def place(self, mark: str, begin: int, content: int, end: int) -> None:
        if mark and self.places is not None:
            self.places.append((mark, begin, content, end))


@lru_cache(maxsize=1024)
def _struct_of(message: Any, version: int, marks: tuple[str, ...]) -> _Step:
    """Return a function that walks over a class at a version. It returns the position after it."""
    return _struct(message._layout(version), marks)


def _struct(layout: Layout, marks: tuple[str, ...]) -> _Step:
    from krammar.wire.layout import Scalar

    lengths = {item.name for item in layout.fields if item.length_of}
    steps = []
    width = 0  # of the fields since the last step, which need no step each
    for item in layout.fields:
        mark = item.entity if item.entity in marks else ""
        if isinstance(item.type, Scalar) and not mark and item.name not in lengths:
            width += item.type.width
            continue
        if width:
            steps.append(_fixed(width, ""))
            width = 0
        step = _value(item.type, mark, marks, layout.name)
        steps.append(_noted(item, layout.name, step) if item.name in lengths else step)
    if width:
        steps.append(_fixed(width, ""))
    if layout.flexible:
        steps.append(_tags(layout, marks))

    def walk(state: _Walk, pos: int) -> int:
        for step in steps:
            pos = step(state, pos)
        return pos

    return walk


def _noted(item: Any, struct: str, step: _Step) -> _Step:
    """Remember the value of a length field. A struct does not contain itself, so its name tells structs apart."""
    signed = item.type.code.islower()

    def note(state: _Walk, pos: int) -> int:
        end = step(state, pos)
        state.lengths[struct, item.name] = int.from_bytes(state.data[pos:end], "big", signed=signed)
        return end

    return note


def _value(type_: Any, mark: str, marks: tuple[str, ...], struct: str = "") -> _Step:
    from krammar.wire.layout import Array, Nested, Scalar, Sized, Text, VarInteger, Versioned

    match type_:
        case Scalar(width=width):
            return _fixed(width, mark)
        case VarInteger(name):
            return _varint(_VARINTS[name], mark)
        case Text():
            return _text(type_, mark)
        case Array():
            return _array(type_, mark, marks)
        case Nested() | Versioned():
            return _present(type_, marks, 1)
        case Sized(length, minus):
            return _sized((struct, length), minus, mark)
    raise NotImplementedError(f"there is no walk over {type_!r}")


_VARINTS = {
    "varint": varint,
    "varlong": varlong,
    "uvarint": read_uvarint,
    "uvarlong": read_uvarlong,
}


def _fixed(width: int, mark: str) -> _Step:
    def walk(state: _Walk, pos: int) -> int:
        end = pos + width
        if end > state.size:
            raise Malformed
        if mark:
            state.place(mark, pos, pos, end)
        return end

    return walk


def _varint(read: Callable[[bytes, int], tuple[int, int]], mark: str) -> _Step:
    def walk(state: _Walk, pos: int) -> int:
        _, end = read(state.data, pos)
        state.place(mark, pos, pos, end)
        return end

    return walk


def _length(prefix: str, nullable: bool) -> Callable[[_Walk, int], tuple[int, int]]:
    """Return a function that reads a length or count, and returns it and the position after it."""
    size = LENGTH_SIZES[prefix]
    is_varint = prefix == "varint"
    plus = 1 if prefix == "uvarint" else 0

    def read_fixed(state: _Walk, pos: int) -> tuple[int, int]:
        end = state.passed(pos, size)
        length = int.from_bytes(state.data[pos:end], "big", signed=True)
        if length < 0:
            check(state, length)
        return length, end

    def read_varint(state: _Walk, pos: int) -> tuple[int, int]:
        length, end = varint(state.data, pos) if is_varint else read_uvarint(state.data, pos)
        length -= plus
        if length < 0:
            check(state, length)
        return length, end

    def check(state: _Walk, length: int) -> None:
        if not nullable or (length != -1 and state.places is not None):
            raise Malformed

    return read_fixed if size > 1 else read_varint


def _text(type_: Any, mark: str) -> _Step:
    length = _length(type_.prefix, type_.nullable)

    def walk(state: _Walk, pos: int) -> int:
        size, content = length(state, pos)
        end = content + size if size > 0 else content
        if end > state.size:
            raise Malformed
        if mark:
            state.place(mark, pos, content if size >= 0 else -1, end)
        return end

    return walk


def _sized(key: tuple[str, str], minus: int, mark: str) -> _Step:
    def walk(state: _Walk, pos: int) -> int:
        size = state.lengths[key] - minus
        if size < 0:
            raise Malformed
        end = state.passed(pos, size)
        state.place(mark, pos, pos, end)
        return end

    return walk


def _array(type_: Any, mark: str, marks: tuple[str, ...]) -> _Step:
    from krammar.wire.layout import Nested, Scalar, Versioned

    element = type_.element
    length = _length(type_.prefix, type_.nullable)
    least = element.min_size
    width = element.width if isinstance(element, Scalar) and not mark else 0
    if isinstance(element, Nested | Versioned):
        step = _present(element, marks, 0)  # elements are counted below
    else:
        step = _value(element, mark, marks)

    def walk(state: _Walk, pos: int) -> int:
        count, pos = length(state, pos)
        if count <= 0:
            return pos
        state.count(count)
        if not least:
            state.empty += count
            if state.empty > MAX_ZERO_WIDTH:
                raise Malformed
        elif count > (state.size - pos) // least:
            raise Malformed
        if width:
            return pos + count * width
        for _ in range(count):
            pos = step(state, pos)
        return pos

    return walk


def _present(type_: Any, marks: tuple[str, ...], counts: int) -> _Step:
    """Walk over a struct, and the byte before it if it can be null."""
    from krammar.wire.layout import Nested

    inner = _struct(type_.layout, marks) if isinstance(type_, Nested) else _versioned(type_, marks)
    null = 0 if type_.tagged else 0xFF
    nullable = type_.nullable

    def walk(state: _Walk, pos: int) -> int:
        if nullable:
            presence = state.data[pos]
            pos += 1
            if presence == null:
                return pos
            if presence != 1:
                raise Malformed
        state.count(counts)
        return inner(state, pos)

    return walk


def _versioned(type_: Any, marks: tuple[str, ...]) -> _Step:
    def walk(state: _Walk, pos: int) -> int:
        cls = type_.cls
        end = state.passed(pos, 2)
        version = int.from_bytes(state.data[pos:end], "big", signed=True)
        try:
            known = cls._known_version(version)
        except UnsupportedVersionError:
            raise Malformed from None
        return _struct_of(cls, known, marks)(state, pos)

    return walk


def _tags(layout: Layout, marks: tuple[str, ...]) -> _Step:
    known = {
        item.tag: _value(item.type, item.entity if item.entity in marks else "", marks)
        for item in layout.tags
    }
    mark = TAGGED if TAGGED in marks else ""

    def walk(state: _Walk, pos: int) -> int:
        count, pos = read_uvarint(state.data, pos)
        if not count:
            return pos
        state.count(count)
        before = -1
        for _ in range(count):
            begin = pos
            tag, pos = read_uvarint(state.data, pos)
            size, pos = read_uvarint(state.data, pos)
            end = state.passed(pos, size)
            if tag <= before:
                raise Malformed
            before = tag
            state.place(mark, begin, pos, end)
            step = known.get(tag)
            if step is not None and step(state, pos) != end:
                raise Malformed
            pos = end
        return pos

    return walk
