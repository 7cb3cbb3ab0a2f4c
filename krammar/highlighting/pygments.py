"""The lexer of Pygments for definition files. Pygments finds it as ``krammar``, and by ``*.krm``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
)

from krammar.highlighting.scanner import LexemeKind, scan

_TOKENS = {
    LexemeKind.COMMENT: Comment.Single,
    LexemeKind.DEFINITION: Name.Class,
    LexemeKind.FIELD: Name.Attribute,
    LexemeKind.MEMBER: Name.Constant,
    LexemeKind.TYPE: Keyword.Type,
    LexemeKind.STRUCT: Name.Class,
    LexemeKind.ENUM: Name.Class,
    LexemeKind.KEYWORD: Keyword,
    LexemeKind.REMARK: Name.Decorator,
    LexemeKind.NUMBER: Number.Integer,
    LexemeKind.VERSION: Number,
    LexemeKind.DEFAULT: String,
    LexemeKind.OPERATOR: Operator,
    LexemeKind.PUNCTUATION: Punctuation,
}


class DefinitionsLexer(Lexer):  # type: ignore[misc]  # Pygments has no types
    """Highlights definition files."""

    name = "krammar"
    aliases: ClassVar[list[str]] = ["krammar", "krm"]
    filenames: ClassVar[list[str]] = ["*.krm"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Yield offset, token type and text of each part of a text."""
        end = 0
        for token in scan(text):
            if token.start > end:
                yield end, Text, text[end : token.start]
            yield token.start, _TOKENS[token.kind], text[token.start : token.end]
            end = token.end
        if end < len(text):
            yield end, Text, text[end:]
