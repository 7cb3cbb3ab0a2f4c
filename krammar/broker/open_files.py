"""Shares the files that a process may open between connections and logs."""

from __future__ import annotations

import contextlib

# File descriptors that connections leave for logs, and logs for connections, or an eighth of the
# limit if that is less.
_RESERVE = 512


def open_files() -> int | None:
    """Return the maximum number of open files of this process; None if there is no limit."""
    with contextlib.suppress(ImportError, OSError):  # not a Unix
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft
    return None


def reserve(files: int) -> int:
    """Return how many of ``files`` connections leave for logs, and logs for connections."""
    return min(_RESERVE, files // 8)


def most_logs() -> int | None:
    """Return how many files logs may keep open; None if there is no limit.

    An eighth is for connections, and another one for files that are open for a moment.
    """
    files = open_files()
    return None if files is None else files - 2 * reserve(files)


def raise_open_files() -> None:
    """Let this process open as many files as it may: each partition with records keeps one open.

    Shells and service managers set a low soft limit, because old programs that use ``select`` need
    one.
    """
    with contextlib.suppress(
        ImportError, OSError, ValueError
    ):  # not a Unix, or refused by the system
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
