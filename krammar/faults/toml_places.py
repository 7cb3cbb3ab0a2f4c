"""Finds keys and values in the text of a TOML file, for diagnostics. The standard library's reader has no positions.

A text of several lines that looks like keys can mislead it; then a caret is at the wrong place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A line that ends the value before: a table, or a key.
_NEXT = re.compile(r"""^[ \t]*(?:\[[\w"'. \[]|[\w"'.*\[\] -]+=(?!=))""", re.MULTILINE)
_INLINE = re.compile(r"[^,}\n]*")
_COMMENT = re.compile(r"\s+#[^\n]*\Z")

# The way to a value: names of keys, and for arrays of tables the number of a table.
Way = tuple[str | int, ...]


class Span(NamedTuple):
    """Characters [``begin``, ``end``) of a text."""

    begin: int
    end: int


def find(text: str, way: Way) -> tuple[Span, Span]:
    """Return where a key is, and its value. The way ends early if the text lacks a part of it."""
    key = value = Span(0, 1)
    begin, end = 0, len(text)
    for number, name in enumerate(way):
        if isinstance(name, int):
            continue
        word = rf"""(?:"{re.escape(name)}"|'{re.escape(name)}'|{re.escape(name)})"""
        tables = list(re.finditer(rf"^[ \t]*(\[+[ \t]*{word}[ \t]*\]+)", text, re.MULTILINE))
        index = way[1] if len(way) > 1 and isinstance(way[1], int) else 0
        if not number and index < len(tables):
            key = value = Span(*tables[index].span(1))
            begin, end = key.end, (*(each.start() for each in tables), len(text))[index + 1]
            continue
        found = re.compile(rf"(^|[{{,.])[ \t]*({word})[ \t]*([=.\]])[ \t]*", re.MULTILINE).search(
            text, begin, end
        )
        if found is None:
            break
        key, begin = Span(*found.span(2)), found.end()
        following = _NEXT.search(text, begin, end)
        last = following.start() if following and found[3] == "=" else end
        if found[1] in ("{", ","):
            last = _INLINE.match(text, begin, end).end()  # type: ignore[union-attr]
        value = Span(begin, begin + len(_COMMENT.sub("", text[begin:last].rstrip())))
    return key, value
