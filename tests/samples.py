"""The samples of README.md and docs/, to run as pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
SERVERS = "localhost:9092"  # where samples expect a broker


def blocks(page: str, language: str = "python", section: str = "") -> list[str]:
    """The fenced blocks of a page, or of one of its sections."""
    text = (ROOT / page).read_text("utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    # Blocks in tabs and lists are indented.
    fences = re.findall(r"^( *)```(.*?)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    found = [dedent(body) for _, info, body in fences if info == language]
    assert found, f"{page} has no {language} blocks in {section or 'it'}"
    return found


def run(folder: Path, *command: str, timeout: float = PATIENCE) -> str:
    """Run a command in ``folder``, with the programs of this environment; returns its output."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": programs, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_python(folder: Path, *samples: str, timeout: float = PATIENCE) -> str:
    """Run samples one after the other, as one program; returns its output."""
    (folder / "sample.py").write_text("\n".join(samples), "utf-8")
    return run(folder, sys.executable, "sample.py", timeout=timeout)
