"""The tap: a proxy that changes nothing but addresses and versions, and its filter, which reports each frame to observers.

The filter sees all frames: it cuts them out of the bytes of connections, and inspects them. The proxy passes bytes on before
they are seen here, so the tap adds little latency. Frames wait in one queue for all connections. It is worked off in turns of
the event loop. A connection is not read while too much of its own waits, so that one that sends a lot delays no other, or
while too much waits together.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import ModuleType
from typing import Any, NamedTuple

from krammar.faults import Faults
from krammar.proxy.addresses import CONNECT_TIMEOUT, Address
from krammar.proxy.interface import Connection, Filter, Relay, Watch
from krammar.proxy.link import Link
from krammar.proxy.listeners import ListenError
from krammar.proxy.partial_frames import SMALL_FRAME, LargeFrames
from krammar.proxy.ports import FixedPorts, fixed_ports
from krammar.proxy.server import Proxy, ProxyError
from krammar.tap.frame import Frame, Observer
from krammar.tap.inspector import Inspector
from krammar.util.clock import monotonic_ns, time_ns
from krammar.util.turns import Budget, in_thread
from krammar.wire.framing import PREFIX
from krammar.wire.package import Package, package_of

# The default of the largest frame that is decoded. Text can take four times the memory of its bytes.
MAX_DECODED = 16 << 20


class TapError(Exception):
    """The tap cannot run."""


class TapArgumentError(TapError):
    """An argument is invalid."""


class Forward(NamedTuple):
    """An address to listen on, and the broker to which its connections lead. Port 0 means any free port.

    Attributes:
        ports: the ports of brokers by node id, as ``FixedPorts`` describes; None for free ones
    """

    listen: Address
    upstream: Address
    ports: str | None = None


class Tap(Proxy):
    """The tap of one cluster.

    Args:
        protocol: a generated package.
        forwards: where to listen, and for which brokers.
        advertise: the tap's host in responses. Default: the host on which it listens, or, if that means
            all addresses, the address to which the client has connected.
        max_frame: larger frames are passed on without decoding, in bytes. So are frames of more than 64 kB
            while all large frames together take more than 64 MB, or twice ``max_frame``.
        stay: whether the tap continues when all brokers are gone.
        faults: rules that are applied to the frames that are passed on.
        clients: TLS of clients, as the settings of ``Proxy``.
        brokers: TLS to brokers, as the settings of ``Proxy``.

    Raises:
        ValueError: a setting is invalid, or names a file that cannot be read.
        TapError: the ports of brokers are invalid.

    Attributes:
        max_large_frames: the bytes of large frames of all connections, unless ``max_frame`` needs
            more
    """

    max_large_frames = 64 << 20

    def __init__(
        self,
        protocol: ModuleType,
        forwards: list[Forward],
        observers: list[Observer],
        *,
        advertise: str | None = None,
        max_frame: int = MAX_DECODED,
        stay: bool = False,
        faults: Faults | None = None,
        clients: Mapping[str, Any] | None = None,
        brokers: Mapping[str, Any] | None = None,
    ) -> None:
        names = ["", *(f"#{number}" for number in range(2, len(forwards) + 1))]
        fixed = _fixed_ports(dict(zip(names, forwards, strict=True)))
        large = LargeFrames(max(self.max_large_frames, 2 * max_frame))
        self._watcher = Watcher(package_of(protocol), observers, max_frame, large, self._fail)
        super().__init__(
            str(forwards[0].upstream),
            [self._watcher] if faults is None else [self._watcher, faults],
            listen=str(forwards[0].listen),
            advertise=advertise,
            protocol=protocol,
            max_frame=max_frame,
            clients=clients,
            brokers=brokers,
            broker_ports=forwards[0].ports,
            pass_unreadable=True,
        )
        first = self.listeners[""].first
        for name, forward in zip(names[1:], forwards[1:], strict=True):
            found = self._new_listeners("", forward.listen.host, fixed.get(name), first)
            self.listeners[name] = found
        self._resources.large = large
        self._forwards = forwards
        self._stay = stay
        self._finished: asyncio.Future[str] | None = None
        self._open = 0
        self._reached = False
        self._checks: set[asyncio.Task[None]] = set()

    async def run(self, started: Callable[[list[Forward]], None] | None = None) -> str:
        """Listen, and pass on frames until ``stop`` is called or the brokers are gone.

        Args:
            started: called when the tap listens, with the forwards and their actual ports.

        Returns:
            Why it has ended.

        Raises:
            TapError: the tap cannot listen. Errors of observers are raised unchanged.
        """
        self._finished = asyncio.get_running_loop().create_future()
        try:
            listening: list[Forward] = []
            for listeners, forward in zip(self.listeners.values(), self._forwards, strict=True):
                try:
                    if not listening:
                        await self.serve()
                    else:
                        await listeners.listen(forward.listen, forward.upstream)
                        await listeners.open_fixed()
                except (ListenError, ProxyError) as error:
                    raise TapError(str(error)) from error
                address = Address(forward.listen.host, listeners.first_port)
                listening.append(Forward(address, forward.upstream))
            if started is not None:
                started(listening)
            return await self._finished
        finally:
            for task in self._checks:
                task.cancel()
            await self.abort()
            await self._watcher.finish()

    def stop(self, reason: str = "stopped") -> None:
        """End ``run``. Call this in the event loop that runs it."""
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(reason)

    def _fail(self, error: BaseException) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(error)

    # -- what happens in the proxy

    def notice(self, text: str) -> None:
        self._watcher.report("notice", text)

    def log(self, level: int, text: str, bug: BaseException | None) -> None:
        if bug is not None:
            self._fail(bug)
        elif level >= logging.WARNING:
            self._watcher.report("notice", text)

    def opened(self, link: Link) -> None:
        super().opened(link)
        self._open += 1

    def lost(self, link: Link) -> None:
        super().lost(link)
        self._open -= 1
        self._reached = self._reached or link.is_connected
        if not link.is_connected or "broker" in link.connection.ended.partition(":")[0]:
            task = asyncio.ensure_future(self._check_gone())
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check_gone(self) -> None:
        """End the tap if no connection is open, and no broker of the forwards accepts connections."""
        if self._stay or not self._reached or self._open:
            return
        for forward in self._forwards:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    _, writer = await asyncio.open_connection(*forward.upstream)
            except (OSError, UnicodeError):
                continue
            writer.transport.abort()
            return
        if not self._open:
            gone = ", ".join(str(forward.upstream) for forward in self._forwards)
            verb = "does" if len(self._forwards) == 1 else "do"
            self.stop(f"stopped: {gone} {verb} not accept connections any more")


def _fixed_ports(forwards: Mapping[str, Forward]) -> dict[str, FixedPorts]:
    given = {name: forward.ports for name, forward in forwards.items() if forward.ports is not None}
    if not given:
        return {}
    try:
        return fixed_ports(given, {name: each.listen.port for name, each in forwards.items()}, None)
    except ValueError as error:
        raise TapArgumentError(f"--broker-ports: {error}") from None


# The filter.

# The bytes that captures contain of a frame that is not decoded.
HEAD = 64
_BY_PROXY = "by the proxy"
# Notes of a connection on frames that were not reported.
_MAX_NOTES = 1_000


class Watcher(Filter):
    """Reports what happens on connections to observers, in order.

    Args:
        max_frame: larger frames are not decoded, in bytes.
        large: the limit of the bytes of large frames.
        fail: receives an error of an observer, or a bug.

    Attributes:
        budget: of the frames of all connections, for each turn of the event loop
        max_queued_each: bytes of frames of a connection in the queue, above which it is not read
        max_queued: bytes of frames of all connections in the queue, above which none is read that
            has some there
    """

    max_queued_each = 256 << 10
    max_queued = 16 << 20

    def __init__(
        self,
        package: Package,
        observers: list[Observer],
        max_frame: int,
        large: LargeFrames,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.package = package
        self.max_frame = max_frame
        self.large = large
        self.budget = Budget()
        self._observers = observers
        self._fail = fail
        # Times never run backwards, even if the system's clock is changed.
        self._epoch = time_ns() - monotonic_ns()
        self._latest = 0
        self._queue: deque[tuple[Watched, Cut | str]] = deque()
        self._queued = 0  # bytes in it
        self._is_full = False  # since there were too many, until half of them are left
        self._paused: set[Watched] = set()
        self._task: asyncio.Task[None] | None = None

    def watch_connection(self, connection: Connection, relay: Relay) -> Watch:
        number = connection.number
        self.report(
            "opened", self.in_order(self.now()), number, connection.client, connection.upstream
        )
        return Watched(self, connection, relay)

    def now(self) -> int:
        """Return the time in nanoseconds since 1970."""
        return self._epoch + monotonic_ns()

    def in_order(self, time_ns: int) -> int:
        """Return a time for the next event, which is not before those of the events that were reported."""
        self._latest = max(self._latest, time_ns)
        return self._latest

    def report(self, event: str, *values: object) -> None:
        """Call a method of every observer. Errors end the tap."""
        for observer in self._observers:
            try:
                getattr(observer, event)(*values)
            except Exception as error:
                self._fail(error)

    def take(self, watched: Watched, what: Cut | str) -> None:
        """Inspect a frame, or report the end of a connection: at once, or after what waits."""
        size = len(what.data) if isinstance(what, Cut) else 0
        if self._task is None and size <= SMALL_FRAME and self.budget.has_time():
            self._handle(watched, what)
            return
        self._queue.append((watched, what))
        self._queued += size
        watched.queued += size
        if self._task is None:
            self._task = asyncio.ensure_future(self._work_off())
        self._is_full = self._is_full or self._queued > self.max_queued
        if (self._is_full or watched.queued > self.max_queued_each) and watched not in self._paused:
            self._paused.add(watched)
            watched.relay.pause(True)

    async def finish(self) -> None:
        """Wait until all frames are reported."""
        while self._task is not None:
            await self._task

    async def _work_off(self) -> None:
        while self._queue:
            if not self.budget.has_time():
                await self.budget.turn()
            watched, what = self._queue.popleft()
            if isinstance(what, Cut):
                self._queued -= len(what.data)
                watched.queued -= len(what.data)
                if len(what.data) > SMALL_FRAME:
                    await self._inspect_in_thread(watched, what)
            self._handle(watched, what)
            if self._is_full and self._queued <= self.max_queued // 2:
                self._is_full = False
                for each in list(self._paused):
                    self._resume(each)
            elif not self._is_full and watched in self._paused:
                self._resume(watched)
        self._task = None

    def _resume(self, watched: Watched) -> None:
        """Read a connection again, unless too much of it waits."""
        if watched.queued <= self.max_queued_each // 2:
            self._paused.remove(watched)
            watched.relay.pause(False)

    async def _inspect_in_thread(self, watched: Watched, cut: Cut) -> None:
        try:
            await in_thread(watched.inspect, cut)
        except Exception as error:  # a bug in krammar, which must not be hidden
            self._fail(error)

    def _handle(self, watched: Watched, what: Cut | str) -> None:
        try:
            if isinstance(what, str):
                watched.end(what)
            else:
                watched.show(what)
        except Exception as error:  # as above
            self._fail(error)


class Watched(Watch):
    """One connection, whose frames are inspected."""

    def __init__(self, watcher: Watcher, connection: Connection, relay: Relay) -> None:
        self.relay = relay
        self.queued = 0  # bytes of its frames in the queue
        self._watcher = watcher
        self._connection = connection
        self._inspector = Inspector(watcher.package, connection.number)
        self._cutters = {
            is_request: Cutter(is_request, watcher.max_frame, watcher.large)
            for is_request in (True, False)
        }
        self._notes: dict[tuple[bool, int | None], str] = {}
        # Frames that can get notes, and those after them, by direction.
        self._held: dict[bool, deque[Frame]] = {True: deque(), False: deque()}
        self._inspected: Frame | None = None  # by another thread

    def arrived(self, is_request: bool, data: memoryview) -> None:
        watcher = self._watcher
        for cut in self._cutters[is_request].cut(data, watcher.now()):
            watcher.take(self, cut)

    def noted(self, is_request: bool, correlation_id: int, notes: list[str]) -> None:
        key = is_request, correlation_id
        known = self._notes.pop(key, None)
        self._notes[key] = "; ".join(notes if known is None else (known, *notes))
        if len(self._notes) > _MAX_NOTES:
            del self._notes[next(iter(self._notes))]

    def decided(self) -> None:
        for held in self._held.values():
            while held and not self._is_undecided(held[0]):
                frame = held.popleft()
                now = self._watcher.now()  # in a capture, times never decrease
                if frame.latency_ns is not None:
                    frame.latency_ns += now - frame.time_ns
                frame.time_ns = now
                self._report(frame)

    def closed(self) -> None:
        for cutter in self._cutters.values():
            if (cut := cutter.end(self._watcher.now())) is not None:
                self._watcher.take(self, cut)
        ended = self._connection.ended
        if ended.startswith(_BY_PROXY):
            ended = "by the tap" + ended.removeprefix(_BY_PROXY)
        self._watcher.take(self, ended)

    def end(self, reason: str) -> None:
        """Report the end of the connection, after its frames."""
        for held in self._held.values():
            while held:
                self._report(held.popleft())
        time_ns = self._watcher.in_order(self._watcher.now())
        self._watcher.report("closed", time_ns, self._connection.number, reason)

    def inspect(self, cut: Cut) -> None:
        """Inspect a frame, before ``show``. Another thread can do this, if no other one is inspected meanwhile."""
        inspector, is_request = self._inspector, cut.is_request
        if cut.kind is Piece.RAW:
            self._inspected = inspector.raw(is_request, cut.data, cut.time_ns)
        elif cut.kind is Piece.UNREAD:
            self._inspected = inspector.oversized(is_request, cut.data, cut.size, cut.time_ns)
        elif is_request:
            self._inspected = inspector.request(cut.data, cut.time_ns)
        else:
            self._inspected = inspector.response(cut.data, cut.time_ns)

    def show(self, cut: Cut) -> None:
        """Report a frame, as soon as nothing more can be noted on it."""
        if self._inspected is None:
            self.inspect(cut)
        frame, self._inspected = self._inspected, None
        assert frame is not None
        self._watcher.large.held -= cut.held
        held = self._held[cut.is_request]
        if held or self._is_undecided(frame):
            held.append(frame)
        else:
            self._report(frame)

    def _is_undecided(self, frame: Frame) -> bool:
        number = frame.correlation_id
        return number is not None and self.relay.is_undecided(frame.is_request, number)

    def _report(self, frame: Frame) -> None:
        if self._notes:
            frame.note = self._notes.pop((frame.is_request, frame.correlation_id), "")
        frame.time_ns = self._watcher.in_order(frame.time_ns)
        self._watcher.report("frame", frame)


class Piece(Enum):
    """What was cut."""

    FRAME = auto()
    UNREAD = auto()  # a frame that is too large; ``data`` are its first bytes
    RAW = auto()  # bytes that are no frame, with their length prefix


@dataclass(slots=True, eq=False)
class Cut:
    """A piece of a stream.

    Attributes:
        time_ns: when it was complete, in nanoseconds since 1970
        data: its bytes without the length prefix
        size: the length of the frame
        held: the bytes that count as held until it was inspected
    """

    kind: Piece
    is_request: bool
    time_ns: int
    data: bytes
    size: int
    held: int = 0


class Cutter:
    """Cuts the bytes of one direction of a connection into frames.

    Frames over ``max_frame`` bytes are not collected. ``FrameReader`` of krammar.wire refuses such
    a frame and all after it, but these connections go on.
    """

    def __init__(self, is_request: bool, max_frame: int, large: LargeFrames) -> None:
        self._is_request = is_request
        self._max_frame = max_frame
        self._large = large
        self._begin = bytearray()  # of a frame, with its length prefix
        self._held = 0
        self._skipped = 0  # bytes of a frame that are not collected and have not arrived

    def cut(self, data: memoryview, now: int) -> Iterator[Cut]:
        """Yield what bytes complete; ``now`` is in nanoseconds since 1970."""
        position, end = 0, len(data)
        while position < end:
            if self._skipped:
                taken = min(self._skipped, end - position)
                self._skipped -= taken
                position += taken
                continue
            begin = self._begin
            if not begin and end - position >= PREFIX:
                size = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
                stop = position + PREFIX + size
                if 0 <= size <= self._max_frame and stop <= end:
                    yield self._cut(Piece.FRAME, now, bytes(data[position + PREFIX : stop]), size)
                    position = stop
                    continue
            taken = min(self._missing(), end - position)
            begin += data[position : position + taken]
            position += taken
            if len(begin) > SMALL_FRAME:
                self._held += taken
                self._large.held += taken
            found = self._complete(now)
            if found is not None:
                yield found

    def end(self, now: int) -> Cut | None:
        """Return the beginning of a frame that has not arrived as a whole."""
        if not self._begin:
            return None
        data = self._take()
        return self._cut(Piece.RAW, now, data, len(data))

    def _missing(self) -> int:
        """Return the bytes that a frame lacks, or its prefix, or its head if it is too large."""
        begin = self._begin
        if len(begin) < PREFIX:
            return PREFIX - len(begin)
        size = int.from_bytes(begin[:PREFIX], "big", signed=True)
        return PREFIX + (size if size <= self._max_frame else min(HEAD, size)) - len(begin)

    def _complete(self, now: int) -> Cut | None:
        """Return what was collected, if it is complete or too large."""
        begin = self._begin
        if len(begin) < PREFIX:
            return None
        size = int.from_bytes(begin[:PREFIX], "big", signed=True)
        if size < 0:  # nothing can be cut after it
            self._skipped = sys.maxsize
            return self._cut(Piece.RAW, now, self._take(), PREFIX)
        if self._large.held > self._large.limit and self._held:
            self._skipped = size + PREFIX - len(begin)
        elif self._missing():
            return None
        elif size <= self._max_frame:
            return self._cut(Piece.FRAME, now, self._take()[PREFIX:], size)
        else:
            self._skipped = size + PREFIX - len(begin)
        head = self._take()[PREFIX : PREFIX + HEAD]
        return self._cut(Piece.UNREAD, now, head, size)

    def _take(self) -> bytes:
        taken, self._begin = bytes(self._begin), bytearray()
        return taken

    def _cut(self, kind: Piece, now: int, data: bytes, size: int) -> Cut:
        held, self._held = self._held, 0
        if kind is Piece.UNREAD:
            self._large.held -= held
            held = 0
        return Cut(kind, self._is_request, now, data, size, held)
