"""The proxy: relays frames between clients and brokers, and reports each frame to observers.

Every connection has two loops, one per direction. A loop reads a complete frame, inspects it, and passes it on before it
reads the next one. It waits while the receiver is slow. Thus a connection holds one frame per direction, and a slow
receiver slows its sender.

Each broker that a response names gets its own listening port, because clients choose a broker by its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from krammar.faults import Faults
from krammar.proxy.addresses import (
    CONNECT_TIMEOUT,
    MAX_LISTENERS,
    Address,
    ListenError,
    Listeners,
    advertised_host,
    describe,
)
from krammar.proxy.brokers import Brokers
from krammar.proxy.clients import Clients
from krammar.proxy.rewrite import endpoints, limit_versions, may_change, node_id
from krammar.tap.faulty import DROPPED, Dropped, Faulty
from krammar.tap.inspector import Frame, Inspector, encode
from krammar.tap.intake import HEAD, MAX_LARGE_FRAMES, SMALL_FRAME, Intake, LargeFrames
from krammar.tap.observer import Observer
from krammar.wire.connection import read_response
from krammar.wire.errors import EncodeError
from krammar.wire.framing import LARGEST_FRAME, PREFIX, FrameError, frame_size
from krammar.wire.negotiation import API_VERSIONS
from krammar.wire.package import package_of

# The budget in seconds of a turn of the event loop for the frames of all connections.
TURN_SECONDS = 0.02
# The default of the largest frame that is decoded. Text can take four times the memory of its bytes.
MAX_DECODED = 16 << 20
# The nodes of a response that are replaced without a pause.
_NODES = 1_000


class TapError(Exception):
    """The proxy cannot run."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where to listen, and the broker to connect to. Port 0 means any free port."""

    listen: Address
    upstream: Address


@dataclass(slots=True, eq=False)
class _Connection:
    number: int
    upstream: Address
    bind_host: str
    inspector: Inspector
    client_reader: asyncio.StreamReader
    client_writer: asyncio.StreamWriter
    upstream_reader: asyncio.StreamReader
    upstream_writer: asyncio.StreamWriter
    faulty: Faulty | None = None


class Tap:
    """The proxy for one cluster.

    Args:
        protocol: a generated package.
        routes: where to listen, and for which brokers.
        advertise: the proxy's host in responses. Default: the host on which it listens, or, if that means
            all addresses, the address to which the client has connected.
        max_frame: larger frames are passed on without decoding, in bytes. So are frames of more than 64 kB
            while all large frames together take more than 64 MB, or twice ``max_frame``.
        stay: whether the proxy continues when all brokers are gone.
        faults: rules that are applied to the frames that are passed on.
        clients: TLS of clients.
        brokers: TLS to brokers.
    """

    def __init__(
        self,
        protocol: ModuleType,
        routes: list[Route],
        observers: list[Observer],
        *,
        advertise: str | None = None,
        max_frame: int = MAX_DECODED,
        stay: bool = False,
        faults: Faults | None = None,
        clients: Clients | None = None,
        brokers: Brokers | None = None,
    ) -> None:
        self._clients = clients or Clients({})
        self._brokers = brokers or Brokers({})
        self._faults = faults
        self._nodes: dict[Address, int] = {}
        self._package = package_of(protocol)
        self._routes = routes
        self._observers = observers
        self._advertise = advertise
        self._max_frame = max_frame
        self._large = LargeFrames(max(MAX_LARGE_FRAMES, 2 * max_frame))
        self._stay = stay
        self._listeners = Listeners(self._serve_port, self._notice, lambda: MAX_LISTENERS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished: asyncio.Future[str] | None = None
        self._numbers = 0
        self._open = 0
        self._reached = False
        self._turns = asyncio.Lock()
        self._turn_ends = 0.0  # in ``time.monotonic()``; 0 before the first frame of a turn
        # Times never run backwards, even if the system's clock is changed.
        self._epoch = time.time_ns() - time.monotonic_ns()

    async def run(self, started: Callable[[list[Route]], None] | None = None) -> str:
        """Listen, and pass on frames until ``stop`` is called or the brokers are gone.

        Args:
            started: called when the proxy listens, with the routes and their actual ports.

        Returns:
            Why it has ended.

        Raises:
            TapError: the proxy cannot listen. Errors of observers are raised unchanged.
        """
        self._finished = asyncio.get_running_loop().create_future()
        try:
            listening = []
            for route in self._routes:
                try:
                    port = await self._listeners.listen(route.listen, route.upstream)
                except ListenError as error:
                    raise TapError(str(error)) from error
                listening.append(Route(Address(route.listen.host, port), route.upstream))
            if started is not None:
                started(listening)
            return await self._finished
        finally:
            self._listeners.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self, reason: str = "stopped") -> None:
        """End ``run``. Call this in the event loop that runs it."""
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(reason)

    def _fail(self, error: BaseException) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(error)

    def _now(self) -> int:
        return self._epoch + time.monotonic_ns()

    async def _serve_port(
        self, listen: Address, bind_host: str, upstream: Address
    ) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accept(reader, writer, bind_host, upstream)

        return await asyncio.start_server(accept, *listen, ssl=self._clients.context)

    # -- connections

    async def _accept(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        bind_host: str,
        upstream: Address,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer, bind_host, upstream)
        except asyncio.CancelledError:
            pass  # the proxy ends; asyncio would log the exception as an error
        except Exception as error:  # a bug in krammar, which must not be hidden in a log
            self._fail(error)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        bind_host: str,
        upstream: Address,
    ) -> None:
        client = _address(writer.get_extra_info("peername"))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                upstream_reader, upstream_writer = await asyncio.open_connection(
                    *upstream, ssl=self._brokers.context
                )
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            self._notice(f"cannot reach {upstream} for {client}: {self._brokers.why(error)}")
            await self._check_gone()
            return
        self._reached = True
        self._numbers += 1
        self._open += 1
        connection = _Connection(
            self._numbers,
            upstream,
            bind_host,
            Inspector(self._package, self._numbers),
            reader,
            writer,
            upstream_reader,
            upstream_writer,
        )
        if self._faults is not None:
            connection.faulty = Faulty(
                self._faults,
                connection.number,
                lambda: self._nodes.get(upstream),
                writer,
                upstream_writer,
            )
        self._report("opened", self._now(), connection.number, client, str(upstream))
        reason, lost = "by the tap", False
        try:
            reason, lost = await self._relay_both(connection)
        finally:
            if connection.faulty is not None:
                connection.faulty.close()
            upstream_writer.transport.abort()
            self._open -= 1
            self._report("closed", self._now(), connection.number, reason)
        if lost:
            await self._check_gone()

    async def _relay_both(self, connection: _Connection) -> tuple[str, bool]:
        """Relay until both directions have ended; return the reason, and whether the broker caused it."""
        requests = asyncio.create_task(self._relay_requests(connection))
        responses = asyncio.create_task(self._relay_responses(connection))
        try:
            await asyncio.wait((requests, responses), return_when=asyncio.FIRST_COMPLETED)
            if not responses.done():
                # The client may have closed only its side, and may still wait for responses.
                failure = await requests or await responses
                return failure or "by the client", failure.startswith("broker")
            failure = await responses
            return failure or "by the broker", not failure.startswith("client")
        finally:
            for task in (requests, responses):
                task.cancel()
            await asyncio.gather(requests, responses, return_exceptions=True)

    async def _relay_requests(self, connection: _Connection) -> str:
        failure = await self._relay(
            connection, True, connection.client_reader, connection.upstream_writer
        )
        if not failure:
            # If the broker has closed too, the other direction reports it.
            with contextlib.suppress(OSError):
                if connection.upstream_writer.can_write_eof():
                    connection.upstream_writer.write_eof()
                else:  # TLS has no half-closed connections
                    connection.upstream_writer.close()
        return failure

    async def _relay_responses(self, connection: _Connection) -> str:
        failure = await self._relay(
            connection, False, connection.upstream_reader, connection.client_writer
        )
        if not failure:
            await _flush(connection.client_writer)
        return failure

    async def _relay(
        self,
        connection: _Connection,
        is_request: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> str:
        """Pass on frames until the sender has closed its side; return "", or what has failed."""
        sender, receiver = ("client", "broker") if is_request else ("broker", "client")
        got = b""
        intake = Intake(self._large, self._max_frame)
        try:
            while True:
                got = b""
                got = prefix = await reader.readexactly(PREFIX)
                try:
                    size = frame_size(prefix, LARGEST_FRAME)
                except FrameError:  # its length is negative
                    self._observe(connection.inspector.raw(is_request, prefix, self._now()))
                    failed = await _write(writer, prefix)
                    if failed is None:
                        failed = await _copy(reader, writer, None)
                    return f"{receiver}: {failed}" if failed else ""
                data = await intake.read(reader, size)
                await self._share_turn()
                if data is None:
                    failed = await self._pass_unread(
                        connection, is_request, reader, writer, intake, size
                    )
                    if failed is not None:
                        return failed and f"{receiver}: {failed}"
                    continue
                now = self._now()
                # Not writelines: up to CPython 3.12.8 and 3.13.1, drain does not wait after it
                # (CVE-2024-12254), so a slow receiver would fill the memory.
                try:
                    if is_request and connection.faulty is not None:
                        frame = connection.inspector.request(data, now)
                        action = connection.faulty.request(frame)
                        self._observe(frame)
                        await action
                    elif is_request:
                        # Requests are not changed, so they are passed on before they are inspected. The
                        # broker works in the meantime, and the latency is the broker's.
                        _put(writer, data)
                        self._observe(connection.inspector.request(data, now))
                    else:
                        await self._pass_response(connection, data, now)
                    await writer.drain()
                    intake.release()
                except Dropped:
                    return DROPPED
                except OSError as error:
                    return f"{receiver}: {describe(error)}"
        except asyncio.IncompleteReadError as error:
            await self._share_turn()
            cut = got + error.partial + intake.take()
            if cut:
                self._observe(connection.inspector.raw(is_request, cut, self._now()))
                try:
                    writer.write(cut)
                    await writer.drain()
                except OSError as broken:
                    return f"{receiver}: {describe(broken)}"
            return ""
        except OSError as error:  # raised by the reader; errors of writers are caught above
            return f"{sender}: {describe(error)}"
        finally:
            intake.release()

    async def _pass_unread(
        self,
        connection: _Connection,
        is_request: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        intake: Intake,
        size: int,
    ) -> str | None:
        """Pass on a frame of ``size`` bytes without decoding it; ``intake`` has its first bytes.

        Returns:
            As ``_copy``.
        """
        begin = intake.take()
        left = size - len(begin)
        frame = connection.inspector.oversized(is_request, begin[:HEAD], size, self._now())
        self._observe(frame)
        if connection.faulty is not None and not is_request:
            connection.faulty.unread(frame)
        failed = await _write(writer, size.to_bytes(PREFIX, "big") + begin)
        if failed is not None:
            return failed
        del begin  # the rest of the frame may come much later
        intake.release()
        return await _copy(reader, writer, left)

    async def _share_turn(self) -> None:
        """Wait for a turn of the event loop that all connections together have not used up; then work on one frame.

        Frames that have arrived together are read without waiting, so many of them would block everything else.
        """
        async with self._turns:  # connections that wait get turns in their order
            while 0 < self._turn_ends <= time.monotonic():
                await asyncio.sleep(0)
        if not self._turn_ends:
            self._turn_ends = time.monotonic() + TURN_SECONDS
            asyncio.get_running_loop().call_soon(self._end_turn)

    async def _pause(self, frame: Frame) -> None:
        """Let other connections work between two steps of a large response. Then it counts as arrived later."""
        if frame.size > SMALL_FRAME:
            await self._share_turn()
            now = self._now()  # in a capture, times never decrease
            if frame.latency_ns is not None:
                frame.latency_ns += now - frame.time_ns
            frame.time_ns = now

    def _end_turn(self) -> None:
        self._turn_ends = 0.0

    # -- responses that are changed

    async def _pass_response(self, connection: _Connection, data: bytes, now: int) -> None:
        """Inspect a response and pass it on, changed or not."""
        frame = connection.inspector.matched(data, now)
        if frame.size > SMALL_FRAME:
            await asyncio.to_thread(connection.inspector.decode, frame)
        else:
            connection.inspector.decode(frame)
        await self._pause(frame)
        changed = await self._rewrite(connection, frame)
        await self._pause(frame)
        passed = data if changed is None else changed
        if connection.faulty is None:
            self._observe(frame)
            _put(connection.client_writer, passed)
            return
        action = connection.faulty.response(frame, passed)
        self._observe(frame)
        await action

    async def _rewrite(self, connection: _Connection, frame: Frame) -> bytes | None:
        """Return the changed bytes of a response; None if it does not change.

        The message in ``frame`` is not changed: observers get the original one.
        """
        if frame.message is None or not may_change(self._package, frame.api_key):
            return None
        assert frame.api_key is not None
        assert frame.version is not None
        if frame.api_key != API_VERSIONS and not endpoints(frame.api_key, frame.message):
            return None
        original = frame.data[: len(frame.data) - len(frame.rest)]
        _, message, _ = read_response(self._package, original, frame.api_key, frame.version)
        await self._pause(frame)
        notes = []
        if frame.api_key == API_VERSIONS:
            notes = limit_versions(self._package, message)
        for number, node in enumerate(endpoints(frame.api_key, message)):
            if number % _NODES == 0:
                await self._pause(frame)
            upstream = Address(node.host, node.port)
            self._nodes[upstream] = node_id(node)
            port = await self._listeners.port_for(connection.bind_host, upstream)
            if port is None:
                continue
            local = connection.client_writer.get_extra_info("sockname")[0]
            node.host = advertised_host(self._advertise, connection.bind_host, local)
            node.port = port
            notes.append(f"{upstream} replaced by {Address(node.host, port)}")
        if not notes:
            return None
        await self._pause(frame)
        changed = Frame(frame.time_ns, frame.connection, False, frame.data, frame.size)
        changed.api_key, changed.body_version = frame.api_key, frame.body_version
        changed.header, changed.message = frame.header, message
        try:
            data = encode(self._package, changed) + frame.rest
        except EncodeError as error:
            self._notice(f"#{connection.number}: {frame.api} cannot be changed: {error}")
            return None
        frame.note = "; ".join(notes)
        return data

    # -- observers, and the end

    def _observe(self, frame: Frame) -> None:
        self._report("frame", frame)

    def _notice(self, text: str) -> None:
        self._report("notice", text)

    def _report(self, event: str, *values: object) -> None:
        """Call a method of every observer.

        An OSError of an observer ends the proxy. It is not raised here, where it would look like an error of a
        connection.
        """
        for observer in self._observers:
            try:
                getattr(observer, event)(*values)
            except OSError as error:
                self._fail(error)

    async def _check_gone(self) -> None:
        """End the proxy if no connection is open, and no broker of the routes accepts connections."""
        if self._stay or not self._reached or self._open:
            return
        for route in self._routes:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    _, writer = await asyncio.open_connection(*route.upstream)
            except (OSError, UnicodeError):
                continue
            writer.transport.abort()
            return
        if not self._open:
            gone = ", ".join(str(route.upstream) for route in self._routes)
            verb = "does" if len(self._routes) == 1 else "do"
            self.stop(f"stopped: {gone} {verb} not accept connections any more")


def _put(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write a frame with its length prefix; small ones in one piece, large ones without a copy."""
    prefix = len(data).to_bytes(PREFIX, "big")
    if len(data) <= SMALL_FRAME:
        writer.write(prefix + data)
    else:
        writer.write(prefix)
        writer.write(data)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> str | None:
    """Write bytes, and wait while the receiver is slow. Returns what has failed, or None."""
    try:
        writer.write(data)
        await writer.drain()
    except OSError as error:
        return describe(error)
    return None


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
) -> str | None:
    """Pass on ``left`` more bytes (None: all) without decoding.

    Returns:
        None if that is done, "" if the sender has closed its side before, otherwise what has failed.
    """
    while left != 0:
        piece = await reader.read(SMALL_FRAME if left is None else min(SMALL_FRAME, left))
        if not piece:
            return ""
        failed = await _write(writer, piece)
        if failed is not None:
            return failed
        if left is not None:
            left -= len(piece)
    return None


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Flush and close a connection, so that the receiver gets all bytes."""
    with contextlib.suppress(OSError):  # the receiver may have closed it
        writer.close()
        await writer.wait_closed()


def _address(peer: object) -> str:
    if isinstance(peer, tuple) and len(peer) >= 2:
        return str(Address(peer[0], peer[1]))
    return str(peer or "?")
