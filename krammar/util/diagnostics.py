"""Diagnostics: errors and warnings about a text file, and their output formats.

Codes that begin with W are warnings. The compiler reports definition files this way, and
krammar.faults reports files of rules.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Codes of style diagnostics begin with it.
STYLE = "W9"


@dataclass(frozen=True, slots=True)
class Position:
    """A range in a text file. ``line`` and ``column`` count from 1, ``length`` is in characters."""

    path: Path
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Fix:
    """The replacement of a part of the text, which an editor can apply."""

    position: Position
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning, with the source line that it concerns.

    ``fix`` is what the hint recommends, if that is a single replacement.
    """

    code: str
    message: str
    position: Position
    source_line: str
    hint: str = ""
    fix: Fix | None = None

    @property
    def is_style(self) -> bool:
        """Whether it is a warning (W5xx or W9xx)."""
        return self.code.startswith("W")


@dataclass(slots=True)
class Diagnostics:
    """All diagnostics of a run, and the source lines that they quote."""

    found: list[Diagnostic] = field(default_factory=list)
    _lines: dict[Path, list[str]] = field(default_factory=dict)
    _seen: set[Diagnostic] = field(default_factory=set)

    def add_source(self, path: Path, text: str) -> None:
        """Store the text of a file, whose lines diagnostics quote."""
        self._lines[path] = text.split("\n")

    def add(
        self,
        code: str,
        message: str,
        position: Position,
        hint: str = "",
        fix: Fix | None = None,
    ) -> None:
        """Add a diagnostic, unless an equal one exists.

        Args:
            message: the problem, without a full stop.
            hint: what to do about it.
            fix: a replacement that does what the hint says.
        """
        lines = self._lines.get(position.path, [])
        line = lines[position.line - 1] if 0 < position.line <= len(lines) else ""
        self._add(Diagnostic(code, message, position, line, hint, fix))

    def _add(self, diagnostic: Diagnostic) -> None:
        if diagnostic not in self._seen:
            self._seen.add(diagnostic)
            self.found.append(diagnostic)

    def merge(self, other: Diagnostics) -> None:
        """Add the diagnostics and sources of another run."""
        self._lines |= other._lines
        for diagnostic in other.found:
            self._add(diagnostic)

    def keep_errors(self) -> None:
        """Remove warnings."""
        self.found = [diagnostic for diagnostic in self.found if not diagnostic.is_style]

    def sorted(self) -> list[Diagnostic]:
        """Return the diagnostics by path, line, column and code."""
        return sorted(
            self.found,
            key=lambda f: (str(f.position.path), f.position.line, f.position.column, f.code),
        )

    @property
    def has_errors(self) -> bool:
        return any(not diagnostic.is_style for diagnostic in self.found)

    @property
    def has_style(self) -> bool:
        return any(diagnostic.is_style for diagnostic in self.found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean "nullable-string"?`` with the most similar known word, or an empty text."""
    return meant(most_similar(word, known))


def meant(name: str | None) -> str:
    """Return the hint that suggests a name, or an empty text without one."""
    return f'did you mean "{name}"?' if name else ""


def most_similar(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most similar to ``word``, or an empty text if none is similar."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), "")


_WIDTH = 200


def _visible(text: str) -> str:
    """Escape characters that a terminal interprets or does not show."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _quoted(diagnostic: Diagnostic) -> tuple[str, str]:
    """The source line and the carets below it. A long line is cut to the part around the carets."""
    line = diagnostic.source_line.replace("\t", " ")
    start = diagnostic.position.column - 1
    end = start + max(1, diagnostic.position.length)
    first, last = 0, len(line)
    if last > _WIDTH:
        first = max(0, min(start - _WIDTH // 2, last - _WIDTH))
        last = first + _WIDTH
        end = max(start + 1, min(end, last))
    before = ("…" if first else "") + _visible(line[first:start])
    marked = _visible(line[start : min(end, last)])
    after = _visible(line[end:last]) + ("…" if last < len(line) else "")
    # Carets can be after the end of the line.
    carets = "^" * max(len(marked), end - start if end > len(line) else 1)
    return before + marked + after, " " * len(before) + carets


def format_text(diagnostics: Sequence[Diagnostic], *, strict: bool = False) -> str:
    """Format diagnostics as text: position, code, message, source line, carets and hint."""
    blocks = []
    for diagnostic in diagnostics:
        position = diagnostic.position
        severity = "warning" if diagnostic.is_style and not strict else "error"
        gutter = " " * len(str(position.line))
        block = [
            f"{_visible(str(position.path))}:{position.line}:{position.column}: "
            f"{severity} {diagnostic.code}: {_visible(diagnostic.message)}"
        ]
        if diagnostic.source_line.strip() or diagnostic.is_style:
            line, caret = _quoted(diagnostic)
            block += [f"{gutter} |", f"{position.line} | {line}", f"{gutter} | {caret}"]
        if diagnostic.hint:
            block.append(f"{gutter} = hint: {_visible(diagnostic.hint)}")
        blocks.append("\n".join(block))
    return "\n\n".join(blocks)


def format_json(diagnostics: Sequence[Diagnostic], *, strict: bool = False) -> str:
    """Format diagnostics as a JSON array, with one object per diagnostic."""
    return json.dumps(
        [
            {
                "code": f.code,
                "severity": "warning" if f.is_style and not strict else "error",
                "path": str(f.position.path),
                "line": f.position.line,
                "column": f.position.column,
                "length": f.position.length,
                "message": f.message,
                "source": f.source_line,
                "hint": f.hint or None,
            }
            for f in diagnostics
        ],
        indent=2,
    )


def format_github(diagnostics: Sequence[Diagnostic], *, strict: bool = False) -> str:
    """Format diagnostics as workflow commands, which GitHub shows next to the lines of a pull request."""

    def escape(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    lines = []
    for f in diagnostics:
        level = "warning" if f.is_style and not strict else "error"
        path = escape(str(f.position.path)).replace(":", "%3A").replace(",", "%2C")
        end = f.position.column + max(1, f.position.length) - 1
        message = _visible(f.message + (f" ({f.hint})" if f.hint else ""))
        lines.append(
            f"::{level} file={path},line={f.position.line},col={f.position.column},"
            f"endColumn={end},title=krammar {f.code}::{escape(message)}"
        )
    return "\n".join(lines)


FORMATS = {"text": format_text, "json": format_json, "github": format_github}
