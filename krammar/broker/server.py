"""Listeners and connections: bytes in, requests to the handlers, responses out in order.

A connection has one request under way at a time, as Kafka's channels do that are muted until the
response is sent. While a request waits (a long poll, a rebalance) or the client does not read what it
was sent, at most one more piece is read from its socket, so that what a client can make the broker keep
is bounded: one frame that is being read, one response that is being sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import ssl
from functools import partial
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import kafka_wire
from kafka_wire import ApiKey

from krammar.broker import apis
from krammar.broker.errors import CloseConnection
from krammar.broker.session import Session
from krammar.wire.connection import (
    ConnectionClosed,
    InvalidRequest,
    RequestReceived,
    ServerConnection,
    unsupported_version_response,
)
from krammar.wire.errors import WireError
from krammar.wire.framing import FrameError

if TYPE_CHECKING:
    from krammar.broker.broker import Broker
    from krammar.broker.config import Listener

log = logging.getLogger("krammar.broker")

# What one read may bring, in bytes. Kafka's default for socket.receive.buffer.bytes is 100 kB; larger
# reads are fewer calls for the same megabytes.
RECEIVE_SIZE = 256 * 1024
# A response waits in the transport until the client takes it; above this no further request is begun.
WRITE_HIGH_WATER = 64 * 1024
# How long a stop waits for clients to take their last responses.
DRAIN_SECONDS = 1.0
# The largest frame of anything but Produce, in bytes: a few megabytes of topic names are millions of
# objects, which hold up everybody while they are decoded.
MAX_PLAIN_FRAME = 16 << 20


class Server:
    """The listening sockets of a broker and the connections that came of them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connections: set[Connection] = set()
        self.numbers = count()
        # Bytes received and sent, of all connections so far.
        self.traffic = 0
        # One piece of memory for the reads of all connections: what was read is copied out at once.
        self.scratch = memoryview(bytearray(RECEIVE_SIZE))
        self._servers: list[asyncio.Server] = []
        self._idle_sweep: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None

    async def listen(self, listener: Listener, tls: ssl.SSLContext | None) -> list[tuple[str, int]]:
        """Open a listener; the addresses that it is bound to. Raises OSError."""
        loop = asyncio.get_running_loop()
        kind = Connection
        if not listener.kafka:
            from krammar.broker.wafka import WafkaConnection

            kind = WafkaConnection
        server = await loop.create_server(
            lambda: kind(self, listener),
            listener.host or None,
            listener.port,
            ssl=tls,
            ssl_handshake_timeout=30 if tls is not None else None,
            backlog=1024,
        )
        self._servers.append(server)
        return [socket.getsockname()[:2] for socket in server.sockets]

    def sweep_idle(self) -> None:
        """Close the connections that were silent for connections.max.idle.ms, now and from then on."""
        limit = self.broker.config.connections_max_idle_ms / 1000
        if limit <= 0:
            return
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            if now - connection.last_active > limit:
                connection.close()
        self._idle_sweep = self.broker.call_later(max(1.0, min(limit, 60.0)), self.sweep_idle)

    def disconnected(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._drained is not None and not self.connections:
            self._drained.set()

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._idle_sweep is not None:
            self._idle_sweep.cancel()
        for server in self._servers:
            server.close()
        tasks = []
        for connection in list(self.connections):
            if connection.task is not None:
                connection.task.cancel()
                tasks.append(connection.task)
            connection.close()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        # What has been answered still goes out, unless the client does not take it.
        if self.connections:
            self._drained = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), DRAIN_SECONDS)
        for connection in list(self.connections):
            connection.abort()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    protocol: ClassVar[ModuleType] = kafka_wire
    # librdkafka ends a Metadata v13 for all topics with three bytes that are none of it.
    allow_trailing: ClassVar[bool] = True

    transport: asyncio.Transport
    session: Session

    def __init__(self, server: Server, listener: Listener) -> None:
        self.server = server
        self.listener = listener
        self.broker = server.broker
        self.wire = ServerConnection(
            self.protocol,
            max_frame=server.broker.config.socket_request_max_bytes,
            allow_trailing=self.allow_trailing,
        )
        self.task: asyncio.Future[Any] | None = None
        self.last_active = 0.0
        self._blocked = False  # the client does not read
        self._paused = False  # we do not read
        self._ended = False  # the client sends no more
        self._delay: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self.task is not None or self._delay is not None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        here = transport.get_extra_info("sockname") or ("unknown", 0)
        self.session = Session(
            listener=self.listener,
            host=peer[0],
            connection_id=f"{here[0]}:{here[1]}-{peer[0]}:{peer[1]}-{next(self.server.numbers)}",
        )
        self.broker.begin_session(self.session, transport)
        if not self.session.authenticated:
            limit = self.broker.config.sasl_server_max_receive_size
            self.wire.max_frame = min(limit, self.wire.max_frame)
        self.last_active = self.broker.loop.time()
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.disconnected(self)
        # A request that is under way goes on: a member that has asked to join a group stays in it until
        # its session times out. Its answer goes nowhere.
        self._hurry()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self.server.traffic += nbytes
        self.wire.receive_data(self.server.scratch[:nbytes])
        self.last_active = self.broker.loop.time()
        if self.busy or self._blocked:
            self._pause()
        else:
            self._pump()

    def eof_received(self) -> bool:
        # Nothing more comes, but what came is still answered.
        self._ended = True
        self._hurry()
        # TLS has no half-closed connections.
        return (self.busy or self._blocked) and not self.listener.tls

    def _hurry(self) -> None:
        if self.session.hurry is not None:
            self.session.hurry()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        if not self.busy:
            self._pump()

    # Requests.

    def _pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _pump(self) -> None:
        """Handle what came, one request after the other, until one has to wait."""
        session = self.session
        while not self._blocked and not self.transport.is_closing():
            try:
                if session.sasl is not None and session.sasl.expects_raw:
                    token = self.wire.next_raw()
                    if token is None:
                        break
                    self._raw_token(token)
                    continue
                event = self.wire.next_event()
            except FrameError as error:
                self._refuse(str(error))
                return
            if event is None:
                break
            if isinstance(event, ConnectionClosed):
                self.close()
                return
            if not self._handle(event):
                return
        else:
            self._pause()
            return
        if self.wire.expected > MAX_PLAIN_FRAME and self.wire.next_api_key != ApiKey.PRODUCE:
            self._refuse(
                f"a request of {self.wire.expected} bytes: only Produce has more than {MAX_PLAIN_FRAME}"
            )
        elif self._ended:
            self.close()
        elif self._paused:
            self._paused = False
            self.transport.resume_reading()

    def _handle(self, event: RequestReceived | InvalidRequest) -> bool:
        """Whether to go on with the next request at once."""
        if isinstance(event, InvalidRequest):
            if event.wants_api_versions:
                response = unsupported_version_response(kafka_wire, apis.RANGES)
                self.transport.write(self.wire.send_response(event, response, 0))
                return True
            self._refuse(str(event.error))
            return False
        session = self.session
        served = apis.RANGES.get(event.api_key)
        if served is None or not served[0] <= event.version <= served[1]:
            name = type(event.request).__name__
            if served is None:
                self._refuse(f"{name} is not served")
            else:
                self._refuse(
                    f"{name} v{event.version} is not served, only v{served[0]} to v{served[1]}"
                )
            return False
        if not session.authenticated and event.api_key not in apis.HANDSHAKE:
            self._refuse(f"{type(event.request).__name__} before authentication")
            return False
        expires = session.expires_at
        if (
            expires is not None
            and event.api_key not in apis.HANDSHAKE
            and self.broker.now_ms() > expires
        ):
            self._refuse("the login has expired and was not renewed")
            return False
        session.client_id = event.header.client_id
        try:
            response = apis.handler(event.api_key)(
                self.broker, session, event.request, event.version
            )
        except CloseConnection as error:
            self._refuse(str(error))
            return False
        except Exception as error:
            self._failed(event, error)
            return False
        if inspect.isawaitable(response):
            self.task = asyncio.ensure_future(response)
            self.task.add_done_callback(partial(self._finish, event))
            return False
        return self._answer(event, response)

    def _finish(self, event: RequestReceived, task: asyncio.Future[Any]) -> None:
        """Answer a request that had to wait."""
        self.task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._failed(event, error)
        elif not self.transport.is_closing() and self._answer(event, task.result()):
            self._pump()

    def _answer(self, event: RequestReceived, response: Any) -> bool:
        """Send a response; whether to go on at once."""
        if response is None:
            self.wire.skip_response(event)
            return True
        try:
            frame = self.wire.send_response(event, response)
        except WireError as error:
            self._failed(event, error)
            return False
        session = self.session
        if session.authenticated:
            self.wire.max_frame = self.broker.config.socket_request_max_bytes
        elif session.sasl is not None and session.sasl.failed:
            # A failed login is answered late, so that guessing passwords takes its time.
            delay = self.broker.config.connection_failed_authentication_delay_ms / 1000
            self._delay = self.broker.call_later(delay, self._last_words, frame)
            return False
        self.server.traffic += len(frame)
        self.transport.write(frame)
        return True

    def _last_words(self, frame: bytes) -> None:
        self._delay = None
        if not self.transport.is_closing():
            self.transport.write(frame)
            self.close()

    def _raw_token(self, token: bytes) -> None:
        """A token of SaslHandshake v0, which stands in a frame without headers."""
        session = self.session
        answer = session.sasl.raw(token)
        frame = None if answer is None else len(answer).to_bytes(4, "big") + answer
        if session.sasl.failed or frame is None:
            self._refuse("SASL authentication failed")
            return
        if session.authenticated:
            self.wire.max_frame = self.broker.config.socket_request_max_bytes
        self.transport.write(frame)

    def close(self) -> None:
        """Close when what was written has been sent."""
        if not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None
        self.transport.abort()

    def _refuse(self, why: str) -> None:
        log.warning("%s: %s; connection closed", self.session.connection_id, why)
        self.close()

    def _failed(self, event: RequestReceived, error: BaseException) -> None:
        log.error(
            "%s: %s v%d failed; connection closed",
            self.session.connection_id,
            type(event.request).__name__,
            event.version,
            exc_info=error,
        )
        self.close()
