"""Programs in Go, and tests of modules in Go, built once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.interop.apache import CACHE
from tests.interop.processes import Unavailable


def go_program(folder: Path) -> Path:
    """Build the program of a folder, and return it. Raises Unavailable without Go or the imported modules."""
    return _built(folder, ["main.go", "go.sum"], ["build"], ".")


def go_tests(folder: Path, package: str) -> Path:
    """Build the tests of a package that the ``go.mod`` of a folder requires, and return the program that runs them.

    Raises Unavailable without Go or the modules.
    """
    return _built(folder, ["go.mod", "go.sum"], ["test", "-c", "-vet=off"], package)


def _built(folder: Path, sources: list[str], goal: list[str], what: str) -> Path:
    if shutil.which("go") is None:
        raise Unavailable("needs go")
    content = b"".join((folder / name).read_bytes() for name in sources)
    binary = CACHE / f"{folder.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not binary.exists():
        command = ["go", *goal, "-o", str(binary), what]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise Unavailable(f"go cannot build {folder.name}: {done.stderr.strip()[:300]}")
    return binary
