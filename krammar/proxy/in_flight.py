"""The requests in flight of a connection: those of its client, and the proxy's own for filters and logins."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from krammar.proxy.chain import RouteTable
from krammar.proxy.exchange import CLIENT_ID, pass_on
from krammar.proxy.interface import Exchange
from krammar.proxy.relay import LinkState, Resources
from krammar.proxy.route import Route
from krammar.util.turns import in_thread

# Correlation ids of the proxy's own requests: negative numbers, which clients do not use.
_FIRST_OWN = -(1 << 31)


class PendingRequest:
    """A request in flight whose response is read or counted.

    Attributes:
        exchange: None if no filter reads the response
        started: when the request has arrived, by ``time.perf_counter``; 0 if it is not counted
    """

    __slots__ = ("correlation_id", "exchange", "route", "started")

    def __init__(
        self, correlation_id: int, route: Route, exchange: Exchange | None, started: float
    ) -> None:
        self.started = started
        self.correlation_id = correlation_id
        self.route = route
        self.exchange = exchange


class OwnRequest:
    """A request of the proxy itself; ``future`` gets the frame of its response."""

    __slots__ = ("correlation_id", "future")

    def __init__(self, correlation_id: int, future: asyncio.Future[bytes]) -> None:
        self.correlation_id = correlation_id
        self.future = future

    def fail(self, reason: str) -> None:
        """Let the request fail, unless it has its response."""
        if not self.future.done():
            self.future.set_exception(ConnectionError(reason))


class FilterAnswer:
    """A response of a filter, which waits until all responses before it have reached the client."""

    __slots__ = ("delivery", "frame")

    def __init__(self, frame: bytes, delivery: Callable[[bytes], list[Any]] | None) -> None:
        self.frame = frame
        self.delivery = delivery


class Token:
    """A frame without a header, after SaslHandshake v0. Any frame is its response."""


TOKEN = Token()

# A request in flight. A number is the correlation id of a request whose response passes unread.
Entry = int | PendingRequest | OwnRequest | FilterAnswer | Token


class InFlight:
    """The requests without a response.

    Not ``ClientConnection`` of krammar.wire: most entries are numbers, so that frames pass without
    an object each, and requests of the proxy and answers of filters are among them.

    Attributes:
        entries: in the order of the requests
        answers: the number of answers of filters among them
        outbox: own requests that wait for the end of a client's frame, and their bytes
    """

    __slots__ = ("answers", "entries", "outbox")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.answers = 0
        self.outbox: list[tuple[OwnRequest, bytes]] = []

    def fail_own(self) -> None:
        """Let all own requests fail, because their responses cannot come any more."""
        for entry in (*self.entries, *(own for own, _ in self.outbox)):
            if isinstance(entry, OwnRequest):
                entry.fail("the broker has closed the connection")


class OwnRequests:
    """Sends the requests of filters, and of the proxy's login, and waits for their responses.

    Args:
        send: sends a request with its bytes, at the end of the client's current frame; a login's also while requests of
            filters wait for its end.
    """

    def __init__(
        self,
        state: LinkState,
        table: RouteTable,
        resources: Resources,
        send: Callable[[OwnRequest, bytes, bool], None],
    ) -> None:
        self._state = state
        self._table = table
        self._resources = resources
        self._send = send
        self._next_id = _FIRST_OWN

    def exchange(self, route: Route, correlation_id: int, client_id: str | None) -> Exchange:
        """Return an exchange whose filters can send requests."""
        return Exchange(
            self._state.connection,
            route.api_key,
            route.version,
            correlation_id,
            client_id,
            self.send,
        )

    async def send(self, asking: Exchange, request: Any, version: int | None = None) -> Any:
        """Send a request of the filter that handles an exchange, as ``Exchange.send`` describes."""
        chain = self._table.chain
        version = chain.frames.version_of(request, version, self._state.offered)
        route = Route(type(request).api_key, version)
        return await pass_on(
            chain,
            asking,
            request,
            self.exchange(route, self._take_id(), CLIENT_ID),
            transmit=self._transmit,
            silence=self._silence,
        )

    async def send_login(self, request: Any, version: int | None = None) -> Any:
        """Send a request of a login, before those that wait for its end. It passes no filters."""
        frames = self._table.chain.frames
        version = frames.version_of(request, version, self._state.offered)
        return await self._ask(request, version, self._take_id(), is_login=True)

    async def _transmit(self, request: Any, exchange: Exchange) -> Any:
        return await self._ask(request, exchange.version, exchange.correlation_id, is_login=False)

    def _silence(self) -> None:
        self._state.silent = True

    def _take_id(self) -> int:
        taken = self._next_id
        self._next_id = taken + 1 if taken < -1 else _FIRST_OWN
        return taken

    async def _ask(self, request: Any, version: int, correlation_id: int, *, is_login: bool) -> Any:
        frames = self._table.chain.frames
        route = Route(type(request).api_key, version)
        own = OwnRequest(correlation_id, asyncio.get_running_loop().create_future())
        frame = frames.request(correlation_id, CLIENT_ID, request, version)
        self._send(own, frame, is_login)
        answer = await own.future
        if len(answer) <= self._resources.loop_bytes:
            return frames.read_response(route, answer).message
        worker = self._resources.worker
        return (await in_thread(frames.read_response, route, answer, worker=worker)).message
