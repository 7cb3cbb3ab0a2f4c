"""Parsers of single settings, for the client and the data source.

A parser converts the text (or the Python value) that a user gave. It raises ValueError with a phrase that can follow the
value, such as "needs a whole number".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Parser = Callable[[Any], Any]

INT32 = 2**31 - 1


def text(value: Any) -> str:
    """Return text as it is."""
    if not isinstance(value, str):
        raise ValueError(f"needs text, not {type(value).__name__}")
    return value


def trimmed(value: Any) -> str:
    """Return text without the white space around it."""
    return text(value).strip()


def boolean(value: Any) -> bool:
    """Return the value of True, False, or one of the words true and false in any case."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError("needs true or false")
    return word == "true"


def integer(low: int = 0, high: int = INT32) -> Parser:
    """Return a parser of whole numbers from ``low`` to ``high``."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("needs a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ValueError("needs a whole number") from None
        if number < low:
            raise ValueError(f"needs at least {low}")
        if number > high:
            raise ValueError(f"needs at most {high}")
        return number

    return parse


def choice(*words: str) -> Parser:
    """Return a parser that accepts the words in any case, and returns them in this spelling."""
    by_key = {word.lower(): word for word in words}

    def parse(value: Any) -> str:
        word = by_key.get(str(value).strip().lower())
        if word is None:
            raise ValueError(f"needs one of {', '.join(filter(None, words))}")
        return word

    return parse
