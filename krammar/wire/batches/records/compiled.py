"""The compiled loops for records, where a compiled package is installed."""

from __future__ import annotations

from typing import Any


def loops() -> Any:
    """Return the compiled loops, or None.

    They raise one of ``FAILURES`` for invalid input and for input that they do not support. The pure loops then
    process the same input again.
    """
    global _loops
    if _loops is _UNKNOWN:
        from krammar.wire.native import records

        _loops = records()
    return _loops


_UNKNOWN = object()
_loops: Any = _UNKNOWN
