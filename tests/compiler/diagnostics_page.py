"""Write docs/diagnostics.md: ``python -m tests.compiler.diagnostics_page``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler.front.codes import CODES, GROUPS
from tests.compiler.conftest import write_files
from tests.compiler.test_diagnostics import CASES, Case
from tests.compiler.test_guide import CASES as GUIDES

PAGE = Path(__file__).parents[2] / "docs" / "diagnostics.md"

HEAD = """\
# Diagnostics

This page lists all codes, each with a small example and its output. It is generated from the tests of the compiler.

- `krammar check`, `gen` and `fmt` report errors (`E`) and warnings (`W`). Errors stop `gen`. With `--strict`, warnings are
  errors too.
- `krammar import` reports the errors and warnings of protocol guides (`E6`, `W6`).
- `krammar diff` reports breaking changes (`B`).
- `--format json` and `--format github` print the same diagnostics for programs.
"""

# Of fences with definitions; the site highlights them.
_LANGUAGE = "krammar"
_OLD = "PingRequest => key 0, max version 1, flexible v1+\n  Text: string\n  Note: int32(-1) // tag 0\n"
_ANSWER = "\nPingResponse =>\n  Text: string\n"
_ENUM = "// How it is doing.\nHealth int8 (\n  0: OK\n  1: DEGRADED\n)\n\n"
# Old and new definitions by code.
_NEWER = (
    "Plan => not top level, with version field, max version 3, newer versions read as the newest\n"
    "  Version: int16\n"
)
CHANGES = {
    "B101": (_OLD + _ANSWER + "\nMark => not top level\n  Id: int32\n", _OLD + _ANSWER),
    "B102": (_OLD + _ANSWER, _OLD.replace("key 0", "key 1") + _ANSWER),
    "B103": (
        _OLD + _ANSWER,
        _OLD.replace("max version 1", "max version 1, min version 1") + _ANSWER,
    ),
    "B104": (_OLD + _ANSWER, _OLD.replace("Text: string", "Text: bytes") + _ANSWER),
    "B105": (_OLD + _ANSWER, _OLD.replace("int32(-1)", "int32") + _ANSWER),
    "B107": (_OLD + _ANSWER, _OLD.replace("  Note: int32(-1) // tag 0\n", "") + _ANSWER),
    "B108": (
        _OLD.replace("Note: int32(-1) // tag 0", "reserved tag 0") + _ANSWER,
        _OLD + _ANSWER,
    ),
    "B109": (
        _OLD.replace("max version 1, flexible v1+", "max version 2, flexible v1+") + _ANSWER,
        _OLD.replace("max version 1, flexible v1+", "max version 2, flexible v1+").replace(
            "// tag 0", "// v2+, tag 0"
        )
        + _ANSWER,
    ),
    "B110": (_OLD + _ANSWER, _OLD.replace("max version 1", "max version 1, one way", 1)),
    "B106": (_ENUM + _OLD + _ANSWER, _ENUM.replace("int8", "int16") + _OLD + _ANSWER),
    "B201": (_ENUM + _OLD + _ANSWER, _ENUM.replace("  1: DEGRADED\n", "") + _OLD + _ANSWER),
    "B202": (_OLD + _ANSWER, _OLD.replace("Text", "Body") + _ANSWER),
    "B203": (_OLD + _ANSWER, _OLD.replace("Text: string", "Text: string(hi)") + _ANSWER),
    "B204": (
        _OLD.replace("Text: string", "Text: string // v1+, ignorable") + _ANSWER,
        _OLD.replace("Text: string", "Text: string // v1+") + _ANSWER,
    ),
    "B205": (_NEWER, _NEWER.replace(", newer versions read as the newest", "")),
}


def page() -> str:
    """Return the text of docs/diagnostics.md."""
    cases: dict[str, Case] = {}
    for case in CASES:
        cases.setdefault(case.code, case)
    parts = [HEAD]
    group = ""
    for code, meaning in CODES.items():
        if code[:2] != group:
            group = code[:2]
            parts.append(f"## {GROUPS[group]}\n")
        if code in CHANGES:
            shown = _change(code)
        else:
            shown = _guide(code) if code in GUIDES else _case(cases[code])
        parts.append(f"### {code}\n\n{meaning}\n\n{shown}")
    return "\n".join(parts)


def _case(case: Case) -> str:
    files = case.files if isinstance(case.files, dict) else {"a.krm": case.files}
    text = ""
    for name, content in files.items():
        shown = content.decode(errors="replace") if isinstance(content, bytes) else content
        text += _fenced(shown, f"`{name}`:\n\n" if len(files) > 1 else "", _LANGUAGE)
    return text + _fenced(case.shown)


def _change(code: str) -> str:
    old, new = CHANGES[code]
    with tempfile.TemporaryDirectory() as folder:
        before = write_files(Path(folder) / "old", old)
        after = write_files(Path(folder) / "new", new)
        output = CliRunner().invoke(main, ["diff", str(before), str(after)]).output
    output = output.replace(f"{folder}/", "")
    return (
        _fenced(old, "Old:\n\n", _LANGUAGE)
        + _fenced(new, "New:\n\n", _LANGUAGE)
        + _fenced(output.rstrip())
    )


def _guide(code: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guide.md"
        path.write_text(GUIDES[code])
        output = CliRunner().invoke(main, ["import", str(path), "-o", f"{folder}/made"]).output
    blocks = output.replace(f"{folder}/", "").split("\n\n")
    return _fenced(GUIDES[code]) + _fenced(next(block for block in blocks if code in block))


def _fenced(text: str, before: str = "", language: str = "text") -> str:
    """A code block. Characters that are invisible, or that Markdown would lose, are escaped."""
    visible = "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
    longest = "\n".join(
        line if len(line) <= 200 else line[:197] + "…" for line in visible.split("\n")
    )
    return f"{before}```{language}\n{longest.rstrip(chr(10))}\n```\n\n"


if __name__ == "__main__":
    PAGE.write_text(page().rstrip() + "\n")
