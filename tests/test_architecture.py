"""docs/architecture.md names only files and functions that exist, and the structure of krammar/ is as it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from krammar.cli import main
from tests.samples import ROOT, blocks
from tests.support.groups import in_groups
from tools.architecture import Rooms

PAGE = "docs/architecture.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
PATHS = sorted(set(re.findall(r"`((?:krammar|generated|templates|tests)/[\w./]*)", TEXT)))
NAMES = sorted(set(re.findall(r"`([\w./]+\.py): ([\w.]+)`", TEXT)))
# The share of files that exist for one neighbour only.
CORRIDORS = 0.10
# Its class has a file of its own, because PySpark 4.1 cannot import it.
APART = "krammar.spark.kafka.stream.limited"


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    """The structure of krammar/. To read it takes seconds, so no import of this file does."""
    return Rooms()


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


@in_groups(("file", "name"), NAMES, ids=": ".join)
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


def test_no_chain_of_classes_stretches_over_more_than_two_files(rooms: Rooms) -> None:
    chains = [chain for chain in rooms.chains() if chain[0].module != APART]
    assert [" -> ".join(map(str, chain)) for chain in chains] == []


def test_a_class_name_has_one_meaning_in_a_package(rooms: Rooms) -> None:
    assert rooms.repeated_classes() == {}


def test_few_files_exist_for_one_neighbour(rooms: Rooms) -> None:
    """Merge the file into its neighbour, unless it is a concept of its own; the docstring of each says which."""
    corridors = rooms.corridors()
    assert len(corridors) < CORRIDORS * len(rooms.modules), corridors
