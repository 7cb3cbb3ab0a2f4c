"""Null from a version on, at every place of a type: codecs and layouts write and read the same bytes in all versions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from krammar.wire.errors import DecodeError, EncodeError
from tests.compiler.conftest import Build

# Types with the values to try; some of them contain null.
TYPES: dict[str, tuple[Any, ...]] = {
    "nullable-string-v3+": (None, "a"),
    "nullable-bytes-v3+": (None, b"a"),
    "nullable-v3+[int8]": (None, [1]),
    "[nullable-string-v3+]": ([None], ["a"], [], ["a", None]),
    "[nullable-bytes-v2+]": ([None], [b"a"], []),
    "nullable-v2+[nullable-string-v3+]": (None, [None], ["a"]),
    "nullable-v3+[nullable-bytes-v2+]": (None, [None], [b"a"]),
    "[[nullable-string-v3+]]": ([[None]], [["a"]], [[]]),
    "nullable[nullable-string-v3+](null)": (None, [None], ["a"]),
}
VERSIONS = range(5)


def protocol() -> str:
    lines = []
    places = ("", " // tag 0", " // v2+, tag 0", " // v1+")
    forms = itertools.product(TYPES, places)
    for key, (type_, where) in enumerate(forms):
        lines += [
            f"M{key}Request => key {key}, max version 4, flexible v1+",
            f"  X: {type_}{where}",
            "  Part: [=>]",
            f"    Y: {type_}{where}",
            "",
            f"M{key}Response =>",
            "  Ok: bool",
            "",
        ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def package(build: Build) -> Any:
    return build(protocol())


def messages(package: Any) -> Iterator[Any]:
    for info in package.requests():
        cls = package.request_class(info.key)
        for value in TYPES[list(TYPES)[info.key // 4]]:
            yield cls(x=value, part=[cls.Part(y=value)])


def test_codecs_and_layouts_agree(package: Any) -> None:
    carried = refused = 0
    for message, version in itertools.product(messages(package), VERSIONS):
        cls = type(message)
        layout = package.layout(cls, version)
        try:
            expected: Any = layout.write(message)
        except EncodeError as error:
            expected = error
        if isinstance(expected, EncodeError):
            refused += 1
            with pytest.raises(EncodeError) as found:
                message.encode(version)
            assert str(found.value) == str(expected)
            assert "cannot be encoded" not in str(expected)
            continue
        carried += 1
        data = message.encode(version)
        assert data == expected
        assert cls.decode(data, version) == message
        for end in range(len(data)):
            with pytest.raises(DecodeError):
                cls.decode(data[:end], version)
    assert carried > 300
    assert refused > 150


VERSIONED = """\
Part => not top level, no encoding
  A: int8
  B: int8 // v6+

Own => not top level, with version field
  Version: int16
  C: int8 // v9+

Record => not top level, with version field
  Version: int16
{fields}
"""


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ("  A: int8", 0),
        ("  A: int8 // v2+", 2),
        ("  A: int8 // v2-v3", 3),
        ("  A: nullable-string-v4+", 4),
        ("  A: [nullable-string-v4+]", 4),
        ("  A: nullable-v5+[int8]", 5),
        ("  A: [[nullable-bytes-v5+]]", 5),
        ("  A: Part", 6),
        ("  A: [Part] // v1+", 6),
        ("  A: =>\n    B: [=>] // v7+\n      C: int8", 7),
        ("  A: [=>]\n    B: Part", 6),
        # A struct with a version of its own names versions of its own.
        ("  A: Own // v2+", 2),
    ],
)
def test_a_version_field_selects_every_version_that_the_struct_names(
    build: Build, fields: str, last: int
) -> None:
    cls = build(VERSIONED.format(fields=fields)).Record
    assert cls.max_version == last
    for version in range(last + 1):
        value = cls(version=version)
        assert cls.decode(value.encode()) == value
