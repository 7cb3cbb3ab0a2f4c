"""Semantic highlighting: the words of a text in the encoding of LSP."""

from __future__ import annotations

from lsprotocol import types as lsp

from krammar.highlighting.scanner import Kind, scan
from krammar.lsp.text import Text

_TYPES = {
    Kind.COMMENT: lsp.SemanticTokenTypes.Comment,
    Kind.DEFINITION: lsp.SemanticTokenTypes.Class,
    Kind.FIELD: lsp.SemanticTokenTypes.Property,
    Kind.MEMBER: lsp.SemanticTokenTypes.EnumMember,
    Kind.TYPE: lsp.SemanticTokenTypes.Type,
    Kind.STRUCT: lsp.SemanticTokenTypes.Struct,
    Kind.ENUM: lsp.SemanticTokenTypes.Enum,
    Kind.KEYWORD: lsp.SemanticTokenTypes.Keyword,
    Kind.REMARK: lsp.SemanticTokenTypes.Decorator,
    Kind.NUMBER: lsp.SemanticTokenTypes.Number,
    Kind.VERSION: lsp.SemanticTokenTypes.Modifier,
    Kind.DEFAULT: lsp.SemanticTokenTypes.String,
    Kind.OPERATOR: lsp.SemanticTokenTypes.Operator,
}
LEGEND = lsp.SemanticTokensLegend(
    token_types=[kind.value for kind in _TYPES.values()],
    token_modifiers=[lsp.SemanticTokenModifiers.Declaration.value],
)
_NUMBERS = {kind: number for number, kind in enumerate(_TYPES)}
_DECLARED = {Kind.DEFINITION, Kind.FIELD, Kind.MEMBER}


def semantic_tokens(text: Text) -> lsp.SemanticTokens:
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
