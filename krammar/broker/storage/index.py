"""The files beside a segment: where its offsets are, when its records were, what was aborted.

The first two are sparse: an entry for about every ``index.interval.bytes`` of the segment. Their
entries are kept in memory, as two arrays of numbers each, from when they are first asked for; new ones
are written in one go when a segment is flushed, rolled or closed, so that an append neither opens an
index nor fails because of one. After a crash the missing ones are made again from the log.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from itertools import islice
from operator import lt
from pathlib import Path
from struct import Struct

from kafka_wire import AbortedTxn

from krammar.broker.storage.files import write_fully

INT32_MAX = 0x7FFFFFFF


class IndexFault(Exception):
    """An index file that does not fit its log."""


class SparseIndex:
    """Two columns of numbers that rise.

    ``keys``    what is looked up
    ``values``  what it leads to
    """

    __slots__ = ("_longer", "keys", "path", "stored", "values")

    entry: Struct
    key_code: str
    strict_values: bool

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.keys = array(self.key_code)
        self.values = array("i")
        self.stored = 0  # entries that are in the file
        self._longer = False  # whether the file has others behind them

    @property
    def is_written(self) -> bool:
        return self.stored == len(self.keys) and not self._longer

    def __len__(self) -> int:
        return len(self.keys)

    def read(self) -> None:
        """Read the file. Raises OSError, and IndexFault if its entries do not rise."""
        with open(self.path, "rb", buffering=0) as file:
            data = file.readall() or b""
        size = self.entry.size
        if len(data) % size:
            raise IndexFault(f"{len(data)} bytes are no multiple of {size}")
        # Kafka allocates the file in full and cuts it on a clean close: zeros are room, not entries.
        used = len(data.rstrip(b"\0"))
        data = data[: used + -used % size]
        self.keys, self.values = self._decode(data)
        self.stored = len(self.keys)
        values = self.values
        rising = all(map(lt, self.keys, islice(self.keys, 1, None))) and (
            all(map(lt, values, islice(values, 1, None)))
            if self.strict_values
            else all(map(int.__le__, values, islice(values, 1, None)))
        )
        if not rising or (len(values) and (values[0] < 0 or self.keys[0] < 0)):
            raise IndexFault("its entries do not rise")

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        keys, values = array(self.key_code), array("i")
        for key, value in self.entry.iter_unpack(data):
            keys.append(key)
            values.append(value)
        return keys, values

    def add(self, key: int, value: int) -> None:
        self.keys.append(key)
        self.values.append(value)

    def keep(self, count: int) -> None:
        """Forget all entries behind the first ``count``."""
        if self.stored > count:
            self.stored = count
            self._longer = True
        del self.keys[count:], self.values[count:]

    def write(self, *, sync: bool = False) -> None:
        """Bring the file up to date. Raises OSError; entries that were not written are still kept."""
        stored = self.stored
        pack = self.entry.pack
        data = b"".join(
            map(pack, islice(self.keys, stored, None), islice(self.values, stored, None))
        )
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            # Behind what is to stay may be room that Kafka left, or entries that were cut off.
            os.ftruncate(fd, stored * self.entry.size)
            write_fully(fd, data, stored * self.entry.size)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        self.stored = len(self.keys)
        self._longer = False


class OffsetIndex(SparseIndex):
    """``.index``: last offset of a batch, counted from the segment's first, to the batch's position."""

    __slots__ = ()

    entry = Struct(">ii")
    key_code = "i"
    strict_values = True

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        numbers = array("i", data)
        numbers.byteswap()
        return numbers[::2], numbers[1::2]

    def find(self, relative_offset: int) -> int:
        """The number of the last entry at or before an offset; -1 if there is none."""
        return bisect_right(self.keys, relative_offset) - 1


class TimeIndex(SparseIndex):
    """``.timeindex``: a timestamp to the last offset, counted from the segment's first, of the batch
    that has it; no record up to that one is later."""

    __slots__ = ()

    entry = Struct(">qi")
    key_code = "q"
    strict_values = False

    def add_newer(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry unless there is one as new as it."""
        if not self.keys or timestamp > self.keys[-1]:
            self.add(timestamp, relative_offset)


_ABORTED = Struct(">hqqqq")


class TransactionIndex:
    """``.txnindex``: the aborted transactions whose markers are in a segment, by the markers' offsets.

    The file is only there when there are any. Raises OSError wherever it is read or written.
    """

    __slots__ = ("entries", "path", "stored")

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.entries: list[AbortedTxn] = []
        self.stored = 0

    def read(self) -> None:
        """Raises IndexFault for a file that Kafka would not have written."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                data = file.readall() or b""
        except FileNotFoundError:
            return
        if len(data) % _ABORTED.size:
            raise IndexFault(f"{len(data)} bytes are no multiple of {_ABORTED.size}")
        entries = [
            AbortedTxn(
                version=version,
                producer_id=producer,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            )
            for version, producer, first, last, stable in _ABORTED.iter_unpack(data)
        ]
        before = -1
        for entry in entries:
            if entry.version != 0 or not before < entry.last_offset >= entry.first_offset >= 0:
                raise IndexFault("its entries do not rise")
            before = entry.last_offset
        self.entries = entries
        self.stored = len(entries)

    def add(self, entry: AbortedTxn) -> None:
        self.entries.append(entry)

    def write(self, *, sync: bool = False) -> None:
        """Bring the file up to date."""
        if not self.entries and not self.stored:
            return
        stored = min(self.stored, len(self.entries))
        self.stored = stored
        data = b"".join(entry.encode(0) for entry in self.entries[stored:])
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.ftruncate(fd, stored * _ABORTED.size)
            write_fully(fd, data, stored * _ABORTED.size)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        self.stored = len(self.entries)
