"""docs/benchmarks.md: sections that are measured apart, each between marks that name its command."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_SECTION = re.compile(r"<!-- (\w+): written by .*? -->\n.*?<!-- \1: end -->\n", re.DOTALL)


def section(name: str, command: str, lines: Iterable[str]) -> str:
    """A section of the page."""
    begin = f"<!-- {name}: written by {command} -->"
    return "\n".join([begin, *lines, f"<!-- {name}: end -->"]) + "\n"


def put(page: str, new: str) -> str:
    """A page with a section in the place of the last one of its name, else at its end."""
    name = new.partition(":")[0]
    for found in _SECTION.finditer(page):
        if found[0].startswith(f"{name}:"):
            return page[: found.start()] + new + page[found.end() :]
    return page.rstrip("\n") + "\n\n" + new


def keep_sections(page: str, old: str) -> str:
    """A page with all sections of its last version."""
    for found in _SECTION.finditer(old):
        page = put(page, found[0])
    return page


def put_file(path: Path, new: str) -> None:
    """The same in a file, which is made where there is none."""
    page = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    path.write_text(put(page, new), encoding="utf-8")
