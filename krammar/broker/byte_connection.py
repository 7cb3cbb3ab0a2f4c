"""The bytes of one connection: receives them, writes them, and bounds their memory.

While a request is handled, or while the client does not read its responses, at most one more piece is read from the
socket. So the memory per client is bounded: one incoming frame and one outgoing response. docs/broker.md lists the limits.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from krammar.broker.connections import RECEIVE_SIZE
from krammar.broker.session import Session
from krammar.wire.connection import RequestReceived, ServerConnection

if TYPE_CHECKING:
    from krammar.broker.connections import Connections
    from krammar.broker.timers import Timer, Timers

log = logging.getLogger("krammar.broker")

# Bytes of responses that a client has not read; above this, the broker handles no further request of it.
WRITE_HIGH_WATER = 64 * 1024
# Bytes that are encrypted at once, and that are written at once of larger responses than this.
TLS_PIECE = 256 * 1024
LARGE_RESPONSE = 16 << 20


class _Lost(asyncio.Transport):
    """The transport of connections that have ended.

    A TLS transport and its connection refer to each other, and would hold 40 kB until the next garbage collection.
    """

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        pass


LOST = _Lost()


class ByteConnection(asyncio.BufferedProtocol, ABC):
    """The transport's side of a connection, and the work that it waits for.

    Args:
        tls: whether the transport encrypts
        max_frame: the largest request of any connection, in bytes
    """

    transport: asyncio.Transport
    session: Session

    def __init__(
        self,
        wire: ServerConnection,
        connections: Connections,
        timers: Timers,
        *,
        tls: bool,
        max_frame: int,
    ) -> None:
        self.wire = wire
        self.connections = connections
        self.timers = timers
        self._tls = tls
        self._max_frame = max_frame
        self.task: asyncio.Future[Any] | None = None  # handles the current request
        self._waits = False  # for the next turn
        self.last_active = 0.0
        self._paused = False  # we do not read from the socket
        self._own_memory = False  # the next bytes go into the frame's own buffer
        self._ended = False  # the client has closed its side
        self._later: Timer | None = None  # continues the connection
        self._unread_before = 0  # the value of ``unread`` at the last note_reading
        self._rest = memoryview(b"")  # of a response, once the client's connection is full

    @property
    def busy(self) -> bool:
        """Whether a request is being handled."""
        return self.task is not None or self._waits or self._later is not None

    def go_on(self) -> None:
        """Handle the requests that had to wait for this turn."""
        self._waits = False
        self.pump()

    @abstractmethod
    def pump(self, first: Callable[[], object] | None = None) -> None:
        """Handle the received requests in order, until one has to wait. ``first`` finishes the last one."""

    # Work that takes a while.

    def wait_for(
        self, event: RequestReceived, work: Awaitable[Any], then: Callable[[Any], object]
    ) -> None:
        """Handle no other request until ``work`` for this one is done, and ``then`` with its result."""
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(partial(self._finish, event, then))

    def _finish(
        self, event: RequestReceived, then: Callable[[Any], object], task: asyncio.Future[Any]
    ) -> None:
        self.task = None
        self.connections.release(self.session)
        if task.cancelled():
            if not self.transport.is_closing():  # by a filter, and not by the end of the connection
                self._failed(event, asyncio.CancelledError())
            return
        error = task.exception()
        if error is not None:
            self._failed(event, error)
        elif not self.transport.is_closing():
            self.pump(partial(then, task.result()))

    @abstractmethod
    def _failed(self, event: RequestReceived, error: BaseException) -> None:
        """Handle an error of a request's work."""

    # Receiving.

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self.wire.get_buffer()
        self._own_memory = room is not None
        return self.connections.scratch if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        self.connections.received += nbytes
        if self._own_memory:
            self.wire.received(nbytes)
            self.connections.arrived(self, nbytes, self._max_frame)
        else:
            self.wire.receive_data(self.connections.scratch[:nbytes], lent=True)
        self.last_active = self.timers.loop.time()
        try:
            if self.busy or self in self.connections.blocked:
                self._pause()
            else:
                self.pump()
        finally:
            # Other connections receive into the shared buffer next.
            if not self.wire.give_back():
                self.connections.scratch = memoryview(bytearray(RECEIVE_SIZE))

    def eof_received(self) -> bool:
        # Requests that have arrived are still answered.
        self._ended = True
        self._hurry()
        # asyncio does not support half-closed TLS connections.
        return (self.busy or self in self.connections.blocked) and not self._tls

    def _hurry(self) -> None:
        if self.session.hurry is not None:
            self.session.hurry()

    def _pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    # Writing.

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not read."""
        return self.transport.get_write_buffer_size() + len(self._rest)

    def note_reading(self) -> None:
        """Record activity if the client has read something since the last call."""
        if self.unread < self._unread_before:
            self.last_active = self.timers.loop.time()
        self._unread_before = self.unread

    def pause_writing(self) -> None:
        self._unread_before = self.unread
        self.connections.blocked.add(self)

    def resume_writing(self) -> None:
        self.connections.blocked.discard(self)
        self._write_rest()
        if not self.busy and self not in self.connections.blocked:
            self.pump()

    def write(self, frame: bytes) -> None:
        """Send a response. A long one is written in pieces, as the client reads.

        TLS transports do not count what they have passed on to their socket, so ``unread`` would miss it. Other
        transports copy what the client does not read at once.
        """
        if len(frame) <= (TLS_PIECE if self._tls else LARGE_RESPONSE):
            self.transport.write(frame)
            return
        self._rest = memoryview(frame)
        self._write_rest()

    def _write_rest(self) -> None:
        while self._rest and self not in self.connections.blocked:
            piece, self._rest = self._rest[:TLS_PIECE], self._rest[TLS_PIECE:]
            self.transport.write(piece)

    def close_later(self, seconds: float, frame: bytes) -> None:
        """Close after a while, with a last response, which can be empty. Until then, nothing is handled."""
        self._later = self.timers.call_later(seconds, self._last_words, frame)

    def _last_words(self, frame: bytes) -> None:
        self._later = None
        if not self.transport.is_closing():
            if frame:
                self.transport.write(frame)
            self.close()

    # The end.

    def close(self) -> None:
        """Close after all responses have been sent."""
        if not self.transport.is_closing():  # closing twice breaks asyncio's TLS transports
            if self._rest:
                self.transport.write(self._rest)
                self._rest = memoryview(b"")
            self.transport.close()

    def abort(self) -> None:
        """Close immediately."""
        self.transport.abort()

    def cut_off(self, why: str, *, drain: bool = False) -> None:
        """Close with a log line, immediately or after all responses have been sent."""
        log.warning("%s: %s; connection closed", self.session.connection_id, why)
        (self.close if drain else self.abort)()
