"""The memory of a server's process: garbage collection away from requests, and reuse of freed memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import time

from krammar.util.clock import monotonic

# Garbage collection.

# Collections of younger objects, of 7,000 new objects each, before a full one: it looks at 105,000 new objects, in 20
# to 30 ms. With Python's 10, a request with 24,000 partitions causes two full collections, which take 50 ms of its 90
# ms. With 25, a thousand connections to the tap had one of 65 ms in a turn of 88 ms; with 100, creating 20,000
# partitions one
# of 145
# ms.
_YOUNG_COLLECTIONS = 15
# Seconds between full collections that look at exempt objects, too: reference cycles among them live so long.
_PERIOD = 600.0

_last = 0.0


def exempt_all() -> None:
    """Exempt all current objects from garbage collection. A server's process calls this when it is ready.

    A full collection stops the event loop for 20 ms because of modules, classes and definitions, and for 0.2 µs per
    object that the server stores. So objects that survive one are exempt from the next ones, for ten minutes.
    """
    global _last
    _last = monotonic()
    gc.set_threshold(*gc.get_threshold()[:2], _YOUNG_COLLECTIONS)
    # Collecting garbage of the start takes as long as the first full collection would.
    gc.freeze()
    if _around not in gc.callbacks:
        gc.callbacks.append(_around)


def _around(phase: str, info: dict[str, int]) -> None:
    """Exempt the survivors of a full collection, and include exempt objects once in a period."""
    global _last
    if info["generation"] < 2:
        return
    if phase == "stop":
        gc.freeze()
    elif monotonic() - _last > _PERIOD:
        _last = monotonic()
        gc.unfreeze()


# Freed memory.
#
# Large frames are allocated and freed all the time. With glibc's defaults, each allocation gets new pages from
# the operating system.

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Bytes. mallopt accepts no more for M_MMAP_THRESHOLD.
_LIMIT = 32 << 20
# A second in which the process has needed less processor time, in seconds, is quiet.
_QUIET = 0.05
# A struct itimerspec: the interval and the first time, each in seconds and nanoseconds.
_EACH_SECOND = (ctypes.c_long * 4)(1, 0, 1, 0)


class RetainedMemory:
    """Up to 32 MiB of freed memory that the process keeps. Without an effect if the C library is not glibc.

    The broker reads a frame of 1 MB in 50 µs instead of 900, and needs 0.5 ms to serve 1 MB to a consumer of four
    partitions instead of 1.9.
    """

    def __init__(self) -> None:
        self._libc: ctypes.CDLL | None = None
        self._seen = self._trimmed = time.process_time()
        with contextlib.suppress(AttributeError, OSError, TypeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_TRIM_THRESHOLD, _LIMIT)
            libc.mallopt(_M_MMAP_THRESHOLD, _LIMIT)
            self._libc = libc

    def trim(self) -> None:
        """Return freed memory to the operating system."""
        if self._libc is not None:
            self._libc.malloc_trim(0)

    def trim_when_quiet(self) -> None:
        """Look at the process once per second, in the running event loop, and trim in the first quiet second."""
        if self._libc is None:
            return
        # The kernel sets the next timer of an event loop each time that the process waits. A proxy between a client
        # and a broker on two processors would need 0.7 of 19 µs more for each frame.
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        timer = self._libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if timer < 0:
            return
        self._libc.timerfd_settime(timer, 0, _EACH_SECOND, None)
        asyncio.get_running_loop().add_reader(timer, self._look, timer)

    def _look(self, timer: int) -> None:
        os.read(timer, 8)
        now = time.process_time()
        if now - self._seen < _QUIET < now - self._trimmed:
            self.trim()
            self._trimmed = now
        self._seen = now


def prepare_memory() -> None:
    """Exempt the server's own objects from garbage collection, and reuse freed memory while the event loop runs."""
    exempt_all()
    RetainedMemory().trim_when_quiet()
