"""A segment of a log: finds offsets, times and transactions with the indexes of its file."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable

from kafka_wire import AbortedTxn

from krammar.logfiles.damage import DamageError, raise_damage
from krammar.logfiles.index import OffsetIndex, TimeIndex, TransactionIndex
from krammar.logfiles.names import INDEX, TIME_INDEX, TRANSACTION_INDEX
from krammar.logfiles.segment_file import SegmentFile
from krammar.wire.batches.header import HEADER_SIZE, last_offset_at
from krammar.wire.errors import DecodeError

# Bytes per read while searching for an offset from an index entry. The batches of an index interval usually
# fit, and larger batches are skipped without reading them.
_LOCATE_CHUNK = 16 * 1024


class Segment(SegmentFile):
    """A segment and its index files, which are opened on first use too."""

    __slots__ = ("_index", "_transactions")

    def __init__(
        self,
        folder: str,
        base_offset: int,
        size: int | None = None,
        suffix: str = "",
        *,
        damaged: Callable[[DamageError], None] = raise_damage,
    ) -> None:
        """Without ``size``, open the file at once. Raises OSError."""
        self._index: tuple[OffsetIndex, TimeIndex] | None = None
        self._transactions: TransactionIndex | None = None
        super().__init__(folder, base_offset, size, suffix, damaged=damaged)

    # Indexes.

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """The indexes, which are read on first use. They are empty if they are missing or damaged."""
        if self._index is None:
            index, times = self._new_indexes()
            for each in (index, times):
                with contextlib.suppress(OSError, DamageError):
                    each.read()
            # A broker can have appended batches and entries since the segment was opened.
            index.keep(bisect_left(index.values, self.size))
            self._index = index, times
        return self._index

    def rebuild(self) -> None:
        """Discard indexes that do not match the batches."""
        self._index = self._new_indexes()

    def _new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        return OffsetIndex(self.file(INDEX)), TimeIndex(self.file(TIME_INDEX))

    @property
    def transactions(self) -> TransactionIndex:
        """Read the aborted transactions whose markers are in this segment. Raises OSError and DamageError."""
        if self._transactions is None:
            transactions = TransactionIndex(self.file(TRANSACTION_INDEX))
            transactions.read()
            self._transactions = transactions
        return self._transactions

    def aborted(self, begin: int, end: int) -> tuple[list[AbortedTxn], bool]:
        """Return the aborted transactions that overlap the offsets ``begin`` up to but not including ``end``.

        Also return whether later segments cannot contain more.
        """
        found = []
        for entry in self.transactions.entries:
            if entry.last_offset >= begin and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False

    # Offsets.

    def position_before(self, offset: int, entries: int = 0) -> int:
        """Return a position at or before the batch with ``offset``, ``entries`` index entries before it."""
        index = self.indexes[0]
        return self._entry_position(index.find(offset - self.base_offset) - entries, 0)

    def position_after(self, offset: int) -> int:
        """Return a position at or after the end of the batch with ``offset``, from the index."""
        index = self.indexes[0]
        return self._entry_position(
            bisect_left(index.keys, offset - self.base_offset) + 1, self.size
        )

    def _entry_position(self, entry: int, otherwise: int) -> int:
        """The position in an index entry, if the entry exists and a batch begins there."""
        index = self.indexes[0]
        if not 0 <= entry < len(index):
            return otherwise
        position = index.values[entry]
        last_offset = self.base_offset + index.keys[entry]
        return position if self.is_at(last_offset, position) else otherwise

    def is_at(self, last_offset: int, position: int) -> bool:
        """Return whether a batch with this last offset begins at ``position``."""
        header = self.header(position)
        return header is not None and header.last_offset == last_offset

    def locate(self, offset: int) -> int | None:
        """Find the position of the first batch whose last offset is at least ``offset``, or None.

        Raises:
            OSError: the file cannot be read.
            DamageError: a batch before it is invalid.
        """
        if offset <= self.base_offset:
            return 0 if self.size else None
        index = self.indexes[0]
        try:
            return self._walk(index, index.find(offset - self.base_offset), offset)
        except DamageError:
            # The index can belong to another segment, or be damaged by a crash.
            self.rebuild()
            index = self.indexes[0]
            return self._walk(index, index.find(offset - self.base_offset), offset)

    def _walk(self, index: OffsetIndex, entry: int, offset: int) -> int | None:
        """Search as ``locate`` does, from an index entry on."""
        size = self.size
        position = 0
        expected = -1  # the last offset of the batch in the index entry
        if entry >= 0:
            position = index.values[entry]
            expected = index.keys[entry] + self.base_offset
            if position >= size:
                raise self.damage_at(b"", 0, position)
        while position < size:
            chunk = self.read(position, min(_LOCATE_CHUNK, size - position))
            pos = 0
            limit = len(chunk) - HEADER_SIZE
            tail = position + len(chunk) >= size
            while pos <= limit or (tail and pos < len(chunk)):
                found = last_offset_at(chunk, pos)
                if found is None:
                    raise self.damage_at(chunk, pos, position + pos)
                last, length = found
                if expected >= 0:
                    if last != expected:
                        raise self.damage_at(chunk, pos, position + pos)
                    expected = -1
                if last >= offset:
                    return position + pos
                pos += length
            if not pos:
                raise self.damage_at(chunk, 0, position)
            position += pos
        return None

    # Times.

    def position_of_time(self, timestamp: int) -> int:
        """Return a position at or before the first record at or after ``timestamp``."""
        times = self.indexes[1]
        found = times.find(timestamp - 1)
        return self.position_before(self.base_offset + times.values[found]) if found >= 0 else 0

    def first_at(self, timestamp: int, start: int) -> tuple[int, int] | None:
        """Find the first record at or after ``timestamp``, in milliseconds since 1970, and offset ``start``.

        Returns its timestamp and offset, or None. Raises OSError and DecodeError.
        """
        position = max(self.position_of_time(timestamp), self.position_before(start))
        for header in self.scan(position):
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            if header.is_control:
                return header.max_timestamp, header.base_offset
            try:
                for record in self.batch(header):
                    if record.timestamp >= timestamp and record.offset >= start:
                        return record.timestamp, record.offset
            except DecodeError as error:
                raise DecodeError(f"{self.path}, byte {header.position}: {error}") from None
        return None

    def latest_timestamp(self, *, is_newest: bool) -> int:
        """Return the latest timestamp in milliseconds since 1970, or -1 without records.

        It is the last entry of the time index. In the newest segment, entries can be missing, so the headers
        after the last entry are read too. Raises OSError and DamageError.
        """
        times = self.indexes[1]
        latest = times.keys[-1] if times else -1
        if times and not is_newest:
            return latest
        begin = self.position_before(self.base_offset + times.values[-1]) if times else 0
        return max((header.max_timestamp for header in self.scan(begin)), default=latest)

    def end_offset(self) -> int:
        """Return the offset after the last complete batch, or the base offset without batches.

        Raises OSError and DamageError.
        """
        index = self.indexes[0]
        end = self.base_offset
        for header in self.scan(self._entry_position(len(index) - 1, 0)):
            end = header.next_offset
        return end
