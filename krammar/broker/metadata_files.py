"""Finds and reads the files of the cluster metadata log: snapshots and segments (KIP-595, KIP-630).

The name of a snapshot consists of its end offset and the epoch of its last record:
``00000000000000000042-0000000003.checkpoint``. A snapshot begins with a control batch with a header and ends with one with
a footer; without a footer it is incomplete. The segments contain the records from the end offset on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from krammar.broker.errors import BrokerError
from krammar.logfiles.metadata_frame import decode_frame
from krammar.logfiles.names import LOG, METADATA_SNAPSHOT, segment_bases, stem
from krammar.wire.batches import ControlRecord, ControlRecordType, RecordBatch, read_batches
from krammar.wire.batches.header import MAGIC_AT, header_at
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec

_BOOTSTRAP = "bootstrap.checkpoint"


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def segments_of(directory: Path) -> list[tuple[int, Path]]:
    """Return the base offsets of the segments in ascending order, with their paths."""
    return [(base, directory / (stem(base) + LOG)) for base in segment_bases(_names(directory))]


def snapshots_of(directory: Path) -> list[tuple[int, int, Path]]:
    """Return the end offsets and epochs of the snapshots in ascending order, with their paths."""
    found = filter(None, map(METADATA_SNAPSHOT.fullmatch, _names(directory)))
    return sorted((int(match[1]), int(match[2]), directory / match[0]) for match in found)


def snapshot_name(end_offset: int, epoch: int) -> str:
    """Return the name of the snapshot with this end offset, and the epoch of its last record."""
    return f"{end_offset:020}-{epoch:010}.checkpoint"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None


def snapshot_batches(path: Path) -> list[RecordBatch]:
    """Read the batches of a snapshot; none if it does not exist or is incomplete. Raises BrokerError."""
    if path.is_file():
        with suppress(DecodeError):
            batches = list(read_batches(_content(path), allow_partial=False))
            if batches and batches[-1].is_control:
                last = batches[-1].control_records()[-1]
                if last.type == ControlRecordType.SNAPSHOT_FOOTER:
                    return batches
    return []


def segment_batches(
    path: Path, *, last: bool, warn: Callable[[str], None]
) -> tuple[list[RecordBatch], int]:
    """Read the batches of a segment. Returns them and the end of the last one in bytes.

    An incomplete batch at the end of the last segment, as a crash leaves it, is cut off, with a warning. Raises
    BrokerError for other damage.
    """
    data = _content(path)
    batches = []
    end = 0
    try:
        for batch in read_batches(data):
            batches.append(batch)
            end = batch.position + batch.size_in_bytes
        cause = "the last batch is incomplete"
    except DecodeError as error:
        cause = str(error)
    if end < len(data):
        if not last or _batch_after(data, end):
            raise BrokerError(
                f"{path}: the batch at byte {end} is corrupt ({cause}), and other batches follow; "
                "restore the file from a copy, or truncate it there and lose the rest"
            )
        warn(
            f"{path}: truncated at byte {end}: the last {len(data) - end} bytes are no complete "
            f"batch ({cause})"
        )
        os.truncate(path, end)
    return batches, end


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


def _batch_after(data: bytes, corrupt: int) -> bool:
    """Return whether a complete batch follows a corrupt one, which a crash while writing cannot cause."""
    view = memoryview(data)
    for magic in re.finditer(b"\x02", view[corrupt + 1 + MAGIC_AT :]):
        start = corrupt + 1 + magic.start()
        header = header_at(data, start, start)
        if header is not None and header.size_in_bytes <= len(data) - start:
            with suppress(DecodeError):
                for _ in read_batches(view[start : start + header.size_in_bytes]):
                    return True
    return False


def bootstrap_records(directory: Path) -> list[Codec]:
    """Return the first records of a new log, as Kafka's format command has prepared them.

    They are in the snapshot at offset 0, or in ``bootstrap.checkpoint`` next to the folder. The result is empty
    if neither exists. Raises BrokerError.
    """
    for path in (directory / snapshot_name(0, 0), directory.parent / _BOOTSTRAP):
        batches = snapshot_batches(path)
        contents = (each for batch in batches for _, each in contents_of(path, batch))
        if batches:
            return [each for each in contents if isinstance(each, Codec)]
    return []
