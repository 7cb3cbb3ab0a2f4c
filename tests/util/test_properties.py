"""The syntax of .properties files. The expected values come from java.util.Properties."""

from __future__ import annotations

import pytest

from krammar.util.properties import decode, parse_properties


def read(text: str) -> dict[str, str]:
    return {name: value for name, value, _ in parse_properties(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t\f b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a = = b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# a=b\n! c=d\n  # e=f\n\n   \ng=h", {"g": "h"}),
        ("a=#b", {"a": "#b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n#c\nd=e", {"a": "b#c", "d": "e"}),
        ("a=b\\\r\n  c\\\r  d", {"a": "bcd"}),
        ("# a\\\nb=c", {"b": "c"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("\\\n# a\nb=c", {"b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b\\ c=d", {"a:b c": "d"}),
        ("\\#a=b", {"#a": "b"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u0041", {"a": "éA"}),
        ("\\u0061=\\uD83D\\uDE00", {"a": "😀"}),
        ("", {}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected


def test_lines_are_those_that_entries_begin_on() -> None:
    text = "a=1\n\n# x\nb=2\\\n 3\r\nc=4\rd=5"
    assert [(name, line) for name, _, line in parse_properties(text)] == [
        ("a", 1),
        ("b", 4),
        ("c", 6),
        ("d", 7),
    ]


def test_encodings() -> None:
    assert decode("a=é".encode()) == "a=é"
    assert decode("a=é".encode("utf-8-sig")) == "a=é"
    assert decode("a=é".encode("latin-1")) == "a=é"
