"""Diagnostics: errors and warnings about a text file, and their output formats.

Codes that begin with W are warnings. The compiler reports definition files this way, and
krammar.faults reports files of rules.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from krammar import __version__
from krammar.util.printable import escape

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

    ``rule`` is a name of the code for people, if it has one. ``fix`` is what the hint recommends, if that is a
    single replacement.
    """

    code: str
    message: str
    position: Position
    source_line: str
    hint: str = ""
    rule: str = ""
    fix: Fix | None = None

    def severity(self, strict: bool) -> str:
        """``warning`` or ``error``. If ``strict``, warnings are errors."""
        return "warning" if self.is_style and not strict else "error"

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
        rule: str = "",
        fix: Fix | None = None,
    ) -> None:
        """Add a diagnostic, unless an equal one exists.

        Args:
            message: the problem, without a full stop.
            hint: what to do about it.
            rule: a name of the code.
            fix: a replacement that does what the hint says.
        """
        lines = self._lines.get(position.path, [])
        line = lines[position.line - 1] if 0 < position.line <= len(lines) else ""
        self._add(Diagnostic(code, message, position, line, hint, rule, fix))

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
    return escape(text, keep="\n")


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


def _plain(role: str, text: str) -> str:
    return text


def format_text(
    diagnostics: Sequence[Diagnostic],
    *,
    strict: bool = False,
    style: Callable[[str, str], str] = _plain,
) -> str:
    """Format diagnostics as text: position, code, message, source line, carets and hint.

    Args:
        style: returns a text with the colour of its role: ``place``, ``error``, ``warning``, ``gutter`` or
            ``hint``.
    """
    blocks = []
    for diagnostic in diagnostics:
        position = diagnostic.position
        severity = diagnostic.severity(strict)
        gutter = " " * len(str(position.line))
        place = f"{_visible(str(position.path))}:{position.line}:{position.column}:"
        block = [
            f"{style('place', place)} {style(severity, f'{severity} {diagnostic.code}:')} "
            f"{_visible(diagnostic.message)}"
        ]
        bar, equals = style("gutter", f"{gutter} |"), style("gutter", f"{gutter} =")
        if diagnostic.source_line.strip() or diagnostic.is_style:
            line, caret = _quoted(diagnostic)
            number = style("gutter", f"{position.line} |")
            # The spaces before the carets have no colour.
            carets = f"{caret[:caret.index('^')]}{style(severity, caret.lstrip())}"
            block += [bar, f"{number} {line}", f"{bar} {carets}"]
        if diagnostic.rule:
            block.append(f"{equals} {style('hint', 'rule:')} {diagnostic.rule}")
        if diagnostic.hint:
            block.append(f"{equals} {style('hint', 'hint:')} {_visible(diagnostic.hint)}")
        blocks.append("\n".join(block))
    return "\n\n".join(blocks)


def format_json(diagnostics: Sequence[Diagnostic], *, strict: bool = False) -> str:
    """Format diagnostics as a JSON array, with one object per diagnostic."""
    return json.dumps(
        [
            {
                "code": f.code,
                "severity": f.severity(strict),
                "path": str(f.position.path),
                "line": f.position.line,
                "column": f.position.column,
                "length": f.position.length,
                "message": f.message,
                "source": f.source_line,
                "hint": f.hint or None,
                **({"rule": f.rule} if f.rule else {}),
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
        path = escape(str(f.position.path)).replace(":", "%3A").replace(",", "%2C")
        end = f.position.column + max(1, f.position.length) - 1
        message = _visible(f.message + (f" ({f.hint})" if f.hint else ""))
        lines.append(
            f"::{f.severity(strict)} file={path},line={f.position.line},col={f.position.column},"
            f"endColumn={end},title=krammar {f.code}{f' {f.rule}' if f.rule else ''}::{escape(message)}"
        )
    return "\n".join(lines)


def format_sarif(
    diagnostics: Sequence[Diagnostic],
    *,
    strict: bool = False,
    meanings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Format diagnostics as SARIF 2.1.0, which code scanning of GitHub and other services reads.

    Args:
        meanings: the meaning of each code.
    """
    rules = {f.code: f.rule for f in diagnostics}
    codes = sorted(rules)
    driver = {
        "name": "krammar",
        "version": __version__,
        "rules": [
            {
                "id": code,
                **({"name": rules[code]} if rules[code] else {}),
                **({"shortDescription": {"text": meanings[code]}} if code in meanings else {}),
            }
            for code in codes
        ],
    }
    results = [
        {
            "ruleId": f.code,
            "ruleIndex": codes.index(f.code),
            "level": f.severity(strict),
            "message": {"text": _visible(f.message + (f" ({f.hint})" if f.hint else ""))},
            "locations": [{"physicalLocation": _location(f.position)}],
        }
        for f in diagnostics
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log, indent=2)


def _location(position: Position) -> dict[str, object]:
    path = position.path
    uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
    region = {
        "startLine": position.line,
        "startColumn": position.column,
        "endColumn": position.column + max(1, position.length),
    }
    return {"artifactLocation": {"uri": uri}, "region": region}


FORMATS = {
    "text": format_text,
    "json": format_json,
    "github": format_github,
    "sarif": format_sarif,
}
