"""Shares each turn of the event loop among all connections, so that many clients cannot block it together.

A turn is one pass of the loop over everything that is ready. All requests that are handled at once have one budget
per turn. A connection whose requests do not fit waits for the next turn, in the order of arrival, and clients that
have not logged in wait for those that have. While connections wait, each of them handles one request at a time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

# The budget of a turn in seconds. A request is not interrupted, so the last one can exceed it.
TURN_SECONDS = 0.02


class Waiting(Protocol):
    """The interface of connections."""

    def go_on(self) -> None: ...


class Turns:
    """Decides whether a connection may handle a request in this turn.

    Attributes:
        until: the end of the budget of this turn, in ``time.monotonic()``; 0 while connections wait, which ``grant``
            must be asked for
    """

    def __init__(self) -> None:
        self.until = 0.0
        self._until = 0.0
        self._next: asyncio.Handle | None = None  # begins the next turn
        self._clients: dict[Waiting, None] = {}
        self._strangers: dict[Waiting, None] = {}
        self.postponed = 0  # requests so far that had to wait

    def grant(self, served: int, now: float) -> bool:
        """Return whether a connection may handle a request now, after ``served`` others in a row.

        Before ``until``, it may in any case.
        """
        if now >= self._until:
            # The next turn is only scheduled here: once per budget, not once per request.
            if self._next is not None:
                return False
            self._open(now)
        return not served or not (self._clients or self._strangers)

    def wait(self, connection: Waiting, *, known: bool) -> None:
        """Call ``go_on`` of a connection in one of the next turns. ``known`` clients have logged in."""
        (self._clients if known else self._strangers)[connection] = None
        self.postponed += 1
        self.until = 0.0
        if self._next is None:
            self._open(time.monotonic())

    def forget(self, connection: Waiting) -> None:
        """Remove a closed connection."""
        self._clients.pop(connection, None)
        self._strangers.pop(connection, None)

    def _open(self, now: float) -> None:
        self._until = now + TURN_SECONDS
        self.until = 0.0 if self._clients or self._strangers else self._until
        self._next = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._next = None
        if not (self._clients or self._strangers):
            return
        self._open(time.monotonic())
        if self._strangers:
            # At least one per turn, however many others wait.
            self._call_first(self._strangers)
        while time.monotonic() < self._until:
            queue = self._clients or self._strangers
            if not queue:
                return
            self._call_first(queue)

    def _call_first(self, queue: dict[Waiting, None]) -> None:
        connection = next(iter(queue))
        del queue[connection]
        connection.go_on()
