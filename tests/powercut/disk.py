"""What a power cut can leave of files: the states of a disk after each recorded operation.

Three models, each of which some file system allows:

``data``   names, sizes and their order survive, as on ext4; bytes that were not forced to the disk are lost: as if they
           were never written, or as zeros where the file has grown (an old sector has its old content)
``names``  bytes survive; new files, renames and removals are lost until their folder is forced to the disk
``torn``   the last write is torn: only some of its sectors of 512 bytes survive
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.powercut.recorder import (
    ROOT,
    Create,
    Link,
    Mark,
    Op,
    Remove,
    Rename,
    Sync,
    Truncate,
    Write,
)

SECTOR = 512
# By number of a write: other bytes, and how much later they begin; None for zeros.
Changes = dict[int, tuple[int, bytes] | None]
_NAMES = (Create, Link, Rename, Remove)


@dataclass(frozen=True, slots=True)
class State:
    """A disk after a power cut: files by path, folders, and the lines that the program had written."""

    model: str
    after: int
    files: dict[str, bytes]
    folders: frozenset[str]
    marks: tuple[str, ...]

    @property
    def key(self) -> bytes:
        """Equal for states with the same files and the same lines."""
        digest = sha256(repr((sorted(self.folders), self.marks)).encode())
        for path in sorted(self.files):
            digest.update(f"{path} {len(self.files[path])}\0".encode() + self.files[path])
        return digest.digest()

    def write(self, root: str, folder: Path) -> None:
        """Write the files below the recorded folder ``root`` into an empty folder."""
        for path in sorted(self.folders):
            (folder / os.path.relpath(path, root)).mkdir(parents=True, exist_ok=True)
        for path, data in self.files.items():
            (folder / os.path.relpath(path, root)).write_bytes(data)


def states(ops: Sequence[Op], root: str, *, every: int = 1, seed: int = 0) -> Iterator[State]:
    """Yield the different states that power cuts after each operation can leave, in all models.

    Args:
        every: yield about one of this many states, chosen at random by the seed
    """
    seen: set[bytes] = set()
    chance = random.Random(seed)
    for after in range(1, len(ops) + 1):
        if isinstance(ops[after - 1], Sync):
            continue  # it only removes states
        for model, lost, changed in _choices(ops[:after], root, seed + after):
            if every > 1 and chance.random() * every >= 1:
                continue
            state = _replay(ops[:after], root, f"{model}", lost, changed)
            if state.key not in seen:
                seen.add(state.key)
                yield state


def _choices(ops: Sequence[Op], root: str, seed: int) -> Iterator[tuple[str, set[int], Changes]]:
    """Yield models with the numbers of lost operations, and with changed writes."""
    yield "nothing lost", set(), {}
    pending = _pending_writes(ops)
    if pending:
        yield "data, all as if never written", set(pending), {}
        yield "data, all zeros", set(), dict.fromkeys(pending)
        chance = random.Random(seed)
        nodes = {ops[number].node for number in pending}  # type: ignore[union-attr]
        if len(nodes) > 1:
            for node in sorted(nodes):
                mine = [n for n in pending if ops[n].node == node]  # type: ignore[union-attr]
                yield "data, of one file, as if never written", set(mine), {}
                yield "data, of one file, zeros", set(), dict.fromkeys(mine)
        some = [number for number in pending if chance.random() < 0.5]
        yield "data, at random", set(some[::2]), dict.fromkeys(some[1::2])
        last = pending[-1]
        yield from _torn(ops[last], last)
    names = _pending_names(ops, root)
    if names:
        yield "names, all", set(names), {}
        yield "names, and data", set(names) | set(pending), {}
        folders = {_folder(ops[number]) for number in names}
        if len(folders) > 1:
            for folder in sorted(folders):
                yield "names, of one folder", {n for n in names if _folder(ops[n]) == folder}, {}


def _torn(op: Op, number: int) -> Iterator[tuple[str, set[int], Changes]]:
    """Yield a write of which only the first or the last sector survives; it must have two at least."""
    assert isinstance(op, Write)
    first = SECTOR - op.offset % SECTOR
    if len(op.data) > first:
        yield "torn, the first sector", set(), {number: (0, op.data[:first])}
        yield "torn, all but the first sector", set(), {number: (first, op.data[first:])}


def _pending_writes(ops: Sequence[Op]) -> list[int]:
    """The numbers of writes that were not forced to the disk."""
    synced: dict[int, int] = {}
    for op in ops:
        if isinstance(op, Sync):
            synced[op.node] = max(op.begin, synced.get(op.node, 0))
    return [
        number
        for number, op in enumerate(ops)
        if isinstance(op, Write) and number >= synced.get(op.node, 0)
    ]


def _pending_names(ops: Sequence[Op], root: str) -> list[int]:
    """The numbers of new, changed and removed names whose folder was not forced to the disk."""
    nodes = {ROOT: root}
    synced: dict[str, int] = {}
    for op in ops:
        if isinstance(op, Create):
            nodes[op.node] = op.path
        elif isinstance(op, Rename):
            for node, path in nodes.items():
                if path == op.old or path.startswith(op.old + "/"):
                    nodes[node] = op.new + path[len(op.old) :]
        elif isinstance(op, Sync) and op.node in nodes:
            synced[nodes[op.node]] = op.begin
    return [
        number
        for number, op in enumerate(ops)
        if isinstance(op, _NAMES) and number >= synced.get(_folder(op), 0)
    ]


def _folder(op: Op) -> str:
    if isinstance(op, Create | Remove):
        return os.path.dirname(op.path)
    assert isinstance(op, Link | Rename)
    return os.path.dirname(op.new)


@dataclass
class _Disk:
    names: dict[str, int] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)
    # How many bytes of a file were forced to the disk.
    stored: dict[int, int] = field(default_factory=dict)

    def zero(self, node: int, offset: int, size: int) -> None:
        """Let a file grow by a write whose bytes are lost."""
        begin = max(offset, self.stored.get(node, 0))
        if begin < offset + size:
            self.write(node, begin, bytes(offset + size - begin))

    def rename(self, old: str, new: str) -> None:
        for table in (self.names, self.folders):
            for path in [path for path in table if path == old or path.startswith(old + "/")]:
                table[new + path[len(old) :]] = table.pop(path)

    def write(self, node: int, offset: int, data: bytes) -> None:
        content = self.contents.setdefault(node, bytearray())
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data


def _replay(ops: Sequence[Op], root: str, model: str, lost: set[int], changed: Changes) -> State:
    disk = _Disk()
    marks = []
    for number, op in enumerate(ops):
        if isinstance(op, Mark):
            marks.append(op.text)
        if number in lost:
            continue
        if isinstance(op, Create):
            (disk.folders if op.is_folder else disk.names)[op.path] = op.node
            disk.contents.setdefault(op.node, bytearray())
        elif isinstance(op, Write):
            change = changed.get(number, (0, op.data))
            if change is None:
                disk.zero(op.node, op.offset, len(op.data))
            else:
                disk.write(op.node, op.offset + change[0], change[1])
        elif isinstance(op, Truncate):
            content = disk.contents.setdefault(op.node, bytearray())
            del content[op.size :]
            content.extend(bytes(op.size - len(content)))
        elif isinstance(op, Sync):
            disk.stored[op.node] = len(disk.contents.get(op.node, b""))
        elif isinstance(op, Rename):
            if op.old in disk.names or op.old in disk.folders:
                disk.rename(op.old, op.new)
        elif isinstance(op, Link):
            if op.old in disk.names:
                disk.names[op.new] = disk.names[op.old]
        elif isinstance(op, Remove):
            disk.names.pop(op.path, None)
            disk.folders.pop(op.path, None)
    folders = {root}
    for path in sorted(disk.folders):
        if os.path.dirname(path) in folders:
            folders.add(path)
    files = {
        path: bytes(disk.contents[node])
        for path, node in disk.names.items()
        if os.path.dirname(path) in folders
    }
    return State(model, len(ops), files, frozenset(folders), tuple(marks))
