from __future__ import annotations

import os
from pathlib import Path

import pytest

from krammar.compiler.front import parser, syntax
from krammar.compiler.front.source import compile_source
from krammar.lsp import project as under_test
from krammar.lsp.project import Project
from krammar.util.diagnostics import Diagnostics
from tests.lsp.sheets import PING, SHARED

KAFKA = Path(__file__).parents[2] / "definitions" / "kafka_wire"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ping.krm").write_text(PING)
    (tmp_path / "shared.krm").write_text(SHARED)
    (tmp_path / "notes.txt").write_text("not a definition")
    return tmp_path


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are parsed."""
    names: list[str] = []

    def parse(path: Path, data: bytes, diagnostics: Diagnostics) -> syntax.SyntaxFile:
        names.append(path.name)
        return parser.parse_file(path, data, diagnostics)

    monkeypatch.setattr(under_test, "parse_file", parse)
    return names


def test_the_diagnostics_are_those_of_the_compiler(folder: Path) -> None:
    (folder / "ping.krm").write_text(PING.replace("Shared", "Shard").replace("v2-v3", "v2-v9 "))
    expected = Diagnostics()
    compile_source(folder, expected)
    project = Project()
    project.open(folder / "ping.krm", (folder / "ping.krm").read_text())
    found = project.analysis(folder / "ping.krm").diagnostics()
    assert found == {folder / "ping.krm": expected.sorted(), folder / "shared.krm": []}
    assert {each.code for each in expected.found} == {"E204", "E306", "W901"}


def test_kafka_has_no_diagnostics() -> None:
    found = Project().analysis(KAFKA / "fetch.krm").diagnostics()
    assert set(found) == set(KAFKA.glob("*.krm"))
    assert not any(found.values())


def test_only_what_changed_is_parsed(folder: Path, parsed: list[str]) -> None:
    project = Project()
    ping, shared = folder / "ping.krm", folder / "shared.krm"
    project.open(ping, PING)
    first = project.analysis(ping)
    assert sorted(parsed) == ["ping.krm", "shared.krm"]
    assert project.analysis(shared) is first
    project.open(ping, PING + "\n")
    assert project.analysis(ping) is not first
    project.open(ping, PING)
    project.analysis(ping)
    assert parsed[2:] == ["ping.krm", "ping.krm"]
    # A new time without a new text.
    os.utime(shared, ns=(1, 1))
    project.analysis(ping)
    assert len(parsed) == 4
    shared.write_text(SHARED + "\nOther => not top level\n  A: int8\n")
    assert "Other" in project.analysis(ping).definitions
    assert parsed[4:] == ["shared.krm"]


def test_a_closed_document_has_the_text_of_its_file(folder: Path) -> None:
    project = Project()
    project.open(folder / "shared.krm", "")
    assert "Shared" not in project.analysis(folder / "ping.krm").definitions
    project.close(folder / "shared.krm")
    assert "Shared" in project.analysis(folder / "ping.krm").definitions


def test_a_document_without_a_file_belongs_to_its_folder(folder: Path) -> None:
    project = Project()
    project.open(folder / "new.krm", "Fresh => not top level\n  A: Shared\n")
    analysis = project.analysis(folder / "new.krm")
    assert set(analysis.files) == {folder / n for n in ("new.krm", "ping.krm", "shared.krm")}
    assert not any(analysis.diagnostics().values())
    project.close(folder / "new.krm")
    assert "Fresh" not in project.analysis(folder / "ping.krm").definitions


def test_a_removed_file_is_forgotten(folder: Path) -> None:
    project = Project()
    assert len(project.analysis(folder / "ping.krm").files) == 2
    (folder / "shared.krm").unlink()
    assert len(project.analysis(folder / "ping.krm").files) == 1


def test_files_without_a_suffix(tmp_path: Path) -> None:
    """As in franz-go. Files that contain no definition are not read."""
    (tmp_path / "00_ping").write_text(PING)
    (tmp_path / "shared").write_text(SHARED)
    (tmp_path / "Makefile").write_text("all:\n")
    analysis = Project().analysis(tmp_path / "00_ping")
    assert {path.name for path in analysis.files} == {"00_ping", "shared"}


def test_invalid_utf8_in_a_file(folder: Path) -> None:
    (folder / "shared.krm").write_bytes(b"// \xff\n")
    found = Project().analysis(folder / "ping.krm").diagnostics()
    assert [each.code for each in found[folder / "shared.krm"]] == ["E101"]
