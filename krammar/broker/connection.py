"""One connection of a client: receives requests, passes them to the handlers, and sends the responses in order.

A connection handles one request at a time, like Kafka's channels, which are muted until the
response is sent. While a request is handled, or while the client does not read its responses, at
most one more piece is read from the socket. So the memory per client is bounded: one incoming frame
and one outgoing response. docs/broker.md lists the limits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import kafka_wire
from kafka_wire import ApiKey

from krammar.broker import apis
from krammar.broker.connections import RECEIVE_SIZE
from krammar.broker.errors import CloseConnection
from krammar.broker.session import Session
from krammar.util.clock import monotonic
from krammar.util.forks import close_sockets_in_children
from krammar.util.turns import InThread, Progress, Steps, in_thread
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
    from krammar.broker.recent import RecordedExchange
    from krammar.broker.security.users import Credentials
    from krammar.broker.timers import Timer, Timers

log = logging.getLogger("krammar.broker")

# The largest frame of requests other than Produce, in bytes.
MAX_PLAIN_FRAME = 16 << 20
# In larger frames, in bytes, an error does not name the corrupt field: finding it takes eight times
# as long as decoding.
EXPLAINED_FRAME = 8 * 1024
# These requests are decoded without copying the batches; validation copies them.
UNCOPIED = frozenset({ApiKey.PRODUCE})
# Bytes of responses that a client has not read; above this, the broker handles no further request
# of it.
WRITE_HIGH_WATER = 64 * 1024
# Bytes that are encrypted at once, and that are written at once of large responses.
TLS_PIECE = 256 * 1024


class _Lost(asyncio.Transport):
    """The transport of connections that have ended.

    A TLS transport and its connection refer to each other, and would hold 40 kB until the next
    garbage collection.
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


class Connection(asyncio.BufferedProtocol):
    """One client's connection.

    Attributes:
        large_response: a response of more bytes is written in pieces
    """

    protocol: ClassVar[ModuleType] = kafka_wire
    large_response: ClassVar[int] = 16 << 20
    # librdkafka appends three bytes to a Metadata v13 request for all topics.
    allow_trailing: ClassVar[bool] = True
    transport: asyncio.Transport
    session: Session

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
        self.wire = ServerConnection(
            self.protocol,
            max_frame=max_frame,
            allow_trailing=self.allow_trailing,
            explain_limit=EXPLAINED_FRAME,
            max_elements=MAX_ELEMENTS,
            views=UNCOPIED,
        )
        self.connections = connections
        self.timers = timers
        self.listener = listener
        self.config = config
        self._tls = listener.tls
        self._max_frame = max_frame
        self._counted_as = counted_as
        self.credentials = credentials
        self.handlers = handlers
        self._received_at = 0.0  # when the decoding of the current request began
        self.number = 0  # from 1, in the order of connections
        self.task: asyncio.Future[Any] | None = None  # handles the current request
        self._waits = False  # for the next turn
        self.last_active = 0.0
        self._paused = False  # we do not read from the socket
        self._own_memory = False  # the next bytes go into the frame's own buffer
        self._ended = False  # the client has closed its side
        self._later: Timer | None = None  # continues the connection
        self._unread_before = 0  # the value of ``unread`` at the last note_reading
        self._rest = memoryview(b"")  # of a response, once the client's connection is full
        self._filtered: Filtered | None = None  # if the broker has filters
        # The current request, if tests want the last ones.
        self.recorded: RecordedExchange | None = None

    # The beginning and the end.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is not a subclass.
        self.transport = transport = cast(asyncio.Transport, transport)
        close_sockets_in_children(self)
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
            held = self.connections.admission.held_seconds(session.host)
            if held:
                # It counts as open, and gets no answer.
                self.connections.open.add(self)
                self._later = self.timers.call_later(held, self.abort)
                return
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
        delay = self.connections.admission.delay_seconds(self.listener, self.timers.now_ms)
        if delay:
            self._later = self.timers.call_later(delay, self._unmute)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.remove(self)
        if self._counted_as is not None:
            self.connections.admission.leave(self.listener, self._counted_as)
        self.transport = LOST
        # The current request continues: a member that is joining a group stays in it until its
        # session times out. The response is dropped.
        self._hurry()
        self.session.is_closed = True
        for notify in self.session.on_close:
            notify()
        if self._filtered is not None:
            self._filtered.closed()

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

    # Requests.

    @property
    def busy(self) -> bool:
        """Whether a request is being handled."""
        return self.task is not None or self._waits or self._later is not None

    def go_on(self) -> None:
        """Handle the requests that had to wait for this turn."""
        self._waits = False
        self.pump()

    def pump(self, first: Callable[[], object] | None = None) -> None:
        """Handle the received requests in order, until one has to wait. ``first`` finishes the last one."""
        session, blocked = self.session, self.connections.blocked
        try:
            if first is not None:
                first()
            served = 0
            budget = self.connections.budget
            while not (self.busy or self in blocked or self.transport.is_closing()):
                now = monotonic()
                if now >= budget.until and not budget.grant(served, now):
                    # Clients that send many requests at once must not block the others.
                    self._pause()
                    self._waits = True
                    budget.wait(self, known=session.authenticated)
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
        if key is None or key in apis.HANDSHAKE or self._refuses_in_login():
            return
        with suppress(UnknownApiKeyError):
            name = kafka_wire.request_class(key).__name__
            raise CloseConnection(f"{name} was sent before authentication")

    def _refuses_in_login(self) -> bool:
        """Return whether the next request gets an error, because it interrupts a login. It is not large."""
        sasl = self.session.sasl
        return sasl is not None and sasl.in_exchange and self.wire.expected <= EXPLAINED_FRAME

    def _handle(self, event: RequestReceived | InvalidRequest) -> None:
        """Handle a request. Raises CloseConnection."""
        if isinstance(event, InvalidRequest):
            if not event.wants_api_versions:
                raise CloseConnection(str(event.error))
            response = unsupported_version_response(kafka_wire, self.handlers.release.offered)
            self.transport.write(self.wire.send_response(event, response, 0))
            return
        session = self.session
        answered = self.handlers.release.answered
        served = answered.get(event.api_key)
        if served is None or not served[0] <= event.version <= served[1]:
            raise CloseConnection(apis.why_unserved(event.api_key, event.version, answered))
        if (
            not session.authenticated
            and event.api_key not in apis.LOGIN
            and session.sasl.in_exchange
        ):
            refusal = session.sasl.refuse(event.request, event.version)
            self.send(event, self.wire.send_response(event, refusal))  # no filter sees it
            return
        expires = session.expires_at
        is_over = expires is not None and self.timers.now_ms() > expires
        if is_over and event.api_key not in apis.HANDSHAKE:
            raise CloseConnection("the login has expired")
        session.client_id = event.header.client_id
        session.request_size = len(event.frame)
        self._serve(event)

    def _serve(self, event: RequestReceived) -> None:
        """Let the filters and the handler answer."""
        if self.connections.recent is not None and self.protocol is kafka_wire:
            self.recorded = self.connections.recent.begin(self.number, event.frame)
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
                now, budget = monotonic(), self.connections.slices.budget
                long = now - self._received_at > budget.seconds / 2
                progress = Progress(False) if long else budget.advance(steps, now=now)
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
        return await in_thread(self.wire.send_response, event, response)

    def answer(self, event: RequestReceived, response: Any) -> None:
        """Send a response, or nothing for None."""
        if self.session.throttle_ms:
            self._mute()
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

    def _mute(self) -> None:
        """Handle no further request while the client is throttled."""
        self._later = self.timers.call_later(self.session.throttle_ms / 1000, self._unmute)
        self.session.throttle_ms = 0

    def _unmute(self) -> None:
        self._later = None
        if not self.transport.is_closing():
            self.pump()

    def send(
        self,
        event: RequestReceived,
        frame: bytes,
        delivery: Coroutine[Any, Any, None] | None = None,
    ) -> None:
        """Send the frame of a response, or await what delivers it."""
        session = self.session
        if self.recorded is not None:
            self.recorded.answered(frame)
            self.recorded = None
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

        TLS transports do not count what they have passed on to their socket, so ``unread`` would
        miss it. Other transports copy what the client does not read at once.
        """
        if len(frame) <= (TLS_PIECE if self._tls else self.large_response):
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
