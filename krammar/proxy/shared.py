"""What both ends of a client's connection share."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from krammar.proxy.chain import Chain
from krammar.proxy.in_flight import Entry, Own
from krammar.proxy.interface import Connection, Watch
from krammar.proxy.rewritten import Rewritten
from krammar.proxy.running import hook_error
from krammar.proxy.work import Work
from krammar.util.turns import Turns
from krammar.util.worker import WorkerThread

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics


class Collecting(Protocol):
    """The interface of the ends that collect large frames."""

    def refuse_large(self) -> None: ...


@dataclass(slots=True)
class LargeFrames:
    """The bytes of large frames of all connections that are collected: the limit, the sum, and those of each end."""

    limit: int
    held: int = 0
    by_end: dict[Collecting, int] = field(default_factory=dict)

    @property
    def largest(self) -> Collecting:
        """The end that collects the largest frame."""
        return max(self.by_end, key=self.by_end.__getitem__)


class _Turn:
    """Waits for a turn of the event loop."""

    def __init__(self) -> None:
        self.begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def go_on(self) -> None:
        if not self.begins.done():
            self.begins.set_result(None)


class Works(Protocol):
    """What is done for requests, by api key and version as one number of 32 bits."""

    def get(self, api: int, default: Work, /) -> Work | None: ...


class Shared:
    """What both ends share.

    ``in_flight``  requests without a response, in their order
    ``outbox``     requests of filters that wait for the end of a client's frame, and their bytes
    ``answers``    the number of answers in ``in_flight``
    ``offered``    the broker's versions, as far as the client has asked for them
    ``rewritten``  responses that were rewritten for clients with the same view of the proxy
    ``works``      the work for each kind of request; before a login, most are refused
    ``metrics``    counts requests and responses; None without a metrics page
    ``watches``    see the bytes as they arrive
    ``large``      limits the large frames that are collected; beyond it, they pass unread, or the largest is refused
    ``turns``      shares each turn of the event loop among all connections
    ``worker``     decodes and encodes large frames
    ``locked``     whether the client must log in first
    """

    locked = False

    def __init__(
        self, chain: Chain, connection: Connection, memory: bytearray, max_frame: int
    ) -> None:
        self.chain = chain
        self.connection = connection
        self.memory = memory
        self.max_frame = max_frame
        self.in_flight: deque[Entry] = deque()
        self.outbox: list[tuple[Own, bytes]] = []
        self.answers = 0
        self.offered: Mapping[int, tuple[int, int]] = {}
        self.rewritten = Rewritten()
        self.works: Works = chain.works
        self.metrics: ProxyMetrics | None = None
        self.watches: list[Watch] = []
        self.large = LargeFrames(2 * max_frame)
        self.turns = Turns()
        self.worker = WorkerThread()
        self.draining = False
        self.closed = False
        self.silent = False  # no more requests are passed on or answered

    def has_time(self) -> bool:
        """Return whether this turn of the event loop has time for more frames."""
        now = time.monotonic()
        return now < self.turns.until or self.turns.grant(0, now)

    async def next_turn(self) -> None:
        """Wait for a turn that has time."""
        turn = _Turn()
        self.turns.wait(turn, known=not self.locked)
        await turn.begins

    def note(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        """Report what was done to a frame, if anything, to those who watch; empty the list."""
        if notes:
            for each in self.watches:
                try:
                    each.noted(is_request, correlation_id, list(notes))
                except BaseException as error:
                    self.fail(hook_error(each, "noted", error))
            notes.clear()

    def decided(self) -> None:
        """Report that a frame waits no longer for filters or ports."""
        for each in self.watches:
            try:
                each.decided()
            except BaseException as error:
                self.fail(hook_error(each, "decided", error))

    def end(self, how: str) -> None:
        """Note how the connection ends, unless that is known."""
        self.connection.ended = self.connection.ended or how

    def fail_own(self) -> None:
        """Let the requests of filters fail, because their responses cannot come any more."""
        for entry in (*self.in_flight, *(own for own, _ in self.outbox)):
            if isinstance(entry, Own) and not entry.future.done():
                entry.future.set_exception(ConnectionError("the broker has closed the connection"))

    def unknown(self, api: int) -> Work | None:
        """Return the work for a request that ``works`` does not have."""
        return self.chain.unknown(api)

    async def log_in(self) -> None:
        """Log in at the broker, while no requests of the client are passed on."""
        raise NotImplementedError

    def broker_lost(self, error: Exception | None) -> None:
        """Handle that the connection to the broker has ended."""
        raise NotImplementedError

    def name_node(self) -> None:
        """Set the node id of the broker in ``connection``, if it is known."""

    def made(self) -> None:
        """Handle that the client has connected."""
        raise NotImplementedError

    def lost(self, error: Exception | None) -> None:
        """Handle that the client's connection has ended."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Close both ends because of an error."""
        raise NotImplementedError

    def rewrite(self, api_key: int, response: Any) -> list[str] | Awaitable[list[str]]:
        """Replace addresses and versions in a response, in place; return what has changed, in words."""
        raise NotImplementedError
