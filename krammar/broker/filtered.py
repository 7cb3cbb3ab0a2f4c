"""Runs the filters of a broker over the requests and responses of one connection, as the proxy does.

A message that a filter names passes the filters as bytes of its version: decoded, changed and encoded again. So a test
that runs inside of the broker meets the same errors as the proxy, and no filter changes an object of the broker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from krammar.broker.connections import OpenConnection
from krammar.broker.errors import CloseConnection
from krammar.broker.session import ANONYMOUS
from krammar.proxy.chain import Chain
from krammar.proxy.delivery import reset, steps_for, take
from krammar.proxy.errors import FilterError, cancelled, why_closed
from krammar.proxy.exchange import CLIENT_ID, pass_on, run_at_once, run_request, run_response
from krammar.proxy.interface import Close, Connection, Exchange, Silence
from krammar.proxy.route import Route
from krammar.util.sockets import address_text
from krammar.wire.framing import PREFIX

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig
    from krammar.broker.connections import Connections
    from krammar.broker.dispatch import Handlers
    from krammar.broker.recent import RecordedExchange
    from krammar.util.turns import Steps
    from krammar.wire.connection import RequestReceived, ServerConnection

log = logging.getLogger("krammar.broker")

# Before the name of a principal.
USER = "User:"
# The correlation id of requests of filters.
_OWN = -1

# What follows the coroutine of a message, outside of its task.
Next = Callable[[], object]


class Served(OpenConnection, Protocol):
    """What this needs of a connection."""

    wire: ServerConnection
    number: int
    config: BrokerConfig
    handlers: Handlers
    connections: Connections
    recorded: RecordedExchange | None

    def handle(self, event: RequestReceived, request: Any) -> None: ...
    def answer(self, event: RequestReceived, response: Any) -> None: ...
    def send(
        self,
        event: RequestReceived,
        frame: bytes,
        delivery: Coroutine[Any, Any, None] | None = None,
    ) -> None: ...
    def wait_for(
        self, event: RequestReceived, work: Awaitable[Any], then: Callable[[Any], object]
    ) -> None: ...


class Filtered:
    """The filters of one connection."""

    def __init__(self, chain: Chain, served: Served) -> None:
        self._chain = chain
        self._served = served
        here, peer = map(served.transport.get_extra_info, ("sockname", "peername"))
        # A connection that has ended already has no addresses.
        places = [address_text(each or ("unknown", 0)) for each in (peer, here)]
        self._connection = Connection(served.number, *places)
        self._connection.node = served.config.node_id
        self._current: tuple[Route, Exchange] | None = None  # of the request that is handled
        self._waits = False  # for an async method
        self._silent = False  # no more requests are handled or answered

    def opened(self) -> None:
        """Call the filters for a new connection."""
        try:
            self._chain.opened(self._connection)
        except Exception as error:
            self._fail(error)

    def closed(self) -> None:
        """Call the filters for the end of the connection."""
        if self._waits and self._served.task is not None:
            self._served.task.cancel()
        for error in self._chain.closed(self._connection):
            self._log(error)

    def request(self, event: RequestReceived) -> None:
        """Let the filters and the handler answer."""
        chain = self._chain
        if self._silent:
            self._served.wire.skip_response(event)
            return
        self._current = None  # the request before may have had no response
        route = chain.routes.get(event.api_key << 16 | event.version)
        if route is None or not (route.requests or route.responses):
            self._served.handle(event, event.request)
            return
        exchange = Exchange(
            self._connection,
            event.api_key,
            event.version,
            event.correlation_id,
            event.header.client_id,
            self._ask,
        )
        exchange.received = event.frame, 0
        if self._served.recorded is not None:
            self._served.recorded.notes = exchange.notes
        principal = self._served.session.principal
        if principal != ANONYMOUS:
            self._connection.principal = principal.removeprefix(USER)
        self._current = route, exchange
        if not route.requests:
            self._served.handle(event, event.request)
            return
        self._run(event, self._request(event, route, exchange))

    async def _request(self, event: RequestReceived, route: Route, exchange: Exchange) -> Next:
        """Run the filters over a request. Returns what lets the handler answer, or answers."""
        chain, served = self._chain, self._served
        frame = len(event.frame).to_bytes(PREFIX, "big") + event.frame
        read = chain.frames.read_request(route, frame)
        settled = await run_request(route, read.message, exchange, _to_task)
        if settled.answer is None:
            changed = chain.frames.settled(route, frame, read, settled.request)
            request = event.request
            if changed is not frame:
                request = chain.frames.read_request(route, changed).message
            return partial(served.handle, event, request)
        if isinstance(settled.answer, Silence):
            self._silent = True
            return partial(served.wire.skip_response, event)
        if route.silent or getattr(event.request, "acks", None) == 0:  # Kafka's and Wafka's
            self._current = None
            return partial(served.answer, event, None)
        methods = chain.before(route, settled.answered_by)
        answer = await run_response(methods, settled.answer, exchange, _to_task)
        frame = chain.frames.answer(route, event.correlation_id, answer)
        self._current = None
        served.wire.skip_response(event)
        return partial(self._send, event, exchange, frame)

    def response(self, event: RequestReceived, frame: bytes) -> None:
        """Let the filters change a response of the handler, and send it."""
        if self._current is None or not self._current[0].responses:
            self._served.send(event, frame)
            return
        route, exchange = self._current
        self._current = None
        self._run(event, self._response(event, route, exchange, frame))

    async def _response(
        self, event: RequestReceived, route: Route, exchange: Exchange, frame: bytes
    ) -> Next:
        """Run the filters over a response. Returns what sends it."""
        chain = self._chain
        read = chain.frames.read_response(route, frame)
        message = await run_response(route.responses, read.message, exchange, _to_task)
        frame = chain.frames.settled(route, frame, read, message)
        return partial(self._send, event, exchange, frame)

    def failed(self, error: BaseException) -> bool:
        """Handle an error that was raised while the connection waited. Returns False if it is not a filter's."""
        if isinstance(error, asyncio.CancelledError):
            error = cancelled()
        waited, self._waits = self._waits, False
        if not isinstance(error, Exception) or not (
            waited or isinstance(error, (Close, FilterError))
        ):
            return False
        self._fail(error)
        return True

    def _fail(self, error: Exception) -> None:
        self._log(error)
        if isinstance(error, Close) and error.reset:
            reset(self._served.transport)
        else:
            self._served.close()

    def _log(self, error: Exception) -> None:
        level, text = why_closed(error)
        bug = None if level < logging.ERROR else error
        log.log(level, "%s: %s", self._served.session.connection_id, text, exc_info=bug)
        log.debug("where it was raised:", exc_info=error.__cause__ or error)

    def _run(self, event: RequestReceived, message: Coroutine[Any, Any, Next]) -> None:
        """Run the coroutine of a message, in a task if something is awaited, and what it returns."""
        try:
            rest, then = run_at_once(message)
            if then is not None:
                then()
        except Exception as error:
            self._fail(error)
            return
        if rest is not None:
            self._waits = True
            self._served.wait_for(event, rest, self._finish)

    def _finish(self, then: Next) -> None:
        self._waits = False
        try:
            then()
        except Exception as error:
            self._fail(error)

    def _send(self, event: RequestReceived, exchange: Exchange, frame: bytes) -> None:
        if exchange.delivery is None:
            self._served.send(event, frame)
            return
        steps = steps_for(exchange.delivery, frame)
        self._served.send(event, frame, take(steps, self._served.transport))

    async def _ask(self, asking: Exchange, request: Any, version: int | None) -> Any:
        """Send a request of the filter that handles an exchange, as ``Exchange.send`` describes."""
        chain, key = self._chain, type(request).api_key
        version = chain.frames.version_of(request, version, self._served.handlers.release.offered)
        return await pass_on(
            chain,
            asking,
            request,
            Exchange(self._connection, key, version, _OWN, CLIENT_ID, self._ask),
            transmit=self._handle,
            silence=self._silence,
        )

    def _silence(self) -> None:
        self._silent = True

    async def _handle(self, request: Any, exchange: Exchange) -> Any:
        """Let the handlers answer a request of a filter."""
        cls, version = type(request), exchange.version
        low, high = self._served.handlers.release.answered.get(cls.api_key, (0, -1))
        if not low <= version <= high:
            raise ConnectionError(f"the broker does not serve {cls.__name__} v{version}")
        request = cls.decode(request.encode(version), version)
        try:
            response = self._served.handlers[cls.api_key](self._served.session, request, version)
            if inspect.isgenerator(response):
                slices = self._served.connections.slices
                response = await slices.run_from_start(cast("Steps[Any]", response))
            if inspect.isawaitable(response):
                response = await response
        except CloseConnection as error:
            raise ConnectionError(str(error)) from error
        return type(response).decode(response.encode(version), version)


async def _to_task() -> None:
    """Continue in a task before a method of a filter is awaited."""
    await asyncio.sleep(0)
