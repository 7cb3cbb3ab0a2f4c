"""The relay: the two sides of a link, which move bytes between their sockets, with back-pressure, and take turns.

What arrives at one side goes to the other one, its peer. A scanner decides which of it. A side is not read while its peer
is slow, while a filter waits, or while this turn of the event loop has no time for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, cast

from krammar.proxy.errors import hook_error
from krammar.proxy.heads import Data, Pieces
from krammar.proxy.interface import Connection, Watch
from krammar.proxy.partial_frames import LargeFrames
from krammar.util.clock import monotonic
from krammar.util.forks import close_sockets_in_children
from krammar.util.turns import Budget, WorkerThread

# Bytes that one read can return. All connections share the memory, because bytes are passed on before the next read.
MEMORY = 256 * 1024
# The descriptors of sockets are not those of files on Windows.
_WRITES_SOCKETS = os.name == "posix"
# Bytes that one read can return while connections wait for their turn, because each that waits keeps them.
_LITTLE = 16 * 1024


@dataclass(slots=True)
class Resources:
    """What all connections of a proxy share.

    Attributes:
        large: limits the large frames that are collected; beyond it, they pass unread, or the largest is refused
        memory: for one read, of any connection
        view: of the memory
        budget: of the frames of all connections, for each turn of the event loop
        worker: decodes and encodes large frames
        loop_bytes: a longer frame is decoded and encoded by the worker, so that others are served
            meanwhile
        loop_seconds: a frame whose decoding has taken longer has many elements, and is encoded by
            the worker
    """

    loop_bytes: ClassVar[int] = 256 * 1024
    loop_seconds: ClassVar[float] = 0.01

    large: LargeFrames
    memory: bytearray = field(default_factory=lambda: bytearray(MEMORY))
    budget: Budget = field(default_factory=Budget)
    worker: WorkerThread = field(default_factory=WorkerThread)
    view: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.view = memoryview(self.memory)


class LinkState:
    """The state of a link that both of its directions read and change.

    Attributes:
        watches: see the bytes as they arrive
        offered: the broker's versions, as far as the client has asked for them
        locked: whether the client must log in first
        draining: whether no more requests begin, and the link ends after the responses
        silent: whether no more requests are passed on or answered
        closed: whether nothing that arrives is handled any more

    Args:
        fail: closes the link because of an error.
    """

    __slots__ = (
        "closed",
        "connection",
        "draining",
        "fail",
        "locked",
        "offered",
        "silent",
        "watches",
    )

    def __init__(self, connection: Connection, fail: Callable[[BaseException], None]) -> None:
        self.connection = connection
        self.fail = fail
        self.watches: list[Watch] = []
        self.offered: Mapping[int, tuple[int, int]] = {}
        self.locked = False
        self.draining = False
        self.silent = False
        self.closed = False

    def note_end(self, how: str) -> None:
        """Note how the connection ends, unless that is known."""
        self.connection.ended = self.connection.ended or how

    # -- for those who watch

    def arrived(self, is_request: bool, data: memoryview) -> None:
        """Show bytes that were passed on or collected."""
        if data:
            for each in self.watches:
                try:
                    each.arrived(is_request, data)
                except BaseException as error:
                    self.fail(hook_error(each, "arrived", error))

    def note(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        """Report what was done to a frame, if anything; empty the list."""
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


class SideEvents(Protocol):
    """What a link does when something happens to one of its sides."""

    def connected(self, side: Side) -> None: ...

    def resumed(self, side: Side) -> None:
        """Handle that a side has handled the bytes that had to wait for a turn."""

    def half_closed(self, side: Side) -> None:
        """Handle that no more bytes arrive at a side."""

    def disconnected(self, side: Side, error: Exception | None) -> None: ...


class Side(asyncio.BufferedProtocol):
    """One side of a link: the client, or the broker.

    Attributes:
        peer: the other side, to which frames go; it pauses this one while its receiver is slow
        scan: passes on or collects the bytes of the memory between two offsets, which end before the next read
        rest: bytes that wait for the rest of a head, or for a filter
        waits: whether it waits for its turn, with all bytes in ``rest``
        ended: whether no more bytes arrive
    """

    peer: Side
    scan: Callable[[int, int], None]

    def __init__(
        self, is_client: bool, state: LinkState, resources: Resources, events: SideEvents
    ) -> None:
        self.is_client = is_client
        self.transport: asyncio.Transport | None = None
        self.rest: Data = b""
        self.waits = False
        self.ended = False
        self._state = state
        self._events = events
        self._budget = resources.budget
        self._memory = resources.memory
        self._view = resources.view
        self._socket = -1  # its descriptor, if bytes can be written without the transport
        self._holds: set[str] = set()

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        close_sockets_in_children(self)
        if _WRITES_SOCKETS and transport.get_extra_info("ssl_object") is None:
            self._socket = transport.get_extra_info("socket").fileno()
        if self._holds and self._is_open:
            self.transport.pause_reading()
        self._events.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        begin = len(self.rest)
        if begin:
            self._view[:begin] = self.rest
        elif self._budget.until:
            return self._view
        return self._view[begin:] if self._budget.until else self._view[begin : begin + _LITTLE]

    def buffer_updated(self, nbytes: int) -> None:
        if self.rest:
            nbytes += len(self.rest)
            self.rest = b""
        state = self._state
        if state.closed:
            return
        # The first condition, and to scan without a detour, take 0.3 of 19 µs less for each frame.
        if monotonic() < self._budget.until or self._budget.has_time():
            if state.watches:
                self._arrived(nbytes)
            else:
                self.scan(0, nbytes)
        else:
            self.rest = copy_of(self._memory, 0, nbytes)
            self.wait_for_turn()

    def _arrived(self, nbytes: int) -> None:
        """Handle the first bytes of the memory of all connections."""
        self.scan(0, nbytes)
        if self._state.watches:
            self._state.arrived(self.is_client, self._view[: nbytes - len(self.rest)])

    def pause_writing(self) -> None:
        self.peer.hold("slow")
        if self.is_client:
            self.hold("responses")  # a client that does not read responses is not served further

    def resume_writing(self) -> None:
        self.peer.release("slow")
        if self.is_client:
            self.release("responses")

    def eof_received(self) -> bool:
        self._events.half_closed(self)
        # TLS has no half-closed connections.
        return self.transport is None or self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._events.disconnected(self, exc)

    # -- turns

    def wait_for_turn(self) -> None:
        """Read no more until a turn of the event loop has time for the bytes in ``rest``."""
        if not self.waits:
            self.waits = True
            self._budget.wait(self, known=not self._state.locked)
            self.hold("turn")

    def go_on(self) -> None:
        """Handle the bytes that had to wait for this turn."""
        self.waits = False
        self.handle_rest()
        if not self.waits:
            self.release("turn")
        self._events.resumed(self)

    def handle_rest(self) -> None:
        """Handle the bytes that have waited."""
        rest, self.rest = self.rest, b""
        if rest and not self._state.closed:
            self._view[: len(rest)] = rest
            self._arrived(len(rest))

    def take_rest(self) -> Data:
        """Return the beginning of a head that ends with the connection."""
        rest, self.rest = self.rest, b""
        self._state.arrived(self.is_client, memoryview(rest))
        return rest

    # -- back-pressure

    def hold(self, reason: str) -> None:
        """Stop reading until all reasons are released."""
        if not self._holds:
            self.pause_reading()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        if reason in self._holds:
            self._holds.remove(reason)
            if not self._holds and self._is_open and not self.ended:
                self.transport.resume_reading()  # type: ignore[union-attr]

    def pause_reading(self) -> None:
        """Stop reading for a reason that holds already: uvloop reads after connection_made, although it was paused there."""
        if self._is_open:
            self.transport.pause_reading()  # type: ignore[union-attr]

    @property
    def _is_open(self) -> bool:
        # TLS transports raise an error if reading is paused or resumed after their end.
        return self.transport is not None and not self.transport.is_closing()

    # -- writing

    def write(self, data: Data) -> None:
        """Write to this side. Bytes for a closed one are dropped."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def write_from(self, view: memoryview) -> None:
        """Write bytes of memory that changes after this call."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        # The transport would need a copy: 0.4 of 17 µs for 1 kB, and 1.5 of 24 µs for 100 kB.
        if self._socket >= 0 and not transport.get_write_buffer_size():
            try:
                written = os.write(self._socket, view)
            except OSError:  # the transport meets it, too
                written = 0
            if written == len(view):
                return
            view = view[written:]
        transport.write(bytes(view))

    def write_pieces(self, pieces: Pieces) -> None:
        """Write pieces of memory that does not change."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.writelines(pieces)

    def pass_all(self, start: int, size: int) -> None:
        """Pass on the bytes of the memory between two offsets unread: a ``scan`` for protocols without Kafka's headers.

        Filters, faults and the order of responses need these headers, and a response to each request. The tap still reads a
        copy of the bytes.
        """
        self.peer.write_from(self._view[start:size])

    def close(self) -> None:
        """Close the connection after what was written."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()


def copy_of(data: Data, begin: int, end: int) -> bytes:
    """Return bytes that do not change with the memory of all connections."""
    return bytes(memoryview(data)[begin:end])
