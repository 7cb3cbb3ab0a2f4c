"""Writable index files of a segment.

Entries are loaded at their first use. New entries are written together when a segment is flushed, rolled or closed,
so an append neither opens an index nor fails because of one. After a crash, missing entries are rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from krammar.broker.log.files import write_from
from krammar.logfiles import index, txnindex


class _Growing(index.IndexFile):
    """An index that grows.

    ``stored``  the number of entries that are in the file
    """

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.stored = 0
        self._longer = False  # whether the file has others after them

    @property
    def is_written(self) -> bool:
        """Whether the file has exactly the entries in memory."""
        return self.stored == len(self) and not self._longer

    def read(self) -> None:
        super().read()
        self.stored = len(self)

    def write(self, *, sync: bool = False) -> None:
        """Write new entries to the file. Raises OSError; the entries remain in memory."""
        data = b"".join(self._encoded(self.stored))
        # The rest of the file may be space that Kafka preallocated, or entries that were removed.
        write_from(self.path, self.stored * self.entry.size, data, sync=sync)
        self.stored = len(self)
        self._longer = False

    def _encoded(self, begin: int) -> Iterable[bytes]:
        """Encode the entries from the one with this number on."""
        raise NotImplementedError


class _GrowingColumns(_Growing, index.SparseIndex):
    def add(self, key: int, value: int) -> None:
        self.keys.append(key)
        self.values.append(value)

    def keep(self, count: int) -> None:
        if self.stored > count:
            self.stored = count
            self._longer = True
        super().keep(count)

    def _encoded(self, begin: int) -> Iterable[bytes]:
        return map(
            self.entry.pack, islice(self.keys, begin, None), islice(self.values, begin, None)
        )


class OffsetIndex(_GrowingColumns, index.OffsetIndex):
    """``.index``"""


class TimeIndex(_GrowingColumns, index.TimeIndex):
    """``.timeindex``"""

    def add_newer(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one."""
        if not self.keys or timestamp > self.keys[-1]:
            self.add(timestamp, relative_offset)


class TransactionIndex(_Growing, txnindex.TransactionIndex):
    """``.txnindex``"""

    def _encoded(self, begin: int) -> Iterable[bytes]:
        return (entry.encode(0) for entry in self.entries[begin:])
