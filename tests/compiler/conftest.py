"""Compiling definitions of a test's own: to diagnostics, to IR, and to a package that can be imported."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler.front.source import compile_source
from krammar.util.diagnostics import Diagnostics, format_text

Files = str | bytes | Mapping[str, str | bytes]


class Build(Protocol):
    def __call__(self, files: Files) -> Any: ...


class Report(Protocol):
    def __call__(self, files: Files, *, strict: bool = False) -> str: ...


def write_files(folder: Path, files: Files) -> Path:
    """Write definition files; a text alone becomes ``a.krm``."""
    named = files if isinstance(files, Mapping) else {"a.krm": files}
    for name, text in named.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return folder


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """Generates a package with `krammar gen`, under a name of its own, and imports it."""
    sources = tmp_path_factory.mktemp("sources")
    out = tmp_path_factory.mktemp("generated")
    numbers = itertools.count(1)

    def run(files: Files) -> Any:
        name = f"made_for_test_{next(numbers)}"
        source = write_files(sources / name / "definitions" / name, files).parent
        result = CliRunner().invoke(main, ["gen", str(source), "-o", str(out / name)])
        assert result.exit_code == 0, result.output
        patch.syspath_prepend(out / name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    with pytest.MonkeyPatch.context() as patch:
        yield run


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Return the diagnostics of definition files as text, with paths such as ``p/a.krm``."""
    monkeypatch.chdir(tmp_path)

    def run(files: Files, *, strict: bool = False) -> str:
        diagnostics = Diagnostics()
        compile_source(write_files(Path("p"), files), diagnostics)
        return format_text(diagnostics.sorted(), strict=strict)

    return run
