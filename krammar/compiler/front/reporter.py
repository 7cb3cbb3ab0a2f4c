"""Reports diagnostics at words of definitions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from krammar.compiler.front import type_hints
from krammar.compiler.front.syntax import Word
from krammar.util.diagnostics import Diagnostics, Fix, most_similar

# The number of unknown names that get a hint with a similar name.
_MAX_GUESSES = 50


@dataclass(slots=True)
class Reporter:
    """Adds diagnostics, and searches for the name that an unknown one may mean."""

    diagnostics: Diagnostics
    guesses: int = 0

    def error(
        self, code: str, message: str, word: Word, hint: str = "", right: str | None = None
    ) -> None:
        """Report an error at a word. ``right`` is what to write instead, if the hint says so."""
        fix = None if right is None else Fix(word.position, right)
        self.diagnostics.add(code, message, word.position, hint, fix=fix)

    def in_range(self, value: int, word: Word, what: str) -> int:
        if not 0 <= value <= 32767:
            self.error("E301", f"the {what} {value} is not between 0 and 32767", word)
            return 0
        return value

    def most_similar(self, word: str, known: Iterable[str]) -> str | None:
        """The name that an unknown name may mean. Only the first ones get one: searching can take long."""
        self.guesses += 1
        return most_similar(word, known) or None if self.guesses <= _MAX_GUESSES else None

    def nearly(self, word: str, known: list[str]) -> list[str]:
        """The name that is most similar to ``word``, if any, with the same limit."""
        self.guesses += 1
        if self.guesses > _MAX_GUESSES:
            return []
        return difflib.get_close_matches(word, known, n=1, cutoff=0.85)

    def similar_type(self, text: str, known: list[str]) -> str | None:
        """Return the type that is most similar to an unknown one, if any, with the same limit."""
        self.guesses += 1
        return (
            type_hints.similar_type(text, known) or None if self.guesses <= _MAX_GUESSES else None
        )
