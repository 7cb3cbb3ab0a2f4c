"""Where a driver keeps the intents of its writes: a folder with a file for each that has not been forgotten.

A write is committed when its file is there. The file is made whole, with a name that only one can make:
of two drivers that write the same batch, both with messages of their own, one makes it, and the other
finds it and acknowledges what that has written.

A file's content is the message WriteIntents of ``definitions/journal_wire``, and behind it a CRC-32.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from zlib import crc32

import journal_wire as wire

from krammar.journal import AckIntent
from krammar.spark.errors import SparkSourceError
from krammar.wire.errors import WireError

_SUFFIX = ".intents"
_FILE = re.compile(r"[^.].*-(\d{20}|once)\.intents")


class Write(NamedTuple):
    """A micro-batch of the query ``writer``; or a batch write of that name, where ``batch`` is -1."""

    writer: str
    batch: int = -1

    @property
    def text(self) -> str:
        """For messages."""
        return f"batch {self.batch} of {self.writer}" if self.batch >= 0 else self.writer


class Stored(NamedTuple):
    """What is stored of a write. There are no intents where all are known to have been ``appended``."""

    write: Write
    appended: bool
    intents: list[AckIntent]


class IntentStore:
    """The folder; it is made when something is stored. Errors of files are OSErrors."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def find(self, write: Write) -> Stored | None:
        """What is stored of a write. Raises SparkSourceError for what is damaged."""
        try:
            return _read(self._path(write))
        except FileNotFoundError:
            return None

    def all(self) -> Iterator[Stored]:
        """All that is stored. Raises SparkSourceError for what is damaged."""
        names = sorted(os.listdir(self.folder)) if self.folder.is_dir() else []
        for name in names:
            if _FILE.fullmatch(name):
                # Another driver may have forgotten it meanwhile.
                with suppress(FileNotFoundError):
                    yield _read(self.folder / name)

    def latest(self) -> Mapping[str, int]:
        """By writer the last micro-batch that is committed; -1 for batch writes that are."""
        result: dict[str, int] = {}
        for stored in self.all():
            writer, batch = stored.write
            result[writer] = max(batch, result.get(writer, -1))
        return result

    def store(self, write: Write, intents: Iterable[AckIntent]) -> Stored:
        """Commit a write, if it is not committed. Returns what is stored of it then, on disk: these intents
        or those that were before."""
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            _sync(self.folder.parent)
        path = self._path(write)
        made = Stored(write, False, list(intents))
        temporary = self._write(path, made)
        try:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return _read(path)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                # A file system without links: two drivers at once are not told apart there.
                if path.exists():
                    return _read(path)
                os.rename(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
            _sync(self.folder)
        return made

    def appended(self, write: Write) -> None:
        """Note that all intents of a write are in their journals."""
        path = self._path(write)
        os.replace(self._write(path, Stored(write, True, [])), path)

    def forget_before(self, write: Write) -> None:
        """Forget the micro-batches of a query before this one, whose file says enough; but none with
        intents that are not known to have been appended."""
        for stored in self.all():
            writer, batch = stored.write
            if writer == write.writer and 0 <= batch < write.batch and stored.appended:
                self.forget(stored.write)

    def forget(self, write: Write) -> None:
        self._path(write).unlink(missing_ok=True)

    def _path(self, write: Write) -> Path:
        writer = quote(write.writer, safe="").replace(".", "%2E")
        if len(writer) > 150:  # names of files are limited
            writer = sha256(writer.encode()).hexdigest()
        return (
            self.folder / f"{writer}-{'once' if write.batch < 0 else f'{write.batch:020}'}{_SUFFIX}"
        )

    def _write(self, path: Path, stored: Stored) -> Path:
        """A new file, on disk, beside the one that it is to become."""
        data = wire.WriteIntents(
            writer=stored.write.writer,
            batch=stored.write.batch,
            appended=stored.appended,
            intents=[wire.AckIntent(journal=j, intent=intent) for j, intent in stored.intents],
        ).encode()
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        with open(temporary, "wb") as file:
            file.write(data + crc32(data).to_bytes(4, "big"))
            file.flush()
            os.fsync(file.fileno())
        return temporary


def _read(path: Path) -> Stored:
    data = path.read_bytes()
    body, checksum = data[:-4], data[-4:]
    try:
        if len(data) < 4 or crc32(body).to_bytes(4, "big") != checksum:
            raise ValueError("its checksum is wrong")
        found = wire.WriteIntents.decode(body)
    except (WireError, ValueError) as error:
        raise SparkSourceError(
            f"{path}: {error}. It says what was about to be committed, without which no write can go on"
        ) from None
    return Stored(
        Write(found.writer, found.batch),
        found.appended,
        [AckIntent(one.journal, one.intent) for one in found.intents],
    )


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
