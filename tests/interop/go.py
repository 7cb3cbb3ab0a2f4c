"""Programs in Go, built once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.interop.apache import CACHE
from tests.interop.processes import Unavailable


def go_program(folder: Path) -> Path:
    """Build the program of a folder, and return it. Raises Unavailable without Go or the imported modules."""
    if shutil.which("go") is None:
        raise Unavailable("needs go")
    content = b"".join((folder / name).read_bytes() for name in ("main.go", "go.sum"))
    binary = CACHE / f"{folder.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not binary.exists():
        command = ["go", "build", "-o", str(binary), "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise Unavailable(f"go cannot build {folder.name}: {done.stderr.strip()[:300]}")
    return binary
