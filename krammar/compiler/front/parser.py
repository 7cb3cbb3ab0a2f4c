"""Parses a definition file into syntax nodes with source positions.

The grammar is ``grammar.lark``. The parser reports errors of text and syntax (codes E1xx and W9xx). It
removes a line that it cannot parse, together with the deeper lines below it, and parses the rest again, so
that one run reports every invalid line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.indenter import Indenter
from lark.lexer import PatternStr

from krammar.compiler.front import habits
from krammar.util.diagnostics import Diagnostics, Fix, Position, meant, most_similar

INDENT = 2
# Code for deeper nesting would not be valid Python, which allows 20 nested loops and 100 levels of indent.
MAX_DEPTH = 16
# A number with leading zeros, or too long for every type.
_BAD_NUMBER = re.compile(r"(?<![0-9a-fA-FxX])(0\d+|\d{20,}|0x[0-9a-fA-F]{17,})")
# Characters that end a line, or are not shown, in tools that read generated code.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of source text and its position."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A type with a name: ``int32``, ``enum-ConfigType``, or a struct."""

    word: Word


@dataclass(frozen=True, slots=True)
class AnonymousNode:
    """An anonymous struct: ``=>``, ``nullable=>``. ``hint`` is its class name, as in ``=>Hint`` and ``[=>]Hint``."""

    prefix: Word | None
    arrow: Word
    hint: Word | None = None


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """An array: ``[int32]``, ``nullable[=>]Hint``."""

    prefix: Word | None
    element: TypeNode
    hint: Word | None = None


@dataclass(frozen=True, slots=True)
class LengthFieldMinusNode:
    length_field: Word
    minus: Word


TypeNode = NamedNode | AnonymousNode | ArrayNode | LengthFieldMinusNode


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A field. ``type`` is None for a name without a type (``ThrottleMillis``).

    ``reserved`` are the numbers in the lines ``reserved tag 3`` among the fields that it contains.
    """

    name: Word
    type: TypeNode | None
    default: Word | None
    annotations: tuple[tuple[str, Word], ...]
    fields: tuple[FieldNode, ...]
    doc: str
    reserved: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class StructNode:
    """A struct. Each modifier is the name of its grammar rule, and the word with its value.

    ``reserved`` is as for ``FieldNode``.
    """

    name: Word
    modifiers: tuple[tuple[str, Word], ...]
    fields: tuple[FieldNode, ...]
    doc: str
    reserved: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberNode:
    value: Word
    name: Word
    remarks: tuple[Word, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class EnumNode:
    name: Word
    type: Word
    camelcase: bool
    members: tuple[MemberNode, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class UseNode:
    """Definitions of another package: ``use kafka_wire: ErrorCode, RequestHeader``."""

    package: Word
    names: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SyntaxFile:
    """The definitions of a file.

    ``unread`` are the names of definitions with an invalid header; uses of these names are not reported.
    ``gutted`` are the lines below which the parser removed lines; they are not reported as empty.
    ``used`` is whether the definitions are from another package.
    """

    path: Path
    definitions: tuple[StructNode | EnumNode, ...]
    unread: frozenset[str] = frozenset()
    gutted: frozenset[int] = frozenset()
    uses: tuple[UseNode, ...] = ()
    used: bool = False


class _Indenter(Indenter):
    NL_type = "_NL"
    OPEN_PAREN_types: list[str] = []  # noqa: RUF012 - Lark's own declaration
    CLOSE_PAREN_types: list[str] = []  # noqa: RUF012
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = INDENT


@cache
def _lark() -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        postlex=_Indenter(),
        maybe_placeholders=True,
    )


def parse_file(path: Path, data: bytes, diagnostics: Diagnostics) -> SyntaxFile:
    """Parse the bytes of a definition file. Errors and warnings are added to ``diagnostics``."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        diagnostics.add_source(path, data.decode("utf-8", "replace"))
        diagnostics.add(
            "E101",
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            Position(path, line, column),
            "save the file as UTF-8",
        )
        return SyntaxFile(path, ())
    diagnostics.add_source(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))
    source = _Source(path, text, diagnostics)
    source.check_text()
    nodes = list(source.definitions())
    return SyntaxFile(
        path,
        tuple(node for node in nodes if not isinstance(node, UseNode)),
        frozenset(source.unread),
        frozenset(source.gutted),
        tuple(node for node in nodes if isinstance(node, UseNode)),
    )


@dataclass(slots=True)
class _Source:
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
        self._take_out(number)

    def _take_out(self, number: int, *, below_only: bool = False) -> None:
        """Turn the line, and the deeper lines below it, into comments."""
        line = self.lines[number - 1]
        indent = _indent(line)
        if not below_only:
            if indent == 0:
                self.unread.add(line.split(" ")[0].split(":")[0])
                if line.startswith("use "):
                    self.unread.update(re.findall(r"\w+", line))
            self.lines[number - 1] = "//"
            if indent:
                above = self._content_above(number)
                if self.lines[above - 1] and _indent(self.lines[above - 1]) < indent:
                    self.gutted.add(above)
        for index in range(number, len(self.lines)):
            below = self.lines[index]
            if not below.strip() or below.lstrip().startswith("//"):
                continue
            if _indent(below) <= indent and below != ")":
                break
            self.lines[index] = "//"
            if below == ")":
                break

    def _content_above(self, number: int) -> int:
        """The number of the last line before ``number`` that is neither a comment nor blank, or 1."""
        number = max(1, min(number - 1, len(self.lines)))
        while number > 1 and not _is_content(self.lines[number - 1]):
            number -= 1
        return number

    def definitions(self) -> Iterator[StructNode | EnumNode | UseNode]:
        """Parse each definition separately, so that an error repeats the parsing of one definition only."""
        starts = [
            index
            for index, line in enumerate(self.lines)
            if line[:1] not in ("", " ", ")") and not line.startswith("//")
        ]
        for start, end in pairwise([0, *starts[1:], len(self.lines)]):
            self.offset = start
            for node in self._parse(start, end).children:
                assert isinstance(node, Tree)
                yield _DEFINITIONS[node.data](node, self)

    def _parse(self, start: int, end: int) -> Tree[Token]:
        """Parse lines ``start`` to ``end``. Invalid lines are reported and removed until the rest is valid."""
        while True:
            before = self.lines[start:end]
            try:
                return _lark().parse("\n" + "\n".join(before) + "\n")
            except UnexpectedInput as error:
                self._syntax_error(error, start, end)
                if self.lines[start:end] == before:
                    # No line could be removed at the error, so skip the definition.
                    self.lines[start:end] = ["//"] * len(before)

    def _syntax_error(self, error: UnexpectedInput, start: int, end: int) -> None:
        number = start + min(error.line - 1, end - start)
        column = max(1, error.column)
        token = error.token if isinstance(error, UnexpectedToken) else None
        if token is not None and token.type == "_INDENT" and number <= start:
            # The header of these lines has been removed.
            for index in range(start, end):
                if _is_content(self.lines[index]) and not _indent(self.lines[index]):
                    break
                self.lines[index] = "//"
            return
        if token is not None and token.type == "_INDENT":
            indent = _indent(self.lines[number - 1])
            self.diagnostics.add(
                "E107",
                "indented lines below a line that cannot contain fields or members",
                self.at(number, indent + 1, len(self.lines[number - 1]) - indent),
                "only a header, and a field with the type `=>` or `[=>]`, can be followed by indented lines",
            )
            self._take_out(number, below_only=True)
            return
        if token is not None and token.type == "$END":
            number = end + 1
        wanted = _wanted(error)
        if wanted == {"RPAR"}:
            # An enum is not closed. Remove it, so that the following lines can be parsed.
            number = self._content_above(number)
            self.diagnostics.add(
                "E106",
                "the enum ends without `)`",
                self.at(number, len(self.lines[number - 1]) + 1),
                "write `)` on a separate line, at column 1",
            )
            while _indent(self.lines[number - 1]) and number > 1:
                number = self._content_above(number)
            self._take_out(number)
            return
        if wanted == {"_INDENT"}:
            # An indented line is missing, so report the line above.
            number = self._content_above(number)
            if number not in self.gutted:
                self.diagnostics.add(
                    "E106",
                    "the enum has no members",
                    self.at(number, 1, len(self.lines[number - 1])),
                    "write each member on an indented line: `  0: NAME`",
                )
            self._take_out(number)
            return
        if not start < number <= end or not _is_content(self.lines[number - 1]):
            # A definition is incomplete, and the error is at the next line. Report its last line.
            number = self._content_above(min(number, end) + 1)
            column = len(self.lines[number - 1]) + 1
        line = self.lines[number - 1]
        rest = line[column - 1 :]
        expected = self._expected(error)
        word = rest.split(" ")[0] if not rest.startswith(" ") else rest
        what = f'unexpected "{word}"' if rest else "the line is incomplete"
        message = f"{what}: expected {expected}" if expected else what
        hint, fix = self._habit(number)
        if not hint:
            hint, wrong, right = _syntax_hint(line, rest)
            if wrong:
                fix = Fix(self.at(number, column + rest.index(wrong), len(wrong)), right)
        at = self.at(number, column, max(1, len(word)))
        self.diagnostics.add("E106", message, at, hint, fix=fix)
        self._take_out(number)

    def _habit(self, number: int) -> tuple[str, Fix | None]:
        """The hint, and its replacement, for a line in the style of another language."""
        line = self.lines[number - 1]
        indent, text = _indent(line), line.strip()
        above = number - 1
        while above and (
            _indent(self.written[above - 1]) or not _is_content(self.written[above - 1])
        ):
            above -= 1
        in_enum = above > 0 and habits.is_enum(self.written[above - 1].rstrip())
        if line == "}":
            if in_enum:
                return "`)` ends an enum", Fix(self.at(number, 1, 1), ")")
            return "the indent shows where a struct ends: remove the brace", None
        if text.startswith(("#", "/*")):
            return "a comment begins with `//`", None
        if not indent:
            rewritten = habits.rewrite_header(text)
            around = "{}\n  0: A\n)" if habits.is_enum(rewritten.text) else "{}"
        elif in_enum:
            rewritten, around = habits.rewrite_member(text), "A int8 (\n  {}\n)"
        else:
            rewritten, around = habits.rewrite_field(text), "A =>\n  {}"
        advice = habits.field_advice(rewritten.text) if around == "A =>\n  {}" else ""
        if advice or rewritten.text == text or not _is_valid(around.format(rewritten.text)):
            return advice, None
        hint = f"write `{rewritten.text}`"
        if rewritten.reasons:
            hint = f"{', and '.join(rewritten.reasons[-2:])}: {hint}"
        start, end, right = habits.difference(text, rewritten.text)
        return hint, Fix(self.at(number, indent + start + 1, end - start), right)

    def _expected(self, error: UnexpectedInput) -> str:
        shown = []
        for name in _wanted(error) - {"_DEDENT", "_INDENT", "_USE", "_RESERVED", "$END"}:
            if name in _EXPECTED:
                shown.append(_EXPECTED[name])
            else:
                pattern = _lark().get_terminal(name).pattern
                shown.append(f"`{pattern.value}`" if isinstance(pattern, PatternStr) else name)
        shown.sort()
        return (
            shown[0]
            if len(shown) == 1
            else ", ".join(shown[:-1]) + (f" or {shown[-1]}" if shown else "")
        )

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


_TAB_HINT = "indent each level with two spaces"

_EXPECTED = {
    "NAME": "a name",
    "WORD": "a type",
    "INT": "a number",
    "FROM": "a version such as `v3+`",
    "RANGE": "versions such as `v3+` or `v3-v5`",
    "DEFAULT": "a default in parentheses",
    "ANONYMOUS": "`=>`",
    "LOWER": "a word in lower case",
    "ROUTING": "`admin` or a coordinator such as `group coordinator`",
    "DOTTED": "the name of a message's struct",
    "CAMELCASE": "`camelcase`",
    "_ARROW": "` =>`",
    "_COLON": "`: ` and a type",
    "_COMMA": "`, `",
    "_MINUS": "` - ` and a number",
    "_COMMENT": "` // ` and an annotation",
    "_OPEN": "` (`",
    "_OF": "`: ` and names",
    "PACKAGE": "the name of a package",
    "_SP": "one space",
    "_NL": "the end of the line",
}

_MODIFIERS = (
    "not top level",
    "with version field",
    "no encoding",
    "key",
    "max version",
    "min version",
    "flexible",
    "admin",
    "group coordinator",
    "txn coordinator",
    "share coordinator",
    "frequent",
)


def _wanted(error: UnexpectedInput) -> set[str]:
    """The names of the terminals that the parser accepts at the error."""
    if isinstance(error, UnexpectedCharacters):
        return set(error.allowed or ())
    if isinstance(error, UnexpectedToken):
        return set(error.accepts or error.expected or ())
    return set()


def _is_valid(text: str) -> bool:
    try:
        _lark().parse(f"\n{text}\n")
    except UnexpectedInput:
        return False
    return True


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("//")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _syntax_hint(line: str, rest: str) -> tuple[str, str, str]:
    """A hint, and the part of ``rest`` that the hint recommends to replace, with its replacement."""
    if " => " in line and not line.startswith(" ") and not rest.startswith("from "):
        wanted = rest.strip(" ,").split(",")[0]
        near = most_similar(wanted, _MODIFIERS)
        if near and not rest.lstrip().startswith("#"):
            # `flexibl v9+` is replaced without its version.
            words = wanted.split(" ")[: len(near.split(" "))]
            while len(words) > 1 and words[-1].lstrip("v")[:1].isdigit():
                words.pop()
            return meant(near), " ".join(words), near
    return _general_hint(line, rest), "", ""


def _general_hint(line: str, rest: str) -> str:
    if rest.lstrip().startswith("#"):
        return "a comment begins with `//`"
    if " => " in line and not line.startswith(" "):
        if rest.startswith("from "):
            return "a response has no modifiers and directly follows its request"
        return "the modifiers are " + ", ".join(_MODIFIERS)
    alone = re.match(r"v(\d+)(,|$)", rest)
    if alone is not None and " // " in line:
        number = alone[1]
        return f"write `v{number}-v{number}` for version {number} only, or `v{number}+` for all from {number}"
    if re.match(" +reserved ", line, re.I) or rest.startswith("reserved "):
        return "tags of removed fields are on lines of their own: `reserved tag 3` or `reserved tag 3, 5`"
    if line.startswith(" ") and (
        "//" in line[: len(line) - len(rest) + 3] or rest.startswith(" /")
    ):
        return (
            "annotations are `v3+`, `v3-v5`, `tag 0`, `not flexible`, `ignorable` and `entity topicName`, "
            "separated by `, `; "
            "write comments on the lines above the field"
        )
    if line.startswith(" ") and ":" in line and ": " not in line:
        return "a field is written `Name: type`, with one space after the colon"
    if re.match(r" +[A-Za-z]\w* [^ /(]", line):
        return "a field is written `Name: type`, with a colon"
    if re.match(r" +-?\d+ \w", line):
        return "a member of an enum is written `0: NAME`, with a colon"
    return ""


def _word(token: Any, source: _Source) -> Word:
    assert isinstance(token, Token)
    line, column = token.line or 1, token.column or 1
    at = source.at(source.offset + line - 1, column, max(1, len(token)))
    text = str(token)
    if token.type in ("INT", "FROM", "RANGE") or text.startswith("nullable-"):
        text = _checked_numbers(text, at, source)
    return Word(text, at)


def _checked_numbers(text: str, at: Position, source: _Source) -> str:
    """Report numbers with leading zeros or too many digits, and return ``text`` with valid numbers."""

    def correct(match: re.Match[str]) -> str:
        digits = match[0]
        plain = digits.lstrip("0") or "0"
        if digits.isdigit() and plain != digits and len(plain) < 20:
            source.diagnostics.add(
                "E108",
                f"the number {digits} has leading zeros",
                at,
                f"write {plain}",
                fix=Fix(
                    replace(at, column=at.column + match.start(), length=len(digits)),
                    plain,
                ),
            )
            return plain
        source.diagnostics.add(
            "E108", f"a number with {len(digits)} digits is too long for every type", at
        )
        return "0"

    return _BAD_NUMBER.sub(correct, text)


def _optional(token: Any, source: _Source) -> Word | None:
    return None if token is None else _word(token, source)


def _struct(node: Tree[Token], source: _Source) -> StructNode:
    name = _word(node.children[0], source)
    modifiers = []
    for child in node.children[1:-1]:
        assert isinstance(child, Tree)
        value = _word(child.children[0], source) if child.children else Word("", name.position)
        modifiers.append((str(child.data), value))
    return StructNode(
        name,
        tuple(modifiers),
        _fields(node.children[-1], source),
        source.doc_above(name.position.line),
        _reserved(node.children[-1], source),
    )


def _fields(node: Any, source: _Source) -> tuple[FieldNode, ...]:
    if node is None:
        return ()
    return tuple(_field(child, source) for child in node.children if child.data != "reserved")


def _reserved(node: Any, source: _Source) -> tuple[Word, ...]:
    """The numbers of the lines `reserved tag 0, 3` among fields."""
    lines = () if node is None else (each for each in node.children if each.data == "reserved")
    return tuple(_word(number, source) for line in lines for number in line.children)


def _field(node: Tree[Token], source: _Source) -> FieldNode:
    children: Sequence[Any] = node.children
    name = _word(children[0], source)
    bare = node.data == "shorthand"
    default, annotations, nested = children[-3:]
    listed: tuple[tuple[str, Word], ...] = ()
    if annotations is not None:
        listed = tuple(
            (str(a.data), _word(a.children[0], source) if a.children else Word("", name.position))
            for a in annotations.children
        )
    return FieldNode(
        name,
        None if bare else _type(children[1], source),
        _optional(default, source),
        listed,
        _fields(nested, source),
        source.doc_above(name.position.line),
        _reserved(nested, source),
    )


def _type(node: Tree[Token], source: _Source) -> TypeNode:
    children: Sequence[Any] = node.children
    match node.data:
        case "named":
            return NamedNode(_word(children[0], source))
        case "length_field_minus":
            return LengthFieldMinusNode(_word(children[0], source), _word(children[1], source))
        case "anonymous":
            prefix, arrow, hint = children
            return AnonymousNode(
                _prefix(prefix, source), _word(arrow, source), _optional(hint, source)
            )
        case "anonymous_element":
            arrow, hint = children
            return AnonymousNode(None, _word(arrow, source), _optional(hint, source))
        case "nested_array":
            return ArrayNode(None, _type(children[0], source))
        case _:
            prefix, element, hint = children
            return ArrayNode(
                _prefix(prefix, source), _type(element, source), _optional(hint, source)
            )


def _prefix(node: Any, source: _Source) -> Word | None:
    return None if node is None else _word(node.children[0], source)


def _enum(node: Tree[Token], source: _Source) -> EnumNode:
    name, type_, camelcase, *members = (child for child in node.children)
    word = _word(name, source)
    return EnumNode(
        word,
        _word(type_, source),
        camelcase is not None,
        tuple(_member(member, source) for member in members if isinstance(member, Tree)),
        source.doc_above(word.position.line),
    )


def _member(node: Tree[Token], source: _Source) -> MemberNode:
    value, name, *remarks = node.children
    word = _word(value, source)
    return MemberNode(
        word,
        _word(name, source),
        tuple(_word(remark.children[0], source) for remark in remarks if isinstance(remark, Tree)),
        source.doc_above(word.position.line),
    )


def _use(node: Tree[Token], source: _Source) -> UseNode:
    package, *listed = (_word(child, source) for child in node.children)
    return UseNode(package, tuple(listed))


_DEFINITIONS: dict[str, Callable[[Tree[Token], _Source], StructNode | EnumNode | UseNode]] = {
    "struct": _struct,
    "enum": _enum,
    "use": _use,
}
