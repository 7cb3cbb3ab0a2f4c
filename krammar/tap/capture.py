"""Captures: files with the frames of connections. ``docs/tap.md`` describes the format.

The first line identifies the file. Records follow, each with its length first. Each record is written with one call, so
that a process that is killed leaves at most one incomplete record, at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from io import FileIO
from pathlib import Path
from struct import Struct
from types import ModuleType
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from krammar.tap.frame import Frame, Observer
from krammar.tap.inspector import Inspector
from krammar.util.durable import sync
from krammar.wire.classes import NotFound, import_package
from krammar.wire.kafka import KAFKA
from krammar.wire.package import Package, package_of

MAGIC = b"krammar tap 1\n"

# The length of the rest; time in ns since 1970; connection; kind; flags; api key; version; correlation id; size of
# the frame in bytes. The bytes of the frame follow.
_HEAD = Struct(">IqIBBhhiI")
_LENGTH = 4
_FIXED = _HEAD.size - _LENGTH
# Bytes of a package's name at most.
_LONGEST_NAME = 1_000


class CaptureError(Exception):
    """A file is not a capture, or another process writes it."""


class Kind(IntEnum):
    """The kind of a record."""

    REQUEST = 0
    RESPONSE = 1
    OPENED = 2  # data: the client's address, a space, the broker's address
    CLOSED = 3  # data: the reason
    PACKAGE = 4  # data: the name of the package that describes the frames


class Flag(IntFlag):
    """Properties of a record's frame."""

    CHANGED = 1  # the record has the received bytes; the proxy passed on other ones
    CUT = 2  # the record has only the first bytes: the frame exceeded the limit
    RAW = 4  # the bytes are not a frame; they include the length prefix


@dataclass(slots=True)
class CaptureRecord:
    """One record. ``api_key``, ``version`` and ``correlation_id`` are the request's; -1 if unknown."""

    time_ns: int
    connection: int
    kind: int
    flags: Flag
    api_key: int
    version: int
    correlation_id: int
    size: int
    data: bytes


class CaptureWriter(Observer):
    """Writes every frame to a file, which only its owner can read, because captures contain passwords.

    An older capture at ``path`` is replaced when ``start`` is called, or when the first record is written.

    Args:
        package: the name of the generated package that describes the frames. Readers use it by default.

    Raises:
        CaptureError: the file exists and is not a capture, or another process writes it.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, package: str = KAFKA) -> None:
        self._path = path
        name = package.encode()
        # Times never decrease in a capture.
        self._named = CaptureRecord(0, 0, Kind.PACKAGE, Flag(0), -1, -1, -1, len(name), name)
        self._is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        self._broken = False
        self._started = False
        # Unbuffered: written bytes survive the end of this process.
        self._file = FileIO(descriptor, "r+b")
        try:
            begin = self._file.read(len(MAGIC))
            if not MAGIC.startswith(begin):  # a part of it is left by a full disk
                raise CaptureError(
                    f"{path} is not a capture, so it is not overwritten; name another file"
                )
            _lock(descriptor, path)
        except BaseException:
            self._file.close()
            raise

    def start(self) -> None:
        """Empty the file and write its header, unless a record was written before. Raises OSError."""
        if self._started:
            return
        self._started = self._broken = True
        with _naming(self._path):
            self._file.seek(0)
            self._file.truncate()
            if hasattr(os, "fchmod"):
                os.fchmod(self._file.fileno(), 0o600)  # an older capture may be readable by others
            rest = memoryview(MAGIC)
            while rest:
                rest = rest[self._file.write(rest) :]
        self._broken = False
        if self._named.data != KAFKA.encode():
            self._write(self._named)

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        data = f"{client} {upstream}".encode()
        self._write(
            CaptureRecord(time_ns, connection, Kind.OPENED, Flag(0), -1, -1, -1, len(data), data)
        )

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        data = reason.encode()
        self._write(
            CaptureRecord(time_ns, connection, Kind.CLOSED, Flag(0), -1, -1, -1, len(data), data)
        )

    def frame(self, frame: Frame) -> None:
        flags = Flag(0)
        if frame.note:
            flags |= Flag.CHANGED
        if frame.raw:
            flags |= Flag.RAW
        elif len(frame.data) < frame.size:
            flags |= Flag.CUT
        self._write(
            CaptureRecord(
                frame.time_ns,
                frame.connection,
                Kind.REQUEST if frame.is_request else Kind.RESPONSE,
                flags,
                -1 if frame.api_key is None else frame.api_key,
                -1 if frame.version is None else frame.version,
                -1 if frame.correlation_id is None else frame.correlation_id,
                frame.size,
                frame.data,
            )
        )

    def close(self) -> None:
        """Force the capture to the disk and close it. A new one in which nothing was written is removed.

        Raises:
            OSError: the capture may not survive a power cut.
        """
        if self._file.closed:
            return
        unused = self._is_new and not self._started
        try:
            if self._started:
                with _naming(self._path):
                    os.fsync(self._file.fileno())
                sync(self._path.absolute().parent)
        finally:
            self._file.close()  # Windows removes no open files
            if unused:
                self._path.unlink(missing_ok=True)

    def _write(self, record: CaptureRecord) -> None:
        if not self._started:
            self.start()
        head = _HEAD.pack(
            _FIXED + len(record.data),
            record.time_ns,
            record.connection,
            record.kind,
            record.flags,
            record.api_key,
            record.version,
            record.correlation_id,
            record.size,
        )
        rest = memoryview(head + record.data)
        with _naming(self._path):
            try:
                while rest and not self._broken:
                    rest = rest[self._file.write(rest) :]
            except OSError:
                # Write nothing after an incomplete record: readers would take it for the rest of that record.
                self._broken = True
                raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors of a block, which do not name it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _lock(descriptor: int, path: Path) -> None:
    """Lock a capture until it is closed. Raises CaptureError if another process has locked it."""
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CaptureError(f"another process writes {path}; name another file") from None
    except OSError:
        pass  # this file system has no locks


class Capture:
    """Iterates over the records of a file, in bounded memory.

    After the last record, ``torn`` describes what is wrong with the end of the file; it is empty if nothing is.
    ``package`` is the name of the package that describes the frames.

    Raises:
        CaptureError: the file is not a capture.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = ""
        with path.open("rb") as file:
            if file.readline(len(MAGIC)) != MAGIC:
                raise CaptureError(
                    f"{path} is not a capture: it does not begin with {MAGIC[:-1]!r}"
                )
            self.package = _package_in(file.read(_HEAD.size + _LONGEST_NAME))

    def protocol(self) -> ModuleType:
        """Import the package that describes the frames.

        A stranger can have written the capture, so krammar must have generated the package.

        Raises:
            CaptureError: it cannot be imported.
        """
        try:
            protocol = import_package(self.package, generated_only=True)
            package_of(protocol)
        except (NotFound, TypeError) as error:
            raise CaptureError(
                f"{self.path} contains frames of the package {self.package!r}: {error}"
            ) from None
        return protocol

    def __iter__(self) -> Iterator[CaptureRecord]:
        self.torn = ""
        with self.path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            file.seek(position := len(MAGIC))
            while position < end:
                head = file.read(_HEAD.size)
                length = int.from_bytes(head[:_LENGTH], "big")
                whole = len(head) >= _LENGTH
                if whole and length < _FIXED:
                    self.torn = (
                        f"the record at offset {position} is damaged: its length is {length}"
                    )
                    return
                if not whole or position + _LENGTH + length > end:
                    self.torn = (
                        f"the record at offset {position} is incomplete: it has {end - position}"
                        + (f" of {_LENGTH + length} bytes" if whole else " bytes")
                    )
                    return
                _, time_ns, connection, kind, flags, key, version, number, size = _HEAD.unpack(head)
                data = file.read(length - _FIXED)
                yield CaptureRecord(
                    time_ns, connection, kind, Flag(flags), key, version, number, size, data
                )
                position += _LENGTH + length


def _package_in(begin: bytes) -> str:
    """Return the package that the first record names. Captures of Kafka's protocol name none."""
    if len(begin) < _HEAD.size:
        return KAFKA
    length, _, _, kind, *_ = _HEAD.unpack_from(begin)
    if kind != Kind.PACKAGE:
        return KAFKA
    return begin[_HEAD.size : _LENGTH + length].decode("utf-8", "replace")


def inspect(inspector: Inspector, record: CaptureRecord) -> Frame:
    """Inspect the frame of a record of kind REQUEST or RESPONSE, as the tap has inspected it."""
    is_request = record.kind == Kind.REQUEST
    if record.flags & Flag.RAW:
        frame = inspector.raw(is_request, record.data, record.time_ns)
    elif record.flags & Flag.CUT:
        frame = inspector.oversized(is_request, record.data, record.size, record.time_ns)
    elif is_request:
        frame = inspector.request(record.data, record.time_ns)
    else:
        frame = inspector.response(record.data, record.time_ns)
    if record.flags & Flag.CHANGED:
        frame.note = "changed by the tap"
    return frame


def replay(capture: Capture, package: Package, observers: list[Observer]) -> None:
    """Report the events of a capture to observers, in their order."""
    inspectors: dict[int, Inspector] = {}
    for record in capture:
        number = record.connection
        if record.kind == Kind.OPENED:
            client, _, upstream = record.data.decode("utf-8", "replace").partition(" ")
            for observer in observers:
                observer.opened(record.time_ns, number, client, upstream)
        elif record.kind == Kind.CLOSED:
            inspectors.pop(number, None)
            for observer in observers:
                observer.closed(record.time_ns, number, record.data.decode("utf-8", "replace"))
        elif record.kind in (Kind.REQUEST, Kind.RESPONSE):
            frame = inspect(inspectors.setdefault(number, Inspector(package, number)), record)
            for observer in observers:
                observer.frame(frame)


@contextmanager
def new_file(path: Path, magic: bytes, kind: str) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` when the block ends without an error.

    Only its owner can read it, because captures contain what was sent.

    Raises:
        CaptureError: ``path`` exists and does not begin with ``magic``.
        OSError: the file cannot be written.
    """
    if path.exists():
        with path.open("rb") as old:
            begin = old.read(len(magic))
        if begin and begin != magic:
            raise CaptureError(
                f"{path} is not a {kind}, so it is not overwritten; name another file"
            )
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        descriptor = os.open(draft, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
