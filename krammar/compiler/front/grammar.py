"""Loads ``grammar.lark``."""

from __future__ import annotations

from functools import cache
from importlib import resources

from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.indenter import Indenter

INDENT = 2


class _Indenter(Indenter):
    NL_type = "_NL"
    OPEN_PAREN_types: list[str] = []  # noqa: RUF012 - Lark's own declaration
    CLOSE_PAREN_types: list[str] = []  # noqa: RUF012
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = INDENT


@cache
def grammar() -> Lark:
    text = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        text,
        parser="lalr",
        postlex=_Indenter(),
        maybe_placeholders=True,
    )


def is_valid(text: str) -> bool:
    try:
        grammar().parse(f"\n{text}\n")
    except UnexpectedInput:
        return False
    return True
