"""The positions of keys and values in a TOML text, which the standard library's reader does not return."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_TEXT = re.compile(
    # Of four or five quotes, the last three end the text, and the others belong to it.
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''',
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}\n#]*")

# The way to a value: names of keys, and indexes into arrays.
Way = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [``begin``, ``end``) of the text."""

    begin: int
    end: int


class Places:
    """The spans of all keys and values of a TOML text that ``tomllib`` accepts."""

    def __init__(self, text: str) -> None:
        self.keys: dict[Way, Span] = {}
        self.values: dict[Way, Span] = {}
        self._text = text
        self._pos = 0
        self._tables: dict[Way, int] = {}
        table: Way = ()
        while self._skip(_SPACE) < len(text):
            begin = self._pos
            if text.startswith("[", begin):
                double = text.startswith("[[", begin)
                self._pos += 2 if double else 1
                names = self._names()
                self._pos = text.index("]", self._pos) + (2 if double else 1)
                table = self._resolve(names, double)
                self.keys[table] = Span(begin, self._pos)
            else:
                self._pair(table)

    def _resolve(self, names: Way, double: bool) -> Way:
        """The way to a table: the name of an array of tables means the array's last one."""
        way: Way = ()
        for number, name in enumerate(names):
            way = (*way, name)
            if double and number == len(names) - 1:
                self._tables[way] = self._tables.get(way, -1) + 1
            if way in self._tables:
                way = (*way, self._tables[way])
        return way

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._pos)
        self._pos = found.end() if found else self._pos
        return self._pos

    def _names(self) -> Way:
        names: list[str] = []
        while True:
            self._skip(_BLANK)
            begin = self._pos
            self._skip(_KEY)
            names.append(self._text[begin : self._pos].strip("\"'"))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._pos):
                return tuple(names)
            self._pos += 1

    def _pair(self, table: Way) -> None:
        begin = self._pos
        way = (*table, *self._names())
        end = len(self._text[: self._pos].rstrip())
        for length in range(len(table) + 1, len(way) + 1):
            self.keys.setdefault(way[:length], Span(begin, end))
        self._pos = self._text.index("=", self._pos) + 1
        self._value(way)

    def _value(self, way: Way) -> None:
        self._skip(_SPACE)
        text, begin = self._text, self._pos
        if text[begin] in "[{":
            close = "]" if text[begin] == "[" else "}"
            self._pos += 1
            number = 0
            while text[self._skip(_SPACE)] != close:
                if text[self._pos] == ",":
                    self._pos += 1
                elif close == "}":
                    self._pair(way)
                else:
                    self._value((*way, number))
                    number += 1
            self._pos += 1
        elif text[begin] in "\"'":
            self._skip(_TEXT)
        else:
            self._skip(_BARE)
            self._pos = begin + len(text[begin : self._pos].rstrip())
        self.values[way] = Span(begin, self._pos)
