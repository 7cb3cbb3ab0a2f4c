"""The index files of a segment: by offset, by timestamp, and the aborted transactions.

The sparse indexes have about one entry per ``index.interval.bytes`` of the segment. All entries are in memory. A broker
adds entries there, and writes them together when a segment is flushed, rolled or closed, so an append neither opens an
index nor fails because of one. After a crash, missing entries are rebuilt from the log.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice, pairwise
from operator import le, lt
from pathlib import Path
from struct import Struct

from kafka_wire import AbortedTxn

from krammar.logfiles.damage import Damage, DamageError
from krammar.util.durable import write_from
from krammar.util.regular_files import read_small

INT32_MAX = 0x7FFFFFFF
# The size up to which an index is read, in bytes. With the default interval, that of a full segment has 4 MiB. Kafka's
# `segment.index.bytes`, to which it extends the file of an active segment, is 10 MiB by default.
LARGEST_INDEX = 256 << 20


class IndexFile:
    """A file of entries with the same size.

    Attributes:
        stored: the number of entries that are in the file
    """

    __slots__ = ("_longer", "path", "stored")

    entry: Struct
    damage: Damage

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.stored = 0
        self._longer = False  # whether the file has others after them

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def is_written(self) -> bool:
        """Whether the file has exactly the entries in memory."""
        return self.stored == len(self) and not self._longer

    def read(self) -> None:
        """Read the entries.

        Raises:
            OSError: the file cannot be read.
            DamageError: Kafka would not have written the content. The index is empty then.
        """
        data = read_small(self.path, LARGEST_INDEX)
        size = self.entry.size
        if rest := len(data) % size:
            text = f"the size of {len(data)} bytes is not a multiple of {size}"
            raise DamageError(self.damage, text, len(data) - rest)
        self.load(data)
        self.stored = len(self)

    def write(self) -> None:
        """Write new entries to the file. Raises OSError; the entries remain in memory."""
        data = b"".join(self._encoded(self.stored))
        # The rest of the file may be space that Kafka preallocated, or entries that were removed.
        write_from(self.path, self.stored * self.entry.size, data)
        self.stored = len(self)
        self._longer = False

    def load(self, data: bytes) -> None:
        """Replace the entries by the content of a file. Raises DamageError; the index is unchanged then."""
        raise NotImplementedError

    def _encoded(self, begin: int) -> Iterable[bytes]:
        """Encode the entries from the one with this number on."""
        raise NotImplementedError


class SparseIndex(IndexFile):
    """Two columns of ascending numbers: ``keys`` to search, and their ``values``."""

    __slots__ = ("keys", "values")

    damage = Damage.INDEX
    key_code: str
    strict_values: bool

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.keys = array(self.key_code)
        self.values = array("i")

    def __len__(self) -> int:
        return len(self.keys)

    def load(self, data: bytes) -> None:
        size = self.entry.size
        # Kafka preallocates the file, and truncates it when it closes it. So zeros at the end are not entries.
        used = len(data.rstrip(b"\0"))
        keys, values = self._decode(data[: used + -used % size])
        rise = lt if self.strict_values else le
        if keys and (keys[0] < 0 or values[0] < 0):
            raise DamageError(Damage.INDEX, "the first entry is negative", 0)
        for column, rises in ((keys, lt), (values, rise)):
            if not all(map(rises, column, islice(column, 1, None))):
                at = next(i for i, (a, b) in enumerate(pairwise(column), 1) if not rises(a, b))
                raise DamageError(
                    Damage.INDEX, f"the entries do not ascend at entry {at}", at * size
                )
        self.keys, self.values = keys, values

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        keys, values = array(self.key_code), array("i")
        for key, value in self.entry.iter_unpack(data):
            keys.append(key)
            values.append(value)
        return keys, values

    def find(self, key: int) -> int:
        """Return the number of the last entry at or before ``key``, or -1."""
        return bisect_right(self.keys, key) - 1

    def add(self, key: int, value: int) -> None:
        self.keys.append(key)
        self.values.append(value)

    def keep(self, count: int) -> None:
        """Remove all entries after the first ``count``."""
        if self.stored > count:
            self.stored = count
            self._longer = True
        del self.keys[count:], self.values[count:]

    def _encoded(self, begin: int) -> Iterable[bytes]:
        return map(
            self.entry.pack, islice(self.keys, begin, None), islice(self.values, begin, None)
        )


class OffsetIndex(SparseIndex):
    """``.index``: from the last offset of a batch, relative to the segment's first, to its position."""

    __slots__ = ()

    entry = Struct(">ii")
    key_code = "i"
    strict_values = True

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        numbers = array("i", data)
        numbers.byteswap()
        return numbers[::2], numbers[1::2]


class TimeIndex(SparseIndex):
    """``.timeindex``: from a timestamp to the last offset of its batch, relative to the segment's first.

    No record up to this offset has a later timestamp.
    """

    __slots__ = ()

    entry = Struct(">qi")
    key_code = "q"
    strict_values = False

    def add_newer(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one."""
        if not self.keys or timestamp > self.keys[-1]:
            self.add(timestamp, relative_offset)


class TransactionIndex(IndexFile):
    """``.txnindex``: the aborted transactions whose markers are in a segment, in the order of the markers.

    The file exists only if there are any.
    """

    __slots__ = ("entries",)

    entry = Struct(">hqqqq")
    damage = Damage.TRANSACTION_INDEX

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.entries: list[AbortedTxn] = []

    def __len__(self) -> int:
        return len(self.entries)

    def read(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            super().read()

    def load(self, data: bytes) -> None:
        entries = []
        before = -1
        for at, fields in enumerate(self.entry.iter_unpack(data)):
            version, producer, first, last, stable = fields
            if version != 0 or not before < last >= first >= 0:
                text = f"the entries do not ascend at entry {at}"
                raise DamageError(self.damage, text, at * self.entry.size)
            before = last
            entries.append(
                AbortedTxn(
                    version=version,
                    producer_id=producer,
                    first_offset=first,
                    last_offset=last,
                    last_stable_offset=stable,
                )
            )
        self.entries = entries

    def _encoded(self, begin: int) -> Iterable[bytes]:
        return (entry.encode(0) for entry in self.entries[begin:])
