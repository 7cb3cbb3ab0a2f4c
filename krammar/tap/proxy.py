"""The proxy: moves frames between clients and brokers, and tells observers of each.

Every connection is two loops, one a direction. A loop takes a frame whole, has it inspected and passes
it on before it takes the next, and waits while the receiver is slow. So a connection holds one frame
a direction, and a slow receiver slows its sender.

Each broker that a response names gets a listening port of its own: clients choose a broker by its
address, so one port cannot stand for several.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

from krammar.tap.inspector import Frame, Inspector, encode
from krammar.tap.observer import Observer
from krammar.tap.rewrite import endpoints, limit_versions, may_change
from krammar.wire.connection import API_VERSIONS, read_response
from krammar.wire.errors import EncodeError
from krammar.wire.framing import MAX_FRAME, PREFIX, FrameError, frame_size
from krammar.wire.package import package_of

# Seconds to wait for a broker to accept a connection.
CONNECT_TIMEOUT = 10.0

# An upstream that names more brokers than this is no cluster, but would take every port there is.
MAX_LISTENERS = 1_024

_PIECE = 65_536
_HEAD = 64


class TapError(Exception):
    """What keeps the proxy from running, in words for its user."""


class Address(NamedTuple):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, default_host: str = "127.0.0.1") -> Address:
        """``host:port``, ``[::1]:port``, ``:port`` or ``port``. Raises ValueError."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if (bare == host and ":" in bare) or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"{text!r} is not host:port")
        return cls(bare or default_host, int(port))


@dataclass(frozen=True, slots=True)
class Route:
    """Where to listen, and the broker that connections there are for. Port 0 is any free one."""

    listen: Address
    upstream: Address


@dataclass(slots=True)
class _Listener:
    server: asyncio.Server
    port: int


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


class Tap:
    """The proxy for one cluster.

    ``protocol`` is a generated package; ``routes`` say where to listen and for whom. ``advertise`` is
    the host by which clients are told to reach the proxy; without it, the one it listens on, or, where
    that is every one, the one by which the client came. Frames above ``max_frame`` bytes are passed on
    unread. ``stay`` keeps the proxy running when no broker is there any more.
    """

    def __init__(
        self,
        protocol: ModuleType,
        routes: list[Route],
        observers: list[Observer],
        *,
        advertise: str | None = None,
        max_frame: int = MAX_FRAME,
        stay: bool = False,
    ) -> None:
        self._package = package_of(protocol)
        self._routes = routes
        self._observers = observers
        self._advertise = advertise
        self._max_frame = max_frame
        self._stay = stay
        self._listeners: dict[tuple[str, Address], _Listener] = {}
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished: asyncio.Future[str] | None = None
        self._numbers = 0
        self._open = 0
        self._reached = False
        # Times never run backwards, whatever happens to the clock.
        self._epoch = time.time_ns() - time.monotonic_ns()

    async def run(self, started: Callable[[list[Route]], None] | None = None) -> str:
        """Listen, and pass on frames until ``stop`` is called or the brokers have gone.

        ``started`` is called when it listens, with the routes and their real ports. Returns why it
        ended. Raises TapError where it cannot listen, and what an observer raised.
        """
        self._finished = asyncio.get_running_loop().create_future()
        try:
            listening = []
            for route in self._routes:
                listener = await self._listen(route.listen, route.upstream)
                self._listeners[route.listen.host, route.upstream] = listener
                listening.append(Route(Address(route.listen.host, listener.port), route.upstream))
            if started is not None:
                started(listening)
            return await self._finished
        finally:
            for listener in self._listeners.values():
                listener.server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self, reason: str = "stopped") -> None:
        """End ``run``; to be called from the loop that runs it."""
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(reason)

    def _fail(self, error: BaseException) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(error)

    def _now(self) -> int:
        return self._epoch + time.monotonic_ns()

    # -- listening

    async def _listen(self, listen: Address, upstream: Address) -> _Listener:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accept(reader, writer, listen.host, upstream)

        try:
            # A name may have several addresses, and port 0 would be another port for each.
            host = (await _resolve(listen))[0]
            server = await asyncio.start_server(accept, host, listen.port)
        except OSError as error:
            raise TapError(f"cannot listen on {listen}: {_why(error)}") from error
        return _Listener(server, server.sockets[0].getsockname()[1])

    async def _port_for(self, bind_host: str, upstream: Address) -> int | None:
        """The port that stands for a broker, opened now if need be; None where none can be opened."""
        key = (bind_host, upstream)
        async with self._opening:
            if (known := self._listeners.get(key)) is not None:
                return known.port
            if len(self._listeners) >= MAX_LISTENERS:
                self._notice(f"no port for broker {upstream}: {MAX_LISTENERS} are open")
                return None
            try:
                listener = await self._listen(Address(bind_host, 0), upstream)
            except TapError as error:
                self._notice(f"no port for broker {upstream}: {error}")
                return None
            self._listeners[key] = listener
            self._notice(f"listening on {Address(bind_host, listener.port)} for broker {upstream}")
            return listener.port

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
            pass  # the proxy ends; were it raised on, the server would log it as an error
        except Exception as error:  # a mistake of ours, not to be hidden in a log
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
                upstream_reader, upstream_writer = await asyncio.open_connection(*upstream)
        except OSError as error:  # TimeoutError is one
            self._notice(f"cannot reach {upstream} for {client}: {_why(error)}")
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
        self._tell("opened", self._now(), connection.number, client, str(upstream))
        reason, lost = "by the tap", False
        try:
            reason, lost = await self._relay_both(connection)
        finally:
            upstream_writer.transport.abort()
            self._open -= 1
            self._tell("closed", self._now(), connection.number, reason)
        if lost:
            await self._check_gone()

    async def _relay_both(self, connection: _Connection) -> tuple[str, bool]:
        """Relay until both directions have ended; why, and whether it was the broker's doing."""
        requests = asyncio.create_task(self._relay_requests(connection))
        responses = asyncio.create_task(self._relay_responses(connection))
        try:
            await asyncio.wait((requests, responses), return_when=asyncio.FIRST_COMPLETED)
            if not responses.done():
                # The client may have closed its side only, and still wait for responses.
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
            # Where the broker's end has gone too, the other direction reports it.
            with contextlib.suppress(OSError):
                connection.upstream_writer.write_eof()
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
        """Pass frames on until the sender has closed its side: then "", else what failed."""
        sender, receiver = ("client", "broker") if is_request else ("broker", "client")
        got = b""
        try:
            while True:
                got = b""
                got = prefix = await reader.readexactly(PREFIX)
                try:
                    size = frame_size(prefix, self._max_frame)
                except FrameError as error:
                    if error.size < 0:
                        self._observe(connection.inspector.raw(is_request, prefix, self._now()))
                        failed = await _copy(reader, writer, prefix, None)
                    else:
                        head = await reader.readexactly(min(_HEAD, error.size))
                        self._observe(
                            connection.inspector.oversized(
                                is_request, head, error.size, self._now()
                            )
                        )
                        failed = await _copy(reader, writer, prefix + head, error.size - len(head))
                    if failed is not None:
                        return failed and f"{receiver}: {failed}"
                    continue
                data = await reader.readexactly(size)
                now = self._now()
                try:
                    if is_request:
                        # Never changed, so it goes on before it is looked at: the broker works
                        # meanwhile, and the latency is the broker's.
                        writer.writelines((prefix, data))
                        self._observe(connection.inspector.request(data, now))
                    else:
                        passed = await self._pass_response(connection, data, now)
                        writer.writelines((len(passed).to_bytes(PREFIX, "big"), passed))
                    await writer.drain()
                except OSError as error:
                    return f"{receiver}: {_why(error)}"
        except asyncio.IncompleteReadError as error:
            cut = got + error.partial
            if cut:
                self._observe(connection.inspector.raw(is_request, cut, self._now()))
                try:
                    writer.write(cut)
                    await writer.drain()
                except OSError as broken:
                    return f"{receiver}: {_why(broken)}"
            return ""
        except OSError as error:  # of the reader: what writes is caught above
            return f"{sender}: {_why(error)}"

    # -- responses that are changed

    async def _pass_response(self, connection: _Connection, data: bytes, now: int) -> bytes:
        """Inspect a response; the bytes to pass on for it."""
        frame = connection.inspector.response(data, now)
        changed = await self._rewrite(connection, frame)
        self._observe(frame)
        return data if changed is None else changed

    async def _rewrite(self, connection: _Connection, frame: Frame) -> bytes | None:
        """The bytes to pass on instead of a response's; None for those that came.

        The message in ``frame`` stays as it came: observers are told of that.
        """
        if frame.message is None or not may_change(frame.api_key):
            return None
        assert frame.api_key is not None
        assert frame.version is not None
        if frame.api_key != API_VERSIONS and not endpoints(frame.api_key, frame.message):
            return None
        came = frame.data[: len(frame.data) - len(frame.rest)]
        _, message, _ = read_response(self._package, came, frame.api_key, frame.version)
        notes = []
        if frame.api_key == API_VERSIONS:
            notes = limit_versions(self._package, message)
        for node in endpoints(frame.api_key, message):
            upstream = Address(node.host, node.port)
            port = await self._port_for(connection.bind_host, upstream)
            if port is None:
                continue
            node.host, node.port = self._host_for(connection), port
            notes.append(f"{upstream} is {Address(node.host, port)}")
        if not notes:
            return None
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

    def _host_for(self, connection: _Connection) -> str:
        if self._advertise is not None:
            return self._advertise
        if connection.bind_host in ("", "0.0.0.0", "::"):
            local: str = connection.client_writer.get_extra_info("sockname")[0]
            return local
        return connection.bind_host

    # -- observers, and the end

    def _observe(self, frame: Frame) -> None:
        self._tell("frame", frame)

    def _notice(self, text: str) -> None:
        self._tell("notice", text)

    def _tell(self, what: str, *values: object) -> None:
        """Call a method of every observer. An OSError of theirs ends the proxy and is not raised
        here, where it would be taken for one of a connection."""
        for observer in self._observers:
            try:
                getattr(observer, what)(*values)
            except OSError as error:
                self._fail(error)

    async def _check_gone(self) -> None:
        """End when the brokers have: none is connected, and none that we were told of answers."""
        if self._stay or not self._reached or self._open:
            return
        for route in self._routes:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    _, writer = await asyncio.open_connection(*route.upstream)
            except OSError:
                continue
            writer.transport.abort()
            return
        if not self._open:
            gone = ", ".join(str(route.upstream) for route in self._routes)
            self.stop(f"{gone} {'has' if len(self._routes) == 1 else 'have'} gone")


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: bytes, size: int | None
) -> str | None:
    """Pass on ``begin`` and ``size`` bytes more (None: all) unread.

    None when that is done, "" where the sender has closed its side before, else what failed.
    """
    piece = begin
    left = size
    while True:
        try:
            writer.write(piece)
            await writer.drain()
        except OSError as error:
            return _why(error)
        if left == 0:
            return None
        piece = await reader.read(_PIECE if left is None else min(_PIECE, left))
        if not piece:
            return ""
        if left is not None:
            left -= len(piece)


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Hand what is left over to the system and close, so that the receiver gets all of it."""
    with contextlib.suppress(OSError):  # the receiver may have gone
        writer.close()
        await writer.wait_closed()


async def _resolve(address: Address) -> Address:
    """The first address of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    return Address(*found[0][4][:2])


def _address(peer: object) -> str:
    if isinstance(peer, tuple) and len(peer) >= 2:
        return str(Address(peer[0], peer[1]))
    return str(peer or "?")


def _why(error: OSError) -> str:
    """An OSError without numbers and addresses, which asyncio puts around the reason."""
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no answer in {CONNECT_TIMEOUT:.0f} s"
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
