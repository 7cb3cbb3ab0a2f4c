"""The engine's loops over records."""

from __future__ import annotations

from typing import Any

from krammar.wire.engine_loading import ENGINE

_loops: Any = ENGINE


def loops() -> Any:
    """Return the module with the engine's loops, or None.

    They raise one of ``FAILURES`` for invalid input and for input that they do not support. The pure loops then
    process the same input again.
    """
    return _loops
