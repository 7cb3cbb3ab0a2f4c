"""Opens the files of a folder that can come from a stranger: regular files only, and small ones up to a limit.

Opening a pipe waits for a program at its other end, opening a device can do anything, and a sparse file can be larger
than the memory without needing space on the disk. A symbolic link leads to any file of the machine, so files are
never written through one.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

StrPath = Path | str

# Windows does not have these constants.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# A pipe that replaced the file in the meantime does not block.
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
_FLAGS = NO_WAIT | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: StrPath, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open a regular file, as ``os.open`` does. Returns the file descriptor.

    Files that are opened for writing are not found through a symbolic link.

    Raises:
        OSError: the file cannot be opened, or is something else, such as a pipe; it was not opened then.
    """
    if flags & _WRITING:
        flags |= _NO_LINK
    try:
        found = os.stat(path, follow_symlinks=not flags & _WRITING)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    else:
        _check(found.st_mode, path)
    fd = os.open(path, flags | _FLAGS, mode)
    try:
        _check(os.fstat(fd).st_mode, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check(mode: int, path: StrPath) -> None:
    """Raise OSError unless the mode is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    name = os.fspath(path)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISLNK(mode):
        reason = "is a symbolic link, and files are not written through links"
        raise OSError(errno.ELOOP, reason, name)
    kind = next((text for check, text in _KINDS if check(mode)), "something else")
    raise OSError(errno.EINVAL, f"is {kind}, not a regular file", name)


def read_small(path: StrPath, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Raises:
        OSError: the file cannot be read, is something else, such as a pipe, or is larger.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        check_file_size(size, limit, path)
        parts = []
        left = limit + 1  # the file can grow meanwhile
        while left and (part := os.read(fd, min(left, size + 1))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(fd)
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    check_file_size(len(data), limit, path)
    return data


def check_file_size(size: int, limit: int, path: StrPath) -> None:
    """Raise OSError if a file is larger than ``limit`` bytes."""
    if size > limit:
        reason = f"has {size} bytes, and at most {limit} are read"
        raise OSError(errno.EINVAL, reason, os.fspath(path))
