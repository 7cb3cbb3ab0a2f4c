"""``krammar doctor``: the problems that it finds, and its advice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar import __version__
from krammar.cli import doctor, main
from krammar.cli.doctor import FAILS, NOTE, OK, SLOW, Result
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def script(path: Path, text: str) -> Path:
    """A program, run by the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def only(check: Callable[[], Iterator[Result]]) -> Result:
    [result] = check()
    return result


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        ('openjdk version "17.0.9" 2023-10-17', OK, "Java 17"),
        ('openjdk version "25" 2025-09-16', OK, "Java 25"),
        ('java version "1.8.0_401"', FAILS, "too old"),
        ("Segmentation fault", FAILS, "printed no version: Segmentation fault"),
        ("", FAILS, "printed no version: nothing"),
    ],
)
def test_version_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: str, text: str
) -> None:
    script(tmp_path / "bin" / "java", f"echo '{said}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = only(doctor.check_java)
    assert (result.status, bool(result.fix)) == (status, status != OK)
    assert text in result.text


def test_missing_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = only(doctor.check_java)
    assert result == Result(FAILS, "Java: no java in the PATH", result.fix)
    assert "JAVA_HOME" in result.fix
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert only(doctor.check_java).text == f"Java: JAVA_HOME={tmp_path} has no bin/java"


def test_java_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = script(tmp_path / "bin" / "java", "")
    java.write_bytes(b"\x7fELF")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "does not run" in only(doctor.check_java).text


@pytest.mark.parametrize("number", ["4.0.2", "3.5.6"])
def test_old_pyspark(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: number)
    result = only(doctor.check_pyspark)
    assert result.status == FAILS
    assert result.text == f"PySpark {number} is too old, krammar needs 4.1"


def test_zips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert only(doctor.check_zips).status == OK
    library = tmp_path / "python" / "lib"
    library.mkdir(parents=True)
    (library / "pyspark.zip").touch()
    result = only(doctor.check_zips)
    assert result.status == SLOW
    assert "Python worker failed to connect back" in result.text
    assert f"rm {library}/*.zip" in result.fix


def test_python_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found, records = doctor.check_workers()
    assert found.status == OK
    assert found.text.endswith(f"which imports krammar {__version__}")
    assert records.status in (OK, SLOW)


def test_pure_records_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("KRAMMAR_PURE_PYTHON", "1")
    _, records = doctor.check_workers()
    assert records.status == SLOW
    assert "KRAMMAR_PURE_PYTHON" in records.fix


def test_workers_without_krammar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = script(tmp_path / "python3", f'exec {sys.executable} -I -S "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    result = only(doctor.check_workers)
    assert result.status == FAILS
    assert f"PYSPARK_PYTHON is not set, Spark runs python3 ({bare})" in result.text
    assert "ModuleNotFoundError" in result.text
    assert f"PYSPARK_PYTHON={sys.executable}" in result.fix
    assert "krammar.spark.session()" in result.fix


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"version": "3.9.1", "krammar": __version__}, "is Python 3.9.1, the driver's is"),
        ({"version": sys.version.split()[0], "krammar": "0.0.1"}, "krammar of workers is 0.0.1"),
    ],
)
def test_workers_with_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], text: str
) -> None:
    other = script(tmp_path / "python", f"echo '{json.dumps(said)}'")
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    result = only(doctor.check_workers)
    assert result.status == FAILS
    assert text in result.text
    assert result.fix


def test_workers_whose_python_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    assert "PYSPARK_PYTHON=/nowhere/python, which does not exist" in only(doctor.check_workers).text


def test_relative_path_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    script(tmp_path / "env" / "python", f'exec {sys.executable} "$@"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", "env/python")
    assert next(doctor.check_workers()).status == OK


def test_pushdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert only(doctor.check_pushdown).status == NOTE
    defaults = tmp_path / "spark-defaults.conf"
    for text, status in (
        ("# spark.sql.python.filterPushdown.enabled true\n", NOTE),
        ("spark.sql.python.filterPushdown.enabled   true\n", OK),
        ("spark.ui.enabled=false\nspark.sql.python.filterPushdown.enabled=true\n", OK),
    ):
        defaults.write_text(text)
        assert only(doctor.check_pushdown).status == status, text


def run(soft_limit: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that may open so many files."""
    return subprocess.run(
        ["sh", "-c", f'ulimit -S -n {soft_limit}; exec "{sys.executable}" -m krammar doctor'],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")
def test_the_command(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    script(tmp_path / "bin" / "java", "echo 'openjdk version \"21.0.1\"' >&2")
    good = run(256, JAVA_HOME=str(tmp_path), PYSPARK_PYTHON=sys.executable)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "ok     Java 21" in good.stdout
    assert "slow   open files: at most 256" in good.stdout
    assert "fix: ulimit -n " in good.stdout
    bad = run(256, JAVA_HOME=str(tmp_path / "bin"), PYSPARK_PYTHON=sys.executable)
    assert bad.returncode == 1
    assert "fails  Java: JAVA_HOME=" in bad.stdout
    assert bad.stderr == ""


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command must run where the extra is not installed: it says so."""

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert (
        "fails  PySpark is not installed\n       fix: pip install 'krammar[spark]'" in result.output
    )
