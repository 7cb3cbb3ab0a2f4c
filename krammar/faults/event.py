"""What the history of faults remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from krammar.faults.rules import Rule


@dataclass(slots=True, eq=False)
class Event:
    """A fault that fired.

    ``rule`` is its rule, ``action`` describes what happened. ``time`` is in seconds since 1970; ``frame`` has the
    bytes of the request as received, without the length prefix, and ``request`` is the decoded request.
    ``response`` is the response for the client, from the rule or the broker; None before it exists, or if none is sent.
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
