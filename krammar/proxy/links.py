"""The open connections of a proxy, and how they end."""

from __future__ import annotations

import asyncio

from krammar.proxy.clients import LOG
from krammar.proxy.interface import Connection
from krammar.proxy.link import Link

# Turns of the event loop in which asyncio ends connections, also one that it has just accepted.
_TURNS = 4


class Links:
    """The open connections, by number. After ``refuse``, those that are added are closed."""

    def __init__(self) -> None:
        self._open: dict[int, Link] = {}
        self._refuses = False
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def of(self, connection: Connection) -> Link | None:
        """Return the link of a connection; None after its end."""
        return self._open.get(connection.number)

    def add(self, link: Link) -> None:
        self._open[link.connection.number] = link
        if self._refuses:
            link.abort()

    def refuse(self) -> None:
        """Close the connections that are added from now on."""
        self._refuses = True

    def remove(self, link: Link) -> None:
        self._open.pop(link.connection.number, None)
        if not self._open:
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Wait for the responses to requests in flight, at most so many seconds, and close all connections."""
        for link in list(self._open.values()):
            link.drain()
        if self._open:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                LOG.warning(
                    "%d connections closed with requests in flight after %g s",
                    len(self._open),
                    seconds,
                )
        await self.abort()

    async def abort(self) -> None:
        """Close all connections at once."""
        for link in list(self._open.values()):
            link.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
