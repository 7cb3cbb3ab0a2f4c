"""Findings: what the compiler has to say about definition files, and how it is shown.

Codes: E1xx text and syntax, E2xx names, E3xx versions, E4xx types and defaults, E5xx structure,
W9xx style, which `krammar fmt` mends.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Position:
    """A spot in a definition file. ``line`` and ``column`` count from 1, ``length`` is in characters."""

    path: Path
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, with the source line it is about."""

    code: str
    message: str
    position: Position
    source_line: str
    hint: str = ""

    @property
    def is_style(self) -> bool:
        return self.code.startswith("W")


@dataclass(slots=True)
class Findings:
    """All findings of a run, and the source lines that they quote."""

    found: list[Finding] = field(default_factory=list)
    _lines: dict[Path, list[str]] = field(default_factory=dict)

    def add_source(self, path: Path, text: str) -> None:
        self._lines[path] = text.split("\n")

    def add(self, code: str, message: str, position: Position, hint: str = "") -> None:
        lines = self._lines.get(position.path, [])
        line = lines[position.line - 1] if 0 < position.line <= len(lines) else ""
        finding = Finding(code, message, position, line, hint)
        if finding not in self.found:
            self.found.append(finding)

    def merge(self, other: Findings) -> None:
        """Take over the findings and sources of another run."""
        self._lines |= other._lines
        self.found += [finding for finding in other.found if finding not in self.found]

    def keep_errors(self) -> None:
        """Drop style findings."""
        self.found = [finding for finding in self.found if not finding.is_style]

    def sorted(self) -> list[Finding]:
        return sorted(
            self.found,
            key=lambda f: (str(f.position.path), f.position.line, f.position.column, f.code),
        )

    @property
    def has_errors(self) -> bool:
        return any(not finding.is_style for finding in self.found)

    @property
    def has_style(self) -> bool:
        return any(finding.is_style for finding in self.found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean "nullable-string"?`` for the known word nearest to ``word``, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'did you mean "{near[0]}"?' if near else ""


def format_text(findings: Sequence[Finding], *, strict: bool = False) -> str:
    """Findings as a good compiler prints them: place, code, message, source line, caret, hint."""
    blocks = []
    for finding in findings:
        position = finding.position
        severity = "warning" if finding.is_style and not strict else "error"
        gutter = " " * len(str(position.line))
        block = [
            f"{position.path}:{position.line}:{position.column}: {severity} {finding.code}: {finding.message}"
        ]
        if finding.source_line.strip() or finding.is_style:
            line = finding.source_line.replace("\t", " ")
            caret = " " * (position.column - 1) + "^" * max(1, position.length)
            block += [f"{gutter} |", f"{position.line} | {line}", f"{gutter} | {caret}"]
        if finding.hint:
            block.append(f"{gutter} = hint: {finding.hint}")
        blocks.append("\n".join(block))
    return "\n\n".join(blocks)


def format_json(findings: Sequence[Finding], *, strict: bool = False) -> str:
    """Findings as a JSON array of objects, one a finding."""
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
            for f in findings
        ],
        indent=2,
    )


def format_github(findings: Sequence[Finding], *, strict: bool = False) -> str:
    """Findings as workflow commands, which GitHub shows beside the lines of a pull request."""

    def escape(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    lines = []
    for f in findings:
        level = "warning" if f.is_style and not strict else "error"
        path = escape(str(f.position.path)).replace(":", "%3A").replace(",", "%2C")
        end = f.position.column + max(1, f.position.length) - 1
        message = f.message + (f" ({f.hint})" if f.hint else "")
        lines.append(
            f"::{level} file={path},line={f.position.line},col={f.position.column},"
            f"endColumn={end},title=krammar {f.code}::{escape(message)}"
        )
    return "\n".join(lines)


FORMATS = {"text": format_text, "json": format_json, "github": format_github}
