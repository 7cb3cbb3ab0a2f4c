"""The states of a folder after a power cut: records this process's calls on it, and builds the possible states.

There are two models of power cuts, the second one in three forms, and one of a kill:

``strict``    only what was forced to the disk: contents of files, and the names in folders
``zeroed``    all names, as ext4 orders them, but contents only as they were forced; the rest is zeros
``short``     the same, but files end where their forced content ends
``torn``      the same, but with the complete sectors of what was written last
``killed``    everything: only the process has ended
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.faulty_disk import Disk

MODELS = ("strict", "zeroed", "short", "torn")
KILLED = "killed"
SECTOR = 512
# The files of a state by their paths; None for folders.
State = dict[str, bytes | None]


class Power(Disk):
    """Builds the files that a power cut would leave. ``before`` is called before each call that changes or forces names."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root.mkdir()
        self._contents: dict[int, bytes] = {}  # as forced, by inode
        self._names: dict[int, dict[str, int | None]] = {}  # as forced, by the folder's inode
        self._folders: set[int] = {os.stat(root).st_ino}
        self._real_open = os.open
        self._open: list[int] = []  # so that no inode is used again
        self.before: Callable[[], None] = lambda: None
        super().__init__(root, monkeypatch)

    def state(self, model: str) -> State:
        """Return the files after a power cut or a kill now."""
        found: State = {}
        if model == "strict":
            self._forced(os.stat(self.root).st_ino, "", found)
            return found
        for folder, folders, files in os.walk(self.root):
            for name in folders:
                found[os.path.relpath(os.path.join(folder, name), self.root)] = None
            for name in files:
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):  # a thread removes deleted files
                    found[os.path.relpath(path, self.root)] = self._unordered(path, model)
        return found

    def _unordered(self, path: str, model: str) -> bytes:
        stat = os.stat(path)
        if model == KILLED:
            return Path(path).read_bytes()
        content = self._contents.get(stat.st_ino, b"")[: stat.st_size]
        if model == "torn":
            whole = stat.st_size - stat.st_size % SECTOR
            content += Path(path).read_bytes()[len(content) : whole]
        return content if model == "short" else content.ljust(stat.st_size, b"\0")

    def close(self) -> None:
        for fd in self._open:
            os.close(fd)

    def _forced(self, inode: int, path: str, found: State) -> None:
        for name, child in self._names.get(inode, {}).items():
            below = os.path.join(path, name)
            if child in self._folders:
                found[below] = None
                self._forced(child, below, found)
            else:
                found[below] = self._contents.get(child, b"")

    def _recording(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        failing = super()._recording(name, real)

        def call(*arguments: Any, **named: Any) -> Any:
            path = self._path(name, arguments)
            if path is None:
                return real(*arguments, **named)
            if name in ("rename", "replace", "unlink", "fsync", "fdatasync"):
                self.before()
            absolute = os.path.join(self.root, path)
            new = name == "open" and not os.path.exists(absolute)
            result = failing(*arguments, **named)
            if new or name == "mkdir":
                self._open.append(self._real_open(absolute, os.O_RDONLY))
                if name == "mkdir":
                    self._folders.add(os.stat(absolute).st_ino)
            elif name in ("fsync", "fdatasync"):
                self._force(arguments[0])
            return result

        return call

    def _force(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        path = os.readlink(f"/proc/self/fd/{fd}")
        if inode in self._folders:
            with os.scandir(path) as entries:
                self._names[inode] = {entry.name: entry.inode() for entry in entries}
        else:
            self._contents[inode] = Path(path).read_bytes()


def materialize(state: State, folder: Path) -> None:
    """Write the files of a state."""
    folder.mkdir()
    for path, content in sorted(state.items()):
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
