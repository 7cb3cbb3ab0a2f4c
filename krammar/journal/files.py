"""Journals in files.

A journal is a folder. Its frames are stored one after the other in fragments: files named by the offset of
their first byte. Only the last fragment grows. The file ``head`` contains the end of the journal:

    orders/part-000/
        spec                             name, content type and labels of the journal
        head                             end 5200, in the fragment that begins at 4096
        00000000000000000000.fragment    bytes    0 ─ 4096
        00000000000000004096.fragment    bytes 4096 ─ 5200, and possibly the beginning of an append whose
                                         writer was killed; readers ignore it, the next writer removes it

An append locks ``head`` (flock), writes its bytes after the end, and then the new end into ``head``. Thus an
append is in the journal completely or not at all, even if its writer is killed, and any number of threads and
processes of one machine can write.

After a power cut, appends are lost that were not forced to the disk (unless ``fsync`` is set). Offsets are not used
twice: writers continue in a new fragment, and readers skip lost bytes in the same way as deleted fragments. See
``krammar.journal.heads``.

The parts of a journal's name are names of folders. A part that could also be the name of one of these files gets a
``~`` in front, so that the journals ``a`` and ``a/head`` do not collide. Names contain no ``~``.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import weakref
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from journal_wire import JournalSpec as WireSpec

from krammar.journal.errors import (
    AppendError,
    CorruptJournalError,
    UnknownJournalError,
    created_again,
)
from krammar.journal.file_reader import FileReader
from krammar.journal.heads import (
    HEAD,
    SLOT,
    SUFFIX,
    Head,
    fragment_path,
    fragments,
    read_head,
    readable_end,
)
from krammar.journal.journal_file import JournalFile, WriteSettings, opening
from krammar.journal.journals import Ticker
from krammar.journal.mapping import Partitions, refreshing
from krammar.journal.specs import JournalSpec, check_name
from krammar.util.boot import current_boot
from krammar.util.closing import Closing
from krammar.util.durable import make_folders, sync

# Appends, which are collected and written together.

log = logging.getLogger("krammar.journal")


@dataclass(slots=True, eq=False)
class FileAppend:
    """An append to a file; see AsyncAppend. Offsets are in bytes."""

    _writer: FileWriter
    begin: int = -1
    end: int = -1
    done: bool = False
    error: Exception | None = None

    @property
    def journal(self) -> str:
        return self._writer.journal

    def result(self, timeout_ms: float | None = None) -> FileAppend:
        """Write the append, with all earlier appends to the journal. ``timeout_ms`` is ignored.

        Raises:
            AppendError: the append has failed, or it was begun before this process was forked.
        """
        if not self.done:
            self._writer.write()
        if self.error is not None:
            raise self.error
        return self


class FileWriter:
    """Collects and writes the appends to one journal."""

    def __init__(self, journal: str, folder: Path, settings: WriteSettings) -> None:
        self.journal = journal
        self._folder = folder
        self._settings = settings
        self._adding = threading.Lock()
        self._writing = threading.Lock()
        self._appends: list[FileAppend] = []
        self._data: list[bytes] = []
        self._size = 0
        self._is_foreign = False
        self._file = JournalFile(journal, folder, settings)

    def append(self, data: bytes) -> FileAppend:
        """Begin an append, and write all if the buffer is full."""
        append = FileAppend(self)
        with self._adding:
            first = not self._appends
            self._appends.append(append)
            self._data.append(data)
            self._size += len(data)
            full = self._size >= self._settings.buffer_bytes
        if full:
            self.write()
        elif first:
            self._settings.wake()
        return append

    def write(self) -> None:
        """Write collected appends. When it returns, all appends from before the call are done.

        Raises:
            AppendError: this process was forked after the appends were begun.
        """
        if self._is_foreign:
            raise AppendError(
                f"{self.journal}: the append was begun before this process was forked, and only the process that "
                "began it can write it"
            )
        with self._writing:
            with self._adding:
                appends, data = self._appends, self._data
                self._appends, self._data, self._size = [], [], 0
            if not appends:
                return
            try:
                at = self._file.append(b"".join(data))
            except BaseException as error:
                failed = error
                if not isinstance(failed, AppendError):
                    failed = AppendError(f"{self.journal}: {str(error) or type(error).__name__}")
                    failed.__cause__ = error
                for append in appends:
                    append.error = failed
                    append.done = True
                if not isinstance(error, Exception):  # Ctrl-C
                    raise
                return
            for append, part in zip(appends, data, strict=True):
                append.begin = at
                at += len(part)
                append.end = at
                append.done = True

    def close(self) -> None:
        """Force the journal to the disk if this object has written to it, and close its files."""
        with self._writing:
            try:
                self._file.finish()
            except AppendError:
                pass  # the journal was deleted
            except (OSError, CorruptJournalError) as error:
                log.error(
                    "%s: the last appends may not survive a power cut: %s", self.journal, error
                )
            finally:
                self._file.close()

    def leave(self) -> None:
        """Leave open files and unwritten appends to the process that this one was forked from."""
        self._is_foreign = True
        self._file.close()


_SPEC = "spec"
# Journals.

# Before parts of names that are names of files, too.
_MARK = "~"

_all_journals: weakref.WeakSet[FileJournals] = weakref.WeakSet()


class FileJournals(Closing):
    """The journals in the folders below ``root``.

    All methods are thread-safe, and a forked process can use the object too. It needs a local file system
    of a POSIX machine, because it relies on flock.

    Args:
        fragment_bytes: the size in bytes from which a fragment is full, and a new one begins.
        fsync: whether appends survive a power cut, and not only the end of their process. Without it, a power cut
            takes at most the appends of the 5 seconds before the last one.
        linger_ms: how long to collect appends without a waiting caller before they are written.
        buffer_bytes: how many bytes of a journal's appends are collected at most.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        fragment_bytes: int = 1 << 30,
        fsync: bool = False,
        linger_ms: float = 5,
        buffer_bytes: int = 1 << 20,
    ) -> None:
        self.root = Path(root)
        self._settings = WriteSettings(fragment_bytes, fsync, buffer_bytes, self.wake)
        self._linger_ms = linger_ms
        self._closed = False
        self._begin()
        _all_journals.add(self)

    def _begin(self) -> None:
        self._writers: dict[str, FileWriter] = {}
        self._adding = threading.Lock()
        self._ticker = Ticker(self._write_all, self._linger_ms / 1000)

    def _begin_after_fork(self) -> None:
        """Begin without writers: open files, their locks, and unwritten appends belong to the parent."""
        for writer in self._writers.values():
            writer.leave()
        self._begin()

    # The list of journals.

    def create(self, spec: JournalSpec | str, **labels: str) -> JournalSpec:
        """Create a journal, unless it exists with the same content type; return its spec.

        Args:
            spec: the spec, or the name of a journal with fixed framing.

        Raises:
            ValueError: the name is not valid, or the journal exists with another content type.
        """
        if isinstance(spec, str):
            spec = JournalSpec(spec, labels=labels)
        folder = self.folder(spec.name)
        make_folders(folder)
        wire = WireSpec(
            name=spec.name,
            content_type=spec.content_type,
            labels=[WireSpec.Label(name=n, value=v) for n, v in sorted(spec.labels.items())],
        )
        # Two processes may do this at the same time. Each file appears completely, and the first one is used.
        slot = Head(boot=current_boot()).with_id().encode()
        _make(folder / HEAD, slot.ljust(SLOT, b"\0") + slot)
        _make(folder / _SPEC, wire.encode())
        existing = self.spec(spec.name)
        if existing.content_type != spec.content_type:
            raise ValueError(
                f"{spec.name} exists with the content type {existing.content_type!r}, "
                f"not {spec.content_type!r}"
            )
        return existing

    def spec(self, journal: str) -> JournalSpec:
        """Return the spec of a journal.

        Raises:
            UnknownJournalError: the journal does not exist.
            CorruptJournalError: its spec is malformed.
        """
        path = self.folder(journal) / _SPEC
        try:
            wire = WireSpec.decode(path.read_bytes())
            labels = {label.name: label.value for label in wire.labels}
            return JournalSpec(wire.name, wire.content_type, labels)
        except (FileNotFoundError, NotADirectoryError):
            raise UnknownJournalError(
                f"journal {journal!r} does not exist in {self.root}; create it with create()"
            ) from None
        except ValueError as error:
            raise CorruptJournalError(f"{path}: {error}") from error

    def list(self, prefix: str = "") -> list[JournalSpec]:
        """Return the journals whose names begin with ``prefix``, sorted by name."""
        names = [
            path.parent.relative_to(self.root).as_posix().replace(_MARK, "")
            for path in self.root.rglob(_SPEC)
            if path.is_file()
        ]
        return [self.spec(name) for name in sorted(names) if name.startswith(prefix)]

    def partitions(self, prefix: str = "", *, refresh_ms: float = 10_000) -> Partitions:
        """Return a function that lists these journals, for mappings; it looks for new ones every ``refresh_ms``."""
        return refreshing(lambda: self.list(prefix), refresh_ms)

    def offsets(self, journal: str) -> tuple[int, int]:
        """Return the offsets of the first byte and of the journal's end (exclusive).

        Raises:
            UnknownJournalError: the journal does not exist.
        """
        self.spec(journal)
        folder = self.folder(journal)
        end = readable_end(folder, read_head(folder))
        begins = fragments(folder)
        return (min(begins[0], end) if begins else end), end

    def journal_id(self, journal: str) -> UUID:
        """Return the id of a journal, which ``create`` has chosen.

        Raises:
            UnknownJournalError: the journal does not exist.
        """
        self.spec(journal)
        return read_head(self.folder(journal)).journal_id

    def prune(self, journal: str, before: int) -> int:
        """Delete the fragments that end at ``before`` or earlier, except for the journal's last one.

        Returns:
            The offset of the first remaining byte.

        Raises:
            UnknownJournalError: the journal does not exist.
        """
        self.spec(journal)
        folder = self.folder(journal)
        last = read_head(folder).fragment
        for begin, end in pairwise(fragments(folder)):
            if end <= before and begin < last:
                fragment_path(folder, begin).unlink(missing_ok=True)
        return self.offsets(journal)[0]

    def folder(self, journal: str) -> Path:
        """Return the folder of a journal, whether it exists or not. Raises ValueError if the name is not valid."""
        parts = check_name(journal).split("/")
        return self.root.joinpath(*(_MARK + part if _is_file(part) else part for part in parts))

    # Writing.

    def append(self, journal: str, data: bytes) -> FileAppend:
        """Begin to append a frame.

        ``FileAppend.result`` or ``flush`` writes it, or a thread after ``linger_ms``. Appends in between are written
        together, in order.

        Raises:
            UnknownJournalError: the journal does not exist.
            AppendError: this object was closed.
        """
        writer = self._writers.get(journal)
        return (self._writer(journal) if writer is None else writer).append(data)

    def _writer(self, journal: str) -> FileWriter:
        self.spec(journal)
        with self._adding:
            if self._closed:
                raise AppendError(f"{journal}: the journals are closed")
            writer = self._writers.get(journal)
            if writer is None:
                writer = FileWriter(journal, self.folder(journal), self._settings)
                self._writers[journal] = writer
            return writer

    def flush(self) -> None:
        """Write all appends."""
        self._write_all()

    def _write_all(self) -> bool:
        for writer in list(self._writers.values()):
            writer.write()
        return False

    def wake(self) -> None:
        """Let the thread write unwritten appends after ``linger_ms``."""
        self._ticker.wake()

    def close(self) -> None:
        """Write all appends, force them to the disk, and close all files."""
        with self._adding:
            self._closed = True
        self._ticker.stop()
        self.flush()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    # Reading.

    def reader(
        self,
        journal: str,
        begin: int = 0,
        end: int | None = None,
        *,
        journal_id: UUID | None = None,
        follow: bool = False,
        synchronise: bool = False,
        chunk_bytes: int = 1 << 18,
    ) -> FileReader:
        """Return a reader of the frames with ``begin <= offset < end``.

        Args:
            end: the default is the journal's current end.
            journal_id: the id that the journal must have, from a checkpoint.
            follow: without ``end``, wait for new frames forever.
            synchronise: accept any offset as ``begin``, and start at the next frame. With fixed framing, a
                complete frame inside of a message can be mistaken for a frame of the journal.
            chunk_bytes: how many bytes are read at a time.

        Raises:
            UnknownJournalError: the journal does not exist, or has another id.
        """
        spec = self.spec(journal)
        folder = self.folder(journal)
        head = read_head(folder)
        if journal_id is not None and not head.is_of(journal_id):
            raise created_again(journal, head.journal_id)
        if end is None and not follow:
            end = readable_end(folder, head)
        return FileReader(folder, spec, head.journal_id, begin, end, synchronise, chunk_bytes)


def _is_file(part: str) -> bool:
    """Return whether a part of a journal's name could be the name of a file in a journal's folder."""
    # Some file systems ignore case.
    name = part.lower()
    return name in (HEAD, _SPEC) or name.endswith(SUFFIX) or name.startswith(".")


def _make(path: Path, data: bytes) -> None:
    """Create a file with this content, unless it exists."""
    if path.exists():
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def _after_fork_in_child() -> None:
    opening.release()
    for journals in list(_all_journals):
        journals._begin_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=opening.acquire,
        after_in_parent=opening.release,
        after_in_child=_after_fork_in_child,
    )
