"""One segment of a log: its file, read by batch headers, and the indexes beside it."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Self

from krammar.wire.errors import DecodeError
from krammar.wire.records import BatchHeader, Compression, read_headers

# As much as the largest header needs, that of format v2.
_HEADER_SIZE = 61
_SMALLEST = 26  # a message of format v0
_SIZE_AT = slice(8, 12)
_SIZE_END = 12
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
# A chunk of a file, to walk over the headers of small batches without a system call for each.
_WALK = 1 << 16


class BrokenLogError(DecodeError):
    """Bytes of a segment that are no batch, at ``offset`` of its file."""


class Segment:
    """A segment's file, opened to read. Raises OSError.

    ``size`` is in bytes, as it was when the segment was opened or as it is given: what an open topic
    gets afterwards is not seen. ``bytes_read`` is how many were read of the file. With ``tolerant``
    bytes that are no batch end the walk over headers as the end of the file does.
    """

    def __init__(
        self, folder: str, base: int, size: int | None = None, *, tolerant: bool = False
    ) -> None:
        self.folder = folder
        self.base = base
        self.tolerant = tolerant
        self.path = f"{folder}/{base:020d}.log"
        self.bytes_read = 0
        try:
            self._fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            # Retention and compaction rename a file before they remove it, a minute later.
            self._fd = os.open(self.path + ".deleted", os.O_RDONLY)
        self.size = os.fstat(self._fd).st_size if size is None else size

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, position: int, size: int) -> bytes:
        """``size`` bytes, or as many as there are."""
        size = min(size, self.size - position)
        parts = []
        while size > 0 and (part := os.pread(self._fd, size, position)):
            parts.append(part)
            size -= len(part)
            position += len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.bytes_read += len(data)
        return data

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
        """The headers of the batches that begin at ``position`` and before ``end``, with their
        positions in the file. A batch that is cut off at the end of the file ends it.

        Raises BrokenLogError for bytes that are no batch.
        """
        end = self.size if end is None else min(end, self.size)
        chunk = b""
        start = 0
        size = _WALK  # of the batch before
        while position < end:
            if position + _HEADER_SIZE > start + len(chunk):
                start = position
                chunk = self.read(start, _HEADER_SIZE if size > _WALK // 4 else _WALK)
            try:
                header = header_at(chunk, position - start, position)
            except BrokenLogError:
                if self.tolerant:
                    return
                raise
            if header is None or position + header.size_in_bytes > self.size:
                return
            yield header
            size = header.size_in_bytes
            position += size

    def offset_index(self) -> tuple[list[int], list[int]]:
        """Last offsets and positions of the batches that ``.index`` names; empty lists where it is
        missing or does not fit."""
        entries = [
            entry for entry in self._entries(".index", _OFFSET_ENTRY) if entry[1] < self.size
        ]
        offsets = [self.base + relative for relative, _ in entries]
        positions = [position for _, position in entries]
        if not _rises(offsets) or not _rises(positions):
            return [], []
        return offsets, positions

    def time_index(self) -> tuple[list[int], list[int]]:
        """Timestamps in milliseconds, and offsets up to which no record is later, that ``.timeindex``
        names; empty lists where it is missing or does not fit."""
        entries = self._entries(".timeindex", _TIME_ENTRY)
        times = [timestamp for timestamp, _ in entries]
        offsets = [self.base + relative for _, relative in entries]
        if not _rises(times) or any(a > b for a, b in pairwise(offsets)):
            return [], []
        return times, offsets

    def position_before(self, offset: int) -> int:
        """A position at or before that of the batch that holds ``offset``, as the index gives it."""
        offsets, positions = self.offset_index()
        found = bisect_right(offsets, offset) - 1
        return (
            positions[found] if found >= 0 and self.is_at(offsets[found], positions[found]) else 0
        )

    def position_behind(self, offset: int) -> int:
        """A position at or behind the end of the batch that holds ``offset``, as the index gives it."""
        offsets, positions = self.offset_index()
        found = bisect_left(offsets, offset) + 1
        if found < len(offsets) and self.is_at(offsets[found], positions[found]):
            return positions[found]
        return self.size

    def is_at(self, last_offset: int, position: int) -> bool:
        """Whether the batch that ends with ``last_offset`` begins at ``position``, as an index says."""
        try:
            header = header_at(self.read(position, _HEADER_SIZE), 0, position)
        except BrokenLogError:
            return False
        return (
            header is not None
            and header.last_offset == last_offset
            and position + header.size_in_bytes <= self.size
        )

    def position_of_time(self, timestamp: int) -> int:
        """A position at or before that of the first record that is not before ``timestamp``."""
        times, offsets = self.time_index()
        found = bisect_right(times, timestamp - 1) - 1
        return self.position_before(offsets[found]) if found >= 0 else 0

    def latest_timestamp(self, *, is_newest: bool) -> int:
        """No record is later, in milliseconds. Raises BrokenLogError.

        The time index of a segment that is no longer written ends with it; that of the newest may lag
        behind, so that the headers after its last entry are looked at.
        """
        times, offsets = self.time_index()
        if times and not is_newest:
            return times[-1]
        latest = times[-1] if times else -1
        begin = self.position_before(offsets[-1]) if times else 0
        return max((header.max_timestamp for header in self.headers(begin)), default=latest)

    def end_offset(self) -> int:
        """The offset behind the last whole batch; the segment's first if there is none. Raises
        BrokenLogError."""
        offsets, _ = self.offset_index()
        end = self.base
        for header in self.headers(self.position_before(offsets[-1]) if offsets else 0):
            end = header.next_offset
        return end

    def _entries(self, ending: str, entry: Struct) -> list[tuple[int, int]]:
        path = self.path.removesuffix(".log") + ending
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return []
        # A broker allocates the file in full and cuts it when it rolls the segment: zeros are room.
        used = len(data.rstrip(b"\0"))
        used += -used % entry.size
        if used > len(data):
            return []
        return list(entry.iter_unpack(data[:used]))


def header_at(data: bytes, at: int, position: int) -> BatchHeader | None:
    """The header of the batch at ``at`` of ``data``; ``position`` is that in the file.

    None where ``data`` ends in it, and where nothing but zeros is left, as a file that was allocated
    in advance has it. Raises BrokenLogError.
    """
    view = data[at : at + _HEADER_SIZE]
    if len(view) < _SMALLEST or not any(view):
        return None
    size = int.from_bytes(view[_SIZE_AT], "big", signed=True) + _SIZE_END
    magic = view[16]
    if magic > 2 or size < (_SMALLEST, _SMALLEST + 8, _HEADER_SIZE)[magic]:
        raise BrokenLogError(
            f"no batch at byte {position}: magic {magic}, {size} bytes", offset=position
        )
    if len(view) < min(size, _HEADER_SIZE):
        return None
    # The reader of headers wants batches whole, but only looks at the header.
    length = _HEADER_SIZE - _SIZE_END
    padded = view[:8] + length.to_bytes(4, "big") + view[12:] + bytes(_HEADER_SIZE - len(view))
    header = next(read_headers(padded))
    header.batch_length = size - _SIZE_END
    header.position = position
    return header


def offset_bounds(header: BatchHeader) -> tuple[int | None, int]:
    """The first and the last offset that a batch can have; None for a first that it does not say, as
    a compressed message set does not."""
    if header.magic < 2 and header.compression is not Compression.NONE:
        return None, header.base_offset
    return header.base_offset, header.last_offset


def _rises(numbers: list[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))
