"""The formatter: mends what is only style (findings W9xx) and changes no meaning.

It works on lines, not on the tree, so that comments which belong to nothing stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class _Kind(Enum):
    BLANK = auto()
    COMMENT = auto()
    CONTENT = auto()


@dataclass(slots=True)
class _Line:
    kind: _Kind
    text: str

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))


def format_source(text: str) -> str:
    """The text of one definition file in its canonical layout.

    UTF-8 without byte order mark, ``\\n`` ends, no trailing spaces, one blank line between
    definitions and none inside of them, documentation aligned with what it documents, one newline at
    the end. A comment block that a blank line parts from what follows stays apart.
    """
    lines = [_line(line) for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")]
    _align_comments(lines)
    result: list[str] = []
    before: _Line | None = None
    blank = False
    for index, line in enumerate(lines):
        if line.kind is _Kind.BLANK:
            blank = True
            continue
        if before is not None and _wants_blank(lines, index, before, line, blank):
            result.append("")
        result.append(line.text)
        before = line
        blank = False
    return "".join(f"{line}\n" for line in result)


def _line(text: str) -> _Line:
    stripped = text.rstrip(" \t\r\n")
    if not stripped:
        return _Line(_Kind.BLANK, "")
    kind = _Kind.COMMENT if stripped.lstrip(" \t").startswith("//") else _Kind.CONTENT
    return _Line(kind, stripped)


def _align_comments(lines: list[_Line]) -> None:
    """Give each comment line that directly precedes content, or other such comments, its indent."""
    below: _Line | None = None
    for line in reversed(lines):
        if line.kind is _Kind.COMMENT and below is not None:
            line.text = " " * below.indent + line.text.lstrip(" \t")
        below = None if line.kind is _Kind.BLANK else line


def _wants_blank(lines: list[_Line], index: int, before: _Line, line: _Line, blank: bool) -> bool:
    """Whether a blank line belongs between ``before`` and ``line``; ``blank``: there was one."""
    following = next((other for other in lines[index:] if other.kind is _Kind.CONTENT), None)
    # What follows is still part of a definition if the next content is indented, or closes an enum.
    inside = following is not None and (following.indent > 0 or following.text == ")")
    if before.kind is _Kind.COMMENT:
        return blank
    return not inside or (line.kind is _Kind.COMMENT and line.indent == 0)
