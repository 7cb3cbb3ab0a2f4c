"""Text to syntax: one definition file becomes nodes that still carry their source positions.

The grammar is ``grammar.lark``. What is found here is about text and syntax alone (codes E1xx and
W9xx). A line that cannot be read is taken out, together with the deeper lines below it, and the rest
is read again, so that one run reports every broken line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.indenter import Indenter
from lark.lexer import PatternStr

from krammar.compiler.findings import Findings, Position, did_you_mean

INDENT = 2
# Deeper nesting than anyone writes; what reads and writes it would not be valid Python (which
# allows 20 nested loops and 100 levels of indent).
MAX_DEPTH = 16
# A number that is not written as it should be, or too long for any type.
_BAD_NUMBER = re.compile(r"(?<![0-9a-fA-FxX])(0\d+|\d{20,}|0x[0-9a-fA-F]{17,})")
# What ends a line, or cannot be shown, for one of the tools that read generated code.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of source text and where it stands."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class NamedNode:
    word: Word


@dataclass(frozen=True, slots=True)
class AnonymousNode:
    prefix: Word | None
    arrow: Word
    hint: Word | None = None


@dataclass(frozen=True, slots=True)
class ArrayNode:
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
    """A field; ``type`` is None for a bare name (``ThrottleMillis``), ``fields`` what is nested in it."""

    name: Word
    type: TypeNode | None
    default: Word | None
    annotations: tuple[tuple[str, Word], ...]
    fields: tuple[FieldNode, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class StructNode:
    """A struct's header and fields. A modifier is its rule's name and the word that gives its value."""

    name: Word
    modifiers: tuple[tuple[str, Word], ...]
    fields: tuple[FieldNode, ...]
    doc: str


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
class SyntaxFile:
    """What a definition file says. ``unread`` are names of definitions whose header is broken, so
    that uses of them are not reported as well; ``gutted`` the lines that lost deeper ones below them,
    so that they are not reported as empty."""

    path: Path
    definitions: tuple[StructNode | EnumNode, ...]
    unread: frozenset[str] = frozenset()
    gutted: frozenset[int] = frozenset()


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
        propagate_positions=True,
        maybe_placeholders=True,
    )


def parse_file(path: Path, data: bytes, findings: Findings) -> SyntaxFile:
    """Read the bytes of one definition file; what is wrong with them goes to ``findings``."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        findings.add_source(path, data.decode("utf-8", "replace"))
        findings.add(
            "E101",
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            Position(path, line, column),
            "definition files are UTF-8 text",
        )
        return SyntaxFile(path, ())
    findings.add_source(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))
    source = _Source(path, text, findings)
    source.check_text()
    tree = source.parse()
    return SyntaxFile(
        path,
        tuple(_definitions(tree, source)),
        frozenset(source.unread),
        frozenset(source.gutted),
    )


@dataclass(slots=True)
class _Source:
    """The lines of a file while it is read. A line that is taken out becomes an empty comment, so
    that all others keep their numbers."""

    path: Path
    text: str
    findings: Findings
    lines: list[str] = field(init=False)
    unread: set[str] = field(default_factory=set)
    gutted: set[int] = field(default_factory=set)

    def at(self, line: int, column: int, length: int = 1) -> Position:
        return Position(self.path, line, column, length)

    def check_text(self) -> None:
        """Findings about lines and spaces; sets ``lines`` to what the grammar gets to see."""
        text = self.text
        if text.startswith("\ufeff"):
            text = text[1:]
            self.findings.add("W907", "the file begins with a byte order mark", self.at(1, 1))
        if "\r\n" in text:
            line = text[: text.index("\r\n")].count("\n") + 1
            text = text.replace("\r\n", "\n")
            self.findings.add("W908", "lines end in \\r\\n, not \\n", self.at(line, 1))
        if text and not text.endswith("\n"):
            last = text.count("\n") + 1
            column = len(text) - text.rfind("\n")
            self.findings.add("W904", "the file does not end with a newline", self.at(last, column))
        self.lines = text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self._check_blank_lines()
        before = -1
        for number, text_line in enumerate(self.lines, 1):
            content = text_line.rstrip(" ")
            if content != text_line:
                self.findings.add(
                    "W901",
                    "trailing spaces",
                    self.at(number, len(content) + 1, len(text_line) - len(content)),
                )
                self.lines[number - 1] = content
            depth = self._check_line(number, content, before)
            if depth is not None:
                before = depth

    def _check_line(self, number: int, line: str, before: int) -> int | None:
        """Check one line's indent and spaces; its depth, or None for comments and blank lines."""
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
            return None  # taken out together with a broken line above it
        indent = len(line) - len(stripped)
        if indent % INDENT:
            self._bad(
                number, "E103", f"an indent of {indent} spaces", 1, indent, "a level is two spaces"
            )
            return None
        depth = indent // INDENT
        if depth > before + 1:
            expected = max(0, before + 1) * INDENT
            hint = (
                f"at most {expected} spaces can stand here"
                if expected
                else "a definition begins at column 1"
            )
            self._bad(number, "E104", "an indent that jumps over a level", 1, indent, hint)
            return None
        if depth > MAX_DEPTH or code.count("[") > MAX_DEPTH:
            self._bad(
                number,
                "E109",
                f"nesting deeper than {MAX_DEPTH} levels",
                indent + 1,
                len(code.strip()),
                "give an inner struct a name of its own",
            )
            return None
        double = code.rstrip(" ").find("  ", indent)
        if double >= 0:
            self._bad(number, "E105", "two spaces where one belongs", double + 1, 2)
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
                self.findings.add(
                    "W902", "more than one blank line", self.at(number - blank + 1, 1)
                )
            elif blank and number == 2:
                self.findings.add("W903", "a blank line at the start of the file", self.at(1, 1))
            apart = content_before.lstrip().startswith("//")
            if blank and indented and content_before and not apart:
                self.findings.add(
                    "W906", "a blank line inside a definition", self.at(number - 1, 1)
                )
            opens = not indented and not line.startswith(")") and not self._goes_on(number)
            if not blank and opens and content_before and not apart:
                self.findings.add(
                    "W905", "no blank line between two definitions", self.at(number, 1)
                )
            if not blank and apart and not line.lstrip().startswith("//"):
                self._check_alignment(number, len(line) - len(line.lstrip(" ")))
            blank = 0
            content_before = line
        if blank:
            self.findings.add(
                "W903",
                "a blank line at the end of the file",
                self.at(len(self.lines) - blank + 1, 1),
            )

    def _goes_on(self, number: int) -> bool:
        """Whether line ``number`` is a comment above a line of the definition that it stands in."""
        for line in self.lines[number - 1 :]:
            if not line.lstrip().startswith("//"):
                return line.startswith((" ", "\t", ")")) and bool(line.strip())
        return False

    def _check_alignment(self, number: int, indent: int) -> None:
        """The comment block directly above line ``number`` has the indent of what it documents."""
        for above in range(number - 1, 0, -1):
            line = self.lines[above - 1]
            comment = line.lstrip(" \t")
            if not comment.startswith("//"):
                return
            if len(line) - len(comment) != indent:
                self.findings.add(
                    "W909",
                    "a comment that is not aligned with what it documents",
                    self.at(above, len(line) - len(comment) + 1, 2),
                )

    def _bad(
        self, number: int, code: str, message: str, column: int, length: int = 1, hint: str = ""
    ) -> None:
        self.findings.add(code, message, self.at(number, column, length), hint)
        self._take_out(number)

    def _take_out(self, number: int, *, below_only: bool = False) -> None:
        """Make the line, and the deeper lines below it, comments."""
        line = self.lines[number - 1]
        indent = _indent(line)
        if not below_only:
            if indent == 0:
                self.unread.add(line.split(" ")[0].split(":")[0])
            self.lines[number - 1] = "//"
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
        """The number of the last line before ``number`` that is no comment and not blank; or 1."""
        number = max(1, min(number - 1, len(self.lines)))
        while number > 1 and not _is_content(self.lines[number - 1]):
            number -= 1
        return number

    def parse(self) -> Tree[Token]:
        """Parse until nothing is left that cannot be read."""
        while True:
            try:
                return _lark().parse("\n" + "\n".join(self.lines) + "\n")
            except UnexpectedInput as error:
                before = list(self.lines)
                self._syntax_error(error)
                if self.lines == before:
                    # Nothing is left to take out where the error shows: give up on the rest.
                    self.lines = ["//"] * len(before)

    def _syntax_error(self, error: UnexpectedInput) -> None:
        number = min(error.line - 1, len(self.lines))
        column = max(1, error.column)
        token = error.token if isinstance(error, UnexpectedToken) else None
        if token is not None and token.type == "_INDENT" and number < 1:
            # What the first lines belonged to has been taken out.
            for index, line in enumerate(self.lines):
                if _is_content(line) and not _indent(line):
                    break
                self.lines[index] = "//"
            return
        if token is not None and token.type == "_INDENT":
            indent = _indent(self.lines[number - 1])
            self.findings.add(
                "E107",
                "deeper lines below a line that cannot have any",
                self.at(number, indent + 1, len(self.lines[number - 1]) - indent),
                "only a struct field (`=>`, `[=>]`) or a header has deeper lines",
            )
            self._take_out(number, below_only=True)
            return
        if token is not None and token.type == "$END":
            number = len(self.lines) + 1
        wanted = _wanted(error)
        if wanted == {"RPAR"}:
            # An enum that is not closed: without it what follows can be read.
            number = self._content_above(number)
            self.findings.add(
                "E106",
                "the enum ends without its `)`",
                self.at(number, len(self.lines[number - 1]) + 1),
                "it stands on a line of its own, at column 1",
            )
            while _indent(self.lines[number - 1]) and number > 1:
                number = self._content_above(number)
            self._take_out(number)
            return
        if wanted == {"_INDENT"}:
            # What should be deeper is not: the line above it is the one that lacks something.
            number = self._content_above(number)
            if number not in self.gutted:
                self.findings.add(
                    "E106",
                    "no deeper lines below a line that needs them",
                    self.at(number, 1, len(self.lines[number - 1])),
                    "an enum has members: `0: NAME`",
                )
            self._take_out(number)
            return
        if not 1 <= number <= len(self.lines) or not _is_content(self.lines[number - 1]):
            # The error shows at what follows a definition that stops too early: blame its last line.
            number = self._content_above(number + 1)
            column = len(self.lines[number - 1]) + 1
        line = self.lines[number - 1]
        rest = line[column - 1 :]
        expected = self._expected(error)
        word = rest.split(" ")[0] if not rest.startswith(" ") else rest
        what = f'unexpected "{word}"' if rest else "the line ends too early"
        message = f"{what}: expected {expected}" if expected else what
        self.findings.add(
            "E106", message, self.at(number, column, max(1, len(word))), _syntax_hint(line, rest)
        )
        self._take_out(number)

    def _expected(self, error: UnexpectedInput) -> str:
        shown = []
        for name in _wanted(error) - {"_DEDENT", "_INDENT", "$END"}:
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
        """The comment block directly above line ``number``, without its slashes."""
        original = self.text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        block: list[str] = []
        for index in range(number - 2, -1, -1):
            line = original[index].strip()
            if not line.startswith("//"):
                break
            block.append(line[3:] if line.startswith("// ") else line.lstrip("/"))
        block.reverse()
        return _CONTROL.sub(" ", "\n".join(block)).strip("\n")


_TAB_HINT = "definitions are indented with two spaces a level"

_EXPECTED = {
    "NAME": "a name",
    "WORD": "a type",
    "INT": "a number",
    "FROM": "a version such as `v3+`",
    "RANGE": "versions such as `v3+` or `v3-v5`",
    "DEFAULT": "a default in parentheses",
    "ANONYMOUS": "`=>`",
    "LOWER": "a word in lower case",
    "ROUTING": "`admin` or a coordinator",
    "CAMELCASE": "`camelcase`",
    "_ARROW": "` =>` behind one space",
    "_COLON": "`: ` and a type",
    "_COMMA": "`, `",
    "_MINUS": "` - ` and a number",
    "_COMMENT": "` // ` and an annotation",
    "_OPEN": "` (`",
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
)


def _wanted(error: UnexpectedInput) -> set[str]:
    """The names of the terminals that could stand where the error is."""
    if isinstance(error, UnexpectedCharacters):
        return set(error.allowed or ())
    if isinstance(error, UnexpectedToken):
        return set(error.accepts or error.expected or ())
    return set()


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("//")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _syntax_hint(line: str, rest: str) -> str:
    if " => " in line and not line.startswith(" "):
        if rest.startswith("from "):
            return "a response has no modifier: it directly follows its request"
        wanted = rest.strip(" ,").split(",")[0]
        return did_you_mean(wanted, _MODIFIERS) or "modifiers are " + ", ".join(_MODIFIERS)
    if line.startswith(" ") and (
        "//" in line[: len(line) - len(rest) + 3] or rest.startswith(" /")
    ):
        return (
            "behind a type stands `v3+`, `v3-v5`, `tag 0`, `v8+, tag 0` or `not flexible`; "
            "prose goes on a line above"
        )
    if line.startswith(" ") and ":" in line and ": " not in line:
        return "a field is written `Name: type`, with one space behind the colon"
    return ""


def _definitions(tree: Tree[Token], source: _Source) -> Iterator[StructNode | EnumNode]:
    for node in tree.children:
        assert isinstance(node, Tree)
        yield _struct(node, source) if node.data == "struct" else _enum(node, source)


def _word(token: Any, source: _Source) -> Word:
    assert isinstance(token, Token)
    line, column = token.line or 1, token.column or 1
    at = source.at(line - 1, column, max(1, len(token)))
    text = str(token)
    if token.type in ("INT", "FROM", "RANGE") or text.startswith("nullable-"):
        text = _checked_numbers(text, at, source)
    return Word(text, at)


def _checked_numbers(text: str, at: Position, source: _Source) -> str:
    """``text`` with numbers that can be read; ``007`` and longer ones than any type holds are found."""

    def mend(match: re.Match[str]) -> str:
        digits = match[0]
        plain = digits.lstrip("0") or "0"
        if digits.isdigit() and plain != digits and len(plain) < 20:
            source.findings.add("E108", f"the number {digits} begins with 0", at, f"write {plain}")
            return plain
        source.findings.add("E108", f"a number of {len(digits)} digits", at)
        return "0"

    return _BAD_NUMBER.sub(mend, text)


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
    )


def _fields(node: Any, source: _Source) -> tuple[FieldNode, ...]:
    return () if node is None else tuple(_field(child, source) for child in node.children)


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
    )


def _type(node: Tree[Token], source: _Source) -> TypeNode:
    children: Sequence[Any] = node.children
    match node.data:
        case "named":
            return NamedNode(_word(children[0], source))
        case "length_field_minus":
            return LengthFieldMinusNode(_word(children[0], source), _word(children[1], source))
        case "anonymous":
            prefix, arrow = children
            return AnonymousNode(_prefix(prefix, source), _word(arrow, source))
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
