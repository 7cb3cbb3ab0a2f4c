"""Which Pythons the tests run on, and the package's metadata about it."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests import pythons

ROOT = Path(__file__).parents[1]
HERE = f"3.{sys.version_info.minor}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Pythons: an empty folder for pyenv, and ``bin`` as its PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyenv" / "versions").mkdir(parents=True)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def claims(path: Path, version: str) -> None:
    """A script that answers as another Python would."""
    script(path, f"echo cpython final 0 {version.replace('.', ' ')}")


def test_finds_this_python_on_the_path_and_in_pyenv(machine: Path) -> None:
    assert pythons.find() == []
    for path in (machine / f"bin/python{HERE}", machine / f"pyenv/versions/{HERE}.0/bin/python"):
        script(path, f'exec "{sys.executable}" "$@"')
        [found] = pythons.find()
        assert found == (sys.version_info[:3], path)
        path.unlink()


def test_takes_the_newest_release_of_each_version(machine: Path) -> None:
    versions = machine / "pyenv" / "versions"
    for release in ("3.9.18", "3.12.9", "3.12.10", "3.14.0"):
        claims(versions / release / "bin" / "python", release)
    claims(machine / "bin" / "python3.12", "3.12.4")
    claims(machine / "bin" / "python3.13", "3.13.1")
    assert [str(python) for python in pythons.find()] == [
        "CPython 3.12.10",
        "CPython 3.13.1",
        "CPython 3.14.0",
    ]


def test_ignores_what_cannot_run_the_tests(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = machine / "bin"
    script(folder / "python3.11", "exit 127")  # as pyenv's shims of versions that are not selected
    script(folder / "python3.12", "echo \"No module named 'ensurepip'\" >&2; exit 1")
    script(folder / "python3.13", "echo pypy final 0 3 13 0")
    script(folder / "python3.14", "echo cpython candidate 0 3 14 0")
    script(machine / "pyenv/versions/3.13.0t/bin/python", "echo cpython final 1 3 13 0")
    assert pythons.find() == []
    assert capsys.readouterr().out == (
        f"{folder / 'python3.12'} ignored: No module named 'ensurepip'\n"
    )


@pytest.mark.parametrize("release", [None, "3.11.2"])
def test_says_that_no_newer_python_was_found(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    release: str | None,
) -> None:
    if release:
        claims(machine / "bin" / "python3.11", release)
    monkeypatch.setattr(sys, "argv", ["tests.pythons", "--newest"])
    assert pythons.main() == 0
    said = capsys.readouterr().out
    assert ("CPython 3.11.2 found: " in said) == bool(release)
    assert "3.14 not found in " in said
    assert said.endswith("tests on other Pythons skipped\n")


def test_the_package_names_the_versions_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    looked_for = [f"{major}.{minor}" for major, minor in pythons.VERSIONS]
    assert named == looked_for[: len(named)]
    assert project["requires-python"] == f">={named[0]}"


def test_what_ci_leaves_out_exists() -> None:
    """pytest accepts names for --deselect and --ignore that no test has."""
    assert pythons.LEFT_OUT
    for left_out in pythons.LEFT_OUT:
        path, _, name = left_out.partition("::")
        files = [*(ROOT / path).glob("test_*.py")] if path.endswith("/") else [ROOT / path]
        assert any(f"def {name or 'test_'}" in file.read_text() for file in files), left_out
