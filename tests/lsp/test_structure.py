"""Outline, folding, lenses, hints, and semantic highlighting."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from krammar.lsp.showing import (
    LEGEND,
    foldings,
    hints,
    lenses,
    outline,
    semantic_tokens,
    workspace_symbols,
)
from krammar.lsp.text import SourceText
from tests.lsp.sheets import Sheet, ping

LAST = 10**6


def tree(symbols: list[lsp.DocumentSymbol], depth: int = 0) -> list[str]:
    found = []
    for each in symbols:
        lines = f"{each.range.start.line}-{each.range.end.line}"
        found.append(f"{'  ' * depth}{each.name} {each.kind.name} {lines} {each.detail}".rstrip())
        found += tree(list(each.children or []), depth + 1)
    return found


def test_outline() -> None:
    assert tree(outline(ping().file)) == [
        "PingRequest Struct 1-8",
        "  Text Field 3-3 nullable-string-v1+(null)",
        "  Kind Field 4-4 enum-PingKind(1) // v1+",
        "  Parts Field 5-7 [=>] // v2-v3",
        "    Size Field 6-6 int32",
        "    Data Field 7-7 length-field-minus => Size - 4",
        "  Extra Field 8-8 Shared // tag 0",
        "PingResponse Struct 10-12",
        "  ThrottleMillis Field 11-11",
        "  Kind Field 12-12 enum-PingKind",
    ]
    assert tree(outline(ping("How", " urgent").file))[2:] == [
        "PingKind Enum 4-8 int8",
        "  SLOW EnumMember 6-6 0",
        "  FAST EnumMember 7-7 1",
    ]


def test_symbols_of_the_workspace() -> None:
    found = {each.name for each in workspace_symbols([ping().analysis], "pgrq")}
    assert found == {"PingRequest"}
    assert len(list(workspace_symbols([ping().analysis], ""))) == 4


def test_folding() -> None:
    text = "// a\n// b\nA => not top level\n  B: [=>]\n    C: int8\n    D: int8\n\nE int8 (\n  0: F\n)\n"
    found = [(each.start_line, each.end_line, each.kind) for each in foldings(SourceText(text))]
    comment = lsp.FoldingRangeKind.Comment
    assert sorted(found, key=str) == [(0, 1, comment), (2, 5, None), (3, 5, None), (7, 9, None)]


def test_folding_of_broken_text() -> None:
    assert [
        (f.start_line, f.end_line) for f in foldings(SourceText("what =\n     is\n  this ("))
    ] == [(0, 2)]


def test_lenses() -> None:
    sheet = ping()
    found = lenses(sheet.analysis, sheet.file)
    assert [each.command.title for each in found if each.command] == [
        "versions 0 to 4, flexible from 2, 4 layouts",
        "show bytes",
        "versions 0 to 4, flexible from 2, 2 layouts",
        "show bytes",
    ]
    assert [each.command.arguments for each in found[:2] if each.command] == [
        [sheet.file.uri, "PingRequest", 4],
        [sheet.file.uri, "PingRequest"],
    ]
    assert lenses(*(lambda s: (s.analysis, s.file))(ping("How", " urgent"))) == []


@pytest.mark.parametrize(
    ("header", "title"),
    [
        ("A => not top level", "versions 0 and up, 1 layout"),
        ("ARequest => key 1, max version 3, min version 3", "version 3, 1 layout"),
    ],
)
def test_titles_of_lenses(header: str, title: str) -> None:
    sheet = Sheet(a=f"{header}\n  B: int8\n")
    first = lenses(sheet.analysis, sheet.file)[0]
    assert first.command is not None and first.command.title == title


def hinted(sheet: Sheet, first: int = 0, last: int = LAST) -> dict[int, object]:
    found = hints(sheet.analysis, sheet.file, first, last)
    return {each.position.line: each.label for each in found}


def test_hints_show_versions_that_the_line_does_not_give() -> None:
    assert hinted(ping()) == {6: "v2-v3", 7: "v2-v3", 8: "v2+"}
    assert hinted(ping(), 7, 7) == {7: "v2-v3"}


def test_hints_of_nested_fields() -> None:
    text = (
        "ARequest => key 0, max version 9\n"
        "  B: [=>] // v2-v6\n"
        "    C: [=>] // v4+\n"
        "      D: int8 // v3-v5\n"
        "      E: int8 // v5-v6\n"
        "  F: => // v3-v9\n"
        "    G: int8\n"
    )
    assert hinted(Sheet(a=text)) == {2: "v4-v6", 3: "v4-v5", 5: "v3+", 6: "v3+"}


def words(text: str, encoding: str = "utf-16") -> list[tuple[str, str]]:
    """The words of a text with their types, decoded as an editor decodes them."""
    it = SourceText(text, encoding)
    data = list(semantic_tokens(it).data)
    found, line, character = [], 0, 0
    for index in range(0, len(data), 5):
        lines, characters, length, kind, _ = data[index : index + 5]
        line, character = line + lines, characters + (character if lines == 0 else 0)
        start = it.offset(lsp.Position(line, character))
        end = it.offset(lsp.Position(line, character + length))
        found.append((it.text[start:end], LEGEND.token_types[kind]))
    return found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_semantic_tokens(encoding: str) -> None:
    text = "// é😋\r\nA => not top level\n  B: enum-C(2) // v3+, tag 0\n"
    assert words(text, encoding) == [
        ("// é😋", "comment"),
        ("A", "class"),
        ("=>", "operator"),
        ("not top level", "keyword"),
        ("B", "property"),
        ("enum-C", "enum"),
        ("2", "string"),
        ("//", "operator"),
        ("v3+", "modifier"),
        ("tag", "keyword"),
        ("0", "number"),
    ]
