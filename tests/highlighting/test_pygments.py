from __future__ import annotations

import pytest

pytest.importorskip("pygments")

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Text

TEXT = "// Words.\r\nA => not top level\n  B: int8 // v3+\n\n?"


def test_pygments_finds_the_lexer() -> None:
    """By the name in code fences, and by the suffix of definition files."""
    assert type(get_lexer_by_name("krammar")) is type(get_lexer_for_filename("fetch.krm"))
    assert get_lexer_by_name("krm").name == "krammar"


def test_tokens() -> None:
    tokens = list(get_lexer_by_name("krammar").get_tokens_unprocessed(TEXT))
    assert "".join(text for _, _, text in tokens) == TEXT
    assert all(TEXT[at : at + len(text)] == text for at, _, text in tokens)
    assert [(kind, text) for _, kind, text in tokens if text.strip()][:4] == [
        (Comment.Single, "// Words."),
        (Name.Class, "A"),
        (tokens[4][1], "=>"),
        (Keyword, "not top level"),
    ]
    assert tokens[-1][1:] == (Text, "\n\n?")


def test_html() -> None:
    html = highlight(TEXT, get_lexer_by_name("krammar"), HtmlFormatter())
    assert '<span class="nc">A</span>' in html
    assert 'class="err"' not in html
