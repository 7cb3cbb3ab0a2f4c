"""Only regular files are opened, and small ones are read up to a limit."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from krammar.util.durable import create_file, write_atomically, write_from
from krammar.util.regular_files import open_regular, read_small

READ, WRITE = os.O_RDONLY, os.O_RDWR


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: dict[Callable[[Path], None], str] = {
    pipe: "is a pipe, not a regular file",
    a_socket: "is a socket, not a regular file",
    device: "is a device, not a regular file",
    folder: "Is a directory",
}


@pytest.mark.parametrize("make", KINDS)
def test_other_kinds_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = tmp_path / "file"
    make(path)
    with pytest.raises(OSError, match=KINDS[make]) as caught:
        read_small(path, 10)
    assert caught.value.filename == str(path)
    for flags in (READ, WRITE, os.O_WRONLY | os.O_CREAT):
        with pytest.raises(OSError, match=rf"{KINDS[make]}|symbolic link"):
            open_regular(path, flags)
    with pytest.raises(OSError, match=rf"{KINDS[make]}|symbolic link"):
        write_from(path, 0, b"new")


def test_small_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"x", b"x" * 10):
        path.write_bytes(content)
        assert read_small(path, 10) == content
    path.write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="has 11 bytes, and at most 10 are read"):
        read_small(path, 10)
    os.truncate(path, 1 << 40)  # a sparse file
    with pytest.raises(OSError, match=f"has {1 << 40} bytes"):
        read_small(path, 10)


def test_files_that_grow_meanwhile_are_read_up_to_the_limit() -> None:
    """Files of the kernel have a size of 0."""
    assert read_small("/proc/self/status", 1 << 20).startswith(b"Name:")
    with pytest.raises(OSError, match="has 11 bytes, and at most 10 are read"):
        read_small("/proc/self/status", 10)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    assert read_small(link, 10) == b"old"
    for flags in (WRITE, os.O_WRONLY | os.O_CREAT):
        with pytest.raises(OSError, match="symbolic link"):
            open_regular(link, flags)
    with pytest.raises(OSError, match="symbolic link"):
        write_from(link, 0, b"new")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "missing")
    with pytest.raises(OSError, match="symbolic link"):
        write_from(dangling, 0, b"new")
    write_atomically(link, b"new")
    assert (target.read_bytes(), link.read_bytes()) == (b"old", b"new")
    assert not link.is_symlink()
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("make", [pipe, device])
def test_what_is_under_a_temporary_name_is_replaced(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """A crash leaves a file there, and a stranger can leave anything else."""
    path = tmp_path / "file"
    make(tmp_path / "file.tmp")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_is_created_only_if_nothing_else_has_its_name(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    fd = create_file(link, 0o600)
    os.write(fd, b"new")
    os.close(fd)
    assert target.read_bytes() == b"old"
    assert link.read_bytes() == b"new"
    assert link.stat().st_mode & 0o777 == 0o600
