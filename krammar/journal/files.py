"""Journals in files.

A journal is a folder. Its content, frames one behind the other, lies in fragments: files named by the
offset of their first byte, of which only the last grows. ``head`` says up to where the journal is written:

    orders/part-000/
        spec                             what the journal is
        head                             end 5200, in the fragment that begins at 4096
        00000000000000000000.fragment    bytes    0 ─ 4096
        00000000000000004096.fragment    bytes 4096 ─ 5200, and perhaps the beginning of an append whose
                                         writer was killed: nobody reads it, the next writer cuts it off

An append locks ``head`` (flock), writes its bytes behind the end, and then the new end into ``head``. So it is
in the journal as a whole or not at all, wherever its writer is killed, and any number of threads and
processes of one machine can write. ``head`` has two slots that are written in turn, each with a
checksum: if one is torn, the other one is the journal's end as it was before.

The end may be ahead of the file after a power cut (unless ``fsync``). Offsets are not used twice: writing
goes on in a new fragment, and readers jump over what is lost, as they do over fragments that were deleted.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import threading
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Self
from zlib import crc32

from journal_wire import JournalHead, JournalSpecLabel
from journal_wire import JournalSpec as WireSpec

from krammar.journal.errors import AppendError, CorruptJournalError, UnknownJournalError
from krammar.journal.framing import Framing
from krammar.journal.journals import Frame, Ticker
from krammar.journal.listing import listing
from krammar.journal.mapping import Partitions
from krammar.journal.specs import JournalSpec, check_name
from krammar.wire.errors import WireError

log = logging.getLogger("krammar.journal")

_SPEC = "spec"
_HEAD = "head"
_SUFFIX = ".fragment"
# The slots of a head lie in sectors of their own: a disk writes a sector whole or not at all.
_SLOT = 512
_HEAD_SIZE = len(JournalHead().encode())


class FileJournals:
    """The journals in the folders below ``root``.

    ``fragment_bytes``  the size in bytes from which a fragment is full and another one is begun
    ``fsync``           whether appends survive a power cut, not only the end of their process
    ``linger_ms``       how long an append that nobody waits for may wait for others to be written with
    ``buffer_bytes``    how much of a journal's appends waits at most before it is written

    All methods may be called by several threads at once. A process that was forked may go on using it.
    For local file systems of POSIX machines: it relies on flock.
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

    # Which journals there are.

    def create(self, spec: JournalSpec | str, **labels: str) -> JournalSpec:
        """Make a journal; one of fixed framing if only its name is given. One that exists already, with
        the same content type, is left as it is.

        Raises ValueError if it exists with another content type.
        """
        if isinstance(spec, str):
            spec = JournalSpec(spec, labels=labels)
        folder = self._folder(spec.name)
        folder.mkdir(parents=True, exist_ok=True)
        wire = WireSpec(
            name=spec.name,
            content_type=spec.content_type,
            labels=[JournalSpecLabel(name=n, value=v) for n, v in sorted(spec.labels.items())],
        )
        # Two processes may do this at once; each file appears whole, the first that is made counts.
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
        """What a journal is. Raises UnknownJournalError, CorruptJournalError."""
        found = self._specs.get(journal)
        if found is None:
            path = self._folder(journal) / _SPEC
            try:
                wire = WireSpec.decode(path.read_bytes())
                labels = {label.name: label.value for label in wire.labels}
                found = self._specs[journal] = JournalSpec(wire.name, wire.content_type, labels)
            except (FileNotFoundError, NotADirectoryError):
                raise UnknownJournalError(f"there is no journal {journal} in {self.root}") from None
            except ValueError as error:
                raise CorruptJournalError(f"{path}: {error}") from error
        return found

    def list(self, prefix: str = "") -> list[JournalSpec]:
        """The journals whose names begin with ``prefix``, by name."""
        names = [
            path.parent.relative_to(self.root).as_posix()
            for path in self.root.rglob(_SPEC)
            if path.is_file()
        ]
        return [self.spec(name) for name in sorted(names) if name.startswith(prefix)]

    def partitions(self, prefix: str = "", *, refresh_ms: float = 10_000) -> Partitions:
        """A function that lists these journals, for mappings. It looks for new ones every ``refresh_ms``."""
        return listing(lambda: self.list(prefix), refresh_ms)

    def offsets(self, journal: str) -> tuple[int, int]:
        """The offset of the first byte that is left, and the one behind the last."""
        self.spec(journal)
        folder = self._folder(journal)
        end = _read_head(folder).end
        fragments = _fragments(folder)
        return (min(fragments[0], end) if fragments else end), end

    def prune(self, journal: str, before: int) -> int:
        """Delete the fragments that end at ``before`` or earlier, except for the last of the journal.
        Returns the offset of the first byte that is left. Raises UnknownJournalError."""
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
        """Begin to append a frame. It is written by ``FileAppend.result``, ``flush``, or after
        ``linger_ms``; what is appended in between is written together, in order.

        Raises UnknownJournalError; AppendError if this object was closed.
        """
        writer = self._own_writers().get(journal)
        return (self._writer(journal) if writer is None else writer).append(data)

    def _own_writers(self) -> dict[str, _Writer]:
        """The writers of this process: what a forked process has of them, their files with the locks on
        them and what waits to be written, is its parent's."""
        if self._pid != os.getpid():
            self._adding = threading.Lock()
            self._writers = {}
            self._begin_in(os.getpid())
        return self._writers

    def _writer(self, journal: str) -> _Writer:
        self.spec(journal)
        with self._adding:
            if self._closed:
                raise AppendError("the journals were closed")
            writer = self._writers.get(journal)
            if writer is None:
                writer = self._writers[journal] = _Writer(self, journal, self._folder(journal))
            return writer

    def flush(self) -> None:
        """Write all that was appended."""
        self._write_all()

    def _write_all(self) -> bool:
        for writer in list(self._own_writers().values()):
            writer.write()
        return False

    def wake(self) -> None:
        """Have what waits written in a while."""
        self._ticker.wake()

    def close(self) -> None:
        """Write all that was appended, and close all files."""
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
        """A reader of the frames that begin at offset ``begin`` or behind it, and before ``end``: the end of
        the journal as it is, unless given. With ``follow`` and without ``end`` it waits for more for ever.

        ``synchronise`` lets ``begin`` be any offset: reading begins at the next frame that looks like one.
        For JSON that is certain; with fixed framing, messages that have whole frames in themselves can
        be mistaken for what they contain.

        Raises UnknownJournalError.
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
        """Write it, with all that was appended to the journal before. Nothing here waits for others, so
        that ``timeout_ms`` is of no use. Raises AppendError."""
        if not self.done:
            self._writer.write()
        if self.error is not None:
            raise self.error
        return self


class _Writer:
    """What is to be appended to a journal, and how."""

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
        """Write what waits; when it returns, all that waited when it was called is done."""
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
        """Append bytes; returns the offset of the first."""
        if self._head < 0:
            self._head = os.open(self._folder / _HEAD, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._head, fcntl.LOCK_EX)
        try:
            head, slot = _parse_head(self._folder, os.pread(self._head, 2 * _SLOT, 0))
            if not self._open(head):
                # The head first: a fragment that it does not know would stay if its writer were killed,
                # and end the one before for readers, wherever the next writer goes on.
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
                        f"{self.journal}: it is not known whether the append survives a power cut: {error}"
                    ) from error
            return head.end
        finally:
            fcntl.flock(self._head, fcntl.LOCK_UN)

    def _open(self, head: JournalHead) -> bool:
        """Have the last fragment open, ending where the journal does; whether there is room in it."""
        begin = head.fragment
        if self._fragment_begin != begin:
            self._open_fragment(begin, os.O_CREAT if head.end == begin else 0)
        size = os.fstat(self._fragment).st_size if self._fragment >= 0 else 0
        written = head.end - begin
        if size > written:  # by an append whose writer was killed
            os.ftruncate(self._fragment, written)
        elif size < written:
            log.error(
                "%s: offsets %d to %d are lost: its last fragment ends before the journal does",
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
    """Reads a journal's frames; see Reader. ``close`` may be called by any thread."""

    # How often it looks for more at the end of a journal that it follows, in seconds.
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
        # One byte more: a line begins where the byte before ends one.
        self._position = begin - 1 if self._synchronise else begin
        # Bytes that were read but are no whole frame yet, up to the position.
        self._rest = b""
        self._written = 0
        self._file = -1
        self._fragment = (0, 0)
        self._warned = -1
        self._closed = threading.Event()

    def read(self) -> list[Frame]:
        """The next frames; none at the end. Raises CorruptJournalError, OSError."""
        while not self._closed.is_set() and (self._end is None or self.offset < self._end):
            data = self._more()
            if data is None:  # it goes on elsewhere
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
        """The whole frames at the beginning of ``data``, which begins at ``offset``."""
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
        # A frame larger than a chunk is not to be copied once for each of its chunks.
        self._chunk = max(self._chunk, 2 * len(self._rest))
        return frames

    def _find_frame(self, data: bytes) -> bool:
        """Begin at the first frame in ``data``, which ends at the position; whether one is there."""
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
        """The rest of a frame whose end is gone, as the frame that it is not."""
        rest, begin = self._rest, self.offset
        self._rest = b""
        self.offset = self._position
        return [(begin, begin + len(rest), rest)] if rest and not self._synchronise else []

    def _warn_of_rest(self) -> None:
        if self._rest and self._warned != self.offset:
            self._warned = self.offset
            log.warning(
                "%s: %d bytes at the end, from offset %d on, are no whole frame",
                self.spec.name,
                len(self._rest),
                self.offset,
            )

    def _more(self) -> bytes | None:
        """The bytes at the position, if there are any yet; None if the position has jumped instead."""
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
        data = os.pread(self._file, min(size, self._chunk), position - begin)
        if data:
            self._position += len(data)
            return data
        # Either the fragment has got a successor, or it is shorter than it should be.
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
        """Open the fragment of the position. False if there is none: the position has jumped then, if there
        is a place to jump to."""
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
        except FileNotFoundError:  # it was deleted a moment ago
            return self._locate()
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._fragment = begin, following[0] if following else 1 << 63
        return True

    def _jump(self, position: int) -> None:
        log.warning(
            "%s: nothing is left of offsets %d to %d; reading goes on behind them",
            self.spec.name,
            self._position,
            position,
        )
        self._position = position

    def between(self, begin: int, end: int) -> FileReader:
        return FileReader(self._folder, self.spec, begin, end, False, self._chunk)

    def close(self) -> None:
        self._closed.set()

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Files.


def _path(folder: Path, begin: int) -> Path:
    return folder / f"{begin:020}{_SUFFIX}"


def _fragments(folder: Path) -> list[int]:
    """The offsets at which the fragments of a journal begin, ascending."""
    return sorted(
        int(name.removesuffix(_SUFFIX))
        for name in os.listdir(folder)
        if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdecimal()
    )


def _slot(end: int, fragment: int) -> bytes:
    """A head's slot. The checksum is the last field, of all before it."""
    data = JournalHead(end=end, fragment=fragment).encode()[:-4]
    return data + crc32(data).to_bytes(4, "big")


def _read_head(folder: Path) -> JournalHead:
    try:
        with open(folder / _HEAD, "rb", buffering=0) as file:
            return _parse_head(folder, file.read(2 * _SLOT))[0]
    except FileNotFoundError:
        raise CorruptJournalError(f"{folder}: there is no {_HEAD}") from None


def _parse_head(folder: Path, data: bytes) -> tuple[JournalHead, int]:
    """The newest head and the number of its slot. Raises CorruptJournalError."""
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
        raise CorruptJournalError(f"{folder / _HEAD}: neither of its slots is whole")
    return newest


def _write_at(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view = view[written:]
        offset += written


def _make(path: Path, data: bytes) -> None:
    """Make a file with this content, unless it is there."""
    if path.exists():
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
