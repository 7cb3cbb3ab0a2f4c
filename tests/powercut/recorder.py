"""Records a program's changes of the files of a folder, from its system calls (strace).

The program writes a line to its standard output when something is acknowledged. The lines are part of the record.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "open,openat,creat,close,write,pwrite64,writev,pwritev,pwritev2,lseek,truncate,ftruncate,fallocate,fsync,"
    "fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,mmap,msync,sendfile,"
    "copy_file_range,sync,syncfs,sync_file_range,chdir"
)


@dataclass(frozen=True, slots=True)
class Create:
    """A file or folder gets its first name. ``node`` identifies it under any name."""

    path: str
    node: int
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync of a file or folder that began when ``begin`` operations were done."""

    node: int
    begin: int


@dataclass(frozen=True, slots=True)
class Rename:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Link:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Remove:
    path: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the program's output."""

    text: str


# The node of the recorded folder.
ROOT = 1

Op = Create | Write | Truncate | Sync | Rename | Link | Remove | Mark


class UnknownCallError(Exception):
    """The program changes files by a call that is not modelled."""


def available() -> bool:
    """Return whether strace is installed and may trace processes."""
    strace = shutil.which("strace")
    return strace is not None and (
        subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True).returncode == 0
    )


def record(
    command: Sequence[str], folder: Path, trace: Path, environment: dict[str, str] | None = None
) -> list[Op]:
    """Run a program, which must succeed, and return what it has done below ``folder``."""
    strace = ["strace", "-f", "-xx", "-y", "-s", str(1 << 24), "-e", "signal=none"]
    done = subprocess.run(
        [*strace, "--seccomp-bpf", "-e", f"trace={CALLS}", "-o", str(trace), *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    with trace.open() as lines:
        return _Reader(str(folder)).read(lines)


_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(.*)$")
_UNFINISHED = re.compile(r"(\d+) +(\w+)\((.*?),? <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


@dataclass
class _Reader:
    """Turns the lines of strace into operations."""

    root: str
    ops: list[Op] = field(default_factory=list)
    # Nodes by path, also of removed files that are still open, and the sizes of all.
    nodes: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    # By file descriptor and node: where the next write begins; -1 for the end of the file.
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    output: bytes = b""
    count: int = 0
    folder: str = field(default_factory=os.getcwd)

    def __post_init__(self) -> None:
        assert self._node(self.root) == ROOT

    def read(self, lines: Iterable[str]) -> list[Op]:
        begun: dict[tuple[str, str], tuple[str, int]] = {}
        for line in lines:
            line = line.rstrip("\n")
            begin = len(self.ops)
            if found := _UNFINISHED.match(line):
                begun[found[1], found[2]] = found[3], begin
                continue
            if found := _RESUMED.match(line):
                # A call counts when it has ended; an fsync forces only what was written before it began.
                arguments, begin = begun.pop((found[1], found[2]), ("", begin))
                rest = found[3]
                separator = ", " if arguments and not rest.startswith((")", ",")) else ""
                line = f"{found[1]} {found[2]}({arguments}{separator}{rest.lstrip()}"
            if (found := _LINE.match(line)) and found[4] != "?" and int(found[4]) >= 0:
                self._call(found[2], found[3], int(found[4]), found[5], begin)
        return self.ops

    def _inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def _paths(self, arguments: str) -> list[str]:
        """The paths among the arguments, absolute."""
        base = _FD.search(arguments)
        folder = _bytes(base[2]).decode() if base else self.folder
        found = [_bytes(text).decode() for text in _STRING.findall(arguments)]
        return [os.path.normpath(os.path.join(folder, path)) for path in found]

    def _node(self, path: str) -> int:
        if path not in self.nodes:
            self.count += 1
            self.nodes[path] = self.count
        return self.nodes[path]

    def _file(self, text: str) -> tuple[str, int] | None:
        """The descriptor and the node of an open file inside of the folder."""
        found = _FD.match(text)
        if found is None:
            return None
        path = _bytes(found[2]).decode()
        if not self._inside(path):
            return None
        node = self.removed.get(path) if found[3] else self.nodes.get(path)
        return None if node is None else (found[1], node)

    def _call(self, name: str, arguments: str, result: int, rest: str, begin: int) -> None:
        if name in ("open", "openat", "creat"):
            self._open(arguments, f"{result}{rest}")
        elif name in ("write", "pwrite64"):
            self._write(name, arguments, result)
        elif name in ("fsync", "fdatasync"):
            if file := self._file(arguments):
                self.ops.append(Sync(file[1], begin))
        elif name == "ftruncate":
            if file := self._file(arguments):
                size = int(arguments.rsplit(", ", 1)[1], 0)
                self._resize(file[1], size)
        elif name == "lseek":
            if file := self._file(arguments):
                self.positions[file] = result
        elif name in ("rename", "renameat", "renameat2", "link", "linkat"):
            self._name(name, *self._paths(arguments))
        elif name in ("unlink", "unlinkat", "rmdir"):
            (path,) = self._paths(arguments)
            if path in self.nodes:
                self._forget(path)
                self.ops.append(Remove(path))
        elif name in ("mkdir", "mkdirat"):
            (path,) = self._paths(arguments)
            if self._inside(path):
                self.ops.append(Create(path, self._node(path), is_folder=True))
        elif name == "chdir":
            (self.folder,) = self._paths(arguments)
        elif name == "close":
            pass
        elif name in ("pwritev", "pwritev2", "writev"):
            self._write_vector(name, arguments, result)
        elif self._file(arguments) and not (name == "mmap" and "MAP_SHARED" not in arguments):
            raise UnknownCallError(f"{name}({arguments[:200]})")

    def _open(self, arguments: str, opened: str) -> None:
        (path,) = self._paths(arguments)
        flags = arguments.rsplit('"', 1)[1]
        if not self._inside(path):
            return
        if path not in self.nodes:
            if "O_CREAT" not in flags:
                self._node(path)  # a folder that exists already
                return
            node = self._node(path)
            self.sizes[node] = 0
            self.ops.append(Create(path, node))
        node = self.nodes[path]
        if "O_TRUNC" in flags and self.sizes.get(node):
            self._resize(node, 0)
        descriptor = opened.split("<")[0]
        self.positions[descriptor, node] = -1 if "O_APPEND" in flags else 0

    def _write(self, name: str, arguments: str, result: int) -> None:
        data = _bytes(_STRING.search(arguments)[1])[:result]  # type: ignore[index]
        if name == "write" and arguments.startswith("1<"):
            self._print(data)
        elif file := self._file(arguments):
            offset = int(arguments.rsplit(", ", 1)[1], 0) if name == "pwrite64" else None
            self._put(file, data, offset)

    def _write_vector(self, name: str, arguments: str, result: int) -> None:
        if file := self._file(arguments):
            data = b"".join(_bytes(text) for text in _STRING.findall(arguments))[:result]
            numbers = re.findall(r"\], \d+(?:, (\d+))?", arguments)
            self._put(file, data, int(numbers[-1]) if name != "writev" else None)

    def _print(self, data: bytes) -> None:
        self.output += data
        *lines, self.output = self.output.split(b"\n")
        self.ops += [Mark(line.decode()) for line in lines]

    def _put(self, file: tuple[str, int], data: bytes, offset: int | None) -> None:
        node = file[1]
        size = self.sizes.get(node, 0)
        if offset is None:
            offset = self.positions.get(file, 0)
            if offset < 0:
                offset = size
            else:
                self.positions[file] = offset + len(data)
        self.sizes[node] = max(size, offset + len(data))
        self.ops.append(Write(node, offset, data))

    def _resize(self, node: int, size: int) -> None:
        self.sizes[node] = size
        self.ops.append(Truncate(node, size))

    def _forget(self, path: str) -> None:
        self.removed[path] = self.nodes.pop(path)

    def _name(self, name: str, old: str, new: str) -> None:
        if not self._inside(new):
            return
        if name.startswith("link"):
            self.nodes[new] = self.nodes[old]
            self.ops.append(Link(old, new))
            return
        if new in self.nodes:
            self._forget(new)
        for path in [path for path in self.nodes if path == old or path.startswith(old + "/")]:
            self.nodes[new + path[len(old) :]] = self.nodes.pop(path)
        self.ops.append(Rename(old, new))
