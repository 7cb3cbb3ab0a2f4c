"""Makes text from outside printable. Whatever krammar prints or logs of files, clients and brokers passes here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Marks that change the direction of the text after them, so that it can read as something else (CVE-2021-42574).
DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")


def escape_character(character: str) -> str:
    r"""Escape a character as Python does: ``\n``, ``\x1b``, ``\u202e``."""
    return character.encode("unicode_escape").decode("ascii")


class _Escapes(dict[int, str]):
    """Escapes characters for ``str.translate``, which is ten times as fast as a loop."""

    def __init__(self, keep: str, spell: Callable[[str], str]) -> None:
        self._keep = keep
        self._spell = spell

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character.isprintable() or character in self._keep:
            found = character
        else:
            found = self._spell(character)
        self[code] = found
        return found


def escape(text: str, *, keep: str = "", spell: Callable[[str], str] = escape_character) -> str:
    """Escape the characters that ``repr`` escapes: control characters, and marks that reverse text.

    Args:
        keep: characters that are not escaped.
        spell: returns the escape of a character.
    """
    if text.isprintable():
        return text
    return text.translate(_Escapes(keep, spell))


def printable_json(value: Any, *, indent: int | None = None) -> str:
    """Encode a value as JSON. Characters that are not printable are escaped as JSON escapes them."""
    import json  # most verbs start without it

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return escape(text, keep="\n", spell=lambda character: json.dumps(character)[1:-1])
