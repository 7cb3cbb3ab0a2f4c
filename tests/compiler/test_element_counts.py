"""Limits of the number of array elements hold for every form of a protocol, in all readers, and when encoding."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from krammar.wire.connection import (
    ClientConnection,
    InvalidRequest,
    RequestReceived,
    ServerConnection,
)
from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.limits import MAX_ZERO_WIDTH
from krammar.wire.message import Struct
from krammar.wire.skip import TooManyElements, check_elements, check_empty
from tests.compiler.conftest import Build

# What precedes an array, because the counter must step over it.
BEFORE = {
    "nothing": "",
    "varints": "  Before: varint(-5)\n  Long: varlong(123456789012)\n",
    "texts": "  Before: varint-string(abc)\n  Null: varint-bytes(null)\n  Text: nullable-string(abc)\n",
    "counted": "  Length: int16\n  Counted: length-field-minus => Length - 2\n",
    "versioned": "  Before: Own\n  More: [Own]\n",
    "arrays": "  Before: varint[string]\n  Deep: [[varint]]\n  Id: uuid\n",
    "struct": "  Before: nullable=>()\n    A: varint\n",
}
# Arrays whose elements are empty in version 1, each with lines deeper in the definition.
EMPTY = {
    "[=>]": "    X: int32 // v2+\n",
    "nullable[=>]": "    X: int32 // v2+\n",
    "varint[=>]": "    X: int32 // v2+\n",
    "[[=>]]": "    X: int32 // v2+\n",
    "[Nothing]": "",
    "[Holder]": "",
}
COMMON = """\
Nothing => not top level, no encoding
  X: int32 // v2+

// Structs with elements without bytes, and a version of their own.
Holder => not top level, with version field
  Version: int16
  Cells: [=>]
    X: int32 // v1+
  Last: varint

Own => not top level, with version field
  Version: int16(1)
  Text: string(abc)
  Number: varint // v1+

"""


MESSAGES = 2 * len(EMPTY)


def form(key: int) -> tuple[str, str]:
    """The type of the cells of a message, and its fields."""
    return list(EMPTY.items())[key % len(EMPTY)]


def protocol() -> str:
    lines = [COMMON]
    for key in range(MESSAGES):
        type_, inside = form(key)
        before = list(BEFORE.values())[key % len(BEFORE)]
        modifier = ("", ", flexible v2+")[key // len(EMPTY) % 2]
        lines.append(
            f"M{key}Request => key {key}, max version 2{modifier}\n{before}"
            f"  Rows: [=>]\n    Number: varint\n    Cells: {type_}\n"
            + "".join(f"  {line}\n" for line in inside.splitlines())
            + f"\nM{key}Response =>\n  Ok: bool\n"
        )
    return "\n".join(lines)


@pytest.fixture(scope="module")
def package(build: Build) -> Any:
    return build(protocol())


def message(package: Any, key: int, rows: int, cells: int) -> Any:
    """A request with rows of cells that take no bytes in version 1; cells are spread over arrays and structs."""
    cls = package.request_class(key)
    row = next(item for name, item in vars(cls).items() if name == "Row")
    type_, _ = form(key)
    if type_ == "[Holder]":
        inner = package.Holder.Cell
        made = [[package.Holder(cells=[inner() for _ in range(cells)])] for _ in range(rows)]
    else:
        inner = (
            package.Nothing
            if type_ == "[Nothing]"
            else row.Cell if hasattr(row, "Cell") else cls.Cell
        )
        made = [[inner() for _ in range(cells)] for _ in range(rows)]
        if type_ == "[[=>]]":
            made = [[row_] for row_ in made]
    value = cls(rows=[row(cells=cells_) for cells_ in made])
    if hasattr(value, "more"):
        value.more = [package.Own(), package.Own()]
    return value.with_lengths()


def elements(value: Any) -> int:
    """The number of elements and nested structs of a value."""
    if isinstance(value, Struct):
        inner = [getattr(value, name) for name in value._fields]
        return sum(map(elements, inner)) + sum(isinstance(each, Struct) for each in inner)
    if isinstance(value, list):
        return len(value) + sum(map(elements, value))
    return 0


def test_all_readers_and_writers_agree_on_elements_without_bytes(package: Any) -> None:
    tried = 0
    for info in package.requests():
        cls, tried = package.request_class(info.key), tried + 1
        layout = package.layout(cls, 1)
        at_limit = message(package, info.key, 4, MAX_ZERO_WIDTH // 4)
        data = at_limit.encode(1)
        assert data == layout.write(at_limit)
        assert cls.decode(data, 1) == at_limit
        assert layout.write(layout.read(data)) == data
        number = elements(at_limit)
        check_elements(cls, 1, data, 0, number)
        with pytest.raises(TooManyElements):
            check_elements(cls, 1, data, 0, number - 1)
        check_empty(cls, 1, data, 0)
        too_many = message(package, info.key, 5, MAX_ZERO_WIDTH // 4)
        for encode in (too_many.encode, lambda _, layout=layout, x=too_many: layout.write(x)):
            with pytest.raises(
                EncodeError, match=r"rows\[4\].* take no bytes, 1280 in this message"
            ):
                encode(1)
        # In version 2 the elements have bytes, unless they are in a struct with a version of its own.
        if "Holder" not in form(info.key)[0]:
            assert cls.decode(too_many.encode(2), 2) == too_many
    assert tried == MESSAGES


def test_nested_arrays_of_nothing_do_not_fill_memory(package: Any) -> None:
    for key in range(MESSAGES):
        cls = package.request_class(key)
        data = message(package, key, 1, MAX_ZERO_WIDTH).encode(1)
        before = message(package, key, 0, 0).encode(1)
        many = before[:-4] + (2000).to_bytes(4, "big") + data[len(before) :] * 2000
        assert len(many) < 40_000
        for read in (cls.decode, lambda x, v, cls=cls: cls.decode_from(x, 0, v)):
            tracemalloc.start()
            with pytest.raises(DecodeError, match=r"rows\[1\].* take no bytes"):
                read(many, 1)
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
            tracemalloc.stop()
        with pytest.raises(DecodeError, match="take no bytes"):
            package.layout(cls, 1).read(many)
        frame = ClientConnection(package).send_request(cls(), 1)[4:-4] + many
        with pytest.raises(DecodeError):
            package.parse_request(frame)


def test_max_elements_counts_in_every_protocol(package: Any) -> None:
    refused = 0
    for info in package.requests():
        for version in (1, 2):
            request = message(package, info.key, 3, 40)
            total = elements(request)
            frame = ClientConnection(package).send_request(request, version)
            for limit, expected in ((2 * total, RequestReceived), (total // 3, InvalidRequest)):
                server = ServerConnection(package, max_elements=limit)
                server.receive_data(frame)
                (event,) = server.events()
                assert isinstance(event, expected), (info, version, total)
            assert isinstance(event.error, TooManyElements)
            refused += 1
    assert refused == 2 * MESSAGES
