"""The lines of a definition file: diagnostics about text and indents (E102 to E110, W9xx)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from krammar.compiler.front.grammar import INDENT
from krammar.util.diagnostics import Diagnostics, Fix, Position
from krammar.util.printable import DIRECTION

# Code for deeper nesting would not be valid Python, which allows 20 nested loops and 100 levels of indent.
MAX_DEPTH = 16
# Characters that end a line, or are not shown, in tools that read generated code.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_TAB_HINT = "indent each level with two spaces"


@dataclass(slots=True)
class SourceLines:
    """The lines of a file during parsing.

    A removed line becomes an empty comment, so that the other lines keep their numbers.
    """

    path: Path
    text: str
    diagnostics: Diagnostics
    lines: list[str] = field(init=False)
    # The original lines, for documentation.
    written: list[str] = field(init=False)
    unread: set[str] = field(default_factory=set)
    gutted: set[int] = field(default_factory=set)
    # The number of lines before the current definition.
    offset: int = 0

    def at(self, line: int, column: int, length: int = 1) -> Position:
        return Position(self.path, line, column, length)

    def check_text(self) -> None:
        """Report diagnostics about lines and spaces, and set ``lines`` to the text for the grammar."""
        text = self.text
        if text.startswith("\ufeff"):
            text = text[1:]
            self.diagnostics.add("W907", "the file begins with a byte order mark", self.at(1, 1))
        if "\r\n" in text:
            line = text[: text.index("\r\n")].count("\n") + 1
            text = text.replace("\r\n", "\n")
            self.diagnostics.add("W908", "lines end with \\r\\n, not \\n", self.at(line, 1))
        if text and not text.endswith("\n"):
            last = text.count("\n") + 1
            column = len(text) - text.rfind("\n")
            self.diagnostics.add(
                "W904", "the file does not end with a newline", self.at(last, column)
            )
        self.lines = text.split("\n")
        self.written = list(self.lines)
        if self.lines[-1] == "":
            self.lines.pop()
        self._check_blank_lines()
        before = -1
        for number, text_line in enumerate(self.lines, 1):
            if direction := DIRECTION.search(text_line):
                self._bad(
                    number,
                    "E110",
                    f"U+{ord(direction[0]):04X}, which changes the direction of the text after it",
                    direction.start() + 1,
                    1,
                    "remove it: the line can read as something else than it says",
                )
                continue
            content = text_line.rstrip(" ")
            if content != text_line:
                self.diagnostics.add(
                    "W901",
                    "trailing spaces",
                    self.at(number, len(content) + 1, len(text_line) - len(content)),
                )
                self.lines[number - 1] = content
            depth = self._check_line(number, content, before)
            if depth is not None:
                before = depth

    def _check_line(self, number: int, line: str, before: int) -> int | None:
        """Check the indent and spaces of a line. Returns its depth, or None for comments and blank lines."""
        stripped = line.lstrip(" \t")
        code = line.partition("//")[0]
        if not stripped:
            if "\t" in line:
                self._bad(number, "E102", "a tab", line.index("\t") + 1, 1, _TAB_HINT)
            return None
        if "\t" in code:
            self._bad(number, "E102", "a tab", code.index("\t") + 1, 1, _TAB_HINT)
            return None
        if stripped.startswith("//"):
            return None
        if self.lines[number - 1].startswith("//"):
            return None  # removed together with an invalid line above it
        indent = len(line) - len(stripped)
        if indent % INDENT:
            self._bad(
                number,
                "E103",
                f"an indent of {indent} spaces",
                1,
                indent,
                "indent each level with two spaces",
            )
            return None
        depth = indent // INDENT
        if depth > before + 1:
            expected = max(0, before + 1) * INDENT
            hint = (
                f"at most {expected} spaces are allowed here"
                if expected
                else "a definition begins at column 1"
            )
            self._bad(number, "E104", "an indent of more than one level at once", 1, indent, hint)
            return None
        if depth > MAX_DEPTH or code.count("[") > MAX_DEPTH:
            self._bad(
                number,
                "E109",
                f"nesting deeper than {MAX_DEPTH} levels",
                indent + 1,
                len(code.strip()),
                "define an inner struct separately, with a name",
            )
            return None
        double = code.rstrip(" ").find("  ", indent)
        if double >= 0:
            spaces = len(code) - double - len(code[double:].lstrip(" "))
            self._bad(
                number, "E105", "two spaces in a row", double + 1, spaces, "write one space", " "
            )
            return depth
        return depth

    def _check_blank_lines(self) -> None:
        blank = 0
        content_before = ""
        for number, line in enumerate(self.lines, 1):
            if not line.strip():
                blank += 1
                continue
            indented = line.startswith((" ", "\t"))
            if blank > 1:
                self.diagnostics.add(
                    "W902", "more than one blank line", self.at(number - blank + 1, 1)
                )
            elif blank and number == 2:
                self.diagnostics.add("W903", "a blank line at the start of the file", self.at(1, 1))
            apart = content_before.lstrip().startswith("//")
            if blank and indented and content_before and not apart:
                self.diagnostics.add(
                    "W906", "a blank line inside a definition", self.at(number - 1, 1)
                )
            opens = not indented and not line.startswith(")") and not self._goes_on(number)
            if not blank and opens and content_before and not apart:
                self.diagnostics.add(
                    "W905", "no blank line between two definitions", self.at(number, 1)
                )
            if not blank and apart and not line.lstrip().startswith("//"):
                self._check_alignment(number, len(line) - len(line.lstrip(" ")))
            blank = 0
            content_before = line
        if blank:
            self.diagnostics.add(
                "W903",
                "a blank line at the end of the file",
                self.at(len(self.lines) - blank + 1, 1),
            )

    def _goes_on(self, number: int) -> bool:
        """Whether the next line after the comments at line ``number`` continues the same definition."""
        for index in range(number - 1, len(self.lines)):
            line = self.lines[index]
            if not line.lstrip().startswith("//"):
                return line.startswith((" ", "\t", ")")) and bool(line.strip())
        return False

    def _check_alignment(self, number: int, indent: int) -> None:
        """Check that the comment block directly above line ``number`` has the same indent."""
        for above in range(number - 1, 0, -1):
            line = self.lines[above - 1]
            comment = line.lstrip(" \t")
            if not comment.startswith("//"):
                return
            if len(line) - len(comment) != indent:
                self.diagnostics.add(
                    "W909",
                    "a comment that is not aligned with the line that it documents",
                    self.at(above, len(line) - len(comment) + 1, 2),
                )

    def _bad(
        self,
        number: int,
        code: str,
        message: str,
        column: int,
        length: int = 1,
        hint: str = "",
        right: str | None = None,
    ) -> None:
        at = self.at(number, column, length)
        self.diagnostics.add(code, message, at, hint, fix=None if right is None else Fix(at, right))
        self.take_out(number)

    def take_out(self, number: int, *, below_only: bool = False) -> None:
        """Turn the line, and the deeper lines below it, into comments."""
        line = self.lines[number - 1]
        indent = indent_of(line)
        if not below_only:
            if indent == 0:
                self.unread.add(line.split(" ")[0].split(":")[0])
                if line.startswith("use "):
                    self.unread.update(re.findall(r"\w+", line))
            self.lines[number - 1] = "//"
            if indent:
                above = self.content_above(number)
                if self.lines[above - 1] and indent_of(self.lines[above - 1]) < indent:
                    self.gutted.add(above)
        for index in range(number, len(self.lines)):
            below = self.lines[index]
            if not below.strip() or below.lstrip().startswith("//"):
                continue
            if indent_of(below) <= indent and below != ")":
                break
            self.lines[index] = "//"
            if below == ")":
                break

    def content_above(self, number: int) -> int:
        """The number of the last line before ``number`` that is neither a comment nor blank, or 1."""
        number = max(1, min(number - 1, len(self.lines)))
        while number > 1 and not is_content(self.lines[number - 1]):
            number -= 1
        return number

    def doc_above(self, number: int) -> str:
        """The comment block directly above line ``number``, without slashes."""
        block: list[str] = []
        for index in range(number - 2, -1, -1):
            line = self.written[index].strip()
            if not line.startswith("//"):
                break
            block.append(line[3:] if line.startswith("// ") else line.lstrip("/"))
        block.reverse()
        return _CONTROL.sub(" ", "\n".join(block)).strip("\n")


def is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("//")


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
