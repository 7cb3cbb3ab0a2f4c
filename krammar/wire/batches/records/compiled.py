"""The engine's loops for records."""

from __future__ import annotations

from typing import Any

from krammar.wire.engine_loading import ENGINE


def loops() -> Any:
    """Return the engine's loops, or None.

    They raise one of ``FAILURES`` for invalid input and for input that they do not support. The pure loops then
    process the same input again.
    """
    return ENGINE if hasattr(ENGINE, "decode_records") else None
