"""One connection: passes requests to the handlers, and sends the responses in order.

A connection handles one request at a time, like Kafka's channels, which are muted until the response is sent.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import kafka_wire
from kafka_wire import ApiKey

from krammar.broker import apis
from krammar.broker.byte_connection import LOST, WRITE_HIGH_WATER, ByteConnection
from krammar.broker.errors import CloseConnection
from krammar.broker.session import Session
from krammar.broker.slices import SLICE_SECONDS, InThread, Progress, Steps, advance
from krammar.wire.connection import (
    ConnectionClosed,
    InvalidRequest,
    RequestReceived,
    ServerConnection,
    unsupported_version_response,
)
from krammar.wire.errors import UnknownApiKeyError, WireError
from krammar.wire.framing import FrameError, join_frame
from krammar.wire.skip import MAX_ELEMENTS

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig, Listener
    from krammar.broker.connections import Connections
    from krammar.broker.dispatch import Handlers
    from krammar.broker.filtered import Filtered
    from krammar.broker.security.users import Credentials
    from krammar.broker.timers import Timers

log = logging.getLogger("krammar.broker")

# The largest frame of requests other than Produce, in bytes.
MAX_PLAIN_FRAME = 16 << 20
# In larger frames, in bytes, an error does not name the corrupt field: finding it takes eight times as
# long as decoding.
EXPLAINED_FRAME = 8 * 1024
# These requests are decoded without copying the batches; validation copies them.
UNCOPIED = frozenset({ApiKey.PRODUCE})


class Connection(ByteConnection):
    """One client's connection."""

    protocol: ClassVar[ModuleType] = kafka_wire
    # librdkafka appends three bytes to a Metadata v13 request for all topics.
    allow_trailing: ClassVar[bool] = True

    def __init__(
        self,
        listener: Listener,
        config: BrokerConfig,
        timers: Timers,
        credentials: Credentials,
        handlers: Handlers,
        connections: Connections,
        counted_as: str | None = None,
    ) -> None:
        """``counted_as`` is the client's address, if ``connections.admission`` has counted it."""
        max_frame = config.socket_request_max_bytes
        wire = ServerConnection(
            self.protocol,
            max_frame=max_frame,
            allow_trailing=self.allow_trailing,
            explain_limit=EXPLAINED_FRAME,
            max_elements=MAX_ELEMENTS,
            views=UNCOPIED,
        )
        super().__init__(wire, connections, timers, tls=listener.tls, max_frame=max_frame)
        self._counted_as = counted_as
        self.listener = listener
        self.config = config
        self.credentials = credentials
        self.handlers = handlers
        self._received_at = 0.0  # when the decoding of the current request began
        self.number = 0  # from 1, in the order of connections
        self._filtered: Filtered | None = None  # if the broker has filters

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is not a subclass.
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self.number = next(self.connections.numbers)
        self.connections.accepted += 1
        self.session = session = Session.begin(self.listener, transport, self.number)
        if self._counted_as is None:
            plain = transport.get_extra_info("socket")
            if not self.connections.admission.enter(self.listener, session.host, plain.fileno()):
                transport.abort()
                return
            self._counted_as = session.host
        if self.listener.sasl:
            from krammar.broker.security.sasl import Authenticator

            session.authenticated = False
            session.sasl = Authenticator(self.credentials, self.timers.now_ms, session)
            limit = self.config.sasl_server_max_receive_size
            self.wire.max_frame = min(limit, self.wire.max_frame)
        elif self.listener.protocol == "SSL":
            from krammar.broker.security.tls import principal_of

            session.principal = principal_of(transport)
        self.last_active = self.timers.loop.time()
        self.connections.open.add(self)
        self._filter()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.remove(self)
        if self._counted_as is not None:
            self.connections.admission.leave(self.listener, self._counted_as)
        self.transport = LOST
        # The current request continues: a member that is joining a group stays in it until its session
        # times out. The response is dropped.
        self._hurry()
        if self._filtered is not None:
            self._filtered.closed()

    # Requests.

    def pump(self, first: Callable[[], object] | None = None) -> None:
        """Handle the received requests in order, until one has to wait. ``first`` finishes the last one."""
        session, blocked = self.session, self.connections.blocked
        try:
            if first is not None:
                first()
            served = 0
            turns = self.connections.turns
            while not (self.busy or self in blocked or self.transport.is_closing()):
                now = time.monotonic()
                if now >= turns.until and not turns.grant(served, now):
                    # Clients that send many requests at once must not block the others.
                    self._pause()
                    self._waits = True
                    turns.wait(self, known=session.authenticated)
                    return
                served += 1
                if session.sasl is not None and session.sasl.expects_raw:
                    token = self.wire.next_raw()
                    if token is None:
                        break
                    self._raw_token(token)
                    continue
                if not session.authenticated:
                    self._check_handshake()
                event = self.wire.next_event()
                if event is None or isinstance(event, ConnectionClosed):
                    break
                self.connections.unfinished.pop(self, None)
                self._received_at = now
                self._handle(event)
            else:
                if not self.busy:
                    self._pause()
                return
            if self.wire.expected > MAX_PLAIN_FRAME and self.wire.next_api_key != ApiKey.PRODUCE:
                raise CloseConnection(
                    f"a request has {self.wire.expected} bytes; the limit for requests other than "
                    f"Produce is {MAX_PLAIN_FRAME}"
                )
        except (CloseConnection, FrameError) as error:
            self.cut_off(str(error), drain=True)
            return
        if self._ended:
            self.close()
        elif self._paused:
            self._paused = False
            self.transport.resume_reading()

    def _check_handshake(self) -> None:
        """Raise CloseConnection if the next frame must not be decoded before a login."""
        key = self.wire.next_api_key
        if key is None or key in apis.HANDSHAKE:
            return
        with suppress(UnknownApiKeyError):
            name = kafka_wire.request_class(key).__name__
            raise CloseConnection(f"{name} was sent before authentication")

    def _handle(self, event: RequestReceived | InvalidRequest) -> None:
        """Handle a request. Raises CloseConnection."""
        if isinstance(event, InvalidRequest):
            if not event.wants_api_versions:
                raise CloseConnection(str(event.error))
            response = unsupported_version_response(kafka_wire, apis.RANGES)
            self.transport.write(self.wire.send_response(event, response, 0))
            return
        session = self.session
        served = apis.SERVED.get(event.api_key)
        if served is None or not served[0] <= event.version <= served[1]:
            raise CloseConnection(apis.why_unserved(event.api_key, event.version))
        expires = session.expires_at
        is_over = expires is not None and self.timers.now_ms() > expires
        if is_over and event.api_key not in apis.HANDSHAKE:
            raise CloseConnection("the login has expired")
        session.client_id = event.header.client_id
        self._serve(event)

    def _serve(self, event: RequestReceived) -> None:
        """Let the filters and the handler answer."""
        if self._filtered is None and self.connections.chains:
            self._filter()  # faults came after the connection
        if self._filtered is None:
            self.handle(event, event.request)
        else:
            self._filtered.request(event)

    def _filter(self) -> None:
        """Run filters over requests and responses from now on, if there are any for this protocol."""
        chain = self.connections.chains.get(self.protocol)
        if chain is not None:
            from krammar.broker.filtered import Filtered

            self._filtered = Filtered(chain, self)
            self._filtered.opened()

    def handle(self, event: RequestReceived, request: Any) -> None:
        """Let the handler answer."""
        try:
            response = self._call_handler(event, request)
            if inspect.isgenerator(response):
                steps = cast("Steps[Any]", response)
                # A request that took long to decode begins in the next turn.
                now = time.monotonic()
                long = now - self._received_at > SLICE_SECONDS / 2
                progress = Progress(False) if long else advance(steps, now=now)
                response = progress.result
                if not progress.done:
                    response = self._in_slices(event, steps, progress.job)
        except Exception as error:
            self._failed(event, error)
            return
        if inspect.isawaitable(response):
            self.wait_for(event, response, partial(self.answer, event))
        else:
            self.connections.release(self.session)
            self.answer(event, response)

    def _call_handler(self, event: RequestReceived, request: Any) -> Any:
        return self.handlers[event.api_key](self.session, request, event.version)

    async def _in_slices(
        self, event: RequestReceived, steps: Steps[Any], job: InThread | None
    ) -> Any:
        """Finish a request that takes several slices. Return its encoded frame, or None."""
        response = await self.connections.slices.run(steps, job)
        if inspect.isawaitable(response):
            response = await response
        if response is None:
            return None
        # The response is long, so another thread encodes it.
        return await self.timers.loop.run_in_executor(
            None, self.wire.send_response, event, response
        )

    def answer(self, event: RequestReceived, response: Any) -> None:
        """Send a response, or nothing for None."""
        if response is None:
            self.wire.skip_response(event)
            return
        frame = response
        if not isinstance(response, bytes):
            try:
                frame = self.wire.send_response(event, response)
            except WireError as error:
                self._failed(event, error)
                return
        if self._filtered is None:
            self.send(event, frame)
        else:
            self._filtered.response(event, frame)

    def send(
        self,
        event: RequestReceived,
        frame: bytes,
        delivery: Coroutine[Any, Any, None] | None = None,
    ) -> None:
        """Send the frame of a response, or await what delivers it."""
        session = self.session
        if session.authenticated:
            self.wire.max_frame = self.config.socket_request_max_bytes
        elif session.sasl is not None and session.sasl.failed:
            if delivery is not None:
                delivery.close()
            self._refuse_login(frame)
            return
        self.connections.sent += len(frame)
        if delivery is None:
            self.write(frame)
        else:
            self.wait_for(event, delivery, lambda _: None)

    def _refuse_login(self, frame: bytes) -> None:
        """Send the last response and close, with a delay that slows down guessing passwords."""
        delay = self.config.connection_failed_authentication_delay_ms / 1000
        delay = self.connections.guesses.failed(self.session.host, delay)
        self.close_later(delay, frame)

    def _raw_token(self, token: bytes) -> None:
        """Handle a SASL token after SaslHandshake v0: a frame without headers."""
        session = self.session
        answer = session.sasl.raw(token)
        if session.sasl.failed or answer is None:
            self._refuse_login(b"")  # there is no response for a raw token
            return
        if session.authenticated:
            self.wire.max_frame = self.config.socket_request_max_bytes
        self.transport.write(join_frame([answer]))

    def _failed(self, event: RequestReceived, error: BaseException) -> None:
        self.connections.release(self.session)
        if isinstance(error, CloseConnection):
            self.cut_off(str(error), drain=True)
            return
        if self._filtered is not None and self._filtered.failed(error):
            return
        log.error(
            "%s: %s v%d failed; connection closed",
            self.session.connection_id,
            type(event.request).__name__,
            event.version,
            exc_info=error,
        )
        self.close()
