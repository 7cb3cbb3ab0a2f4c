"""Captures: the frames of a conversation in a file. ``docs/tap.md`` describes the format.

A line says what the file is. Records follow, each behind its length; a record is written as a whole,
at once, so that a process which is killed leaves at most one that is cut at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from io import FileIO
from pathlib import Path
from struct import Struct

from krammar.tap.inspector import Frame, Inspector
from krammar.tap.observer import Observer
from krammar.wire.package import Package

MAGIC = b"krammar tap 1\n"

# Length of what follows it; time in ns since 1970; connection; kind; flags; api key; version;
# correlation id; size of the frame in bytes. The bytes of the frame follow.
_HEAD = Struct(">IqIBBhhiI")
_LENGTH = 4
_FIXED = _HEAD.size - _LENGTH


class CaptureError(Exception):
    """A file that is no capture, or a damaged one."""


class Kind(IntEnum):
    """What a record holds."""

    REQUEST = 0
    RESPONSE = 1
    OPENED = 2  # data: the client's address, a space, the broker's address
    CLOSED = 3  # data: the reason


class Flag(IntFlag):
    """What is to know of a record's frame."""

    CHANGED = 1  # the proxy passed on other bytes than these, which came
    CUT = 2  # only the first bytes are kept: the frame was over the limit
    RAW = 4  # no frame, but what came instead of one, from its length prefix on


@dataclass(slots=True)
class Record:
    """One record. ``api_key``, ``version`` and ``correlation_id`` are -1 where they are not known;
    a response has those of its request."""

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
    """Keeps every frame in a file, readable by nobody else: captures hold what was said,
    passwords too.

    An older capture at ``path`` is replaced; raises CaptureError for a file that is something else,
    and OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        self._broken = False
        # Unbuffered: what is written is with the system, and survives the end of this process.
        self._file = FileIO(descriptor, "r+b")
        try:
            begin = self._file.read(len(MAGIC))
            if begin and begin != MAGIC:
                raise CaptureError(f"{path} is no capture, so it is not overwritten")
            self._file.seek(0)
            self._file.truncate()
            self._file.write(MAGIC)
        except BaseException:
            self._file.close()
            raise

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        data = f"{client} {upstream}".encode()
        self._write(Record(time_ns, connection, Kind.OPENED, Flag(0), -1, -1, -1, len(data), data))

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        data = reason.encode()
        self._write(Record(time_ns, connection, Kind.CLOSED, Flag(0), -1, -1, -1, len(data), data))

    def frame(self, frame: Frame) -> None:
        flags = Flag(0)
        if frame.note:
            flags |= Flag.CHANGED
        if frame.raw:
            flags |= Flag.RAW
        elif len(frame.data) < frame.size:
            flags |= Flag.CUT
        self._write(
            Record(
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
        self._file.close()

    def _write(self, record: Record) -> None:
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
        try:
            while rest and not self._broken:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            # Nothing may follow a record that is cut, or it would be read as the rest of it.
            self._broken = True
            raise OSError(error.errno, error.strerror, str(self._path)) from error


class Capture:
    """The records of a file, one after the other, in bounded memory.

    ``torn`` says, once they are read, what is wrong with the end of the file; empty if nothing is.
    Raises CaptureError for a file that is no capture, and OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = ""
        with path.open("rb") as file:
            if file.readline(len(MAGIC)) != MAGIC:
                raise CaptureError(f"{path} is no capture: it does not begin with {MAGIC[:-1]!r}")

    def __iter__(self) -> Iterator[Record]:
        self.torn = ""
        with self.path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            file.seek(position := len(MAGIC))
            while position < end:
                head = file.read(_HEAD.size)
                length = int.from_bytes(head[:_LENGTH], "big")
                whole = len(head) >= _LENGTH
                if whole and length < _FIXED:
                    self.torn = f"the record at offset {position} says {length} bytes: damaged"
                    return
                if not whole or position + _LENGTH + length > end:
                    self.torn = (
                        f"the record at offset {position} is cut off: {end - position} bytes are there"
                        + (f", {_LENGTH + length} were meant" if whole else "")
                    )
                    return
                _, time_ns, connection, kind, flags, key, version, number, size = _HEAD.unpack(head)
                data = file.read(length - _FIXED)
                yield Record(
                    time_ns, connection, kind, Flag(flags), key, version, number, size, data
                )
                position += _LENGTH + length


def replay(capture: Capture, package: Package, observers: list[Observer]) -> None:
    """Tell observers what a capture holds, as if it happened again."""
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
            inspector = inspectors.setdefault(number, Inspector(package, number))
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
            for observer in observers:
                observer.frame(frame)
