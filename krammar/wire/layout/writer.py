"""Writes values of a layout."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from krammar.wire.errors import EncodeError
from krammar.wire.limits import MAX_ZERO_WIDTH
from krammar.wire.primitives import LENGTH_SIZES, UVARINT, encode_varint

_LIMITS = {
    "int16": 0x7FFF,
    "int32": 0x7FFFFFFF,
    "uvarint": 0xFFFFFFFE,
    "varint": 0x7FFFFFFF,
    "unsigned": 0xFFFFFFFF,
}


class Writer:
    """The written bytes, and the path of the current field."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.out = bytearray()
        self.path: list[str] = []
        # Whether dictionaries are accepted as structs, as generated codecs do not.
        self.plain = True
        # How many elements without bytes the message has, in a list that inner writers share.
        self._empty = [0]

    def inner(self) -> Writer:
        """Return a writer with the same path, for bytes whose size is written before them."""
        inner = object.__new__(Writer)
        inner.title, inner.out, inner.path = self.title, bytearray(), self.path
        inner.plain, inner._empty = self.plain, self._empty
        return inner

    def at(self, step: str) -> _WriteStep:
        return _WriteStep(self.path, step)

    def error(self, message: str) -> EncodeError:
        path = joined(self.path)
        place = f"{path}: " if path else ""
        return EncodeError(f"{self.title}: {place}{message}", path=path)

    def integer(self, value: Any, low: int, high: int) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            raise self.error(f"needs an integer, not {value_text(value)}") from None
        if not low <= number <= high:
            raise self.error(f"{number} is outside of {low} to {high}")
        return number

    def count_empty(self, number: int) -> None:
        """Count elements without bytes. Raises EncodeError if the message has too many of them."""
        self._empty[0] += number
        if self._empty[0] > MAX_ZERO_WIDTH:
            raise self.error(too_many_empty(number, self._empty[0]))

    def null(self, prefix: str, nullable: bool) -> None:
        if not nullable:
            raise self.error("must not be null in this version")
        self.out += {
            "int16": b"\xff\xff",
            "int32": b"\xff\xff\xff\xff",
            "uvarint": b"\x00",
            "varint": b"\x01",
        }[prefix]

    def length(self, prefix: str, length: int, what: str) -> None:
        if length > _LIMITS[prefix]:
            raise self.error(f"a {what} is too long: {_LIMITS[prefix]} at most")
        if prefix == "uvarint":
            self.out += UVARINT[length + 1]
        elif prefix == "unsigned":
            self.out += UVARINT[length]
        elif prefix == "varint":
            self.out += encode_varint(length)
        else:
            self.out += length.to_bytes(LENGTH_SIZES[prefix], "big")

    def tags(self, known: dict[int, str], fields: dict[int, bytes], unknown: Any) -> None:
        """Write tagged fields in ascending order of tags.

        Args:
            known: the names of the layout's own tags; no unknown tag may be one of them.
            fields: the bytes of those that are written.
            unknown: the bytes of the others by tag, or None.
        """
        with self.at(".unknown_tags"):
            if unknown and not isinstance(unknown, Mapping):
                raise self.error(f"needs a dict of tags to bytes, not {value_text(unknown)}")
            for tag, data in (unknown or {}).items():
                self.integer(tag, 0, 0xFFFFFFFF)
                with self.at(f"[{tag}]"):
                    if tag in known:
                        raise self.error(f"tag {tag} is the field {known[tag]}")
                    if not isinstance(data, (bytes, bytearray, memoryview)):
                        raise self.error(f"needs bytes, not {value_text(data)}")
                fields[tag] = bytes(data)
        self.out += UVARINT[len(fields)]
        for tag, data in sorted(fields.items()):
            self.out += UVARINT[tag] + UVARINT[len(data)] + data


class _WriteStep:
    __slots__ = ("path", "step")

    def __init__(self, path: list[str], step: str) -> None:
        self.path = path
        self.step = step

    def __enter__(self) -> None:
        self.path.append(self.step)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.path.pop()


def too_many_empty(number: int, total: int) -> str:
    """Return the error for an array after which a message has too many elements without bytes."""
    more = f", {total} in this message so far" if total > number else ""
    return f"{number} elements that take no bytes{more}; {MAX_ZERO_WIDTH} at most"


def joined(path: list[str]) -> str:
    """Return the path of a field."""
    return "".join(path).removeprefix(".")


def value_text(value: Any) -> str:
    """Return the type and the value, shortened, for errors."""
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:  # the caller's class can raise anything
        return f"an object of {type(value).__name__}"
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
