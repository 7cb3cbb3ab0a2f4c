"""Escapes text from outside for a terminal."""

from __future__ import annotations

from collections.abc import Callable


def escape_character(character: str) -> str:
    r"""Escape a character as Python does: ``\n``, ``\x1b``, ``\u202e``."""
    return character.encode("unicode_escape").decode("ascii")


def escape(text: str, *, keep: str = "", spell: Callable[[str], str] = escape_character) -> str:
    """Escape the characters that ``repr`` escapes: control characters, and marks that reverse text.

    Args:
        keep: characters that are not escaped.
        spell: returns the escape of a character.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else spell(c) for c in text)
