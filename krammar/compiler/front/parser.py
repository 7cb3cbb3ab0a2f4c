"""Parses a definition file into syntax nodes with source positions.

The grammar is ``grammar.lark``. The parser reports errors of text and syntax (codes E1xx and W9xx). It
removes a line that it cannot parse, together with the deeper lines below it, and parses the rest again, so
that one run reports every invalid line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from krammar.compiler.front.grammar import grammar
from krammar.compiler.front.lines import SourceLines
from krammar.compiler.front.syntax import (
    AnonymousNode,
    ArrayNode,
    EnumNode,
    FieldNode,
    LengthFieldMinusNode,
    MemberNode,
    NamedNode,
    StructNode,
    SyntaxFile,
    TypeNode,
    UseNode,
    Word,
)
from krammar.compiler.front.syntax_errors import report_syntax_error
from krammar.util.diagnostics import Diagnostics, Fix, Position

# Syntax nodes of Lark's trees.

# A number with leading zeros, or too long for every type.
_BAD_NUMBER = re.compile(r"(?<![0-9a-fA-FxX])(0\d+|\d{21,}|0x[0-9a-fA-F]{17,})")


def definition(tree: Tree[Token], source: SourceLines) -> StructNode | EnumNode | UseNode:
    """Return the node of a definition. ``source.offset`` is the number of lines before it."""
    return _DEFINITIONS[tree.data](tree, source)


def _word(token: Any, source: SourceLines) -> Word:
    assert isinstance(token, Token)
    line, column = token.line or 1, token.column or 1
    at = source.at(source.offset + line - 1, column, max(1, len(token)))
    text = str(token)
    if token.type in ("INT", "FROM", "RANGE") or text.startswith("nullable-"):
        text = _checked_numbers(text, at, source)
    return Word(text, at)


def _checked_numbers(text: str, at: Position, source: SourceLines) -> str:
    """Report numbers with leading zeros or too many digits, and return ``text`` with valid numbers."""

    def correct(match: re.Match[str]) -> str:
        digits = match[0]
        plain = digits.lstrip("0") or "0"
        if digits.isdigit() and plain != digits and len(plain) <= 20:
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


def _optional(token: Any, source: SourceLines) -> Word | None:
    return None if token is None else _word(token, source)


def _struct(node: Tree[Token], source: SourceLines) -> StructNode:
    name = _word(node.children[0], source)
    modifiers = []
    for child in node.children[1:-1]:
        assert isinstance(child, Tree)
        words = [_word(part, source) for part in child.children if part is not None]
        value = words[0] if words else Word("", name.position)
        if len(words) > 1:
            value = Word(f"{words[0].text} {words[1].text}", value.position)
        modifiers.append((str(child.data), value))
    return StructNode(
        name,
        tuple(modifiers),
        _fields(node.children[-1], source),
        source.doc_above(name.position.line),
        _reserved(node.children[-1], source),
    )


def _fields(node: Any, source: SourceLines) -> tuple[FieldNode, ...]:
    if node is None:
        return ()
    return tuple(_field(child, source) for child in node.children if child.data != "reserved")


def _reserved(node: Any, source: SourceLines) -> tuple[Word, ...]:
    """The numbers of the lines `reserved tag 0, 3` among fields."""
    lines = () if node is None else (each for each in node.children if each.data == "reserved")
    return tuple(_word(number, source) for line in lines for number in line.children)


def _field(node: Tree[Token], source: SourceLines) -> FieldNode:
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


def _type(node: Tree[Token], source: SourceLines) -> TypeNode:
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


def _prefix(node: Any, source: SourceLines) -> Word | None:
    return None if node is None else _word(node.children[0], source)


def _enum(node: Tree[Token], source: SourceLines) -> EnumNode:
    name, type_, camelcase, *members = (child for child in node.children)
    word = _word(name, source)
    return EnumNode(
        word,
        _word(type_, source),
        camelcase is not None,
        tuple(_member(member, source) for member in members if isinstance(member, Tree)),
        source.doc_above(word.position.line),
    )


def _member(node: Tree[Token], source: SourceLines) -> MemberNode:
    value, name, *remarks = node.children
    word = _word(value, source)
    return MemberNode(
        word,
        _word(name, source),
        tuple(_word(remark.children[0], source) for remark in remarks if isinstance(remark, Tree)),
        source.doc_above(word.position.line),
    )


def _use(node: Tree[Token], source: SourceLines) -> UseNode:
    package, *listed = (_word(child, source) for child in node.children)
    return UseNode(package, tuple(listed))


_DEFINITIONS: dict[str, Callable[[Tree[Token], SourceLines], StructNode | EnumNode | UseNode]] = {
    "struct": _struct,
    "enum": _enum,
    "use": _use,
}


# Parsing.


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
    source = SourceLines(path, text, diagnostics)
    source.check_text()
    nodes = list(_definitions(source))
    return SyntaxFile(
        path,
        tuple(node for node in nodes if not isinstance(node, UseNode)),
        frozenset(source.unread),
        frozenset(source.gutted),
        tuple(node for node in nodes if isinstance(node, UseNode)),
    )


def _definitions(source: SourceLines) -> Iterator[StructNode | EnumNode | UseNode]:
    """Parse each definition separately, so that an error repeats the parsing of one definition only."""
    starts = [
        index
        for index, line in enumerate(source.lines)
        if line[:1] not in ("", " ", ")") and not line.startswith("//")
    ]
    for start, end in pairwise([0, *starts[1:], len(source.lines)]):
        source.offset = start
        for node in _parse(source, start, end).children:
            assert isinstance(node, Tree)
            yield definition(node, source)


def _parse(source: SourceLines, start: int, end: int) -> Tree[Token]:
    """Parse lines ``start`` to ``end``. Invalid lines are reported and removed until the rest is valid."""
    while True:
        before = source.lines[start:end]
        try:
            return grammar().parse("\n" + "\n".join(before) + "\n")
        except UnexpectedInput as error:
            report_syntax_error(error, source, start, end)
            if source.lines[start:end] == before:
                # No line could be removed at the error, so skip the definition.
                source.lines[start:end] = ["//"] * len(before)
