"""Kafka's own checker of schemas beside `krammar diff`, for the changes in ``tests/compiler/evolution.py``.

``tests/compiler/test_evolution.py`` has the verdicts of krammar, and the bytes where the two differ.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from krammar.compiler.front.source import compile_source
from krammar.compiler.kafka_json import export
from krammar.util.diagnostics import Diagnostics
from tests.compiler.conftest import write_files
from tests.compiler.evolution import CHANGES, NO_SCHEMA
from tests.interop.apache import java
from tests.interop.conftest import java_program
from tests.support.waiting import PATIENCE

SOURCE = Path(__file__).parent / "SchemaChecker.java"


@pytest.fixture(scope="module")
def program() -> Path:
    """The folder with the compiled program that asks Kafka's checker."""
    return java_program("checker", SOURCE)


def schemas(folder: Path, text: str) -> dict[str, str]:
    """The schemas of a request and its response that Kafka has."""
    diagnostics = Diagnostics()
    (protocol,) = compile_source(write_files(folder, text), diagnostics)
    assert diagnostics.found == []
    files = export(protocol).files
    return {
        kind: text
        for kind in ("Request", "Response")
        for name, text in files.items()
        if name.endswith(f"{kind}.json")
    }


def test_verdicts(program: Path, tmp_path: Path) -> None:
    for number, change in enumerate(CHANGES):
        pairs = tmp_path / "schemas" / f"{number:03}"
        pairs.mkdir(parents=True)
        for side, text in (("old", change.old), ("new", change.new)):
            found = schemas(tmp_path / "definitions" / f"{number:03}" / side, text)
            assert (len(found) == 2) is (side == "old" or change.kafka != NO_SCHEMA), change.name
            for kind, schema in found.items():
                (pairs / f"{kind}-{side}.json").write_text(schema)
        if change.kafka == NO_SCHEMA:
            shutil.rmtree(pairs)

    command = java("checker", "SchemaChecker", str(tmp_path / "schemas"), classes=program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    said = dict(line.split("\t") for line in done.stdout.splitlines())
    asked = {
        f"{number:03}": change for number, change in enumerate(CHANGES) if change.kafka != NO_SCHEMA
    }
    assert said.keys() == asked.keys()
    wrong = {
        change.name: said[number]
        for number, change in asked.items()
        if bool(said[number]) is not bool(change.kafka) or change.kafka not in said[number]
    }
    assert wrong == {}
