"""Values that fields do not usually have, among them such that only seem to be ints, lists and uuids."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Any
from uuid import UUID

import numpy

from krammar.wire.message import Struct


class Index:
    """Not an int, but with ``__index__``, which ``struct`` and compiled code accept."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Index({self.value})"

    def __index__(self) -> int:
        return self.value


class Odd(list[Any]):
    """Iterates in its own way, so that its length says nothing."""

    def __iter__(self) -> Iterator[Any]:
        return iter(list(super().__iter__())[1:])


class OddPair(tuple[Any, ...]):
    """A pair that iterates in its own way."""

    def __iter__(self) -> Iterator[Any]:
        return iter(("other", b"pair"))


class Plain(list[Any]):
    """A list by another name."""


def forged(number: Any) -> UUID:
    """A UUID whose ``int`` is something else; ``...`` leaves it without one."""
    value = object.__new__(UUID)
    if number is not ...:
        object.__setattr__(value, "int", number)
    return value


FORGED = (None, "x", 1.5, -1, 1 << 128, b"x" * 16, ...)


class Number(int):
    """An int with a value of its own for ``==``."""

    def __eq__(self, other: object) -> bool:
        return other == 7

    __hash__ = int.__hash__


class Digits(int):
    pass


class Letters(str):
    pass


class Octets(bytes):
    pass


class Real(float):
    pass


class Identity(UUID):
    pass


class Tags(dict[Any, Any]):
    pass


class Colour(IntEnum):
    RED = 3


def released() -> memoryview:
    view = memoryview(b"released")
    view.release()
    return view


def odd_values(value: Any) -> list[tuple[str, Any]]:
    """Values that a field with this value could get by mistake, or that are rare. ``"missing"`` is none at all."""
    found: list[Any] = [
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        1.5,
        "",
        "x",
        "é",
        "\ud800",
        b"",
        b"x",
        [],
        (),
        {},
        object(),
    ]
    found += [
        sign * (1 << bits) + more
        for bits in (7, 8, 15, 16, 31, 32, 63, 64, 127, 128)
        for sign in (1, -1)
        for more in (-1, 0)
    ]
    found += [float("nan"), float("inf"), -0.0, 1e300, UUID(int=0), UUID(int=5), Identity(int=5)]
    found += [
        Index(3),
        Number(3),
        Digits(3),
        Letters("x"),
        Octets(b"x"),
        Real(0.5),
        Colour.RED,
        numpy.int64(3),
        numpy.float64(0.5),
    ]
    found += [
        bytearray(b"x"),
        memoryview(b"x"),
        memoryview(b"abcd")[::2],
        memoryview(array("H", [1, 2])),
        released(),
    ]
    found += [
        [None],
        [3],
        ["x"],
        [b"x"],
        [[1]],
        (3,),
        {3},
        iter([3]),
        range(3),
        "a" * 40_000,
        b"a" * 40_000,
    ]
    found += [
        {3: b"x"},
        {200: b"y", 100: b"x"},
        {-1: b""},
        {1 << 32: b""},
        {"x": b""},
        {True: b"x"},
        {99: "x"},
        {99: bytearray(b"x")},
        Tags({99: b"x"}),
    ]
    found += [dict.fromkeys(range(100, 100 + count), b"") for count in (31, 32, 33, 126, 128, 200)]
    found += map(forged, FORGED)
    if isinstance(value, (list, tuple)):
        found += [
            Odd(value),
            Plain(value),
            tuple(value),
            OddPair(value),
            [*value, *value],
            [*value, None],
            [object(), *value],
        ]
    if isinstance(value, Struct):
        found += [[value], type("Derived", (type(value),), {})(), type(value), value.to_dict()]
    return [("missing", None), *((type(each).__name__, each) for each in found)]
