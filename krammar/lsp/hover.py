"""What an editor shows about the name under the pointer."""

from __future__ import annotations

import re

from lsprotocol import types as lsp

from krammar.compiler import ir
from krammar.compiler.front.syntax import EnumNode, FieldNode, MemberNode, StructNode
from krammar.lsp.layouts import field_forms, versions_text
from krammar.lsp.project import Analysis, SourceFile
from krammar.lsp.symbols import Node, Occurrence, SymbolKind
from krammar.lsp.versions import inherited
from krammar.lsp.words import MILLIS, WORDS

_MAX_MEMBERS = 12
# Words of several words come first: `max version`, `not flexible`.
_PHRASES = "|".join(re.escape(each) for each in WORDS if " " in each)
_WORD = re.compile(rf"=>|\b(?:{_PHRASES})\b|[A-Za-z_][\w-]*")


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
