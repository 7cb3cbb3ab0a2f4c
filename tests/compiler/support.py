"""Running the compiler in the test process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from krammar.cli import main
from krammar.compiler import ir
from krammar.compiler.front.source import compile_source
from krammar.util.diagnostics import Diagnostics


def gen(source: Path, out: Path, *more: str) -> Result:
    """Run ``krammar gen`` on definitions, with more options."""
    return CliRunner().invoke(main, ["gen", str(source), "-o", str(out), *more])


def structs(folder: Path) -> dict[str, ir.Struct]:
    """Compile definitions, and return the structs that can be encoded, by name."""
    diagnostics = Diagnostics()
    (protocol,) = compile_source(folder, diagnostics)
    assert not diagnostics.has_errors, diagnostics.sorted()
    return {each.name: each for file in protocol.files for each in file.structs if each.encoding}
