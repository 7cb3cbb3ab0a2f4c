"""Values that only seem to be ints, lists and uuids: encoders refuse them, in either build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID


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
