"""Keeps Python's garbage collector out of the way of servers."""

from __future__ import annotations

import gc
import time

# Collections of younger objects, of 7,000 new objects each, before a full one: it looks at 105,000 new objects, in 20 to 30 ms.
# With Python's 10, a request with 24,000 partitions causes two full collections, which take 50 ms of its 90 ms. With 25, a
# thousand connections to the tap had one of 65 ms in a turn of 88 ms; with 100, creating 20,000 partitions one of 145 ms.
_YOUNG_COLLECTIONS = 15
# Seconds between full collections that look at exempt objects, too: reference cycles among them live so long.
_PERIOD = 600.0

_last = 0.0


def exempt_all() -> None:
    """Exempt all current objects from garbage collection. A server's process calls this when it is ready.

    A full collection stops the event loop for 20 ms because of modules, classes and definitions, and for 0.2 µs per object
    that the server stores. So objects that survive one are exempt from the next ones, for ten minutes.
    """
    global _last
    _last = time.monotonic()
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
    elif time.monotonic() - _last > _PERIOD:
        _last = time.monotonic()
        gc.unfreeze()
