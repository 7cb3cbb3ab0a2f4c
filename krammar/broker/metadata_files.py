"""Finds and reads the files of the cluster metadata log: snapshots and segments (KIP-595, KIP-630).

The name of a snapshot consists of its end offset and the epoch of its last record:
``00000000000000000042-0000000003.checkpoint``. A snapshot begins with a control batch with a header
and ends with one with a footer; without a footer it is incomplete. The segments contain the records
from the end offset on.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

from krammar.broker.errors import BrokerError
from krammar.logfiles.metadata_frame import decode_frame
from krammar.logfiles.names import (
    LOG,
    MAX_EPOCH,
    MAX_OFFSET,
    METADATA_SNAPSHOT,
    epoch_problem,
    offset_problem,
    segment_bases,
    stem,
)
from krammar.util.regular_files import check_file_size, open_regular
from krammar.wire.batches import (
    ControlRecord,
    ControlRecordType,
    RecordBatch,
    read_batches,
    read_headers,
)
from krammar.wire.batches.bounds import default_bounds
from krammar.wire.batches.header import MAGIC_AT, header_at
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec

_BOOTSTRAP = "bootstrap.checkpoint"
# A record, after its file and its offset.
Placed = tuple[Path, int, Codec]
# The sizes up to which files and batches are read, in bytes. A segment of Kafka has at most 2 GiB,
# and a batch of the metadata log 8 MiB.
LARGEST_FILE = (1 << 31) - 1
LARGEST_BATCH = 64 << 20
# The bytes of a file in the memory, besides one batch.
_PORTION = 16 << 20


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def segments_of(directory: Path) -> list[tuple[int, Path]]:
    """Return the base offsets of the segments in ascending order, with their paths."""
    return [(base, directory / (stem(base) + LOG)) for base in segment_bases(_names(directory))]


def snapshots_of(directory: Path) -> list[tuple[int, int, Path]]:
    """Return the end offsets and epochs of the snapshots in ascending order, with their paths."""
    found = filter(None, map(METADATA_SNAPSHOT.fullmatch, _names(directory)))
    snapshots = ((int(match[1]), int(match[2]), directory / match[0]) for match in found)
    return sorted(each for each in snapshots if each[0] <= MAX_OFFSET and each[1] <= MAX_EPOCH)


def snapshot_name(end_offset: int, epoch: int) -> str:
    """Return the name of the snapshot with this end offset, and the epoch of its last record."""
    return f"{end_offset:020}-{epoch:010}.checkpoint"


class _Content:
    """A file that is mapped into the memory: ``bytes`` is a view of all of it.

    A sparse file, which needs no space on the disk, then needs little memory: ``forget`` releases
    what was read.
    """

    def __init__(self, path: Path) -> None:
        """Map a regular file. Raises BrokerError."""
        try:
            fd = open_regular(path)
            try:
                size = os.fstat(fd).st_size
                check_file_size(size, LARGEST_FILE, path)
                self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ) if size else None
            finally:
                os.close(fd)
        except OSError as error:
            raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None
        self.bytes = memoryview(self._map if self._map is not None else b"")
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self.bytes)

    def forget(self, position: int) -> None:
        """Release memory up to about a position, which can be read again."""
        end = position // _PORTION * _PORTION
        if end > self._forgotten and hasattr(mmap, "MADV_DONTNEED") and self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED, self._forgotten, end - self._forgotten)
            self._forgotten = end


def _batches(path: Path, content: _Content) -> Iterator[RecordBatch]:
    """Yield the batches of a file one by one. Raises DecodeError, and BrokerError for impossible numbers."""
    bounds = default_bounds()
    data = content.bytes
    for header in read_headers(data):
        begin, size = header.position, header.size_in_bytes
        if size > LARGEST_BATCH:
            raise BrokerError(
                f"{path}: the batch at byte {begin} has {size} bytes, and at most {LARGEST_BATCH} are read"
            )
        for batch in read_batches(data[begin : begin + size], bounds=bounds):
            batch.position = begin
            epoch = max(batch.partition_leader_epoch, 0)  # -1 without a leader
            offsets = batch.base_offset, batch.next_offset
            problem = next(filter(None, map(offset_problem, offsets)), None) or epoch_problem(epoch)
            if problem is not None:
                raise BrokerError(
                    f"{path}: the batch at byte {begin} (offset {batch.base_offset}): {problem}"
                )
            content.forget(begin)
            yield batch


def snapshot_batches(path: Path) -> Iterator[RecordBatch] | None:
    """Read the batches of a snapshot; None if it does not exist or is incomplete. Raises BrokerError."""
    if not os.path.lexists(path):
        return None
    content = _Content(path)
    last = None
    end = 0
    with suppress(DecodeError):
        for last in _batches(path, content):
            end = last.position + last.size_in_bytes
        controls = last.control_records() if last is not None and last.is_control else []
        is_complete = bool(controls) and controls[-1].type == ControlRecordType.SNAPSHOT_FOOTER
        if is_complete and end == len(content):
            return _batches(path, content)
    return None


def segment_batches(
    path: Path, *, last: bool, warn: Callable[[str], None]
) -> Generator[RecordBatch, None, int]:
    """Yield the batches of a segment, and return the end of the last one in bytes.

    An incomplete batch at the end of the last segment, as a crash leaves it, is cut off, with a
    warning. Raises BrokerError for other damage.
    """
    content = _Content(path)
    end = 0
    try:
        for batch in _batches(path, content):
            yield batch
            end = batch.position + batch.size_in_bytes
        cause = "the last batch is incomplete"
    except DecodeError as error:
        cause = str(error)
    if end < len(content):
        if not last or _batch_after(path, content, end):
            raise BrokerError(
                f"{path}: the batch at byte {end} is corrupt ({cause}), and other batches follow; "
                "restore the file from a copy, or truncate it there and lose the rest"
            )
        warn(
            f"{path}: truncated at byte {end}: the last {len(content) - end} bytes are no complete "
            f"batch ({cause})"
        )
        fd = open_regular(path, os.O_WRONLY)
        try:
            os.ftruncate(fd, end)
        finally:
            os.close(fd)
    return end


def contents_of(
    path: Path, batch: RecordBatch
) -> Iterator[tuple[int, Codec | ControlRecord | int]]:
    """Yield the offset of each record, and the decoded record or the number of its unknown type.

    Raises BrokerError.
    """
    offset = batch.base_offset
    try:
        if batch.is_control:
            for control in batch.control_records():
                offset = control.offset
                yield offset, control
            return
        for record in batch:
            offset = record.offset
            yield offset, decode_frame(record.value or b"")
    except DecodeError as error:
        raise BrokerError(
            f"{path}: the record at offset {offset} (batch at byte {batch.position}) is corrupt: "
            f"{error}; restore the folder from a copy, or open it with the software that wrote it"
        ) from None


def _batch_after(path: Path, content: _Content, corrupt: int) -> bool:
    """Return whether a complete batch follows a corrupt one, which a crash while writing cannot cause."""
    view = content.bytes
    for begin, end in _portions(path, corrupt + 1 + MAGIC_AT, len(view)):
        for magic in re.finditer(b"\x02", view[begin:end]):
            start = begin - MAGIC_AT + magic.start()
            header = header_at(view, start, start)
            if header is not None and header.size_in_bytes <= min(len(view) - start, LARGEST_BATCH):
                with suppress(DecodeError):
                    for _ in read_batches(view[start : start + header.size_in_bytes]):
                        return True
        content.forget(begin)
    return False


def _portions(path: Path, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the begins and ends of portions of a file, without the holes of a sparse one."""
    fd = open_regular(path)
    try:
        while begin < end:
            stop = end
            if hasattr(os, "SEEK_DATA"):
                begin = os.lseek(fd, begin, os.SEEK_DATA)
                stop = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
            for at in range(begin, stop, _PORTION):
                yield at, min(at + _PORTION, stop)
            begin = stop
    except OSError as error:
        if error.errno != errno.ENXIO:  # only a hole is left
            raise
    finally:
        os.close(fd)


def bootstrap_records(directory: Path) -> list[Placed]:
    """Return the first records of a new log, as Kafka's format command has prepared them.

    They are in the snapshot at offset 0, or in ``bootstrap.checkpoint`` next to the folder. The
    result is empty if neither exists. Raises BrokerError.
    """
    for path in (directory / snapshot_name(0, 0), directory.parent / _BOOTSTRAP):
        batches = snapshot_batches(path)
        if batches is not None:
            contents = (each for batch in batches for each in contents_of(path, batch))
            return [(path, offset, each) for offset, each in contents if isinstance(each, Codec)]
    return []
