"""A parser for Java's .properties files. It reads them as ``java.util.Properties`` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from krammar.util.settings import SettingError

_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """An entry. ``line`` is the number of its first line, from 1."""

    name: str
    value: str
    line: int


def decode(data: bytes) -> str:
    """Decode a file as UTF-8, with or without a byte order mark, or else as Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> list[Property]:
    """Return all entries in their order, duplicates included.

    Raises:
        SettingError: ``\\u`` is not followed by four hexadecimal digits.
    """
    return [_entry(logical, line) for line, logical in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers. Comments and blank lines are skipped, continued lines are joined."""
    begun = 0
    joined = ""
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_SPACE)
        if not joined:
            if not line or line[0] in "#!":
                continue
            begun = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        joined = ""
    if joined:
        yield begun, joined


def _entry(line: str, number: int) -> Property:
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    start = _skip_space(line, end)
    if start < len(line) and line[start] in "=:":
        start = _skip_space(line, start + 1)
    name = _unescape(line[:end], line[:end], number)
    return Property(name, _unescape(line[start:], name, number), number)


def _skip_space(line: str, position: int) -> int:
    while position < len(line) and line[position] in _SPACE:
        position += 1
    return position


def _unescape(text: str, name: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = text[position : position + 4]
                position += 4
                if len(digits) != 4 or not all(
                    digit in "0123456789abcdefABCDEF" for digit in digits
                ):
                    reason = r"\u needs four hexadecimal digits"
                    raise SettingError(name, reason, origin=f"line {line}")
                char = chr(int(digits, 16))
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":
            break
        out.append(char)
    # Two \u escapes can be the surrogates of one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
