"""Parsers of single settings, for the broker, the client and the data source.

A parser converts the text (or the Python value) that a user gave. It raises ValueError with a phrase that can follow
the value, such as "needs a whole number".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Parser = Callable[[Any], Any]

INT32 = 2**31 - 1
# What Java reads as a number; int() and float() also read 1_000, digits of all alphabets, and nan.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# The pattern would be slow on very long texts.
_LONGEST_NUMBER = 400


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """Return the reason of an error for a name that is none of the known ones, with the most similar one."""
    # Imported here because only a misspelt setting needs it, and the import slows the start down.
    from krammar.util.diagnostics import did_you_mean

    near = did_you_mean(name, known)
    return f"unknown setting; {near}" if near else "unknown setting"


def split_list(value: str) -> list[str]:
    """Split a comma-separated text and strip white space around the values. Values can be empty."""
    value = value.strip()
    return [item.strip() for item in value.split(",")] if value else []


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
        if isinstance(value, str) and not _INTEGER.fullmatch(value.strip()):
            raise ValueError("needs a whole number")
        number = int(value)
        if number < low:
            raise ValueError(f"needs at least {low}")
        if number > high:
            raise ValueError(f"needs at most {high}")
        return number

    return parse


def number(value: str) -> float:
    """Return a number with or without a fraction and an exponent."""
    value = value.strip()
    if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
        raise ValueError("needs a number")
    return float(value)


def choice(*words: str) -> Parser:
    """Return a parser that accepts the words in any case, and returns them in this spelling."""
    by_key = {word.lower(): word for word in words}

    def parse(value: Any) -> str:
        word = by_key.get(str(value).strip().lower())
        if word is None:
            raise ValueError(f"needs one of {', '.join(filter(None, words))}")
        return word

    return parse
