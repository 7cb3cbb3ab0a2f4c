"""What an editor shows beside the text: the name under the pointer, versions as hints, and the outline of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp

from krammar.compiler import ir
from krammar.compiler.front.syntax import EnumNode, FieldNode, MemberNode, StructNode
from krammar.compiler.layout_table import layout_table
from krammar.highlighting.scanner import LexemeKind, scan
from krammar.lsp.layouts import field_forms, versions_text
from krammar.lsp.project import Analysis, SourceFile
from krammar.lsp.symbols import Node, Occurrence, SymbolKind, last_line
from krammar.lsp.text import SourceText
from krammar.lsp.words import MILLIS, WORDS

SHOW_BYTES = "krammar.showBytes"

_MAX_MEMBERS = 12
# Words of several words come first: `max version`, `not flexible`.
_PHRASES = "|".join(re.escape(each) for each in WORDS if " " in each)
_WORD = re.compile(rf"=>|\b(?:{_PHRASES})\b|[A-Za-z_][\w-]*")


# The name under the pointer.


def hover(
    analysis: Analysis, file: SourceFile, offset: int, chosen: dict[str, int] | None = None
) -> lsp.Hover | None:
    """Describe the name or the word of the language at an offset.

    Args:
        chosen: the versions whose bytes the user has asked for, by the name of the message.
    """
    found = file.at(offset)
    if found is None:
        return _word(file, offset)
    declared = found.node
    if declared is None:
        declared = next((each.node for _, each in analysis.declarations(found.target)), None)
    if declared is None:
        return _word(file, offset)
    text = _describe(analysis, found, declared, chosen or {})
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), file.text.at(found.position))


def _word(file: SourceFile, offset: int) -> lsp.Hover | None:
    """Describe a word of the language."""
    index = file.text.row_at(offset)
    row, start = file.text.rows[index], file.text.row_start(index)
    if row.lstrip(" ").startswith("//"):
        return None
    for match in _WORD.finditer(row):
        if match.start() <= offset - start < match.end():
            name = re.sub(r"(-v\d+)+$|-[A-Z].*$", "", match[0])
            if name in WORDS:
                content = lsp.MarkupContent(
                    lsp.MarkupKind.Markdown, f"```krammar\n{match[0]}\n```\n{WORDS[name]}"
                )
                return lsp.Hover(
                    content, file.text.range(start + match.start(), start + match.end())
                )
    return None


def _describe(analysis: Analysis, found: Occurrence, node: Node, chosen: dict[str, int]) -> str:
    source = _source_line(analysis, node)
    parts = [f"```krammar\n{source}\n```" if source else "", node.doc]
    match node:
        case StructNode():
            parts.append(_struct(analysis, node))
        case EnumNode():
            parts.append(_enum(node))
        case MemberNode():
            parts.append(f"Member of `{found.target.path[0]}`, value {node.value.text}.")
        case FieldNode():
            parts += _field(analysis, found, node, chosen)
    return "\n\n".join(part for part in parts if part)


def _source_line(analysis: Analysis, node: Node) -> str:
    file = analysis.files.get(node.name.position.path)
    if file is None or node.name.position.line > len(file.text.rows):
        return ""
    return file.text.rows[node.name.position.line - 1].strip()


def _struct(analysis: Analysis, node: StructNode) -> str:
    struct = analysis.structs.get(node.name.text)
    if struct is None:
        return ""
    facts = []
    request = analysis.requests.get(struct.name)
    if request is not None:
        facts.append(f"API key {request.key}")
    if struct.max_version is not None:
        facts.append(f"versions {struct.min_version} to {struct.max_version}")
    if struct.flexible_from is not None:
        facts.append(f"flexible from version {struct.flexible_from}")
    facts.append(f"{len(struct.fields)} field{'s' * (len(struct.fields) != 1)}")
    return ", ".join(facts)


def _enum(node: EnumNode) -> str:
    lines = [f"- `{each.value.text}` {each.name.text}" for each in node.members[:_MAX_MEMBERS]]
    if len(node.members) > _MAX_MEMBERS:
        lines.append(f"- … and {len(node.members) - _MAX_MEMBERS} more")
    return "\n".join(lines)


def _field(
    analysis: Analysis, found: Occurrence, node: FieldNode, chosen: dict[str, int]
) -> list[str]:
    if found.target.kind is not SymbolKind.FIELD:
        return []
    path = found.target.path
    resolved = analysis.field(path)
    if resolved is None:
        return []
    outer, chain = resolved
    parts = [MILLIS.get(node.name.text, "")] if node.type is None else []
    versions = inherited(outer, chain)
    if versions is not None and versions != ir.ALL_VERSIONS:
        parts.append(f"In {versions} of `{outer.name}`.")
    enum_type = chain[-1].type
    if isinstance(enum_type, ir.EnumType) and node.default is not None:
        member = next((m for m in enum_type.enum.members if m.value == chain[-1].default), None)
        if member is not None:
            parts.append(f"The default is `{member.name}`.")
    forms = field_forms(outer, chain)
    if not forms:
        return parts
    picked = chosen.get(outer.name)
    rows = ["| Versions | Bytes | Default |", "|---|---|---|"]
    for each in forms:
        text = versions_text(each.versions, open_ended=each.open_ended)
        if picked in each.versions:
            text = f"**v{picked}**, {text}"
        rows.append(f"| {text} | {each.form} | {each.default or 'no bytes'} |")
    return [*parts, "\n".join(rows)]


# The versions in which a field exists, with those that it inherits.


def inherited(outer: ir.Struct, chain: Sequence[ir.Field]) -> ir.VersionRange | None:
    """Return the versions in which the last field of a chain exists, or None if there are none.

    A field exists where all fields that contain it exist, and a tagged field only in flexible versions. A
    range that reaches the last version of the message has no end, as in definitions.
    """
    versions: ir.VersionRange | None = ir.VersionRange(outer.min_version)
    for field in chain:
        own = field.versions
        if field.tag is not None and outer.flexible_from is not None:
            own = own.intersect(ir.VersionRange(outer.flexible_from)) or own
        versions = own.intersect(versions) if versions is not None else None
    if versions is not None and versions.max is not None and versions.max == outer.max_version:
        return ir.VersionRange(versions.min)
    return versions


def hints(analysis: Analysis, file: SourceFile, first: int, last: int) -> list[lsp.InlayHint]:
    """Return a hint for each field whose versions differ from those that its line gives.

    Args:
        first: the first line of the compiler for which hints are wanted.
        last: the last one.
    """
    found = []
    for definition in file.syntax.definitions:
        struct = analysis.structs.get(definition.name.text)
        if struct is None or struct.position != definition.name.position:
            continue
        for field, versions in _differing(struct, struct, ()):
            row = field.position.line - 1
            if first <= row <= last and field.position.path == file.path:
                end = file.text.row_start(row) + len(file.text.rows[row])
                found.append(
                    lsp.InlayHint(
                        file.text.position(end),
                        str(versions),
                        padding_left=True,
                        tooltip=f"The versions of {struct.name} in which the field exists.",
                    )
                )
    return found


def _differing(
    outer: ir.Struct, struct: ir.Struct, chain: tuple[ir.Field, ...]
) -> Iterator[tuple[ir.Field, ir.VersionRange]]:
    for field in struct.fields:
        whole = (*chain, field)
        versions = inherited(outer, whole)
        written = field.versions.intersect(ir.VersionRange(outer.min_version))
        if versions is not None and versions != written:
            yield field, versions
        inner = ir.struct_of(field.type)
        if inner is not None and inner.anonymous:
            yield from _differing(outer, inner, whole)


# A whole file: its outline, what can be folded, and lenses above messages.


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
