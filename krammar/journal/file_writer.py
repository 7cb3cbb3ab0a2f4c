"""Appends to journals in files, which are collected and written together."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from krammar.journal.errors import AppendError, CorruptJournalError
from krammar.journal.journal_file import JournalFile, WriteSettings

log = logging.getLogger("krammar.journal")


@dataclass(slots=True, eq=False)
class FileAppend:
    """An append to a file; see AsyncAppend. Offsets are in bytes."""

    _writer: Writer
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


class Writer:
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
