"""Splits the text of a definition file into words with a meaning, line by line.

It never fails: words that it does not know are left out, so lines with errors are highlighted as far as they
go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


class LexemeKind(Enum):
    COMMENT = auto()
    # The name of a struct or enum, where it is defined.
    DEFINITION = auto()
    FIELD = auto()
    MEMBER = auto()
    # A type of the language.
    TYPE = auto()
    STRUCT = auto()
    ENUM = auto()
    KEYWORD = auto()
    # A word after a member of an enum, or after `entity`.
    REMARK = auto()
    NUMBER = auto()
    VERSION = auto()
    DEFAULT = auto()
    OPERATOR = auto()
    PUNCTUATION = auto()


@dataclass(frozen=True, slots=True)
class Lexeme:
    start: int
    end: int
    kind: LexemeKind


_TYPE = (
    r"(?:bool|u?int(?:8|16|32|64)|float(?:32|64)|uuid|u?var(?:int|long)|length-field-minus"
    r"|(?:nullable-)?(?:(?:u?varint|int16|int32)-)?(?:string|bytes)(?:-v\d+(?:\+|-v\d+))?"
    r"|nullable(?:-(?:varint|int16|int32))?(?:-v\d+(?:\+|-v\d+))?)(?![\w-])"
)
_HEADER = re.compile(r"(?P<DEFINITION>[A-Za-z]\w*(?:\.[A-Za-z]\w*)?) (?P<OPERATOR>=>)")
_ENUM = re.compile(
    r"(?P<DEFINITION>[A-Za-z]\w*) (?P<TYPE>u?int\d+)(?: (?P<KEYWORD>camelcase))? (?P<PUNCTUATION>\()"
)
_USE = re.compile(r"(?P<KEYWORD>use) (?P<DEFINITION>[A-Za-z]\w*)(?P<PUNCTUATION>:)")
_USED = re.compile(r"(?P<STRUCT>[A-Za-z]\w*)|(?P<PUNCTUATION>,)")
_MEMBER = re.compile(
    r"\s+(?P<NUMBER>-?(?:0x[0-9a-fA-F]+|\d+))(?P<PUNCTUATION>:) ?(?P<MEMBER>[A-Za-z]\w*)?"
)
_RESERVED = re.compile(r"\s+(?P<KEYWORD>reserved tag)(?= |$)")
_TAGS = re.compile(r"(?P<NUMBER>-?(?:0x[0-9a-fA-F]+|\d+))\b|(?P<PUNCTUATION>,)")
_FIELD = re.compile(r"\s+(?P<FIELD>[A-Za-z]\w*)(?P<PUNCTUATION>:)?")
_MODIFIERS = re.compile(
    r"(?P<KEYWORD>not top level|with version field|no encoding|response (?:key|header)|header|one way|push|key"
    r"|max version|min version|flexible|frequent|cluster action|newer versions read as the newest|admin"
    r"|(?:group|txn|share) coordinator)\b"
    r"|(?P<VERSION>v\d+\+?)|(?P<NUMBER>-?(?:0x[0-9a-fA-F]+|\d+))|(?P<PUNCTUATION>,)|(?P<COMMENT>//.*)"
)
_REST = re.compile(
    rf"(?P<OPERATOR>=>|//|-(?= ))|(?P<TYPE>{_TYPE}|nullable-bool(?==>)|nullable-(?:bool-)?(?=[A-Z]))"
    r"|(?P<ENUM>enum-\w+)|(?P<STRUCT>[A-Z]\w*(?:\.[A-Za-z]\w*)?)"
    r"|\((?P<DEFAULT>[^()]*)\)?|(?P<PUNCTUATION>[\[\],])|(?P<NUMBER>-?(?:0x[0-9a-fA-F]+|\d+))\b|\w[\w+-]*"
)
_ANNOTATIONS = re.compile(
    r"(?P<OPERATOR>//)|(?P<VERSION>v\d+(?:\+|-v\d+)?)|(?P<KEYWORD>tag|not flexible|ignorable|entity)\b"
    r"|(?P<NUMBER>-?\d+)|(?P<PUNCTUATION>,)|(?<=entity )(?P<REMARK>[A-Za-z]\w*)|\w+"
)
_REMARKS = re.compile(r"(?P<OPERATOR>//)|(?P<REMARK>[a-z][a-z_]*)|(?P<PUNCTUATION>,)|\w+")
_LINE = re.compile(r"[^\r\n]+")


def scan(text: str) -> Iterator[Lexeme]:
    """Yield the words of a text in order. They do not overlap, and none contains the end of a line."""
    for line in _LINE.finditer(text):
        row, base = line[0], line.start()
        stripped = row.lstrip(" \t\ufeff")
        if stripped.startswith("//"):
            yield Lexeme(
                base + len(row) - len(stripped), base + len(row.rstrip()), LexemeKind.COMMENT
            )
        else:
            yield from _line(row, base)


def _line(row: str, base: int) -> Iterator[Lexeme]:
    match = _ENUM.match(row)
    if match is not None:
        yield from _groups(match, base)
        return
    match = _HEADER.match(row)
    if match is not None:
        yield from _groups(match, base)
        yield from _words(_MODIFIERS, row, match.end(), len(row), base)
        return
    match = _USE.match(row)
    if match is not None:
        yield from _groups(match, base)
        yield from _words(_USED, row, match.end(), len(row), base)
        return
    match = _MEMBER.match(row)
    if match is not None:
        yield from _groups(match, base)
        yield from _words(_REMARKS, row, match.end(), len(row), base)
        return
    match = _RESERVED.match(row)
    if match is not None:
        yield from _groups(match, base)
        yield from _words(_TAGS, row, match.end(), len(row), base)
        return
    match = _FIELD.match(row)
    start = 0
    if match is not None:
        yield from _groups(match, base)
        start = match.end()
    note = row.find(" // ", start)
    end = len(row) if note < 0 else note
    yield from _words(_REST, row, start, end, base)
    if note >= 0:
        yield from _words(_ANNOTATIONS, row, note, len(row), base)


def _words(pattern: re.Pattern[str], row: str, start: int, end: int, base: int) -> Iterator[Lexeme]:
    for match in pattern.finditer(row, start, end):
        yield from _groups(match, base)


def _groups(match: re.Match[str], base: int) -> Iterator[Lexeme]:
    for name in match.groupdict():
        start, end = match.span(name)
        if end > start:
            yield Lexeme(base + start, base + end, LexemeKind[name])
