"""Semantic highlighting: the words of a text in the encoding of LSP."""

from __future__ import annotations

from lsprotocol import types as lsp

from krammar.highlighting.scanner import LexemeKind, scan
from krammar.lsp.text import SourceText

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
