"""docs/benchmarks.md: sections that are measured apart, each between marks that name its command, and
what they are made of."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from krammar.wire.engine_loading import status

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


# What sections are made of: lines.


@dataclass(frozen=True)
class Target:
    """Something the project promises, and whether this run keeps it; if not, ``why``, as far as that is known."""

    promise: str
    measured: str
    met: bool
    why: str = ""

    @property
    def result(self) -> str:
        """The result, in words."""
        if self.met:
            return "met"
        return f"**missed**: {self.why}" if self.why else "**missed**"


def subsection(title: str, note: str, lines: Iterable[str]) -> Iterator[str]:
    """A title, a note if there is something to note, and the lines."""
    yield from ("", f"### {title}", "")
    if note:
        yield from (note, "")
    yield from lines


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Columns behind the first ``left`` hold numbers and are flush right."""
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def target_table(name: str, targets: Iterable[Target]) -> list[str]:
    """What was promised, under ``name``, and measured."""
    rows = [(t.promise, t.measured, t.result) for t in targets]
    return markdown_table((name, "Measured", "Result"), rows, left=3)


def aims(targets: Sequence[Target]) -> Iterator[str]:
    """A subsection of what is aimed at, if something of it was measured."""
    if targets:
        yield from subsection("Aims", "", target_table("Aim", targets))


def failures(errors: Sequence[str]) -> Iterator[str]:
    """A subsection of what did not run, if there is something."""
    if errors:
        yield from subsection("What did not run", "", (f"- {error}" for error in errors))


def machine() -> Iterator[str]:
    """Where and when, and whether the engine runs."""
    yield f"{datetime.date.today()}, {platform.python_implementation()} {platform.python_version()},"
    yield f"{platform.system()} on {cpu_model()}, {os.cpu_count()} cores; {status()}."


def cpu_model() -> str:
    """The name the processor has for itself."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
