"""Names and small text files of a log folder, as Kafka has them."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError, BrokerError
from krammar.wire.primitives import NULL_UUID

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_FILES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
# Behind the name of a partition's folder.
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"


class StorageError(BrokerError, ApiError):
    """A log folder cannot be used: another process holds it, or a file in it cannot be read or made.

    At the start it ends the broker; in answer to a request it is KAFKA_STORAGE_ERROR.
    """

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, ErrorCode.KAFKA_STORAGE_ERROR, message)

    def __str__(self) -> str:
        return self.message or ""


def stem(offset: int) -> str:
    """The name, without its ending, of the files of the segment that begins at ``offset``."""
    return f"{offset:020d}"


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file such that a reader, or a crash, finds the old content or the new. Raises OSError."""
    temporary = f"{path}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        try:
            write_fully(fd, data, 0)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_fully(fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``, however many calls it takes. Raises OSError."""
    view = memoryview(data)
    while view:
        n = os.pwrite(fd, view, position)
        view = view[n:]
        position += n


def create(path: Path | str) -> None:
    """An empty file."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))


def read_checkpoint(path: Path) -> list[list[str]]:
    """The words of each line of a checkpoint file; [] if there is none.

    The first line is the format's version, 0, the second the number of lines that follow. Raises
    ValueError if the file is anything else.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise ValueError("not text") from None
    if not lines or lines[0].strip() != "0":
        raise ValueError("not of version 0")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(lines) < 2 or int(lines[1]) != len(rows):
        raise ValueError("has not as many lines as it says")
    return rows


def write_checkpoint(path: Path, rows: Sequence[Sequence[object]], *, sync: bool = False) -> None:
    """Raises OSError."""
    lines = ["0", str(len(rows)), *(" ".join(map(str, row)) for row in rows), ""]
    write_atomically(path, "\n".join(lines).encode(), sync=sync)


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Offsets by topic and partition, of one of the checkpoint files of a log folder.

    Raises ValueError for anything else.
    """
    offsets = {}
    for row in read_checkpoint(path):
        if len(row) != 3:
            raise ValueError(f"not a topic, a partition and an offset: {' '.join(row)!r}")
        offsets[row[0], int(row[1])] = int(row[2])
    return offsets


def write_offsets(
    path: Path, offsets: Iterable[tuple[tuple[str, int], int]], *, sync: bool = False
) -> None:
    rows = [(topic, partition, offset) for (topic, partition), offset in sorted(offsets)]
    write_checkpoint(path, rows, sync=sync)


def encode_uuid(value: UUID) -> str:
    """A topic id as Kafka prints it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode()[:22]


def decode_uuid(text: str) -> UUID:
    """Raises ValueError."""
    return UUID(bytes=base64.b64decode(f"{text}==", altchars=b"-_", validate=True))


def read_topic_id(folder: Path) -> UUID:
    """Of ``partition.metadata``; the null uuid where there is no such file. Raises ValueError."""
    try:
        text = (folder / PARTITION_METADATA).read_text("utf-8")
    except FileNotFoundError:
        return NULL_UUID
    fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError(f"{PARTITION_METADATA}: not a version 0 with a topic_id")
    return decode_uuid(fields["topic_id"].strip())


def write_topic_id(folder: Path, topic_id: UUID) -> None:
    """Raises OSError."""
    text = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n"
    with open(folder / PARTITION_METADATA, "wb", buffering=0) as file:
        file.write(text.encode())


def sync(path: Path | str) -> None:
    """Make a file's content, or the names in a folder, survive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
