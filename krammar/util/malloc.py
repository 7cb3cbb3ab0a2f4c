"""Makes glibc's malloc reuse freed memory.

Large frames are allocated and freed all the time. With glibc's defaults, each allocation gets new pages from
the operating system.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Bytes. mallopt accepts no more for M_MMAP_THRESHOLD.
_LIMIT = 32 << 20


def keep_freed() -> Any:
    """Make the process keep up to 32 MiB of freed memory.

    Returns:
        The C library, for ``trim``. None, without an effect, if it is not glibc.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _LIMIT)
        libc.mallopt(_M_MMAP_THRESHOLD, _LIMIT)
        return libc
    return None


def trim(libc: Any) -> None:
    """Return freed memory to the operating system. Does nothing if ``libc`` is None."""
    if libc is not None:
        libc.malloc_trim(0)
