"""What the history of faults remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from krammar.faults.rules import Rule


@dataclass(slots=True, eq=False)
class Event:
    """A fault that fired.

    ``rule`` is its rule, ``action`` what was done. ``time`` is in seconds since 1970; ``frame`` has the
    bytes of the request as it came, without the length prefix, and ``request`` is the same decoded.
    ``response`` is the response for the client, made up or of the broker; None until it exists, and if there is none.
    """

    rule: Rule
    action: str
    time: float
    connection: int
    client_id: str | None
    api: str
    version: int
    correlation_id: int
    frame: bytes
    request: Any
    response: Any
