"""glibc's malloc, told to keep memory that was freed.

Frames of megabytes are allocated, filled and freed again; with glibc's defaults their pages come from the
system each time.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Bytes. The most that mallopt takes for the second.
_KEPT = 32 << 20


def keep_freed() -> Any:
    """Let up to 32 MiB that were freed stay with the process. Returns what ``trim`` takes; None with another
    C library, where nothing happens."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT)
        return libc
    return None


def trim(libc: Any) -> None:
    """Return to the system what is kept."""
    if libc is not None:
        libc.malloc_trim(0)
