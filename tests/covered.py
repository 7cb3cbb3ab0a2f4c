"""Measures which lines and branches of krammar the tests run: ``python -m tests.covered [PYTEST ARGUMENTS]``.

The processes that tests start are measured too: workers of pytest-xdist, of Spark and of the compiler, brokers, and
commands. A process that is killed is not, and neither are compiled modules. ``make coverage`` runs this.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from tests.run import run

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "coverage"
# A process that may not write files cannot be measured: what was measured is written to one.
LEFT_OUT = ("--deselect=tests/cli/test_tap.py::test_a_file_that_cannot_grow_ends_it",)


def main() -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    env = {**os.environ, "COVERAGE_FILE": str(OUT / "data")}
    # Python starts coverage by itself in each process that has this variable.
    measured = {**env, "COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml")}
    code = run(sys.executable, [*sys.argv[1:], *LEFT_OUT], OUT / "pytest", env=measured)
    for step in (
        ("combine", "--quiet"),
        ("json", "--quiet", "-o", str(OUT / "coverage.json")),
        ("html", "--quiet", "-d", str(OUT / "html")),
    ):
        subprocess.run([sys.executable, "-m", "coverage", *step], cwd=ROOT, env=env, check=True)
    report = json.loads((OUT / "coverage.json").read_text(encoding="utf-8"))
    print(
        *table(report["files"]), f"lines that no test runs: {OUT / 'html' / 'index.html'}", sep="\n"
    )
    return code


def table(files: dict[str, Any]) -> Iterator[str]:
    """The share of lines and branches that ran, by package, and in all."""
    totals: dict[str, Counter[str]] = {}
    for path, file in files.items():
        folder = PurePath(path).parts[:-1]
        for package in ("/".join(folder[:2]), "total"):
            summary = {name: n for name, n in file["summary"].items() if isinstance(n, int)}
            totals.setdefault(package, Counter()).update(summary)
    total = totals.pop("total")
    width = max(map(len, totals))
    yield f"{'package':{width}} {'lines':>7} {'branches':>9} {'covered':>8}"
    for package, counts in [*sorted(totals.items()), ("total", total)]:
        of = counts["num_statements"] + counts["num_branches"]
        ran = counts["covered_lines"] + counts["covered_branches"]
        yield (
            f"{package:{width}} {counts['num_statements']:7,} {counts['num_branches']:9,} "
            f"{100 * ran / max(of, 1):6.1f} %"
        )


if __name__ == "__main__":
    sys.exit(main())
