"""The command line, as the tests of several backends run it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from krammar.cli import main


def gen(source: Path, out: Path, *more: str) -> Result:
    """Run ``krammar gen`` on definitions, with more options."""
    return CliRunner().invoke(main, ["gen", str(source), "-o", str(out), *more])
