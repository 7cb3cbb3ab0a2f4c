"""Durable writes: which files are forced to the disk, in which order, and which remain after an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from krammar.util import durable


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The system calls that store and rename, with paths below ``tmp_path``. The real calls run too."""
    found: list[str] = []

    def path_of(target: Any) -> str:
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
        return os.path.relpath(path, tmp_path)

    def record(name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            paths = arguments[:2] if name == "replace" else arguments[:1]
            found.append(" ".join([name, *map(path_of, paths)]))
            return real(*arguments, **named)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "replace", "unlink"):
        record(name)
    return found


def test_a_file_is_replaced_on_the_disk(tmp_path: Path, calls: list[str]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a long old content")
    durable.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert calls == ["fsync a.tmp", "replace a.tmp a", "fsync ."]


def test_nothing_is_forced_without_durable(tmp_path: Path, calls: list[str]) -> None:
    durable.write_atomically(tmp_path / "a", b"new", durable=False)
    durable.rename(tmp_path / "a", tmp_path / "b", durable=False)
    durable.make_folders(tmp_path / "c/d", durable=False)
    durable.unlink(tmp_path / "b", durable=False)
    assert not [call for call in calls if call.startswith("fsync")]
    assert os.listdir(tmp_path) == ["c"]


def test_both_folders_of_a_rename_are_forced(tmp_path: Path, calls: list[str]) -> None:
    durable.make_folders(tmp_path / "from")
    durable.make_folders(tmp_path / "to")
    (tmp_path / "from/x").touch()
    calls.clear()
    durable.rename(tmp_path / "from/x", tmp_path / "to/x")
    assert calls == ["replace from/x to/x", "fsync to", "fsync from"]


def test_each_new_folder_is_forced(tmp_path: Path, calls: list[str]) -> None:
    durable.make_folders(tmp_path / "a/b/c")
    assert calls == ["fsync .", "fsync a", "fsync a/b"]
    durable.make_folders(tmp_path / "a/b/c")
    assert len(calls) == 3


def test_a_deletion_is_forced(tmp_path: Path, calls: list[str]) -> None:
    (tmp_path / "a").touch()
    durable.unlink(tmp_path / "a")
    durable.unlink(tmp_path / "a")
    assert calls == ["unlink a", "fsync .", "unlink a"]


@pytest.mark.parametrize("call", ["fsync", "pwrite", "replace"])
def test_an_error_leaves_the_old_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left on device"):
        durable.write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_error_of_fsync_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        durable.sync(tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_file_systems_without_fsync_of_folders_are_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fail)
    durable.sync(tmp_path)
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="Invalid argument"):
        durable.sync(tmp_path / "a")


def test_files_that_are_gone_are_ignored(tmp_path: Path) -> None:
    assert durable.sync_all([tmp_path, tmp_path / "gone"]) >= 0
    with pytest.raises(FileNotFoundError):
        durable.sync(tmp_path / "gone")


@pytest.mark.parametrize("number", [3, 100])
def test_many_files_are_forced_once_each_and_report_their_own_errors(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one thread if there are few, and in several otherwise."""
    files = [tmp_path / str(each) for each in range(number)]
    for file in files:
        file.touch()
    forced: list[str] = []

    def sync(path: Path) -> None:
        forced.append(path.name)
        if path == files[1]:
            raise OSError(5, "Input/output error")
        if path.name == "gone":
            raise FileNotFoundError

    monkeypatch.setattr(durable, "sync", sync)
    results = durable.sync_together([*files, tmp_path / "gone", *files])
    assert sorted(forced) == sorted([*(file.name for file in files), "gone"])
    assert isinstance(results.pop(files[1]), OSError)
    assert len(results) == number
    assert all(isinstance(each, float) for each in results.values())
