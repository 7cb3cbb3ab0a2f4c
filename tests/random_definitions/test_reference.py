"""The reference codec, compared with bytes that are written manually from docs/definitions.md."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.random_definitions.model import (
    ALL,
    Array,
    Counted,
    Field,
    Inline,
    Named,
    Number,
    Struct,
    Text,
    Type,
    Versions,
    zero,
)
from tests.random_definitions.reference import Invalid, decode, encode


def struct(*items: Field, flexible: int | None = None, role: str = "plain") -> Struct:
    return Struct(role, items, "Thing", flexible_from=flexible)


def field(type_: Type, name: str = "A", **facts: Any) -> Field:
    return Field(name, type_, facts.pop("default", zero(type_)), **facts)


INNER = struct(field(Number("int8")), role="anonymous")
OWN = Struct(
    "versioned",
    (field(Number("int16"), "Version"), field(Text("string"), versions=Versions(1))),
    "Own",
    highest=2,
    flexible_from=2,
)

# A type, whether the version is flexible, a value, and its bytes.
TYPES: list[tuple[Type, bool, Any, str]] = [
    (Number("bool"), False, True, "01"),
    (Number("int8"), False, -1, "ff"),
    (Number("int16"), False, 258, "0102"),
    (Number("int32"), True, -2, "fffffffe"),
    (Number("int64"), False, 1, "0000000000000001"),
    (Number("uint16"), False, 65535, "ffff"),
    (Number("uint32"), False, 1, "00000001"),
    (Number("float64"), False, 1.0, "3ff0000000000000"),
    (Number("varint"), False, -1, "01"),
    (Number("varint"), False, 300, "d804"),
    (Number("varlong"), True, -(1 << 63), "ffffffffffffffffff01"),
    (Number("uuid"), False, UUID(int=1), "00" * 15 + "01"),
    (Text("string"), False, "ab", "00026162"),
    (Text("string"), True, "ab", "036162"),
    (Text("string"), True, "k" * 127, "8001" + "6b" * 127),
    (Text("string", ALL), False, None, "ffff"),
    (Text("string", ALL), True, None, "00"),
    (Text("bytes"), False, b"\xff", "00000001ff"),
    (Text("bytes", ALL), False, None, "ffffffff"),
    (Text("bytes", ALL, "varint"), True, b"\xff", "02ff"),
    (Text("string", ALL, "varint"), False, None, "01"),
    (Array(Number("int8")), False, [1, 2], "000000020102"),
    (Array(Number("int8")), True, [1, 2], "030102"),
    (Array(Number("int8"), ALL), False, None, "ffffffff"),
    (Array(Number("int8"), ALL), True, None, "00"),
    (Array(Number("int8"), prefix="varint"), True, [1], "0201"),
    (Array(Array(Number("int8"))), False, [[], [1]], "0000000200000000" + "0000000101"),
    (Inline(INNER), False, {"A": 5}, "05"),
    (Inline(INNER), True, {"A": 5}, "0500"),
    (Inline(INNER, nullable=True), False, {"A": 5}, "0105"),
    (Inline(INNER, nullable=True), False, None, "ff"),
    (Named(OWN), False, {"Version": 0, "A": ""}, "0000"),
    (Named(OWN), False, {"Version": 1, "A": "a"}, "0001000161"),
    (Named(OWN), False, {"Version": 2, "A": "a"}, "0002026100"),
]


@pytest.mark.parametrize(("type_", "flexible", "value", "data"), TYPES)
def test_types(type_: Type, flexible: bool, value: Any, data: str) -> None:
    kind = struct(field(type_), flexible=0 if flexible else None)
    expected = bytes.fromhex(data + ("00" if flexible else ""))

    assert encode(kind, 0, {"A": value}) == expected
    assert decode(kind, expected, 0) == {"A": value}


def test_tags_are_written_in_order_if_they_differ_from_their_defaults() -> None:
    kind = struct(
        field(Number("int8"), "A", tag=2, default=7),
        field(Text("string"), "B", tag=0),
        field(Inline(INNER, nullable=True), "C", tag=1),
        flexible=1,
    )

    assert encode(kind, 1, {"A": 7, "B": "", "C": None}) == b"\0"
    assert encode(
        kind, 1, {"A": 1, "B": "x", "C": {"A": 5}, "unknown_tags": {9: b"z"}}
    ) == bytes.fromhex("04 00 02 02 78 01 03 01 05 00 02 01 01 09 01 7a")
    assert encode(kind, 0, {"A": 7, "B": "", "C": None}) == b""


def test_a_length_counts_the_bytes_of_a_later_field() -> None:
    kind = struct(field(Number("int16"), "Length"), field(Counted("Length", 4), "Data"))

    assert encode(kind, 0, {"Length": 6, "Data": b"ab"}) == b"\0\x06ab"
    assert decode(kind, b"\0\x06ab", 0) == {"Length": 6, "Data": b"ab"}


def test_a_classic_field_has_neither_compact_lengths_nor_tags() -> None:
    kind = struct(field(Array(Inline(INNER)), classic=True), flexible=0)

    assert encode(kind, 0, {"A": [{"A": 1}]}) == b"\0\0\0\x01\x01\0"


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (Text("string"), "ffff"),
        (Text("string"), "0002ff"),
        (Text("string"), "0001ff"),
        (Inline(INNER, nullable=True), "0005"),
        (Number("varint"), "8080808080"),
        (Number("int16"), "00"),
        (Number("int8"), "0000"),
    ],
)
def test_invalid_bytes(type_: Type, data: str) -> None:
    with pytest.raises(Invalid):
        decode(struct(field(type_)), bytes.fromhex(data), 0)


def test_a_null_that_the_version_does_not_allow() -> None:
    kind = struct(field(Text("string", Versions(2))))

    assert encode(kind, 2, {"A": None}) == b"\xff\xff"
    with pytest.raises(Invalid):
        encode(kind, 1, {"A": None})
