"""What the process of a server does about its memory when it is ready."""

from __future__ import annotations

from krammar.util.garbage import exempt_all
from krammar.util.malloc import RetainedMemory


def prepare_memory() -> None:
    """Exempt the server's own objects from garbage collection, and reuse freed memory while the event loop runs."""
    exempt_all()
    RetainedMemory().trim_when_quiet()
