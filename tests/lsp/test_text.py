from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lsprotocol import types as lsp

from krammar.lsp.text import SourceText
from krammar.util.diagnostics import Position

ENCODINGS = ["utf-8", "utf-16", "utf-32"]
TEXTS = st.text(st.sampled_from("ab\n\r\u2028\x0c\ufeffé€😋\ud800"), max_size=30)


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 13), ("utf-16", 8), ("utf-32", 7)])
def test_columns_are_counted_in_the_units_of_the_encoding(encoding: str, character: int) -> None:
    text = SourceText("x\n// é€😋 A\n", encoding)
    offset = text.text.index("A")
    assert text.position(offset) == lsp.Position(1, character)
    assert text.offset(lsp.Position(1, character)) == offset


@given(TEXTS, st.sampled_from(ENCODINGS))
def test_every_offset_comes_back_from_its_position(text: str, encoding: str) -> None:
    it = SourceText(text, encoding)
    assert it.offset(it.position(0)) == 0
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":  # not a place for a cursor
            assert it.offset(it.position(offset)) == offset


@given(TEXTS, st.sampled_from(ENCODINGS), st.integers(0, 99), st.integers(0, 99))
def test_any_position_is_a_place_in_the_text(
    text: str, encoding: str, line: int, character: int
) -> None:
    it = SourceText(text, encoding)
    assert 0 <= it.offset(lsp.Position(line, character)) <= len(text)


@given(TEXTS, st.integers(1, 40), st.integers(1, 40), st.integers(0, 40))
def test_any_range_of_the_compiler_is_a_place_in_the_text(
    text: str, line: int, column: int, length: int
) -> None:
    start, end = SourceText(text).span(Position(Path("a"), line, column, length))
    assert 0 <= start <= end <= len(text)


@given(TEXTS, st.sampled_from(ENCODINGS), TEXTS, st.integers(0, 40), st.integers(0, 40))
def test_a_replaced_range(text: str, encoding: str, new: str, one: int, other: int) -> None:
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    for place in (start, end):
        assume(text[place - 1 : place + 1] != "\r\n" or place == 0)
    it = SourceText(text, encoding)
    whole = text[:start] + new + text[end:]
    # Halves of a character become one.
    whole = whole.replace("\ud800\udc00", "\U00010000")
    assert it.replaced(it.range(start, end), new) == whole


def test_halves_of_a_character_that_arrive_one_after_the_other() -> None:
    place = lsp.Range(lsp.Position(0, 1), lsp.Position(0, 1))
    text = SourceText(SourceText("ab").replaced(place, "\ud83d"))
    place = lsp.Range(lsp.Position(0, 2), lsp.Position(0, 2))
    assert text.replaced(place, "\ude0b") == "a😋b"


def test_a_range_outside_of_the_text() -> None:
    text = SourceText("ab\ncd")
    assert text.replaced(lsp.Range(lsp.Position(1, 1), lsp.Position(7, 7)), "X") == "ab\ncX"
    assert text.replaced(lsp.Range(lsp.Position(1, 1), lsp.Position(0, 1)), "X") == "ab\ncXd"


def test_lines_of_the_compiler_and_of_the_editor_differ() -> None:
    """The compiler does not count the byte order mark and does not end a line at a lone carriage return."""
    text = SourceText("\ufeffA =>\r\n  B:\r int8\r\n")
    assert text.rows == ["A =>", "  B:\r int8", ""]
    start, end = text.span(Position(Path("a"), 2, 7, 4))
    assert text.text[start:end] == "int8"
    assert text.position(start) == lsp.Position(2, 1)
    start, end = text.span(Position(Path("a"), 1, 1, 1))
    assert text.text[start:end] == "A"


def test_a_position_after_the_end_of_a_line_is_its_end() -> None:
    text = SourceText("ab\ncd")
    assert text.offset(lsp.Position(0, 50)) == 2
    assert text.offset(lsp.Position(9, 0)) == 5
