"""The sparse indexes of a segment, by offset and by timestamp.

There is about one entry per ``index.interval.bytes`` of the segment. All entries are in memory, as two arrays of
numbers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import islice, pairwise
from operator import le, lt
from pathlib import Path
from struct import Struct

from krammar.logfiles.damage import Damage, DamageError

INT32_MAX = 0x7FFFFFFF


class IndexFile:
    """A file of entries with the same size."""

    __slots__ = ("path",)

    entry: Struct
    damage: Damage

    def __init__(self, path: Path | str) -> None:
        self.path = path

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self) -> None:
        """Read the entries.

        Raises:
            OSError: the file cannot be read.
            DamageError: Kafka would not have written the content. The index is empty then.
        """
        with open(self.path, "rb", buffering=0) as file:
            data = file.readall() or b""
        size = self.entry.size
        if rest := len(data) % size:
            text = f"the size of {len(data)} bytes is not a multiple of {size}"
            raise DamageError(self.damage, text, len(data) - rest)
        self.load(data)

    def load(self, data: bytes) -> None:
        """Replace the entries by the content of a file. Raises DamageError; the index is unchanged then."""
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

    def keep(self, count: int) -> None:
        """Remove all entries after the first ``count``."""
        del self.keys[count:], self.values[count:]


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
