"""A writable segment: extends ``krammar.logfiles`` by appends, recovery and growing indexes."""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from krammar.broker.log.files import remove
from krammar.broker.open_files import most_logs
from krammar.logfiles.damage import DamageError
from krammar.logfiles.index import INT32_MAX, OffsetIndex, TimeIndex, TransactionIndex
from krammar.logfiles.names import DELETED, INDEX, LOG, SEGMENT_FILES, TIME_INDEX, TRANSACTION_INDEX
from krammar.logfiles.segment import Segment
from krammar.util.durable import write_from, write_fully
from krammar.util.regular_files import open_regular
from krammar.wire.batches import BatchHeader, RecordBatch, read_batches

# The size of a single write. For larger ones the kernel uses larger pages, which it must find
# first: in a virtual machine whose host allocates memory on first use, 1 MB then takes 3 ms,
# instead of 0.3 ms in pieces that fit into freed pages. Elsewhere, pieces cost almost nothing.
_PIECE = 64 * 1024
# The files that the segments of all brokers in this process keep open.
_OPEN: set[int] = set()


class LogSegment(Segment):
    """A segment that can be appended to. Appends update ``size``."""

    __slots__ = ("_max", "_torn", "created_ms", "first_timestamp", "interval", "unindexed")

    def __init__(
        self, folder: str, base_offset: int, interval: int, size: int = 0, suffix: str = ""
    ) -> None:
        super().__init__(folder, base_offset, size, suffix)
        self.created_ms = 0
        self.first_timestamp: int | None = None  # of the first batch; None until it is needed
        self.unindexed = 0  # bytes since the last index entry
        self.interval = interval
        self._torn = False
        self._max: tuple[int, int] | None = None

    @classmethod
    def create(cls, folder: str, base_offset: int, interval: int, suffix: str = "") -> LogSegment:
        """Create a segment with empty files. Raises OSError; no file is left then."""
        segment = cls(folder, base_offset, interval, 0, suffix)
        try:
            for ending in (LOG, INDEX, TIME_INDEX):
                write_from(segment.file(ending), 0, b"")
        except OSError:
            segment.remove()
            raise
        segment.reset_indexes()
        segment._transactions = TransactionIndex(segment.file(TRANSACTION_INDEX))
        return segment

    def _open(self) -> int:
        """Open the file. Raises OSError, also if connections would have too few files left."""
        if (most := most_logs()) is not None and len(_OPEN) >= most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), self.path)
        fd = open_regular(self.path, os.O_RDWR)
        _OPEN.add(fd)
        return fd

    def close(self) -> None:
        _OPEN.discard(self._fd)
        super().close()

    @property
    def files(self) -> list[str]:
        return [self.file(ending) for ending in SEGMENT_FILES]

    # Indexes.

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """The indexes, loaded at first use, and rebuilt if they are missing or corrupt."""
        if self._index is None:
            indexes = self._new_indexes()
            if self._can_read(*indexes):
                self._index = indexes
            else:
                self.rebuild()
        assert self._index is not None
        return self._index

    def _can_read(self, index: OffsetIndex, times: TimeIndex) -> bool:
        try:
            index.read()
            times.read()
        except (OSError, DamageError):
            return False
        if self.size and not times.keys:
            return False  # the time index of every complete segment has an entry
        # If the last entry does not point to a batch, the index belongs to another segment.
        return not index or self.is_at(self.base_offset + index.keys[-1], index.values[-1])

    def rebuild(self) -> None:
        """Rebuild both indexes from the batches."""
        self.reset_indexes()
        with contextlib.suppress(DamageError):  # later batches cannot be read either
            for header in self.scan():
                self.note(header)
        self.finish_time_index()

    def reset_indexes(self) -> None:
        """Start with empty indexes."""
        self._index = self._new_indexes()
        self._max = (-1, -1)
        self.unindexed = 0

    def note(self, header: BatchHeader) -> None:
        """Add a batch to the indexes. It must follow all batches that were noted before."""
        latest = self._max
        assert latest is not None
        if not header.position:
            self.first_timestamp = header.max_timestamp
        last = header.base_offset + header.last_offset_delta
        if header.max_timestamp > latest[0]:
            self._max = latest = (header.max_timestamp, last)
        if self.unindexed > self.interval:
            index, times = self.indexes
            index.add(last - self.base_offset, header.position)
            times.add_newer(latest[0], latest[1] - self.base_offset)
            self.unindexed = 0
        self.unindexed += header.size_in_bytes

    def resume(self, offset: int) -> tuple[int, int]:
        """Remove the index entries of batches from ``offset`` on.

        Returns the position and offset from which batches must be noted again.
        """
        index, times = self.indexes
        entry = index.find(min(offset - 1 - self.base_offset, INT32_MAX))
        header = self.header(index.values[entry]) if entry >= 0 else None
        if header is None or header.last_offset - self.base_offset != index.keys[entry]:
            self.reset_indexes()
            return 0, self.base_offset
        index.keep(entry + 1)
        times.keep(bisect_right(times.values, index.keys[entry]))
        self._max = None
        self._max = self.latest
        self.unindexed = header.size_in_bytes
        return header.position + header.size_in_bytes, header.next_offset

    def finish_time_index(self) -> None:
        """Append the latest timestamp to the time index, as required for a complete segment."""
        latest, offset = self.latest
        if latest >= 0:
            self.indexes[1].add_newer(latest, offset - self.base_offset)

    @property
    def latest(self) -> tuple[int, int]:
        """The latest timestamp and the last offset of its batch; (-1, -1) without records."""
        if self._max is None:
            times = self.indexes[1]
            last = times.values[-1] + self.base_offset if times else -1
            self._max = times.keys[-1] if times else -1, last
        return self._max

    def modified_ms(self) -> int:
        """Return when the file was last written, in milliseconds since 1970. Raises OSError."""
        return os.stat(self.path).st_mtime_ns // 1_000_000

    def newest_ms(self) -> int:
        """Return the latest timestamp; without timestamps, when the file was last written. Raises OSError."""
        latest = self.latest[0]
        return latest if latest >= 0 else self.modified_ms()

    def reset_transactions(self) -> None:
        """Remove all aborted transactions, in memory and on the disk, before they are rebuilt."""
        self._transactions = TransactionIndex(self.file(TRANSACTION_INDEX))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._transactions.path)

    def release(self) -> None:
        """Release the file descriptor, and indexes that can be read again."""
        if self._index is not None and all(index.is_written for index in self._index):
            self._index = None
        self.close()

    # Writing.

    def append(self, start: bytes, rest: memoryview) -> None:
        """Append ``start``, which is short, and ``rest``. Raises OSError; incomplete writes are undone."""
        fd = self.fd
        position = self.size
        if self._torn:
            os.ftruncate(fd, position)
            self._torn = False
        rest_at = position + len(start)
        at = -rest_at % _PIECE or _PIECE
        try:
            first = rest[:at]
            written = os.pwritev(fd, (start, first), position)  # usually everything
            if written < len(start) + len(first):
                write_fully(fd, b"".join((start, first))[written:], position + written)
            while at < len(rest):
                write_fully(fd, rest[at : at + _PIECE], rest_at + at)
                at += _PIECE
        except OSError:
            self.cut_back()
            raise
        self.size = rest_at + len(rest)

    def cut_back(self) -> None:
        """Truncate the file to ``size``; if that fails, before the next append."""
        try:
            os.ftruncate(self.fd, self.size)
        except OSError:
            self._torn = True

    def truncate(self, size: int) -> None:
        """Truncate the file. The caller must update the indexes. Raises OSError."""
        os.ftruncate(self.fd, size)
        self.size = size
        self.first_timestamp = None

    def write_indexes(self) -> None:
        """Write the index files, where necessary. Raises OSError."""
        for index in (*(self._index or ()), self._transactions):
            if index is not None and not index.is_written:
                index.write()

    def sync(self) -> None:
        """Force the batches to the disk. Raises OSError."""
        os.fdatasync(self.fd)

    def rename(self, suffix: str) -> None:
        """Change the suffix of all file names. Raises OSError."""
        before = self.suffix
        for file in self.files:
            with contextlib.suppress(FileNotFoundError):
                os.rename(file, file.removesuffix(before) + suffix)
        self.suffix = suffix
        for index in (*(self._index or ()), self._transactions):
            if index is not None:
                index.path = os.fspath(index.path).removesuffix(before) + suffix

    def mark_deleted(self) -> list[str]:
        """Rename the files to ``.deleted``. Returns their paths, for removal. Raises OSError."""
        self.close()
        self.rename(DELETED)
        return self.files

    def remove(self) -> None:
        """Remove all files that exist."""
        self.close()
        remove(self.files)

    # Reading.

    def read(self, position: int, size: int) -> bytes:
        # A local disk returns all bytes in one call.
        return os.pread(self.fd, size, position)

    def batch(self, header: BatchHeader) -> RecordBatch:
        """Decode a batch without checking its CRC, which the append or the recovery has checked."""
        return one_batch(self.read(header.position, header.size_in_bytes))

    def verify(self, position: int, next_offset: int) -> Iterator[BatchHeader]:
        """Yield headers like ``scan``, and raise DamageError for ``damage_in`` them too."""
        for header in self.scan(position):
            for damage in self.damage_in(header, next_offset):
                raise damage
            next_offset = header.next_offset
            yield header


def segment_of(segments: Sequence[LogSegment], offset: int) -> int:
    """Return the number of the last segment that begins at or before an offset, or else of the first one."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return max(bisect_right(segments, offset, key=attrgetter("base_offset")) - 1, 0)


def one_batch(data: bytes) -> RecordBatch:
    """Decode the first batch in ``data``. Raises DecodeError."""
    return next(read_batches(data, validate_crc=False))
