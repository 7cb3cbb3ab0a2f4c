"""Writable index files of a segment.

Entries are loaded at their first use. New entries are written together when a segment is flushed, rolled or closed,
so an append neither opens an index nor fails because of one. After a crash, missing entries are rebuilt from the log.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from kafka_wire import AbortedTxn

from krammar.broker.log.files import write_fully
from krammar.logfiles import index, txnindex


class WritableIndex(index.SparseIndex):
    """An index that grows."""

    __slots__ = ("_longer", "stored")

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.stored = 0  # entries that are in the file
        self._longer = False  # whether the file has others after them

    @property
    def is_written(self) -> bool:
        """Whether the file has exactly the entries in memory."""
        return self.stored == len(self.keys) and not self._longer

    def read(self) -> None:
        super().read()
        self.stored = len(self.keys)

    def add(self, key: int, value: int) -> None:
        self.keys.append(key)
        self.values.append(value)

    def keep(self, count: int) -> None:
        if self.stored > count:
            self.stored = count
            self._longer = True
        super().keep(count)

    def write(self, *, sync: bool = False) -> None:
        """Write new entries to the file. Raises OSError; the entries remain in memory."""
        stored = self.stored
        pack = self.entry.pack
        data = b"".join(
            map(pack, islice(self.keys, stored, None), islice(self.values, stored, None))
        )
        # The rest of the file may be space that Kafka preallocated, or entries that were removed.
        _write_from(self.path, stored * self.entry.size, data, sync)
        self.stored = len(self.keys)
        self._longer = False


class OffsetIndex(WritableIndex, index.OffsetIndex):
    """``.index``"""

    __slots__ = ()


class TimeIndex(WritableIndex, index.TimeIndex):
    """``.timeindex``"""

    __slots__ = ()

    def add_newer(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one."""
        if not self.keys or timestamp > self.keys[-1]:
            self.add(timestamp, relative_offset)


class TransactionIndex(txnindex.TransactionIndex):
    """``.txnindex``"""

    __slots__ = ("stored",)

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.stored = 0

    def read(self) -> None:
        super().read()
        self.stored = len(self.entries)

    def add(self, entry: AbortedTxn) -> None:
        self.entries.append(entry)

    def write(self, *, sync: bool = False) -> None:
        """Write new entries to the file. Raises OSError."""
        if not self.entries and not self.stored:
            return
        self.stored = stored = min(self.stored, len(self.entries))
        data = b"".join(entry.encode(0) for entry in self.entries[stored:])
        _write_from(self.path, stored * txnindex.ENTRY.size, data, sync)
        self.stored = len(self.entries)


def _write_from(path: Path | str, position: int, data: bytes, sync: bool) -> None:
    """Truncate the file to ``position`` and append ``data``. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(fd, position)
        write_fully(fd, data, position)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
