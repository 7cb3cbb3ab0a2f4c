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
processes of one machine can write. ``head`` has two slots, which are written in turn, each with a checksum. If
one slot is torn, the other one has the previous end.

After a power cut, the end may be larger than the file (unless ``fsync`` is set). Offsets are not used twice:
writers continue in a new fragment, and readers skip lost bytes in the same way as deleted fragments.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self
from zlib import crc32

from journal_wire import JournalHead
from journal_wire import JournalSpec as WireSpec

from krammar.journal.errors import AppendError, CorruptJournalError, UnknownJournalError
from krammar.journal.framing import Framing
from krammar.journal.journals import Frame, Ticker
from krammar.journal.listing import refreshing
from krammar.journal.mapping import Partitions
from krammar.journal.specs import JournalSpec, check_name
from krammar.wire.errors import WireError

log = logging.getLogger("krammar.journal")

_SPEC = "spec"
_HEAD = "head"
_SUFFIX = ".fragment"
# Each slot of a head is in a sector of its own: a disk writes a sector completely or not at all.
_SLOT = 512
_HEAD_SIZE = len(JournalHead().encode())


class FileJournals:
    """The journals in the folders below ``root``.

    All methods are thread-safe, and a forked process can use the object too. It needs a local file system
    of a POSIX machine, because it relies on flock.

    Args:
        fragment_bytes: the size in bytes from which a fragment is full, and a new one begins.
        fsync: whether appends survive a power cut, and not only the end of their process.
        linger_ms: how long appends that nobody waits for are collected before they are written.
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
        self.fragment_bytes = fragment_bytes
        self.fsync = fsync
        self.buffer_bytes = buffer_bytes
        self._writers: dict[str, _Writer] = {}
        self._specs: dict[str, JournalSpec] = {}
        self._adding = threading.Lock()
        self._linger_ms = linger_ms
        self._closed = False
        self._begin_in(os.getpid())

    def _begin_in(self, pid: int) -> None:
        self._pid = pid
        self._ticker = Ticker(self._write_all, self._linger_ms / 1000)

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
        folder = self._folder(spec.name)
        folder.mkdir(parents=True, exist_ok=True)
        wire = WireSpec(
            name=spec.name,
            content_type=spec.content_type,
            labels=[WireSpec.Label(name=n, value=v) for n, v in sorted(spec.labels.items())],
        )
        # Two processes may do this at the same time. Each file appears completely, and the first one is used.
        _make(folder / _HEAD, _slot(0, 0).ljust(_SLOT, b"\0") + _slot(0, 0))
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
        found = self._specs.get(journal)
        if found is None:
            path = self._folder(journal) / _SPEC
            try:
                wire = WireSpec.decode(path.read_bytes())
                labels = {label.name: label.value for label in wire.labels}
                found = self._specs[journal] = JournalSpec(wire.name, wire.content_type, labels)
            except (FileNotFoundError, NotADirectoryError):
                raise UnknownJournalError(
                    f"journal {journal!r} does not exist in {self.root}; create it with create()"
                ) from None
            except ValueError as error:
                raise CorruptJournalError(f"{path}: {error}") from error
        return found

    def list(self, prefix: str = "") -> list[JournalSpec]:
        """Return the journals whose names begin with ``prefix``, sorted by name."""
        names = [
            path.parent.relative_to(self.root).as_posix()
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
        folder = self._folder(journal)
        end = _read_head(folder).end
        fragments = _fragments(folder)
        return (min(fragments[0], end) if fragments else end), end

    def prune(self, journal: str, before: int) -> int:
        """Delete the fragments that end at ``before`` or earlier, except for the journal's last one.

        Returns:
            The offset of the first remaining byte.

        Raises:
            UnknownJournalError: the journal does not exist.
        """
        self.spec(journal)
        folder = self._folder(journal)
        last = _read_head(folder).fragment
        for begin, end in pairwise(_fragments(folder)):
            if end <= before and begin < last:
                _path(folder, begin).unlink(missing_ok=True)
        return self.offsets(journal)[0]

    def _folder(self, journal: str) -> Path:
        return self.root / check_name(journal)

    # Writing.

    def append(self, journal: str, data: bytes) -> FileAppend:
        """Begin to append a frame.

        ``FileAppend.result`` or ``flush`` writes it, or a thread after ``linger_ms``. Appends in between are written
        together, in order.

        Raises:
            UnknownJournalError: the journal does not exist.
            AppendError: this object was closed.
        """
        writer = self._own_writers().get(journal)
        return (self._writer(journal) if writer is None else writer).append(data)

    def _own_writers(self) -> dict[str, _Writer]:
        """Return the writers of this process.

        After a fork, a process starts without writers: the open files, their locks, and unwritten appends belong to
        its parent.
        """
        if self._pid != os.getpid():
            self._adding = threading.Lock()
            self._writers = {}
            self._begin_in(os.getpid())
        return self._writers

    def _writer(self, journal: str) -> _Writer:
        self.spec(journal)
        with self._adding:
            if self._closed:
                raise AppendError(f"{journal}: the journals are closed")
            writer = self._writers.get(journal)
            if writer is None:
                writer = self._writers[journal] = _Writer(self, journal, self._folder(journal))
            return writer

    def flush(self) -> None:
        """Write all appends."""
        self._write_all()

    def _write_all(self) -> bool:
        for writer in list(self._own_writers().values()):
            writer.write()
        return False

    def wake(self) -> None:
        """Let the thread write unwritten appends after ``linger_ms``."""
        self._ticker.wake()

    def close(self) -> None:
        """Write all appends, and close all files."""
        self._own_writers()
        with self._adding:
            self._closed = True
        self._ticker.stop()
        self.flush()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading.

    def reader(
        self,
        journal: str,
        begin: int = 0,
        end: int | None = None,
        *,
        follow: bool = False,
        synchronise: bool = False,
        chunk_bytes: int = 1 << 18,
    ) -> FileReader:
        """Return a reader of the frames with ``begin <= offset < end``.

        Args:
            end: the default is the journal's current end.
            follow: without ``end``, wait for new frames forever.
            synchronise: accept any offset as ``begin``, and start at the next frame. With fixed framing, a
                complete frame inside of a message can be mistaken for a frame of the journal.
            chunk_bytes: how many bytes are read at a time.

        Raises:
            UnknownJournalError: the journal does not exist.
        """
        spec = self.spec(journal)
        folder = self._folder(journal)
        if end is None and not follow:
            end = _read_head(folder).end
        return FileReader(folder, spec, begin, end, synchronise, chunk_bytes)


class FileAppend:
    """An append to a file; see AsyncAppend. Offsets are in bytes."""

    __slots__ = ("_writer", "begin", "done", "end", "error")

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self.begin = -1
        self.end = -1
        self.done = False
        self.error: Exception | None = None

    @property
    def journal(self) -> str:
        return self._writer.journal

    def result(self, timeout_ms: float | None = None) -> FileAppend:
        """Write the append, with all earlier appends to the journal. ``timeout_ms`` is ignored.

        Raises:
            AppendError: the append has failed.
        """
        if not self.done:
            self._writer.write()
        if self.error is not None:
            raise self.error
        return self


class _Writer:
    """Collects and writes the appends to one journal."""

    def __init__(self, journals: FileJournals, journal: str, folder: Path) -> None:
        self.journal = journal
        self._journals = journals
        self._folder = folder
        self._adding = threading.Lock()
        self._writing = threading.Lock()
        self._appends: list[FileAppend] = []
        self._data: list[bytes] = []
        self._size = 0
        self._head = -1
        self._fragment = -1
        self._fragment_begin = -1

    def append(self, data: bytes) -> FileAppend:
        append = FileAppend(self)
        with self._adding:
            first = not self._appends
            self._appends.append(append)
            self._data.append(data)
            self._size += len(data)
            full = self._size >= self._journals.buffer_bytes
        if full:
            self.write()
        elif first:
            self._journals.wake()
        return append

    def write(self) -> None:
        """Write collected appends. When it returns, all appends from before the call are done."""
        with self._writing:
            with self._adding:
                appends, data = self._appends, self._data
                self._appends, self._data, self._size = [], [], 0
            if not appends:
                return
            try:
                at = self._write(b"".join(data))
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

    def _write(self, data: bytes) -> int:
        """Append bytes; return the offset of the first one."""
        if self._head < 0:
            self._head = os.open(self._folder / _HEAD, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._head, fcntl.LOCK_EX)
        try:
            head, slot = _parse_head(self._folder, os.pread(self._head, 2 * _SLOT, 0))
            if not self._open(head):
                # Write the head first. If the writer were killed in between, a fragment that the head does not
                # contain would remain, and readers would end the fragment before it there.
                slot = 1 - slot
                _write_at(self._head, _slot(head.end, head.end), _SLOT * slot)
                if self._journals.fsync:
                    os.fsync(self._head)
                self._open_fragment(head.end, os.O_CREAT | os.O_TRUNC)
            begin = self._fragment_begin
            _write_at(self._fragment, data, head.end - begin)
            end = head.end + len(data)
            if self._journals.fsync:
                os.fsync(self._fragment)
            _write_at(self._head, _slot(end, begin), _SLOT * (1 - slot))
            if self._journals.fsync:
                try:
                    os.fsync(self._head)
                except OSError as error:
                    raise AppendError(
                        f"{self.journal}: it is unknown whether the append survives a power cut: {error}"
                    ) from error
            return head.end
        finally:
            fcntl.flock(self._head, fcntl.LOCK_UN)

    def _open(self, head: JournalHead) -> bool:
        """Open the last fragment and cut it at the journal's end; return whether it has room."""
        begin = head.fragment
        if self._fragment_begin != begin:
            self._open_fragment(begin, os.O_CREAT if head.end == begin else 0)
        size = os.fstat(self._fragment).st_size if self._fragment >= 0 else 0
        written = head.end - begin
        if size > written:  # the writer of an append was killed
            os.ftruncate(self._fragment, written)
        elif size < written:
            log.error(
                "%s: offsets %d to %d are lost: the last fragment ends before the journal does",
                self.journal,
                begin + size,
                head.end,
            )
            return False
        return written == 0 or written < self._journals.fragment_bytes

    def _open_fragment(self, begin: int, flags: int) -> None:
        if self._fragment >= 0:
            os.close(self._fragment)
        self._fragment = self._fragment_begin = -1
        try:
            self._fragment = os.open(
                _path(self._folder, begin), os.O_RDWR | os.O_CLOEXEC | flags, 0o644
            )
        except FileNotFoundError:
            return
        self._fragment_begin = begin
        if flags and self._journals.fsync:
            _sync_folder(self._folder)

    def close(self) -> None:
        with self._writing:
            for file in (self._head, self._fragment):
                if file >= 0:
                    os.close(file)
            self._head = self._fragment = self._fragment_begin = -1


class FileReader:
    """Reads a journal's frames; see Reader. Any thread may call ``close``."""

    # The pause between checks for new frames at the end of a journal, in seconds.
    _PAUSE = 0.01

    def __init__(
        self,
        folder: Path,
        spec: JournalSpec,
        begin: int,
        end: int | None,
        synchronise: bool,
        chunk_bytes: int,
    ) -> None:
        if begin < 0:
            raise ValueError(f"{spec.name}: offset {begin} is negative")
        self.spec = spec
        self.offset = begin
        self._folder = folder
        self._framing: Framing = spec.framing
        self._end = end
        self._chunk = chunk_bytes
        self._synchronise = synchronise and begin > 0
        # One byte earlier: a line begins after a newline.
        self._position = begin - 1 if self._synchronise else begin
        # The bytes of an incomplete frame, up to the position.
        self._rest = b""
        self._written = 0
        self._file = -1
        self._fragment = (0, 0)
        self._warned = -1
        self._closed = threading.Event()

    def read(self) -> list[Frame]:
        """Return the next frames, or an empty list at the end.

        Raises:
            CorruptJournalError: the journal's head is damaged.
            OSError: a file cannot be read.
        """
        while not self._closed.is_set() and (self._end is None or self.offset < self._end):
            data = self._more()
            if data is None:  # the position has jumped
                frames = self._abandon_rest()
                if frames:
                    return frames
                continue
            if not data:
                if self._end is not None:
                    self._warn_of_rest()
                    return []
                self._closed.wait(self._PAUSE)
                continue
            if self._rest:
                data = self._rest + data
            if self._synchronise:
                if not self._find_frame(data):
                    continue
                data = self._rest
            frames = self._split(data)
            if frames:
                return frames
        return []

    def _split(self, data: bytes) -> list[Frame]:
        """Return the complete frames at the beginning of ``data``, which begins at ``offset``."""
        frames: list[Frame] = []
        unpack = self._framing.unpack
        base = self.offset
        begin = 0
        end = unpack(data, 0)
        limit = len(data) if self._end is None else min(len(data), self._end - base)
        while end > begin:
            frames.append((base + begin, base + end, data[begin:end]))
            begin = end
            if begin >= limit:
                break
            end = unpack(data, begin)
        self.offset = base + begin
        self._rest = data[begin:]
        # Grow the chunk, so that the parts of a large frame are not copied for each chunk.
        self._chunk = max(self._chunk, 2 * len(self._rest))
        return frames

    def _find_frame(self, data: bytes) -> bool:
        """Start at the first frame in ``data``, which ends at the position; return whether there is one."""
        start = self._position - len(data)
        ends = self._end is not None and self._position >= self._end
        at = self._framing.synchronise(data, self.offset - start)
        if at == len(data) and not ends:
            self._rest = data
            return False
        self._synchronise = False
        self.offset = start + at
        self._rest = data[at:]
        return True

    def _abandon_rest(self) -> list[Frame]:
        """Return the rest of a frame whose end is lost; decoding it reports the loss."""
        rest, begin = self._rest, self.offset
        self._rest = b""
        self.offset = self._position
        return [(begin, begin + len(rest), rest)] if rest and not self._synchronise else []

    def _warn_of_rest(self) -> None:
        if self._rest and self._warned != self.offset:
            self._warned = self.offset
            log.warning(
                "%s: the %d bytes at the end, from offset %d, are not a complete frame",
                self.spec.name,
                len(self._rest),
                self.offset,
            )

    def _more(self) -> bytes | None:
        """Return the next bytes, empty at the end of the journal; None if the position has jumped instead."""
        position = self._position
        if position >= self._written:
            self._written = _read_head(self._folder).end
            if position >= self._written:
                return b""
        begin, limit = self._fragment
        if self._file < 0 or not begin <= position < min(limit, self._written):
            if not self._locate():
                return None if self._position != position else b""
            begin, limit = self._fragment
        size = min(limit, self._written) - position
        if self._end is not None and position < self._end:
            # A frame usually ends there. If one does not, the next call reads more.
            size = min(size, self._end - position)
        data = os.pread(self._file, min(size, self._chunk), position - begin)
        if data:
            self._position += len(data)
            return data
        # Either the fragment has a successor now, or it is too short.
        self._fragment = (0, 0)
        if not self._locate():
            return None
        if self._fragment[0] != begin:
            return self._more()
        limit = self._fragment[1]
        if limit > self._written:
            return b""
        self._jump(limit)
        return None

    def _locate(self) -> bool:
        """Open the fragment that contains the position.

        Returns False if there is none. The position then jumps to the next fragment, if there is one.
        """
        position = self._position
        fragments = _fragments(self._folder)
        index = bisect_right(fragments, position) - 1
        if index < 0:
            if fragments and fragments[0] < self._written:
                self._jump(fragments[0])
            else:
                self._jump(self._written)
            return False
        begin = fragments[index]
        following = fragments[index + 1 : index + 2]
        try:
            file = os.open(_path(self._folder, begin), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # the fragment was just deleted
            return self._locate()
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._fragment = begin, following[0] if following else 1 << 63
        return True

    def _jump(self, position: int) -> None:
        log.warning(
            "%s: offsets %d to %d do not exist any more; skipping them",
            self.spec.name,
            self._position,
            position,
        )
        self._position = position

    def between(self, begin: int, end: int) -> FileReader:
        """Return another reader of the same journal for these offsets."""
        return FileReader(self._folder, self.spec, begin, end, False, self._chunk)

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> FileReader:
        """Return another reader of the same journal for some ranges of offsets; see ``Reader``."""
        return _RangesReader(self._folder, self.spec, ranges, self._chunk)

    def close(self) -> None:
        """End reading: a ``read`` that waits returns."""
        self._closed.set()

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A read of small ranges returns after this many bytes.
_ENOUGH = 1 << 13


class _RangesReader(FileReader):
    """Reads the frames in some ranges of offsets; many small ranges at a time."""

    def __init__(
        self, folder: Path, spec: JournalSpec, ranges: Sequence[tuple[int, int]], chunk_bytes: int
    ) -> None:
        super().__init__(folder, spec, 0, 0, False, chunk_bytes)
        self._ranges = iter(ranges)

    def read(self) -> list[Frame]:
        frames = super().read()
        if frames or self._closed.is_set():
            return frames
        # Hot if transactions are interleaved message by message: 1.1 µs for a range of one frame.
        unpack = self._framing.unpack
        most = self._chunk
        size = 0
        fragment, limit, file, position = self._opened()
        for begin, end in self._ranges:
            length = end - begin
            size += length
            if fragment <= begin and end <= limit and length <= most and begin >= position:
                data = os.pread(file, length, begin - fragment)
                if unpack(data) == length:
                    frames.append((begin, end, data))
                else:
                    self.offset, self._position, self._end = begin, begin + len(data), end
                    frames += self._split(data)
                    if self.offset < end:
                        break
            elif end > position:
                # The range is large, or in another fragment, or partly deleted.
                self.offset = self._position = max(begin, position)
                self._end = end
                self._rest = b""
                frames += super().read()
                if self.offset < end:
                    break
                fragment, limit, file, position = self._opened()
            if frames and size >= _ENOUGH:
                break
        return frames

    def _opened(self) -> tuple[int, int, int, int]:
        """Return the offsets in the open file, the file, and the position before which nothing exists."""
        begin, limit = self._fragment
        return begin, min(limit, self._written), self._file, self._position


# Files.


def _path(folder: Path, begin: int) -> Path:
    return folder / f"{begin:020}{_SUFFIX}"


def _fragments(folder: Path) -> list[int]:
    """Return the offsets at which the fragments of a journal begin, ascending."""
    return sorted(
        int(name.removesuffix(_SUFFIX))
        for name in os.listdir(folder)
        if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdecimal()
    )


def _slot(end: int, fragment: int) -> bytes:
    """Encode a slot of a head. The last field is the checksum of the others."""
    data = JournalHead(end=end, fragment=fragment).encode()[:-4]
    return data + crc32(data).to_bytes(4, "big")


def _read_head(folder: Path) -> JournalHead:
    try:
        with open(folder / _HEAD, "rb", buffering=0) as file:
            return _parse_head(folder, file.read(2 * _SLOT))[0]
    except FileNotFoundError:
        raise CorruptJournalError(f"{folder}: the file {_HEAD} is missing") from None


def _parse_head(folder: Path, data: bytes) -> tuple[JournalHead, int]:
    """Return the newest head and the number of its slot. Raises CorruptJournalError if both are damaged."""
    newest: tuple[JournalHead, int] | None = None
    for slot in (0, 1):
        part = data[slot * _SLOT : slot * _SLOT + _HEAD_SIZE]
        if len(part) < _HEAD_SIZE or crc32(part[:-4]) != int.from_bytes(part[-4:], "big"):
            continue
        try:
            head = JournalHead.decode(part)
        except WireError:
            continue
        if newest is None or (head.end, head.fragment) > (newest[0].end, newest[0].fragment):
            newest = head, slot
    if newest is None:
        raise CorruptJournalError(f"{folder / _HEAD}: both slots are damaged")
    return newest


def _write_at(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view = view[written:]
        offset += written


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
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
