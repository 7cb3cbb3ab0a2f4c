"""Parses a definition file into syntax nodes with source positions.

The grammar is ``grammar.lark``. The parser reports errors of text and syntax (codes E1xx and W9xx). It
removes a line that it cannot parse, together with the deeper lines below it, and parses the rest again, so
that one run reports every invalid line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from krammar.compiler.front.grammar import grammar
from krammar.compiler.front.lines import SourceLines
from krammar.compiler.front.nodes import definition
from krammar.compiler.front.syntax import EnumNode, StructNode, SyntaxFile, UseNode
from krammar.compiler.front.syntax_errors import report_syntax_error
from krammar.util.diagnostics import Diagnostics, Position


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
