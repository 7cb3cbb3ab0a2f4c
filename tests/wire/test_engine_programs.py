"""Programs that are no programs are refused with an error, and never crash the process."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any
from uuid import UUID

import pytest

from krammar.wire.engine_loading import ENGINE
from krammar.wire.message import Codec
from tests.wire.both import needs_engine

pytestmark = needs_engine


class Declined(Exception):
    """The engine has handed over to pure Python."""


class Point(Codec):
    """A class without definition, for which the engine runs the programs of these tests."""

    __slots__ = __match_args__ = ("x", "y")
    x: Any
    y: Any

    @classmethod
    def _decoder(cls, version: int) -> Any:
        raise Declined

    @classmethod
    def _encoder(cls, version: int) -> Any:
        raise Declined


class Other(Codec):
    """Another class."""

    __slots__ = ("x",)
    x: Any


class Dictionary(dict[Any, Any]):
    __slots__ = ("_unknown_tags", "x")


class Made(Point):
    def __new__(cls) -> Any:
        return super().__new__(cls)


def program(
    fields: Any = (), tags: Any = (), absent: Any = (), *, flexible: Any = True, cls: Any = Point
) -> Any:
    assert ENGINE is not None
    return ENGINE.Program(ENGINE.FORMAT, cls, cls._unknown_tags, flexible, fields, tags, absent)


def field(
    type_: Any,
    default: Any = None,
    *,
    tag: int = 0,
    counted: Any = None,
    slot: Any = Point.x,
    entity: Any = "",
) -> Any:
    return (slot, type_, default, tag, False, counted, 0, entity)


def nested(depth: int, kind: str) -> Any:
    type_: Any = "int8"
    for _ in range(depth):
        if kind == "array":
            type_ = ("array", type_, "int32", False)
        else:
            type_ = ("struct", program((field(type_),)), False, 255)
    return type_


def wide(depth: int) -> Any:
    """A struct of two structs of two structs, and so on: its size is a power of two."""
    found = program((field("int64"),))
    for _ in range(depth):
        inner = ("struct", found, False, 255)
        found = program((field(inner), field(inner, slot=Point.y)))
    return found


BROKEN = {
    "format": lambda: ENGINE.Program(0, Point, Point._unknown_tags, True, (), (), ()),  # type: ignore[union-attr]
    "no arguments": lambda: ENGINE.Program(),  # type: ignore[union-attr]
    "keywords": lambda: ENGINE.Program(format=1),  # type: ignore[union-attr]
    "class": lambda: ENGINE.Program(ENGINE.FORMAT, 3, Point._unknown_tags, True, (), (), ()),  # type: ignore[union-attr]
    "slot of another class": lambda: program((field("int8", slot=vars(Other)["x"]),)),
    "no slot": lambda: program((field("int8", slot=Point.__init__),)),
    "property": lambda: program((field("int8", slot=property()),)),
    "slot of a built-in class": lambda: program((field("int8", slot=slice.start),)),  # type: ignore[attr-defined]
    "class with memory of its own": lambda: program(cls=Dictionary),
    "class with its own __new__": lambda: program(cls=Made),
    "fields": lambda: program(["int8"]),
    "field": lambda: program(("int8",)),
    "short field": lambda: program((field("int8")[:-1],)),
    "type": lambda: program((field(None),)),
    "name": lambda: program((field("int128"),)),
    "empty type": lambda: program((field(()),)),
    "tuple of a number": lambda: program((field((1,)),)),
    "kind": lambda: program((field(("map", "int8", "int8")),)),
    "prefix": lambda: program((field(("string", "int64", False)),)),
    "prefix that is no text": lambda: program((field(("string", 3, False)),)),
    "array without element": lambda: program((field(("array", "int32", False)),)),
    "array of counted bytes": lambda: program(
        (field(("array", ("sized", Point.y, 0), "int32", False)),)
    ),
    "counted bytes with a tag": lambda: program((), (field(("sized", Point.y, 0)),)),
    "struct without a program": lambda: program((field(("struct", Point, False, 255)),)),
    "null": lambda: program((field(("struct", program(), True, 256)),)),
    "versions": lambda: program((field(("versioned", [program()], False, 255)),)),
    "version": lambda: program((field(("versioned", {"1": program()}, False, 255)),)),
    "program of a version": lambda: program((field(("versioned", {1: Point}, False, 255)),)),
    "length": lambda: program((field(("sized", vars(Other)["x"], 0)),)),
    "length that is no integer": lambda: program((field("float64", counted=Point.y),)),
    "counted": lambda: program((field("int32", counted=vars(Other)["x"]),)),
    "default": lambda: program((field("int8", (1,)),)),
    "entity": lambda: program((field("int8", entity=None),)),
    "tags out of order": lambda: program((), (field("int8", tag=2), field("int8", tag=1))),
    "tag twice": lambda: program((), (field("int8", tag=2), field("int8", tag=2))),
    "tags without being flexible": lambda: program((), (field("int8"),), flexible=False),
    "huge": lambda: program((field(("sized", Point.y, 1 << 70)),)),
    "too deep arrays": lambda: program((field(nested(70, "array")),)),
    "too deep structs": lambda: program((field(nested(70, "struct")),)),
    "too large": lambda: wide(62),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_programs_are_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)) as caught:
        BROKEN[name]()
    assert str(caught.value)


def test_a_program_has_no_cycles() -> None:
    """A dictionary of versions is copied, so that a program cannot be put into itself later."""
    versions: dict[int, Any] = {}
    found = program((field(("versioned", versions, False, 255)),))
    versions[0] = found
    with pytest.raises(Declined):
        decode(found, bytes(100))


def test_limits_of_depth() -> None:
    """What is just not too deep works."""
    deep = program((field(nested(60, "array"), ()),))
    data = b"\0\0\0\1" * 60 + b"\7\0"
    value = decode(deep, data)
    assert value.x[0][0][0][0] and encode(deep, value) == data


def decode(of: Any, data: bytes) -> Any:
    """Decode with a program."""
    Point._programs = {0: of}
    return Point.decode(data, 0)


def encode(of: Any, value: Any) -> bytes:
    """Encode with a program."""
    Point._programs = {0: of}
    return value.encode(0)  # type: ignore[no-any-return]


# ---- programs at random ----------------------------------------------------------------------------

SCALARS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "uuid", "varint", "varlong", "uvarint", "uvarlong"),
)
PREFIXES = ("int16", "int32", "uvarint", "varint", "unsigned")


class Programs:
    """Makes programs, most of which are valid."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.made = [program(), program(flexible=False)]

    def junk(self) -> Any:
        junk = (None, 3, -1, "x", "int8", (), ("struct",), b"", object, Point.x, {}, [], 1 << 70)
        return self.rng.choice((*junk, vars(Other)["x"], *self.made[-2:]))

    def maybe(self, value: Any) -> Any:
        return self.junk() if self.rng.random() < 0.01 else value

    def type(self, depth: int = 0) -> Any:
        rng, maybe = self.rng, self.maybe
        flag, prefix = rng.random() < 0.5, rng.choice(PREFIXES)
        match rng.randrange(9 if depth < 4 else 5):
            case 0 | 1 | 2:
                found: Any = rng.choice(SCALARS)
            case 3:
                found = (rng.choice(("string", "bytes")), maybe(prefix), maybe(flag))
            case 4:
                found = (
                    "sized",
                    maybe(rng.choice((Point.x, Point.y))),
                    maybe(rng.choice((0, 1, -3))),
                )
            case 5 | 6:
                found = ("array", maybe(self.type(depth + 1)), maybe(prefix), maybe(flag))
            case 7:
                found = ("struct", maybe(rng.choice(self.made)), maybe(flag), maybe(255))
            case _:
                versions = {n: maybe(rng.choice((*self.made, None))) for n in range(3)}
                found = ("versioned", maybe(versions), maybe(flag), maybe(0))
        return maybe(found)

    def field(self, tag: int) -> Any:
        rng, maybe = self.rng, self.maybe
        default = rng.choice((None, 0, 1.5, "", b"", (), False, UUID(int=0), *self.made[-1:]))
        counted = Point.y if rng.random() < 0.1 else None
        slot = rng.choice((Point.x, Point.y, Point.y))
        entity = rng.choice(("", "topicName"))
        plus = rng.choice((0, 1, 1 << 62))
        found = (slot, self.type(), default, tag, flag(rng), counted, plus, entity)
        return maybe(tuple(map(maybe, found)))

    def program(self) -> Any:
        rng = self.rng
        groups = [tuple(self.field(n) for n in range(rng.choice((0, 1, 1, 2)))) for _ in range(3)]
        if not flag(rng):
            groups[1] = ()
        found = program(*map(self.maybe, groups), flexible=flag(rng) or bool(groups[1]))
        self.made.append(found)
        return found


def flag(rng: Random) -> bool:
    return rng.random() < 0.5


def value(rng: Random, depth: int = 0) -> Any:
    simple = (None, True, 3, -1, 300, 1 << 63, 1.5, "é", b"abc", UUID(int=7), memoryview(b"ab"))
    kind = rng.randrange(8)
    if kind < 5 or depth > 3:
        return rng.choice(simple)
    if kind == 5:
        return point(rng, depth + 1)
    return [value(rng, depth + 1) for _ in range(rng.randrange(4))]


def point(rng: Random, depth: int = 0) -> Any:
    found = Point()
    for name in ("x", "y", "_unknown_tags"):
        if rng.random() < 0.9:
            tags = rng.choice((None, {}, {7: b"x"}))
            setattr(found, name, tags if name == "_unknown_tags" else value(rng, depth))
    return found


@pytest.mark.parametrize("number", [3000, pytest.param(200_000, marks=pytest.mark.sweep)])
def test_random_programs_crash_nothing(number: int) -> None:
    rng = Random(number)
    programs = Programs(rng)
    built = refused = decoded = encoded = walked = 0
    for _ in range(number):
        if len(programs.made) > 30:
            programs = Programs(rng)
        try:
            made = programs.program()
        except (TypeError, ValueError, OverflowError):
            refused += 1
            continue
        built += 1
        for _ in range(5):
            data = rng.choice((rng.randbytes, bytes))(rng.choice((0, 1, 3, 9, 40)))
            walked += made.places(data, 0, len(data), ("topicName",)) is not None
            made.exceeds(data, 0, 1)
            with contextlib.suppress(Declined):
                found = decode(made, data)
                decoded += 1
                encode(made, found)
            with contextlib.suppress(Declined):
                encode(made, point(rng))
                encoded += 1
    assert min(built, refused, decoded, encoded, walked) > number / 20
