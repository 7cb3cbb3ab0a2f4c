"""The end of a connection at the proxy, and what both ends of a client's connection share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from krammar.proxy.chain import Chain
from krammar.proxy.heads import Data
from krammar.proxy.in_flight import Entry, Own
from krammar.proxy.interface import Connection, Watch
from krammar.proxy.rewritten import Rewritten
from krammar.proxy.work import Work

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics

# Bytes that one read can return. All connections share the memory, because bytes are passed on before the next read.
MEMORY = 256 * 1024
# Longer frames count for ``LargeFrames``.
SMALL_FRAME = 65_536
# A longer frame is decoded, changed and written in several turns of the event loop, so that others are served in between.
ONE_TURN = 256 * 1024


@dataclass(slots=True)
class LargeFrames:
    """The bytes of large frames of all connections that are collected: the limit and the sum."""

    limit: int
    held: int = 0


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
    ``large``      limits the large frames that are collected; beyond it, they pass unread. None for no limit
    """

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
        self.large: LargeFrames | None = None
        self.draining = False
        self.closed = False
        self.silent = False  # no more requests are passed on or answered

    def note(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        """Report what was done to a frame, if anything, to those who watch; empty the list."""
        if notes:
            for each in self.watches:
                each.noted(is_request, correlation_id, list(notes))
            notes.clear()

    def decided(self) -> None:
        """Report that a frame waits no longer for filters or ports."""
        for each in self.watches:
            each.decided()

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


class End(asyncio.BufferedProtocol):
    """One of both ends.

    ``peer``  the other end, to which frames go; it pauses this one while its receiver is slow
    """

    peer: End
    is_request = False  # whether its frames are requests

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.transport: asyncio.Transport | None = None
        self.ended = False
        self._memory = shared.memory
        self._view = memoryview(shared.memory)
        self._rest: Data = b""  # bytes that wait for the rest of a head, or for a filter
        self._left = 0  # bytes of the current frame that pass unread
        self._collected: bytearray | None = None  # the beginning of a frame that is read
        self._need = 0  # and the bytes that it lacks
        self._large = 0  # and those that count for ``LargeFrames``
        self._undecided: int | None = None  # the id of a frame that waits for filters or ports
        self._parts: list[Data] = []  # what the next write joins
        self._holds: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        if self._holds and self._is_open:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        rest = self._rest
        if rest:
            self._view[: len(rest)] = rest
            return self._view[len(rest) :]
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if self._rest:
            nbytes += len(self._rest)
            self._rest = b""
        start = 0
        if self._collected is None or (start := self._add_to_collected(nbytes)):
            self._scan(self._memory, start, nbytes)
        if self.shared.watches:
            self._show(self._view[: nbytes - len(self._rest)])

    def pause_writing(self) -> None:
        self.peer.hold("slow")

    def resume_writing(self) -> None:
        self.peer.release("slow")

    # -- frames

    def _scan(self, data: Data, start: int, size: int) -> None:
        """Pass on or collect the bytes from ``start`` to ``size``, which end before the next call.

        The first ``_left`` of them belong to a frame that passes.
        """
        raise NotImplementedError

    def _take(self, frame: bytes) -> None:
        """Process the frame that was collected."""
        raise NotImplementedError

    def _finish_scan(self, data: Data, start: int, position: int, size: int) -> None:
        """Pass on all bytes before ``position``, and remember the rest.

        Args:
            position: where the next frame begins, which can be after ``size``.
        """
        if position > size:
            self._left = position - size
            position = size
        elif position < size:
            self._rest = data[position:size]
        self._pass(data, start, position)

    def _pass(self, data: Data, start: int, position: int) -> None:
        if self._parts:  # one write costs less than several
            if position > start:
                self._parts.append(data[start:position])
            passed: Data = b"".join(self._parts)
            self._parts.clear()
        elif position > start:
            passed = data[start:position]
        else:
            return
        if self._task is None:
            self.peer.write(passed)
        else:
            self._wait_with(passed)

    def _wait_with(self, passed: Data) -> None:
        """Pass on bytes later, because a filter waits."""
        raise NotImplementedError

    def _collect(self, data: Data, position: int, size: int, end: int) -> bytes | None:
        """Return the frame from ``position`` to ``end``, or None if it begins to be collected.

        Args:
            size: the end of the bytes that have arrived.
        """
        if size >= end:
            return copy_of(data, position, end)
        self._collected = bytearray(data[position:size])
        self._need = end - size
        return None

    def _add_to_collected(self, size: int) -> int:
        """Add bytes to the frame that is collected. Returns the offset after it; 0 if it is not complete."""
        assert self._collected is not None
        taken = min(self._need, size)
        self._collected += self._view[:taken]
        self._need -= taken
        large = self.shared.large
        if not self._need:
            self._take(self._take_collected())
            return taken
        if large is not None and len(self._collected) > SMALL_FRAME:
            self.count_large(len(self._collected) - self._large)
            if large.held > large.limit:
                self._give_up()
        return 0

    def _take_collected(self) -> bytes:
        """Return what was collected of a frame. The rest of it, if it has not arrived, passes unread."""
        assert self._collected is not None
        frame = bytes(self._collected)
        self._collected = None
        self._left, self._need = self._need, 0
        self.count_large(-self._large)
        return frame

    def count_large(self, size: int) -> None:
        """Count bytes of a large frame that is collected."""
        if self.shared.large is not None:
            self._large += size
            self.shared.large.held += size

    def _give_up(self) -> None:
        """Pass on what was collected of a frame, and the rest of it unread."""
        raise NotImplementedError

    # -- for those who watch

    def _show(self, data: memoryview) -> None:
        """Show bytes that were passed on or collected."""
        if data:
            for each in self.shared.watches:
                each.arrived(self.is_request, data)

    def _take_rest(self) -> Data:
        """Return the beginning of a frame that ends with the connection, if it is passed on."""
        rest, self._rest = self._rest, b""
        self._show(memoryview(rest))
        if self._collected is not None and self.shared.chain.pass_unreadable:
            rest, self._collected = self._collected, None
        return rest

    def is_undecided(self, correlation_id: int) -> bool:
        """Whether a frame that was shown waits for filters or ports."""
        return self._undecided == correlation_id

    # -- for subclasses and the other end

    def hold(self, reason: str) -> None:
        """Stop reading until all reasons are released."""
        if not self._holds and self._is_open:
            self.transport.pause_reading()  # type: ignore[union-attr]
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        if reason in self._holds:
            self._holds.remove(reason)
            if not self._holds and self._is_open and not self.ended:
                self.transport.resume_reading()  # type: ignore[union-attr]

    def write(self, data: Data) -> None:
        """Write to this end. Bytes for a closed end are dropped."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    @property
    def _is_open(self) -> bool:
        # TLS transports raise an error if reading is paused or resumed after their end.
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_between_frames(self) -> bool:
        return not self._left and self._collected is None

    @property
    def is_busy(self) -> bool:
        """Whether a frame is incomplete, or in an async method of a filter."""
        return self._task is not None or not self.is_between_frames

    def cancel(self) -> None:
        """Cancel what is awaited, after it has begun: coroutines that are never awaited cause warnings."""
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)


def copy_of(data: Data, begin: int, end: int) -> bytes:
    """Return bytes that do not change with the memory of all connections."""
    return bytes(memoryview(data)[begin:end])
