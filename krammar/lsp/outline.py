"""What an editor shows of a whole file: outline, what can be folded, lenses above messages, kinds of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp

from krammar.compiler.front.syntax import EnumNode, FieldNode, StructNode
from krammar.compiler.layout_table import layout_table
from krammar.highlighting.scanner import LexemeKind, scan
from krammar.lsp.project import Analysis, SourceFile
from krammar.lsp.symbols import Node, last_line
from krammar.lsp.text import SourceText

SHOW_BYTES = "krammar.showBytes"


def outline(file: SourceFile) -> list[lsp.DocumentSymbol]:
    """Return the definitions with their fields and members."""
    return [_symbol(file, definition) for definition in file.syntax.definitions]


def _symbol(file: SourceFile, node: Node) -> lsp.DocumentSymbol:
    children: list[lsp.DocumentSymbol] = []
    detail = ""
    match node:
        case StructNode():
            kind = lsp.SymbolKind.Struct
            children = [_symbol(file, field) for field in node.fields]
        case EnumNode():
            kind = lsp.SymbolKind.Enum
            detail = node.type.text
            children = [_symbol(file, member) for member in node.members]
        case FieldNode():
            kind = lsp.SymbolKind.Field
            row = file.text.rows[node.name.position.line - 1]
            detail = row.partition(": ")[2]
            children = [_symbol(file, field) for field in node.fields]
        case _:
            kind = lsp.SymbolKind.EnumMember
            detail = node.value.text
    first, last = node.name.position.line - 1, last_line(node) - 1
    if isinstance(node, EnumNode) and file.text.rows[last + 1 : last + 2] == [")"]:
        last += 1
    return lsp.DocumentSymbol(
        node.name.text,
        kind,
        file.text.row_range(first, last),
        file.text.at(node.name.position),
        detail=detail,
        children=children,
    )


def workspace_symbols(analyses: Sequence[Analysis], query: str) -> Iterator[lsp.WorkspaceSymbol]:
    """Yield the definitions whose names contain the letters of ``query`` in order."""
    for analysis in analyses:
        for file in analysis.files.values():
            for node in file.syntax.definitions:
                letters = iter(node.name.text.lower())
                if all(letter in letters for letter in query.lower()):
                    yield lsp.WorkspaceSymbol(
                        lsp.Location(file.uri, file.text.at(node.name.position)),
                        node.name.text,
                        (
                            lsp.SymbolKind.Enum
                            if isinstance(node, EnumNode)
                            else lsp.SymbolKind.Struct
                        ),
                    )


def foldings(text: SourceText) -> list[lsp.FoldingRange]:
    """Return what can be folded: lines with deeper lines below them, and comments of several lines.

    Indents are enough, so a text that does not parse can be folded too.
    """
    found = []
    # Lines that wait for the end of their deeper lines: index and indent.
    waiting: list[tuple[int, int]] = []
    last = -1
    comment: int | None = None
    for index, row in enumerate([*text.rows, "end"]):
        stripped = row.strip()
        if stripped.startswith("//"):
            comment = index if comment is None else comment
            continue
        if comment is not None and index - 1 > comment:
            found.append(_folding(text, comment, index - 1, lsp.FoldingRangeKind.Comment))
        comment = None
        if not stripped:
            continue
        indent = len(row) - len(row.lstrip(" \t"))
        while waiting and waiting[-1][1] >= indent:
            start, outer = waiting.pop()
            end = index if stripped == ")" and outer == indent else last
            if end > start:
                found.append(_folding(text, start, end, None))
        waiting.append((index, indent))
        last = index
    return found


def _folding(
    text: SourceText, first: int, last: int, kind: lsp.FoldingRangeKind | None
) -> lsp.FoldingRange:
    area = text.row_range(first, last)
    return lsp.FoldingRange(area.start.line, area.end.line, kind=kind)


def lenses(analysis: Analysis, file: SourceFile) -> list[lsp.CodeLens]:
    """Return the lenses above each message: its versions, and "show bytes"."""
    found = []
    for node in file.syntax.definitions:
        struct = analysis.structs.get(node.name.text)
        if struct is None or not struct.encoding or struct.position != node.name.position:
            continue
        table = layout_table(struct)
        count = len(table.layouts)
        title = f"versions {table.min_version} to {table.max_version}"
        if struct.max_version is None:
            title = f"versions {table.min_version} and up"
        elif table.min_version == table.max_version:
            title = f"version {table.min_version}"
        if struct.flexible_from is not None:
            title += f", flexible from {struct.flexible_from}"
        title += f", {count} layout{'s' * (count != 1)}"
        at = file.text.at(node.name.position)
        uri = file.uri
        found += [
            lsp.CodeLens(
                at, lsp.Command(title, SHOW_BYTES, arguments=[uri, struct.name, table.max_version])
            ),
            lsp.CodeLens(at, lsp.Command("show bytes", SHOW_BYTES, arguments=[uri, struct.name])),
        ]
    return found


# Semantic highlighting: the kinds of words, in the encoding of LSP.

_TYPES = {
    LexemeKind.COMMENT: lsp.SemanticTokenTypes.Comment,
    LexemeKind.DEFINITION: lsp.SemanticTokenTypes.Class,
    LexemeKind.FIELD: lsp.SemanticTokenTypes.Property,
    LexemeKind.MEMBER: lsp.SemanticTokenTypes.EnumMember,
    LexemeKind.TYPE: lsp.SemanticTokenTypes.Type,
    LexemeKind.STRUCT: lsp.SemanticTokenTypes.Struct,
    LexemeKind.ENUM: lsp.SemanticTokenTypes.Enum,
    LexemeKind.KEYWORD: lsp.SemanticTokenTypes.Keyword,
    LexemeKind.REMARK: lsp.SemanticTokenTypes.Decorator,
    LexemeKind.NUMBER: lsp.SemanticTokenTypes.Number,
    LexemeKind.VERSION: lsp.SemanticTokenTypes.Modifier,
    LexemeKind.DEFAULT: lsp.SemanticTokenTypes.String,
    LexemeKind.OPERATOR: lsp.SemanticTokenTypes.Operator,
}
LEGEND = lsp.SemanticTokensLegend(
    token_types=[kind.value for kind in _TYPES.values()],
    token_modifiers=[lsp.SemanticTokenModifiers.Declaration.value],
)
_NUMBERS = {kind: number for number, kind in enumerate(_TYPES)}
_DECLARED = {LexemeKind.DEFINITION, LexemeKind.FIELD, LexemeKind.MEMBER}


def semantic_tokens(text: SourceText) -> lsp.SemanticTokens:
    """Return the words of a text, each relative to the one before it."""
    data: list[int] = []
    line = character = 0
    for token in scan(text.text):
        number = _NUMBERS.get(token.kind)
        if number is None:
            continue
        at = text.position(token.start)
        data += [
            at.line - line,
            at.character - (character if at.line == line else 0),
            text.units(token.start, token.end),
            number,
            int(token.kind in _DECLARED),
        ]
        line, character = at.line, at.character
    return lsp.SemanticTokens(data)
