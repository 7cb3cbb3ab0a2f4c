"""The file of a segment: its batches, read header by header, and what is wrong with them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator

from krammar.logfiles.damage import Damage, DamageError, raise_damage
from krammar.logfiles.index import INT32_MAX
from krammar.logfiles.names import DELETED, LOG, stem
from krammar.util.closing import Closing
from krammar.util.regular_files import open_regular
from krammar.wire.batches import BatchHeader, RecordBatch, crc32c, read_batches
from krammar.wire.batches.header import (
    CRC_COVERS_FROM,
    FRAME_SIZE,
    HEADER_SIZE,
    MIN_SIZE,
    header_at,
    size_and_magic,
)

# Bytes per read while scanning small batches, so that not every batch needs a system call.
_SCAN_CHUNK = 64 * 1024
# Bytes per read while a CRC is computed.
_CRC_CHUNK = 1 << 20


class SegmentFile(Closing):
    """The file with the batches of a segment. It is opened on first use, so unused partitions have no open files.

    ``size``     the size in bytes when the segment was opened, or the given size: batches that are appended
                 later are ignored. Positions count from the begin of the file.
    ``damaged``  called with damage that a scan finds. If it does not raise, the scan continues after the
                 damage, or ends if the next batch cannot be found.
    """

    __slots__ = (
        "_fd",
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
