"""The formatter. It corrects style (diagnostics W9xx) and never changes the meaning of a file.

It works on lines, not on the syntax tree, so that comments outside of definitions keep their places.
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
    """Return the text of a definition file in its canonical format.

    It has no byte order mark, lines that end with ``\\n``, no trailing spaces, one blank line between
    definitions and none inside, comments aligned with the lines that they document, and one newline at the
    end. A blank line after a comment block is preserved.
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
    """Give comment lines the indent of the content that directly follows the comment block."""
    below: _Line | None = None
    for line in reversed(lines):
        if line.kind is _Kind.COMMENT and below is not None:
            line.text = " " * below.indent + line.text.lstrip(" \t")
        below = None if line.kind is _Kind.BLANK else line


def _wants_blank(lines: list[_Line], index: int, before: _Line, line: _Line, blank: bool) -> bool:
    """Whether the result has a blank line before ``line``. ``blank`` is whether the source has one."""
    following = next((other for other in lines[index:] if other.kind is _Kind.CONTENT), None)
    # The line is inside a definition if the next content is indented, or closes an enum.
    inside = following is not None and (following.indent > 0 or following.text == ")")
    if before.kind is _Kind.COMMENT:
        return blank
    return not inside or (line.kind is _Kind.COMMENT and line.indent == 0)
