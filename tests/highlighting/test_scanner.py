from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krammar.highlighting.scanner import LexemeKind, scan

DEFINITIONS = Path(__file__).parents[2] / "definitions"


def words(text: str) -> list[tuple[str, str]]:
    return [
        (text[t.start : t.end], t.kind.name)
        for t in scan(text)
        if t.kind not in (LexemeKind.PUNCTUATION, LexemeKind.OPERATOR)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "ARequest => key 3, max version 13, flexible v9+, group coordinator",
            [
                *(("ARequest", "DEFINITION"), ("key", "KEYWORD"), ("3", "NUMBER")),
                *(("max version", "KEYWORD"), ("13", "NUMBER"), ("flexible", "KEYWORD")),
                *(("v9+", "VERSION"), ("group coordinator", "KEYWORD")),
            ],
        ),
        ("AResponse =>", [("AResponse", "DEFINITION")]),
        (
            "ARequest => key 0x12, response key 0x8001",
            [
                *(("ARequest", "DEFINITION"), ("key", "KEYWORD"), ("0x12", "NUMBER")),
                *(("response key", "KEYWORD"), ("0x8001", "NUMBER")),
            ],
        ),
        (
            "ARequest.Part => not top level, no encoding",
            [
                *(("ARequest.Part", "DEFINITION"), ("not top level", "KEYWORD")),
                ("no encoding", "KEYWORD"),
            ],
        ),
        ("  A: [ARequest.Part]", [("A", "FIELD"), ("ARequest.Part", "STRUCT")]),
        ("  A: =>Part", [("A", "FIELD"), ("Part", "STRUCT")]),
        (
            "use kafka_wire: ErrorCode, Header",
            [
                *(("use", "KEYWORD"), ("kafka_wire", "DEFINITION")),
                *(("ErrorCode", "STRUCT"), ("Header", "STRUCT")),
            ],
        ),
        (
            "A int8 camelcase (",
            [("A", "DEFINITION"), ("int8", "TYPE"), ("camelcase", "KEYWORD")],
        ),
        (
            "  -1: SOME // retriable",
            [("-1", "NUMBER"), ("SOME", "MEMBER"), ("retriable", "REMARK")],
        ),
        (
            "  A: nullable-v9+[Thing](null) // v8-v9, tag 2",
            [
                *(("A", "FIELD"), ("nullable-v9+", "TYPE"), ("Thing", "STRUCT")),
                *(("null", "DEFAULT"), ("v8-v9", "VERSION"), ("tag", "KEYWORD"), ("2", "NUMBER")),
            ],
        ),
        ("  A: nullable-string-v7+", [("A", "FIELD"), ("nullable-string-v7+", "TYPE")]),
        ("  A: enum-Colour(2)", [("A", "FIELD"), ("enum-Colour", "ENUM"), ("2", "DEFAULT")]),
        (
            "  A: length-field-minus => Length - 49",
            [
                *(("A", "FIELD"), ("length-field-minus", "TYPE")),
                *(("Length", "STRUCT"), ("49", "NUMBER")),
            ],
        ),
        (
            "  A: [=>]Hint // not flexible",
            [("A", "FIELD"), ("Hint", "STRUCT"), ("not flexible", "KEYWORD")],
        ),
        (
            "  A: string // v3+, ignorable, entity topicName",
            [
                *(("A", "FIELD"), ("string", "TYPE"), ("v3+", "VERSION")),
                *(("ignorable", "KEYWORD"), ("entity", "KEYWORD"), ("topicName", "REMARK")),
            ],
        ),
        (
            "  reserved tag 3, 0x4",
            [("reserved tag", "KEYWORD"), ("3", "NUMBER"), ("0x4", "NUMBER")],
        ),
        ("  reserved: int8", [("reserved", "FIELD"), ("int8", "TYPE")]),
        (
            "A.Part => not top level, no encoding, frequent",
            [
                *(("A.Part", "DEFINITION"), ("not top level", "KEYWORD")),
                *(("no encoding", "KEYWORD"), ("frequent", "KEYWORD")),
            ],
        ),
        (
            "ARequest => key 0, max version 1, cluster action",
            [
                *(("ARequest", "DEFINITION"), ("key", "KEYWORD"), ("0", "NUMBER")),
                *(("max version", "KEYWORD"), ("1", "NUMBER"), ("cluster action", "KEYWORD")),
            ],
        ),
        ("  Parts: [A.Part]", [("Parts", "FIELD"), ("A.Part", "STRUCT")]),
        ("  ThrottleMillis(2)", [("ThrottleMillis", "FIELD"), ("2", "DEFAULT")]),
        ("  // words: int8", [("// words: int8", "COMMENT")]),
        # Lines that are not finished.
        ("  A: nullable-stri", [("A", "FIELD")]),
        ("  A: int8(", [("A", "FIELD"), ("int8", "TYPE")]),
        ("  A", [("A", "FIELD")]),
        ("!", []),
    ],
)
def test_words(line: str, expected: list[tuple[str, str]]) -> None:
    assert words(line) == expected


@given(st.text(st.sampled_from(" \t\r\n\u2028:=>()[]/,-+vV0aZé😋\ud800"), max_size=60))
def test_any_text(text: str) -> None:
    end = 0
    for token in scan(text):
        assert end <= token.start < token.end <= len(text)
        assert not set("\r\n") & set(text[token.start : token.end])
        end = token.end
    assert end <= len(text)


def test_nothing_in_kafkas_definitions_is_without_a_meaning() -> None:
    """Only spaces and parentheses are left out."""
    paths = list(DEFINITIONS.rglob("*.krm"))
    assert len(paths) > 90
    for path in paths:
        text = path.read_text()
        rest = list(text)
        for token in scan(text):
            rest[token.start : token.end] = " " * (token.end - token.start)
        assert set("".join(rest)) <= set(" \n()"), path
