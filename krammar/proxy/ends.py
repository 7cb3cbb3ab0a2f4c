"""The end of a connection at the proxy."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from typing import Any, cast

from krammar.proxy.heads import Data, Pieces
from krammar.proxy.running import cancelled, hook_error
from krammar.proxy.shared import Shared
from krammar.proxy.work import Refused

# Bytes that one read can return. All connections share the memory, because bytes are passed on before the next read.
MEMORY = 256 * 1024
# Longer frames count for ``LargeFrames``.
SMALL_FRAME = 65_536
# A longer frame is decoded and encoded in a thread, so that others are served meanwhile. One whose decoding has taken more
# seconds than LONG has many elements: it is encoded in the thread.
ONE_TURN = 256 * 1024
LONG = 0.01
# The descriptors of sockets are not those of files on Windows.
_WRITES_SOCKETS = os.name == "posix"
# Bytes that one read can return while connections wait for their turn, because each that waits keeps them.
_LITTLE = 16 * 1024


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
        self._socket = -1  # its descriptor, if bytes can be written without the transport
        self._turns = shared.turns
        self._memory = shared.memory
        self._view = memoryview(shared.memory)
        self._rest: Data = b""  # bytes that wait for the rest of a head, or for a filter
        self._left = 0  # bytes of the current frame that pass unread
        self._collected: list[bytearray] = []  # the beginning of a frame that is read
        self._need = 0  # and the bytes that it lacks
        self._held = 0  # and those that it has
        self._undecided: int | None = None  # the id of a frame that waits for filters or ports
        self._parts: Pieces = []  # what the next write joins
        self._holds: set[str] = set()
        self._waits = False  # for its turn, with all bytes in ``_rest``
        self._task: asyncio.Task[None] | None = None

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        if _WRITES_SOCKETS and transport.get_extra_info("ssl_object") is None:
            self._socket = transport.get_extra_info("socket").fileno()
        if self._holds and self._is_open:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        begin = len(self._rest)
        if begin:
            self._view[:begin] = self._rest
        elif self._turns.until:
            return self._view
        return self._view[begin:] if self._turns.until else self._view[begin : begin + _LITTLE]

    def buffer_updated(self, nbytes: int) -> None:
        if self._rest:
            nbytes += len(self._rest)
            self._rest = b""
        shared = self.shared
        if shared.closed:
            return
        # The first condition, and to scan without a detour, take 0.3 of 19 µs less for each frame.
        if time.monotonic() < self._turns.until or shared.has_time():
            if self._need or shared.watches:
                self._arrived(nbytes)
            else:
                self._scan(0, nbytes)
        else:
            self._rest = copy_of(self._memory, 0, nbytes)
            self._wait_for_turn()

    def _arrived(self, nbytes: int) -> None:
        """Process the first bytes of the memory of all connections."""
        start = 0
        if not self._need or (start := self._add_to_collected(nbytes)):
            self._scan(start, nbytes)
        if self.shared.watches:
            self._show(self._view[: nbytes - len(self._rest)])

    def _wait_for_turn(self) -> None:
        """Read no more until a turn of the event loop has time for the bytes in ``_rest``."""
        if not self._waits:
            self._waits = True
            self.shared.turns.wait(self, known=not self.shared.locked)
            self.hold("turn")

    def go_on(self) -> None:
        """Process the bytes that had to wait for this turn."""
        self._waits = False
        self._process_rest()
        if not self._waits:
            self.release("turn")

    def _process_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if rest and not self.shared.closed:
            self._view[: len(rest)] = rest
            self._arrived(len(rest))

    def pause_writing(self) -> None:
        self.peer.hold("slow")

    def resume_writing(self) -> None:
        self.peer.release("slow")

    # -- frames

    def _scan(self, start: int, size: int) -> None:
        """Pass on or collect the bytes of the memory from ``start`` to ``size``, which end before the next call.

        The first ``_left`` of them belong to a frame that passes.
        """
        raise NotImplementedError

    def _take(self, frame: bytes) -> None:
        """Process the frame that was collected."""
        raise NotImplementedError

    def _finish_scan(self, start: int, position: int, size: int) -> None:
        """Pass on all bytes before ``position``, and remember the rest.

        Args:
            position: where the next frame begins, which can be after ``size``.
        """
        if position > size:
            self._left = position - size
            position = size
        elif position < size:
            self._rest = self._memory[position:size]
        self._pass(start, position)

    def _pass(self, start: int, position: int) -> None:
        """Pass on the bytes of the memory from ``start`` to ``position``, after the parts before them."""
        if self._parts:  # one write costs less than several
            self._parts.append(self._view[start:position])
            passed = b"".join(self._parts)
            self._parts.clear()
            if self._task is None:
                self.peer.write(passed)
            else:
                self._wait_with(passed)
        elif position > start:
            if self._task is None:
                self.peer.write_from(self._view[start:position])
            else:
                self._wait_with(bytes(self._view[start:position]))

    def _wait_with(self, passed: Data) -> None:
        """Pass on bytes later, because a filter waits."""
        raise NotImplementedError

    def _collect(self, position: int, size: int, end: int) -> bytes | None:
        """Return the frame from ``position`` to ``end``, or None if it begins to be collected.

        Args:
            size: the end of the bytes that have arrived.
        """
        if size >= end:
            return copy_of(self._memory, position, end)
        self._collected.append(bytearray(self._view[position:size]))
        self._held, self._need = size - position, end - size
        return None

    def _add_to_collected(self, size: int) -> int:
        """Add bytes to the frame that is collected. Returns the offset after it; 0 if it is not complete."""
        taken = min(self._need, size)
        if taken < _LITTLE:  # a list of single bytes would take forty times their memory
            self._collected[-1] += self._view[:taken]
        else:
            self._collected.append(bytearray(self._view[:taken]))
        self._held += taken
        self._need -= taken
        large = self.shared.large
        if not self._need:
            self._take(self._take_collected())
            return taken
        if self._held > SMALL_FRAME:
            self._count_large(self._held)
            if large.held > large.limit:
                if self.shared.chain.pass_unreadable:
                    self._give_up()
                else:
                    large.largest.refuse_large()
        return 0

    def _take_collected(self) -> bytes:
        """Return what was collected of a frame. The rest of it, if it has not arrived, passes unread."""
        frame = b"".join(self._collected)
        self._collected.clear()
        self._left, self._need = self._need, 0
        self._count_large(0)
        return frame

    def _count_large(self, size: int) -> None:
        """Count the bytes of a large frame that is collected."""
        large = self.shared.large
        large.held += size - large.by_end.pop(self, 0)
        if size:
            large.by_end[self] = size

    def refuse_large(self) -> None:
        """Close the connection, because large frames of all connections take too much memory."""
        large = self.shared.large
        reason = (
            f"the largest of those that wait for their end, which have {large.held} bytes together"
        )
        size = large.by_end[self] + self._need
        self._count_large(0)
        self.shared.fail(Refused(f"a frame of {size} bytes is {reason} ({large.limit} at most)"))

    def _give_up(self) -> None:
        """Pass on what was collected of a frame, and the rest of it unread."""
        raise NotImplementedError

    # -- for those who watch

    def _show(self, data: memoryview) -> None:
        """Show bytes that were passed on or collected."""
        if data:
            for each in self.shared.watches:
                try:
                    each.arrived(self.is_request, data)
                except BaseException as error:
                    self.shared.fail(hook_error(each, "arrived", error))

    def _take_rest(self) -> Data:
        """Return the beginning of a frame that ends with the connection, if it is passed on."""
        rest, self._rest = self._rest, b""
        self._show(memoryview(rest))
        if self._need and self.shared.chain.pass_unreadable:
            rest = self._take_collected()
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

    @property
    def _is_open(self) -> bool:
        # TLS transports raise an error if reading is paused or resumed after their end.
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_between_frames(self) -> bool:
        return not self._left and not self._need

    @property
    def is_busy(self) -> bool:
        """Whether a frame is incomplete, or in an async method of a filter."""
        return self._task is not None or self._waits or not self.is_between_frames

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Await something, in the task of this end."""
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Close the connection if its task has not finished its work, so that the client does not wait for ever."""
        if task.cancelled():
            self.shared.fail(cancelled())
        elif isinstance(error := task.exception(), Exception):  # others end the process
            self.shared.fail(error)

    def cancel(self) -> None:
        """Cancel what is awaited, after it has begun: coroutines that are never awaited cause warnings."""
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)


def copy_of(data: Data, begin: int, end: int) -> bytes:
    """Return bytes that do not change with the memory of all connections."""
    return bytes(memoryview(data)[begin:end])
