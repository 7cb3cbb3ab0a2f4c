"""A text and its positions: of the editor, of the compiler, and of Python.

An editor counts lines that end with ``\\n``, ``\\r\\n`` or ``\\r``, from 0, and columns in code units of an
encoding that client and server agree on (LSP 3.17, ``positionEncoding``). The compiler counts lines that end
with ``\\n``, from 1, and columns in characters, without a byte order mark. Everything here is converted by way
of offsets into the Python string.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

from lsprotocol import types as lsp

from krammar.util.diagnostics import Position

_BOM = "\ufeff"
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LINE_END = re.compile(r"\r\n|\n|\r")


class SourceText:
    """A text of an editor or of a file."""

    def __init__(
        self, text: str, encoding: lsp.PositionEncodingKind | str = lsp.PositionEncodingKind.Utf16
    ) -> None:
        self.text = text
        self._encoding = encoding

    @cached_property
    def _lines(self) -> list[int]:
        """The offset of each line of the editor."""
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    @cached_property
    def _row_starts(self) -> list[int]:
        """The offset of each line of the compiler."""
        starts = [1 if self.text.startswith(_BOM) else 0]
        starts += [match.end() for match in re.finditer("\n", self.text)]
        return starts

    @cached_property
    def rows(self) -> list[str]:
        """The lines of the compiler, without their ends."""
        return [row.removesuffix("\r") for row in self.text.removeprefix(_BOM).split("\n")]

    def row_at(self, offset: int) -> int:
        """Return the index in ``rows`` of the line that contains an offset."""
        return max(0, bisect_right(self._row_starts, offset) - 1)

    def row_start(self, index: int) -> int:
        """Return the offset of a line of the compiler."""
        return self._row_starts[index]

    def offset(self, position: lsp.Position) -> int:
        """Return the offset of an editor's position. Positions outside of the text become the nearest one."""
        if position.line >= len(self._lines):
            return len(self.text)
        start = self._lines[position.line]
        line = _LINE_END.split(self.text[start : self._end(position.line)], maxsplit=1)[0]
        if line.isascii() or self._encoding == lsp.PositionEncodingKind.Utf32:
            return start + min(position.character, len(line))
        units = 0
        for index, character in enumerate(line):
            if units >= position.character:
                return start + index
            units += self._units(character)
        return start + len(line)

    def position(self, offset: int) -> lsp.Position:
        """Return the editor's position of an offset."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._lines, offset) - 1
        return lsp.Position(line, self._units(self.text[self._lines[line] : offset]))

    def range(self, start: int, end: int) -> lsp.Range:
        """Return the editor's range of two offsets."""
        return lsp.Range(self.position(start), self.position(end))

    def replaced(self, area: lsp.Range, text: str) -> str:
        """Return the text with an editor's range replaced."""
        start, end = self.offset(area.start), self.offset(area.end)
        whole = self.text[:start] + text + self.text[max(start, end) :]
        # The halves of a character can arrive one after the other.
        if _PAIR.search(whole):
            return whole.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return whole

    def span(self, position: Position) -> tuple[int, int]:
        """Return the offsets of a range of the compiler, at most to the end of its line."""
        index = min(position.line, len(self._row_starts)) - 1
        start = self._row_starts[index]
        length = len(self.rows[index])
        first = min(position.column - 1, length)
        return start + first, start + min(first + position.length, length)

    def at(self, position: Position) -> lsp.Range:
        """Return the editor's range of a range of the compiler."""
        return self.range(*self.span(position))

    def row_range(self, first: int, last: int) -> lsp.Range:
        """Return the editor's range from the start of line ``first`` to the end of line ``last``."""
        return self.range(self._row_starts[first], self._row_starts[last] + len(self.rows[last]))

    @cached_property
    def everything(self) -> lsp.Range:
        """The range of the complete text."""
        return self.range(0, len(self.text))

    def units(self, start: int, end: int) -> int:
        """Return the number of code units between two offsets."""
        return self._units(self.text[start:end])

    def _end(self, line: int) -> int:
        return self._lines[line + 1] if line + 1 < len(self._lines) else len(self.text)

    def _units(self, text: str) -> int:
        if text.isascii() or self._encoding == lsp.PositionEncodingKind.Utf32:
            return len(text)
        if self._encoding == lsp.PositionEncodingKind.Utf8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(character > "\uffff" for character in text)
