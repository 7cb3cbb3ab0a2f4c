"""``krammar compile``, and which build of a package runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import krammar as krammar_package
from krammar.util.native_files import FOLDER, SUFFIX
from tests.native.support import COMPILED, Builds, generate, krammar
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("native")

_SAY = f"""
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import {COMPILED}
    from {COMPILED} import EverythingRequest, EverythingResponse, RequestHeader
    from krammar.wire.native import status
for warning in said:
    print("warned:", warning.message)
print(status("{COMPILED}"))
print(type(EverythingRequest).__name__, EverythingRequest.decode(EverythingRequest().encode(3), 3).name)
"""


def say(folder: Path, **env: str) -> list[str]:
    """Return a new process's output about the package in ``folder``: warnings, status, and that it works."""
    found = subprocess.run(
        [sys.executable, "-c", _SAY],
        env={**os.environ, "PYTHONPATH": str(folder), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.fixture
def copied(builds: Builds, tmp_path: Path) -> Path:
    """A folder with the compiled package in it, to be spoilt."""
    shutil.copytree(builds.folder / "out" / COMPILED, tmp_path / "out" / COMPILED)
    shutil.copytree(builds.folder / "definitions", tmp_path / "definitions")
    return tmp_path / "out"


def test_compiled_runs(copied: Path) -> None:
    assert say(copied) == [f"{COMPILED}: 2 modules compiled", "type abc"]


def test_importing_a_compiled_package_imports_no_codecs(copied: Path) -> None:
    """The first message imports them; importing the package is as fast as if it were not compiled."""
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {COMPILED}, sys; print('krammar.wire.message' in sys.modules)",
        ],
        env={**os.environ, "PYTHONPATH": str(copied)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("value", ["1", "yes"])
def test_turned_off(copied: Path, value: str) -> None:
    assert say(copied, KRAMMAR_PURE_PYTHON=value) == [
        f"{COMPILED}: pure Python, because KRAMMAR_PURE_PYTHON is set",
        "_Kind abc",
    ]


def test_stale_builds_are_ignored_with_one_warning(copied: Path) -> None:
    """Regenerated from other definitions, and not compiled since."""
    for module in ("protocol", "kafka_headers"):
        path = copied / COMPILED / f"{module}.py"
        text = path.read_text("utf-8")
        head, _, rest = text.partition(" output ")
        path.write_text(f"{head} output {'0' * 16}{rest[16:]}", "utf-8")
    warned, status, works = say(copied)
    assert warned.startswith(f"warned: {COMPILED}: the compiled module protocol is stale")
    assert f"krammar compile {copied / COMPILED}" in warned
    assert status == f"{COMPILED}: pure Python" and works == "_Kind abc"


def test_edited_modules_are_never_replaced_by_compiled_ones(copied: Path) -> None:
    """An edit within a file leaves the file's stamp as it was."""
    path = copied / COMPILED / "protocol.py"
    path.write_text(path.read_text("utf-8") + "\n# An edit.\n", "utf-8")
    warned, status, works = say(copied)
    assert warned.startswith(f"warned: {COMPILED}: the compiled module protocol is stale")
    assert status.startswith(f"{COMPILED}: 1 module compiled, 1 stale") and works == "_Kind abc"

    said = krammar("compile", str(copied / COMPILED), folder=copied, code=2).stderr
    assert "protocol.py does not match" in said and "run `krammar gen` first" in " ".join(
        said.split()
    )


_RECORDS = """
import sys, warnings
import krammar
from krammar.util import native_files
krammar.__path__[0] = sys.argv[1]  # where the sources of the pure loops are looked for
from krammar.wire import native
import rich_wire
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(native.records() is not None)
print(*(warning.message for warning in said))
"""


@pytest.mark.parametrize("edited", [False, True], ids=["as they were", "edited"])
def test_edited_loops_of_record_batches_are_never_replaced(copied: Path, edited: bool) -> None:
    sources = copied / "krammar"
    shutil.copytree(Path(krammar_package.__path__[0], "wire"), sources / "wire")
    if edited:
        path = sources / "wire" / "batches" / "records" / "read.py"
        path.write_text(path.read_text("utf-8") + "\n# An edit.\n", "utf-8")
    found = subprocess.run(
        [sys.executable, "-c", _RECORDS, str(sources)],
        env={**os.environ, "PYTHONPATH": str(copied)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    used, warned = found.stdout.splitlines()
    assert used == str(not edited)
    assert ("the compiled module for record batches is stale" in warned) == edited


def test_builds_for_another_python_are_ignored_with_a_warning(copied: Path) -> None:
    for path in (copied / COMPILED / FOLDER).glob(f"*{SUFFIX}"):
        path.rename(path.with_name(path.name.removesuffix(SUFFIX) + ".cpython-399-pdp11.so"))
    warned, status, works = say(copied)
    assert "for another Python" in warned
    assert status == f"{COMPILED}: pure Python" and works == "_Kind abc"


def test_what_cannot_be_loaded_is_ignored_with_a_warning(copied: Path) -> None:
    (path,) = (copied / COMPILED / FOLDER).glob(f"protocol-*{SUFFIX}")
    path.write_bytes(b"not an extension module")
    warned, status, works = say(copied)
    assert "the compiled module protocol cannot be loaded" in warned
    assert status.startswith(f"{COMPILED}: 1 module compiled") and works == "_Kind abc"


_HIDDEN = "raise ModuleNotFoundError(\"No module named 'librt'\", name='librt')"
_OLD = "raise ValueError('API version conflict for librt.strings, expected 9 or newer, found 1')"


@pytest.mark.parametrize("librt", [_HIDDEN, _OLD], ids=["missing", "old"])
def test_a_librt_that_does_not_fit_is_named_in_the_warning(copied: Path, librt: str) -> None:
    (copied / "librt").mkdir()
    (copied / "librt" / "__init__.py").write_text(librt)
    warned, status, works = say(copied)
    assert "the compiled module protocol cannot be loaded (" in warned and "librt" in warned
    assert "Run `pip install --upgrade librt`, or set KRAMMAR_PURE_PYTHON=1" in warned
    assert status == f"{COMPILED}: pure Python" and works == "_Kind abc"


def test_current_is_not_compiled_again(copied: Path) -> None:
    """Without a compiler, even."""
    before = sorted((copied / COMPILED / FOLDER).iterdir())
    env = {**os.environ, "CC": "no-such-compiler"}
    said = krammar("compile", str(copied / COMPILED), folder=copied, env=env)
    assert "0 modules compiled, 3 current" in said.stdout
    assert sorted((copied / COMPILED / FOLDER).iterdir()) == before


def test_no_compiler(tmp_path: Path) -> None:
    pytest.importorskip("mypyc")
    package = generate(tmp_path)
    env = {**os.environ, "CC": "no-such-compiler"}
    said = krammar("compile", str(package), folder=tmp_path, code=2, env=env)
    assert "the C compiler no-such-compiler is not installed; install one" in said.stderr
    assert not (package / FOLDER).exists()


@pytest.mark.skipif(shutil.which("false") is None, reason="needs a compiler that fails")
def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mypyc")
    package = generate(tmp_path)
    env = {**os.environ, "CC": "false", "TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    said = krammar(
        "compile", str(package), "--only", "kafka_headers", folder=tmp_path, code=1, env=env
    )
    assert "kafka_headers: not compiled" in said.stderr
    assert "0 modules compiled" in said.stdout and "2 failed" in said.stdout
    assert not (package / FOLDER).exists()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert say(package.parent) == [f"{COMPILED}: pure Python", "_Kind abc"]


def test_misuse(tmp_path: Path) -> None:
    package = generate(tmp_path)
    (tmp_path / "empty").mkdir()
    said = krammar("compile", "empty", folder=tmp_path, code=2).stderr
    assert "empty is not a package" in said
    said = krammar("compile", str(package), "--only", "Nothing", folder=tmp_path, code=2).stderr
    assert "has no message, struct or definition file Nothing" in said
    init = package / "__init__.py"
    text = init.read_text("utf-8")
    init.write_text("# Written by hand.\n", "utf-8")
    said = krammar("compile", str(package), folder=tmp_path, code=2).stderr
    assert "is not a package that this version of krammar generated; run `krammar gen`" in " ".join(
        said.split()
    )
    init.write_text(text, "utf-8")
    broken = tmp_path / "definitions" / COMPILED / "broken.krm"
    broken.write_text("Broken => not top level\n  A: int\n")
    said = " ".join(krammar("compile", str(package), folder=tmp_path, code=2).stderr.split())
    assert "contains errors; run `krammar check" in said
    broken.unlink()
    (tmp_path / "other").mkdir()
    broken.with_name("protocol.krm").rename(tmp_path / "protocol.krm")
    shutil.copy(tmp_path / "protocol.krm", tmp_path / "other")
    options = ("--definitions", "other")
    said = krammar("compile", str(package), *options, folder=tmp_path, code=2).stderr
    assert f"other contains no definitions of definitions/{COMPILED}" in " ".join(said.split())
    (tmp_path / "protocol.krm").rename(broken.with_name("protocol.krm"))
    (tmp_path / "definitions").rename(tmp_path / "elsewhere")
    said = krammar("compile", str(package), folder=tmp_path, code=2).stderr
    assert "no folder above it contains its definitions (definitions/rich_wire)" in " ".join(
        said.split()
    )
    assert "--definitions FOLDER" in said
    decoy = tmp_path / "definitions" / COMPILED / "decoy.krm"
    decoy.parent.mkdir(parents=True)
    decoy.write_text("Decoy => not top level\n  A: int8\n")
    said = krammar("compile", str(package), folder=tmp_path, code=2).stderr
    assert "--definitions FOLDER" in said
    changed = tmp_path / "elsewhere" / COMPILED / "protocol.krm"
    changed.write_text(changed.read_text("utf-8").replace("Tiny: int8", "Tiny: int32"), "utf-8")
    options = ("--definitions", "elsewhere")
    said = krammar("compile", str(package), *options, folder=tmp_path, code=2).stderr
    assert "does not match" in said and "run `krammar gen` first" in " ".join(said.split())
    assert not (package / FOLDER).exists()


def test_version_says_which_build_runs(tmp_path: Path) -> None:
    said = krammar("--version", "--verbose", folder=tmp_path).stdout
    assert krammar("--verbose", "--version", folder=tmp_path).stdout == said
    assert said.startswith(krammar("--version", folder=tmp_path).stdout)
    assert "kafka_wire: " in said and "wafka_wire: " in said
    found = subprocess.run(
        [sys.executable, "-m", "krammar.wire"],
        env={**os.environ, "KRAMMAR_PURE_PYTHON": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    lines = found.stdout.splitlines()
    assert (
        lines[0] == "kafka_wire: pure Python, because KRAMMAR_PURE_PYTHON is set"
        and len(lines) == 2
    )
