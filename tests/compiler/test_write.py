"""Files of packages on disks that fail, and after power cuts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler.write import CACHE_FOLDER
from tests.broker.power import KILLED, MODELS, Power, State
from tests.compiler.support import gen


def generated(source: Path, out: Path) -> None:
    result = gen(source, out)
    assert result.exit_code == 0, result.output


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != CACHE_FOLDER
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "definitions"
    for name in ("one/a", "one/b", "two/c"):
        path = folder / f"{name}.krm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "B => not top level\n  B: string\n".replace("B =>", f"{name[-1:].upper()} =>")
        )
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_files_are_on_the_disk_before_they_replace_others(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut may leave empty files under their names."""
    real, replace = os.fsync, os.replace
    synced: set[int] = set()
    replaced: set[Path] = set()
    folders: set[Path] = set()

    def fsync(file: int) -> None:
        found = os.fstat(file)
        synced.add(found.st_ino)
        folders.update(
            path.parent for path in replaced if os.path.samestat(found, path.parent.stat())
        )
        real(file)

    def checked(draft: Path, target: Path) -> None:
        assert CACHE_FOLDER in target.parts or draft.stat().st_ino in synced
        replaced.add(target)
        replace(draft, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", checked)
    generated(source, out)
    written = {out / name for name in tree(out)}
    assert written and written <= replaced
    # And the names of the new files are on the disk too.
    assert folders == {path.parent for path in written}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_changes_no_file(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """At whichever file."""
    generated(source, out)
    before = tree(out)
    for path in source.rglob("*.krm"):
        path.write_text(path.read_text().replace("B: string", "B: string\n  C: int8"))
    real = Path.write_bytes
    failed = 0
    for at in range(1, 100):
        calls = 0

        def write_bytes(path: Path, data: bytes, at: int = at) -> int:
            nonlocal calls
            calls += 1
            if calls == at:
                real(path, data[: len(data) // 2])
                raise OSError(number, os.strerror(number))
            return real(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", write_bytes)
            result = gen(source, out)
        if result.exit_code == 0:
            break
        failed += 1
        assert result.exit_code == 2
        assert f"{os.strerror(number)}: '{out}" in result.output
        if tree(out) != before:
            assert CACHE_FOLDER in result.output
            break
    assert failed > 2
    generated(source, out)
    assert gen(source, out, "--check").exit_code == 0
    assert b"c: int" in tree(out)["one/b.py"]


UGLY = b"B => not top level   \n  B: string\n"
TIDY = b"B => not top level\n  B: string\n"


def test_a_formatted_file_is_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kills and power cuts at each call."""
    states: list[State] = []
    with monkeypatch.context() as patch:
        power = Power(tmp_path / "data", patch)
        path = tmp_path / "data" / "b.krm"
        path.write_bytes(UGLY)
        for forced in (path, path.parent):
            descriptor = os.open(forced, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        power.before = lambda: states.extend(map(power.state, (*MODELS, KILLED)))
        result = CliRunner().invoke(main, ["fmt", str(path)])
        assert result.exit_code == 0, result.output
        after = [power.state(model) for model in (*MODELS, KILLED)]
        power.close()
    assert {state["b.krm"] for state in states} == {UGLY, TIDY}
    assert {state["b.krm"] for state in after} == {TIDY}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=os.strerror)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_file_that_cannot_be_formatted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "b.krm"
    path.write_bytes(UGLY)

    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(Path, "write_bytes", fail)
        else:
            patch.setattr(os, "fsync", fail)
        result = CliRunner().invoke(main, ["fmt", str(path)])
    assert result.exit_code == 2
    assert f"{os.strerror(number)}: '{tmp_path}" in result.output
    assert path.read_bytes() == UGLY and os.listdir(tmp_path) == ["b.krm"]
