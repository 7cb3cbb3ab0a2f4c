"""Check that no public class or function of ``krammar/`` has the name of another one: ``python tools/names.py``.

Names that begin with an underscore and methods are free. ``tools/names.txt`` lists the exceptions: a name, and the
reason why it has two meanings. A name in the list that has one meaning is an error too, so the list can only shrink.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXCEPTIONS = ROOT / "tools" / "names.txt"


def definitions() -> dict[str, list[str]]:
    """Return the files that define each public class or function at top level."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "krammar").rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                place = str(path.relative_to(ROOT))
                # ``overload`` and platforms can define a name several times in a file.
                if not node.name.startswith("_") and place not in found[node.name]:
                    found[node.name].append(place)
    return found


def exceptions(text: str) -> dict[str, str]:
    """Parse lines ``Name: reason``. Lines that begin with # are comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [line.partition(":") for line in lines]
    return {name.strip(): reason.strip() for name, _, reason in pairs}


def problems(found: dict[str, list[str]], allowed: dict[str, str]) -> list[str]:
    """Return a line for each name that breaks the rule."""
    several = {name: files for name, files in found.items() if len(files) > 1}
    lines = [
        f"{name} has {len(files)} meanings: {', '.join(files)}; rename all but one"
        for name, files in sorted(several.items())
        if name not in allowed
    ]
    for name, reason in allowed.items():
        if name not in several:
            lines.append(f"{name} has one meaning; remove it from {EXCEPTIONS.name}")
        elif not reason:
            lines.append(f"{name} has no reason in {EXCEPTIONS.name}")
    return lines


if __name__ == "__main__":
    found = problems(definitions(), exceptions(EXCEPTIONS.read_text("utf-8")))
    print("\n".join(found) or "every public name has one meaning, except those in tools/names.txt")
    sys.exit(bool(found))
