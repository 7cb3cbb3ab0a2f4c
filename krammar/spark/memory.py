"""Lets a task reuse the memory that it has freed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from krammar.util.server_memory import RetainedMemory


@contextlib.contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Let glibc hold up to 32 MiB of freed memory, and return it to the system at the end.

    Reading 100 MB of records of 1 kB takes 0.16 s of processor time instead of 0.24 s.
    """
    memory = RetainedMemory()
    try:
        yield
    finally:
        memory.trim()
