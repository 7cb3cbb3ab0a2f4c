"""Requests that the proxy itself sends to a broker, for filters and for its login."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

from krammar.proxy.ends import ONE_TURN, End
from krammar.proxy.filter_requests import CLIENT_ID, pass_on
from krammar.proxy.in_flight import Own
from krammar.proxy.interface import Exchange
from krammar.proxy.responses import Responses
from krammar.proxy.shared import Shared
from krammar.proxy.work import Work

# Correlation ids of requests of the proxy: negative numbers, which clients do not use.
_FIRST_OWN = -(1 << 31)


class Asking(End):
    """The part of the end at the client that sends requests of the proxy, between frames of the client."""

    def __init__(self, shared: Shared, responses: Responses) -> None:
        super().__init__(shared)
        self._responses = responses
        self._own = _FIRST_OWN
        # Whether frames need more than a look at the table: tokens, the outbox, a task, or draining.
        self._attention = False
        self._renew = self._renewing = False  # whether a login at the broker is due, or under way

    async def _finish(self, finished: Awaitable[None]) -> None:
        """Wait for something that delays the client's requests, then continue with them."""
        raise NotImplementedError

    # -- logins at the broker (KIP-368)

    def renew_login(self) -> None:
        """Log in again as soon as no frame is incomplete and no filter runs. Requests of the client wait."""
        self._renew = self._attention = True
        if self._task is None and self.is_between_frames:
            self._log_in_again()

    def _log_in_again(self) -> None:
        async def renew() -> None:
            try:
                await self.shared.log_in()
            finally:
                self._renewing = False

        self._renew = False
        self._renewing = self._attention = True
        self.hold("filter")
        self.begin(self._finish(renew()))

    # -- requests of filters, and of logins

    async def send_now(self, request: Any, version: int | None = None) -> Any:
        """Send a request of a login, before those that wait for its end. It passes no filters."""
        version = self.shared.chain.frames.version_of(request, version, self.shared.offered)
        return await self._ask(request, version, self._next_own(), self.is_between_frames)

    async def send(self, asking: Exchange, request: Any, version: int | None = None) -> Any:
        """Send a request of the filter that handles an exchange, as ``Exchange.send`` describes."""
        shared = self.shared
        version = shared.chain.frames.version_of(request, version, shared.offered)
        key, own = type(request).api_key, self._next_own()
        return await pass_on(
            shared.chain,
            asking,
            request,
            Exchange(shared.connection, key, version, own, CLIENT_ID, self.send),
            transmit=self._transmit,
            silence=self._silence,
        )

    async def _transmit(self, request: Any, exchange: Exchange) -> Any:
        at_once = self.is_between_frames and not self._renewing
        return await self._ask(request, exchange.version, exchange.correlation_id, at_once)

    def _silence(self) -> None:
        self.shared.silent = True

    def _next_own(self) -> int:
        own, self._own = self._own, self._own + 1 if self._own < -1 else _FIRST_OWN
        return own

    async def _ask(self, request: Any, version: int, correlation_id: int, at_once: bool) -> Any:
        chain = self.shared.chain
        work = Work(type(request).api_key, version)
        own = Own(correlation_id, asyncio.get_running_loop().create_future())
        frame = chain.frames.request(correlation_id, CLIENT_ID, request, version)
        if self.shared.closed or self.peer.ended:
            raise ConnectionError("the broker has closed the connection")
        if at_once:
            self._send_own(own, frame)
        else:
            self.shared.outbox.append((own, frame))
            self._attention = True
        self._responses.release("filter")
        answer = await own.future
        if len(answer) <= ONE_TURN:
            return chain.frames.read_response(work, answer).message
        read = await self.shared.worker.run(partial(chain.frames.read_response, work, answer))
        return read.message

    def _send_own(self, own: Own, frame: bytes) -> None:
        self.shared.in_flight.append(own)
        self.peer.write(frame)
