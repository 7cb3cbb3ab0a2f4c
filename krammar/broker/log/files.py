"""Writing, replacing and removing the files of a log folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError, BrokerError
from krammar.logfiles.names import LOCK
from krammar.util.durable import write_atomically
from krammar.util.regular_files import open_regular

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


class StorageError(BrokerError, ApiError):
    """A log folder cannot be used: it is locked, or a file cannot be read or created.

    At the start, the error ends the broker. In a response, it is KAFKA_STORAGE_ERROR.
    """

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, ErrorCode.KAFKA_STORAGE_ERROR, message)

    def __str__(self) -> str:
        return self.message or ""


def can_continue(error: OSError) -> bool:
    """Return whether a failed write has harmed nothing, so that it can be repeated: the disk or a limit is full."""
    return error.errno in _FULL


def no_descriptors(error: OSError) -> bool:
    """Return whether a file could not be opened because too many are open, so that nothing was lost.

    fsync(2) returns neither code, so a flush with this error can be repeated. A flush with ENOSPC
    cannot: the kernel may have dropped the data.
    """
    return error.errno in _TOO_MANY


def check_locks() -> None:
    """Raise StorageError on systems where folders cannot be locked."""
    if fcntl is None:
        raise StorageError(
            "the broker needs the file locks of Unix (Python's module fcntl), which this system does not have: on "
            "Windows, run Python in WSL"
        )


def lock(path: Path) -> int:
    """Lock a log folder against other brokers, krammar's and Kafka's.

    Returns a file descriptor; closing it releases the lock. Raises BlockingIOError if another
    process has the lock, and OSError if the file cannot be created.
    """
    fd = open_regular(path / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Kafka locks the file with this call.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, error.strerror) from None
    return fd


def write_checkpoint(path: Path, rows: Sequence[Sequence[object]], *, durable: bool) -> None:
    """Write a checkpoint file in Kafka's format. Raises OSError."""
    lines = ["0", str(len(rows)), *(" ".join(map(str, row)) for row in rows), ""]
    write_atomically(path, "\n".join(lines).encode(), durable=durable)


def remove(paths: Iterable[str]) -> None:
    """Remove files and folders, and ignore errors. A symbolic link is removed, and what it points to stays."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
