"""docs/architecture.md names only files and functions that exist, and shows what `krammar gen` writes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from krammar.cli import main
from tests.samples import ROOT, blocks

PAGE = "docs/architecture.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
PATHS = sorted(set(re.findall(r"`((?:krammar|generated|templates|tests)/[\w./]*)", TEXT)))
NAMES = sorted(set(re.findall(r"`([\w./]+\.py): ([\w.]+)`", TEXT)))


def defined(tree: ast.AST, prefix: str = "") -> set[str]:
    """The classes, functions, methods and variables of a file: ``Connection``, ``Connection.pump``."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(prefix + node.name)
        if isinstance(node, ast.Assign):
            found |= {prefix + ast.unparse(target) for target in node.targets}
        if isinstance(node, ast.ClassDef):
            found |= defined(node, f"{prefix}{node.name}.")
    return found


def test_every_path_exists() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("file", "name"), NAMES, ids=": ".join)
def test_every_function_is_defined_in_its_file(file: str, name: str) -> None:
    assert name in defined(ast.parse((ROOT / file).read_bytes()))


def test_gen_writes_the_function_that_the_page_shows(tmp_path: Path) -> None:
    source = tmp_path / "protocol"
    source.mkdir()
    definition = next(block for block in blocks(PAGE, "") if block.startswith("PingRequest"))
    (source / "ping.krm").write_text(definition, "utf-8")
    main(["gen", str(source), "-o", str(tmp_path / "out")], standalone_mode=False)
    (shown,) = blocks(PAGE)
    assert shown in (tmp_path / "out" / "_codecs" / "ping.py").read_text("utf-8")
