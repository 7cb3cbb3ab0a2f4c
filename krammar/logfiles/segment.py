"""A segment of a log: reads its batches, and finds offsets, times and transactions with its indexes."""

from __future__ import annotations

import contextlib
import os
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator

from kafka_wire import AbortedTxn

from krammar.logfiles.damage import Damage, DamageError, raise_damage
from krammar.logfiles.index import INT32_MAX, OffsetIndex, TimeIndex, TransactionIndex
from krammar.logfiles.names import DELETED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, stem
from krammar.util.closing import Closing
from krammar.util.regular_files import open_regular
from krammar.wire.batches import BatchHeader, RecordBatch, crc32c, read_batches
from krammar.wire.batches.header import (
    CRC_COVERS_FROM,
    FRAME_SIZE,
    HEADER_SIZE,
    MIN_SIZE,
    header_at,
    last_offset_at,
    size_and_magic,
)
from krammar.wire.errors import DecodeError

# Bytes per read while scanning small batches, so that not every batch needs a system call.
_SCAN_CHUNK = 64 * 1024
# Bytes per read while a CRC is computed.
_CRC_CHUNK = 1 << 20
# Bytes per read while searching for an offset from an index entry. The batches of an index interval usually
# fit, and larger batches are skipped without reading them.
_LOCATE_CHUNK = 16 * 1024


class Segment(Closing):
    """A segment: the file with its batches, and its index files.

    Files are opened on first use, so unused partitions have no open files.

    Attributes:
        size: the size in bytes when the segment was opened, or the given size: batches that are appended
            later are ignored. Positions count from the begin of the file.
        damaged: called with damage that a scan finds. If it does not raise, the scan continues after the
            damage, or ends if the next batch cannot be found.
    """

    __slots__ = (
        "_fd",
        "_index",
        "_transactions",
        "base_offset",
        "damaged",
        "folder",
        "size",
        "suffix",
    )

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
        self.folder = folder
        self.base_offset = base_offset
        self.suffix = suffix
        self.damaged = damaged
        self._index: tuple[OffsetIndex, TimeIndex] | None = None
        self._transactions: TransactionIndex | None = None
        self._fd = -1
        self.size = os.fstat(self.fd).st_size if size is None else size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.file(LOG)!r}, {self.size} bytes)"

    def file(self, ending: str) -> str:
        return f"{self.folder}/{stem(self.base_offset)}{ending}{self.suffix}"

    @property
    def path(self) -> str:
        return self.file(LOG)

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = self._open()
        return self._fd

    def _open(self) -> int:
        try:
            return open_regular(self.path)
        except FileNotFoundError:
            # Retention and compaction rename a file before they remove it, a minute later.
            return open_regular(self.path + DELETED)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, position: int, size: int) -> bytes:
        """Read up to ``size`` bytes. Raises OSError."""
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        return data + self.read(position + len(data), size - len(data))

    def header(self, position: int) -> BatchHeader | None:
        """Read the header of the batch at ``position``. None if no batch can begin there."""
        if position >= self.size:
            return None
        header = header_at(self.read(position, HEADER_SIZE), 0, position)
        if header is None or position + header.size_in_bytes > self.size:
            return None
        return header

    def batch(self, header: BatchHeader) -> RecordBatch:
        """Read the batch of a header, and check its CRC. Raises OSError and DecodeError."""
        return next(read_batches(self.read(header.position, header.size_in_bytes)))

    def holds(self, header: BatchHeader) -> bool:
        """Return whether the batch ends within the file, and indexes can represent its offsets and position."""
        distance = header.base_offset + header.last_offset_delta - self.base_offset
        return (
            0 <= distance <= INT32_MAX
            and header.position <= INT32_MAX
            and header.position + header.size_in_bytes <= self.size
        )

    def damage_at(self, data: bytes | memoryview, pos: int, position: int) -> DamageError:
        """Return the damage at ``position`` of the file, which is ``pos`` of ``data``."""
        head = bytes(data[pos : pos + HEADER_SIZE])
        left = self.size - position
        if len(head) >= FRAME_SIZE:
            if not any(head):
                text = f"only zeros from byte {position} on"
                return DamageError(Damage.ZEROS, text, position)
            size, magic = size_and_magic(head, 0)
            if not 0 <= magic <= 2 or size < MIN_SIZE[magic]:
                return DamageError(
                    Damage.NO_BATCH,
                    f"no batch at byte {position}: magic {magic}, {size} bytes",
                    position,
                )
            if size <= left and len(head) >= min(size, HEADER_SIZE):
                header = header_at(head, 0, position)
                if header is not None:
                    text = (
                        f"the batch at byte {position} has offsets {header.base_offset} to "
                        f"{header.last_offset}, outside of the segment that begins at {self.base_offset}"
                    )
                    return DamageError(Damage.OFFSETS, text, position, size)
                text = f"the batch at byte {position} has a negative offset or count"
                return DamageError(Damage.HEADER, text, position, size)
        return DamageError(Damage.TORN, f"the file is cut off at byte {position}", position)

    def scan(self, position: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
        """Yield the headers of the batches that begin at or after ``position``, and before ``end``.

        Raises:
            OSError: the file cannot be read.
            DamageError: a batch is invalid or incomplete, unless ``damaged`` handles it.
        """
        size = self.size
        end = size if end is None else min(end, size)
        holds = self.holds
        previous = _SCAN_CHUNK  # the size of the previous batch
        while position < end:
            # Batches after a large one are probably as large, so only their headers are read. The caller may
            # want only the first one.
            wanted = HEADER_SIZE if previous > _SCAN_CHUNK // 4 else _SCAN_CHUNK
            chunk = self.read(position, min(wanted, size - position))
            is_tail = position + len(chunk) >= size
            limit = min(len(chunk), end - position)
            pos = 0
            while pos < limit or not pos:
                header = header_at(chunk, pos, position + pos)
                if header is not None and holds(header):
                    yield header
                    previous = header.size_in_bytes
                    pos += previous
                    continue
                if header is None and pos and not is_tail and len(chunk) - pos < HEADER_SIZE:
                    break  # the chunk ends within the batch
                error = self.damage_at(chunk, pos, position + pos)
                self.damaged(error)
                if error.size is None:
                    return
                pos += error.size
            position += pos

    def damage_in(self, header: BatchHeader, next_offset: int) -> list[DamageError]:
        """Return the damage of a batch that a scan does not find. Raises OSError.

        It is a wrong CRC, and an offset before ``next_offset``, the end of the batches before it.
        """
        found = []
        if self._crc(header) != header.crc:
            at = f"byte {header.position} (offset {header.base_offset})"
            text = f"the CRC of the batch at {at} does not match its bytes"
            found.append(DamageError(Damage.CRC, text, header.position, header.size_in_bytes))
        if header.base_offset < next_offset:
            text = f"offset {header.base_offset} follows {next_offset - 1}"
            found.append(DamageError(Damage.OFFSETS, text, header.position, header.size_in_bytes))
        return found

    def _crc(self, header: BatchHeader) -> int:
        crc = 0
        end = header.position + header.size_in_bytes
        for at in range(header.position + CRC_COVERS_FROM[header.magic], end, _CRC_CHUNK):
            data = self.read(at, min(_CRC_CHUNK, end - at))
            crc = crc32c(data, crc) if header.magic > 1 else zlib.crc32(data, crc)
        return crc

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
