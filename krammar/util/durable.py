"""Writes, renames and new folders that survive a power cut: the one place for them.

After a power cut, a file system may lose everything that was not forced to the disk. The content of a file and its
name are separate: ``fsync`` of a file stores its content, and ``fsync`` of the folder stores that the file was created,
renamed or deleted (fsync(2); Kafka's ``Utils.atomicMoveWithFallback`` and ``Utils.flushDir`` do the same).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from krammar.util.clock import perf_counter
from krammar.util.regular_files import NO_WAIT, StrPath, open_regular

# Some network file systems cannot force a folder to the disk.
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)
_PIECE = 64 * 1024
# More files than this are forced by threads: the journal of a file system stores what they wait for together.
_FEW = 16
_THREADS = 16


def sync(path: StrPath) -> None:
    """Force a file's content, or the names in a folder, to the disk. Raises OSError."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows opens no folders, and stores names by itself
    fd = os.open(path, os.O_RDONLY | NO_WAIT)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _UNSUPPORTED or not os.path.isdir(path):
            raise _named(error, path) from None
    finally:
        os.close(fd)


def sync_all(paths: Iterable[StrPath]) -> float:
    """Force files and folders to the disk. Returns the seconds that it took. Raises OSError.

    Files that do not exist are ignored: they are optional, or were deleted in the meantime.
    """
    begin = perf_counter()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sync(path)
    return perf_counter() - begin


def sync_together(paths: Iterable[StrPath]) -> dict[StrPath, float | OSError]:
    """Force many files and folders to the disk, several at a time.

    A path that occurs more than once is forced once. Files that do not exist are ignored, as by ``sync_all``.

    Returns:
        The seconds that each path took, or its error.
    """

    def force(path: StrPath) -> float | OSError:
        try:
            return sync_all([path])
        except OSError as error:
            return error

    unique = list(dict.fromkeys(paths))
    if len(unique) <= _FEW:
        return {path: force(path) for path in unique}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="krammar-sync") as threads:
        return dict(zip(unique, threads.map(force, unique), strict=True))


def write_fully(fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``, in as many calls as necessary. Raises OSError."""
    view = memoryview(data)
    while view:
        n = os.pwrite(fd, view, position)
        view = view[n:]
        position += n


def write_from(path: StrPath, position: int, data: bytes) -> None:
    """Replace the content of a regular file from ``position`` on, or create the file. Raises OSError."""
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.ftruncate(fd, position)
        write_fully(fd, data, position)
    finally:
        os.close(fd)


def write_again(fd: int, begin: int, end: int) -> None:
    """Write the bytes between two positions again, unchanged, so that the next fsync stores them. Raises OSError.

    After a failed fsync, the kernel shows bytes in its cache that it may never have written to the disk.
    """
    while begin < end:
        data = os.pread(fd, min(_PIECE, end - begin), begin)
        if not data:
            return
        write_fully(fd, data, begin)
        begin += len(data)


def write_atomically(
    path: StrPath, data: bytes, *, durable: bool = True, mode: int = 0o644
) -> None:
    """Replace a file atomically: readers, even after a crash, see the old or the new content.

    Args:
        durable: whether the new content is on the disk when the function returns; otherwise a power cut may restore
            the old file, or leave an empty one
        mode: the permissions of a new file

    Raises:
        OSError: the old file is unchanged, unless only the folder could not be forced to the disk.
    """
    path = os.fspath(path)
    temporary = f"{path}.tmp"
    try:
        fd = create_file(temporary, mode)
        try:
            write_fully(fd, data, 0)
            if durable:
                os.fsync(fd)
        except OSError as error:
            raise _named(error, temporary) from None
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync(_folder_of(path))


def create_file(path: StrPath, mode: int = 0o644) -> int:
    """Create a file, and open it for writing. Returns the file descriptor. Raises OSError.

    What a crash has left under this name is removed first. That can also be a link or a pipe of a stranger.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


def rename(source: StrPath, target: StrPath, *, durable: bool = True) -> None:
    """Rename a file or a folder within or between folders, and replace a file ``target``. Raises OSError.

    Args:
        durable: whether the new name is on the disk when the function returns
    """
    os.replace(source, target)
    if durable:
        folders = {_folder_of(target): None, _folder_of(source): None}
        sync_all(folders)


def unlink(path: StrPath, *, durable: bool = True) -> None:
    """Delete a file that can be missing. Raises OSError.

    Args:
        durable: whether the file stays deleted after a power cut
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    if durable:
        sync(_folder_of(path))


def make_folders(path: StrPath, *, durable: bool = True) -> None:
    """Create a folder and its missing parents. Raises OSError.

    Args:
        durable: whether the names of the new folders are on the disk when the function returns
    """
    missing = []
    current = os.path.abspath(path)
    while not os.path.isdir(current):
        missing.append(current)
        parent = os.path.dirname(current)
        if parent == current:
            break
        current = parent
    if missing:
        os.makedirs(path, exist_ok=True)
    if durable:
        for each in reversed(missing):
            sync(os.path.dirname(each))


def _folder_of(path: StrPath) -> str:
    return os.path.dirname(os.path.abspath(path))


def _named(error: OSError, path: StrPath) -> OSError:
    """Return an error of a file descriptor with the file's name."""
    return OSError(error.errno, error.strerror, os.fspath(path))
