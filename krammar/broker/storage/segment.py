"""One segment: a file of batches from a base offset on, and the indexes beside it."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kafka_wire import AbortedTxn

from krammar.broker.storage.files import (
    DELETED,
    INDEX,
    LOG,
    SEGMENT_FILES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    create,
    stem,
    write_fully,
)
from krammar.broker.storage.headers import (
    FRAME,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LAST_OFFSET_DELTA_AT,
    SIZE_END,
    crc_is_right,
    header_at,
)
from krammar.broker.storage.index import IndexFault, OffsetIndex, TimeIndex, TransactionIndex
from krammar.broker.storage.log_config import INT64_MAX
from krammar.wire.records import BatchHeader

INT32_MAX = 0x7FFFFFFF
# Read at once while headers are walked: the batches of an index interval mostly fit, and a batch that
# is larger is skipped without being read.
_CHUNK = 16 * 1024
_SCAN_CHUNK = 64 * 1024
_VERIFY_CHUNK = 1 << 20
# Written at once. The kernel takes larger pieces in larger pages, which it has to find first: in a
# virtual machine, whose host backs memory when it is first used, 1 MB takes 3 ms then, and 0.3 ms by
# pieces that fit into pages freed before. Elsewhere they cost next to nothing.
_PIECE = 64 * 1024


class Damage(Exception):
    """A segment's bytes are no batches from ``position`` on."""

    def __init__(self, position: int) -> None:
        super().__init__(f"no batch at position {position}")
        self.position = position


class Segment:
    """``size`` is in bytes; positions count from the file's beginning.

    Files are opened at first use, so that a partition nobody uses costs none.
    """

    __slots__ = (
        "_fd",
        "_folder",
        "_index",
        "_max",
        "_torn",
        "_transactions",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "interval",
        "size",
        "suffix",
        "unindexed",
    )

    def __init__(
        self, folder: str, base_offset: int, interval: int, size: int = 0, suffix: str = ""
    ) -> None:
        self._folder = folder
        self.base_offset = base_offset
        self.size = size
        self.suffix = suffix
        self.created_ms = 0
        self.first_timestamp: int | None = None  # of the first batch; None until it is needed
        self.unindexed = 0  # bytes since the last index entry
        self.interval = interval
        self._fd = -1
        self._torn = False
        self._index: tuple[OffsetIndex, TimeIndex] | None = None
        self._max: tuple[int, int] | None = None
        self._transactions: TransactionIndex | None = None

    @classmethod
    def create(cls, folder: str, base_offset: int, interval: int, suffix: str = "") -> Segment:
        """A new segment with empty files. Raises OSError, and leaves no file then."""
        segment = cls(folder, base_offset, interval, 0, suffix)
        try:
            for ending in (LOG, INDEX, TIME_INDEX):
                create(segment.file(ending))
        except OSError:
            segment.remove()
            raise
        segment._index = segment._new_indexes()
        segment._max = (-1, -1)
        segment._transactions = TransactionIndex(segment.file(TRANSACTION_INDEX))
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.file(LOG)!r}, {self.size} bytes)"

    def file(self, ending: str) -> str:
        return f"{self._folder}/{stem(self.base_offset)}{ending}{self.suffix}"

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self.file(LOG), os.O_RDWR)
        return self._fd

    def _new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        return OffsetIndex(self.file(INDEX)), TimeIndex(self.file(TIME_INDEX))

    # Indexes.

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Read, or made again where they are missing or wrong, at first use."""
        if self._index is None:
            self._index = self._read_indexes()
            if self._index is None:
                self.rebuild()
        indexes = self._index
        assert indexes is not None
        return indexes

    def _read_indexes(self) -> tuple[OffsetIndex, TimeIndex] | None:
        index, times = self._new_indexes()
        try:
            index.read()
            times.read()
        except (OSError, IndexFault):
            return None
        if self.size and not times.keys:
            return None  # a segment that is not active ends with an entry
        if index.values:
            # The last entry has to be that of a batch: then it is no other segment's index.
            header = self.header(index.values[-1])
            if header is None or header.last_offset != self.base_offset + index.keys[-1]:
                return None
        return index, times

    def rebuild(self) -> None:
        """Make both indexes from the batches."""
        self.reset_indexes()
        with contextlib.suppress(Damage):  # behind it nothing can be read either
            for header in self.scan():
                self.note(header)
        self.finish_time_index()

    def reset_indexes(self) -> None:
        self._index = self._new_indexes()
        self._max = (-1, -1)
        self.unindexed = 0

    def note(self, header: BatchHeader) -> None:
        """Take a batch that is in the file, behind all that were noted before, into the indexes."""
        latest = self._max
        assert latest is not None
        last = header.base_offset + header.last_offset_delta
        if header.max_timestamp > latest[0]:
            self._max = latest = (header.max_timestamp, last)
        if self.unindexed > self.interval:
            index, times = self.indexes
            index.add(last - self.base_offset, header.position)
            times.add_newer(latest[0], latest[1] - self.base_offset)
            self.unindexed = 0
        self.unindexed += header.batch_length + SIZE_END

    def resume(self, offset: int) -> tuple[int, int]:
        """Keep, of the indexes, what stands for batches before ``offset``. Returns position and offset
        from which batches have to be noted again."""
        index, times = self.indexes
        entry = index.find(min(offset - 1 - self.base_offset, INT32_MAX))
        header = self.header(index.values[entry]) if entry >= 0 else None
        if header is None or header.last_offset - self.base_offset != index.keys[entry]:
            self.reset_indexes()
            return 0, self.base_offset
        index.keep(entry + 1)
        times.keep(bisect_right(times.values, index.keys[entry]))
        self._max = (
            (times.keys[-1], times.values[-1] + self.base_offset) if times.keys else (-1, -1)
        )
        self.unindexed = header.size_in_bytes
        return header.position + header.size_in_bytes, header.next_offset

    def finish_time_index(self) -> None:
        """End the time index with the latest timestamp, as it has to when a segment is complete."""
        latest, offset = self.latest
        if latest >= 0:
            self.indexes[1].add_newer(latest, offset - self.base_offset)

    @property
    def latest(self) -> tuple[int, int]:
        """The latest timestamp and the last offset of the batch that has it; (-1, -1) without any."""
        if self._max is None:
            times = self.indexes[1]
            if self._max is None:
                if times.keys:
                    self._max = times.keys[-1], times.values[-1] + self.base_offset
                else:
                    self._max = (-1, -1)
        return self._max

    @property
    def transactions(self) -> TransactionIndex:
        """Those whose abort markers are in this segment. Raises IndexFault."""
        if self._transactions is None:
            transactions = TransactionIndex(self.file(TRANSACTION_INDEX))
            with contextlib.suppress(FileNotFoundError):
                transactions.read()
            self._transactions = transactions
        return self._transactions

    def reset_transactions(self) -> None:
        """Forget them all, file and memory, for they are going to be collected anew."""
        self._transactions = TransactionIndex(self.file(TRANSACTION_INDEX))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._transactions.path)

    def release(self) -> None:
        """Give up what can be read again: entries of indexes, and the file descriptor."""
        if self._index is not None and all(index.is_written for index in self._index):
            self._index = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # Writing.

    def append(self, start: bytes, rest: bytes | memoryview) -> None:
        """Write ``start``, which is short, and ``rest`` behind all else. What could not be written in
        full is cut off again. Raises OSError."""
        fd = self.fd
        position = self.size
        if self._torn:
            os.ftruncate(fd, position)
            self._torn = False
        behind = position + len(start)
        at = -behind % _PIECE or _PIECE
        try:
            write_fully(fd, b"".join((start, rest[:at])), position)
            while at < len(rest):
                write_fully(fd, rest[at : at + _PIECE], behind + at)
                at += _PIECE
        except OSError:
            self.cut_back()
            raise
        self.size = behind + len(rest)

    def cut_back(self) -> None:
        """Take away what the file has behind ``size``; later, where that fails too."""
        try:
            os.ftruncate(self.fd, self.size)
        except OSError:
            self._torn = True

    def truncate(self, size: int) -> None:
        """Cut the file; indexes have to be made again or cut by the caller. Raises OSError."""
        os.ftruncate(self.fd, size)
        self.size = size
        self.first_timestamp = None

    def write_indexes(self, *, sync: bool = False) -> None:
        """Raises OSError."""
        if self._index is not None:
            for index in self._index:
                if sync or not index.is_written:
                    index.write(sync=sync)
        transactions = self._transactions
        if transactions is not None and (sync or transactions.stored != len(transactions.entries)):
            transactions.write(sync=sync)

    def sync(self) -> None:
        """Have the batches on the disk. Raises OSError."""
        os.fdatasync(self.fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def rename(self, suffix: str) -> None:
        """Change what stands behind the names of its files. Raises OSError."""
        before = self.suffix
        for ending in SEGMENT_FILES:
            old = self.file(ending)
            self.suffix = suffix
            new = self.file(ending)
            self.suffix = before
            with contextlib.suppress(FileNotFoundError):
                os.rename(old, new)
        self.suffix = suffix
        for index in (*(self._index or ()), self._transactions):
            if index is not None:
                index.path = os.fspath(index.path).removesuffix(before) + suffix

    def mark_deleted(self) -> list[str]:
        """Rename its files to ``.deleted``: which files can be removed later. Raises OSError."""
        self.close()
        self.rename(DELETED)
        return [self.file(ending) for ending in SEGMENT_FILES]

    def remove(self) -> None:
        """Remove its files, as far as there are any."""
        self.close()
        for ending in SEGMENT_FILES:
            with contextlib.suppress(OSError):
                os.unlink(self.file(ending))

    # Reading.

    def read(self, position: int, size: int) -> bytes:
        """Raises OSError."""
        return os.pread(self.fd, size, position)

    def header(self, position: int) -> BatchHeader | None:
        """The header of the batch at ``position``; None if none can be there."""
        if position >= self.size:
            return None
        header = header_at(self.read(position, HEADER_SIZE), 0, position)
        if header is None or position + header.size_in_bytes > self.size:
            return None
        return header

    def scan(self, position: int = 0) -> Iterator[BatchHeader]:
        """The headers of all batches from ``position`` on. Raises Damage where there is no batch before
        the file's end."""
        size = self.size
        while position < size:
            chunk = self.read(position, min(_SCAN_CHUNK, size - position))
            pos = 0
            while pos < len(chunk):
                header = header_at(chunk, pos, position + pos)
                if header is None:
                    if position + len(chunk) < size and len(chunk) - pos < HEADER_SIZE:
                        break  # cut off by the chunk
                    raise Damage(position + pos)
                pos += header.size_in_bytes
                if position + pos > size or not self._holds(header):
                    raise Damage(header.position)
                yield header
            position += pos

    def _holds(self, header: BatchHeader) -> bool:
        """Whether offsets and position are within what indexes can say."""
        distance = header.base_offset + header.last_offset_delta - self.base_offset
        return 0 <= distance <= INT32_MAX and header.position <= INT32_MAX

    def verify(self, position: int, next_offset: int) -> Iterator[BatchHeader]:
        """As ``scan``, with a look at each CRC, and at offsets, which have to rise from
        ``next_offset``. Raises Damage."""
        size = self.size
        while position < size:
            chunk = memoryview(self.read(position, min(_VERIFY_CHUNK, size - position)))
            pos = 0
            while pos < len(chunk):
                header = header_at(chunk, pos, position + pos)
                whole = header is not None and pos + header.size_in_bytes <= len(chunk)
                if not whole and pos and position + len(chunk) < size:
                    break  # cut off by the chunk
                if header is None or header.position + header.size_in_bytes > size:
                    raise Damage(position + pos)
                if whole:
                    batch = chunk[pos : pos + header.size_in_bytes]
                else:
                    batch = memoryview(self.read(header.position, header.size_in_bytes))
                if (
                    header.base_offset < next_offset
                    or not self._holds(header)
                    or not crc_is_right(header, batch)
                ):
                    raise Damage(header.position)
                next_offset = header.next_offset
                pos += header.size_in_bytes
                yield header
            position += pos

    def position_before(self, offset: int, entries: int) -> int:
        """A position ``entries`` entries of the index before ``offset``; 0 if there are no more."""
        index = self.indexes[0]
        entry = index.find(min(offset - self.base_offset, INT32_MAX)) - entries
        return index.values[entry] if entry >= 0 else 0

    def locate(self, offset: int) -> int | None:
        """The position of the first batch whose last offset is at or behind ``offset``; None if it is
        behind all. Raises OSError, and Damage where there is no batch on the way."""
        index = self.indexes[0]
        entry = index.find(offset - self.base_offset)
        try:
            return self._walk(index, entry, offset)
        except Damage:
            # The index may be another segment's, or what is left of a crash.
            self.rebuild()
            index = self.indexes[0]
            return self._walk(index, index.find(offset - self.base_offset), offset)

    def _walk(self, index: OffsetIndex, entry: int, offset: int) -> int | None:
        """As ``locate``, from an entry of the index on."""
        size = self.size
        position = 0
        expected = -1  # the last offset of the batch that the entry is for
        if entry >= 0:
            position = index.values[entry]
            expected = index.keys[entry] + self.base_offset
            if position >= size:
                raise Damage(position)
        while position < size:
            chunk = self.read(position, min(_CHUNK, size - position))
            pos = 0
            limit = len(chunk) - HEADER_SIZE
            tail = position + len(chunk) >= size
            while pos <= limit or (tail and pos < len(chunk)):
                if len(chunk) - pos < FRAME.size:
                    raise Damage(position + pos)
                last, length, _, magic = FRAME.unpack_from(chunk, pos)
                if length < 14 or not 0 <= magic <= 2:
                    raise Damage(position + pos)
                if magic == 2:
                    if len(chunk) - pos < HEADER_SIZE:
                        raise Damage(position + pos)
                    last += LAST_OFFSET_DELTA.unpack_from(chunk, pos + LAST_OFFSET_DELTA_AT)[0]
                if expected >= 0:
                    if last != expected:
                        raise Damage(position + pos)
                    expected = -1
                if last >= offset:
                    return position + pos
                pos += length + SIZE_END
            if not pos:
                raise Damage(position)
            position += pos
        return None

    def aborted(self, begin: int, end: int) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions that overlap offsets ``begin`` to before ``end``, and whether later
        segments can have no more."""
        found = []
        for entry in self.transactions.entries:
            if entry.last_offset >= begin and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False


def segment_bases(names: Sequence[str]) -> list[int]:
    """The base offsets of the segments of a folder with the files ``names``, in order."""
    return sorted(
        base
        for name in names
        if name.endswith(LOG)
        and len(name) == 24
        and name[:20].isdecimal()
        and (base := int(name[:20])) <= INT64_MAX - INT32_MAX
    )
