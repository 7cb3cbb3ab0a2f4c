"""Carries out what the rules of faults decide about one connection's requests and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from krammar.broker.connections import OpenConnection
from krammar.faults.steps import Delivery, Exchange, Fate, Hold, Send, StepTo, Verdict, Wait

if TYPE_CHECKING:
    from krammar.broker.timers import Timers
    from krammar.faults import Faults
    from krammar.wire.connection import RequestReceived, ServerConnection


class Served(OpenConnection, Protocol):
    """What this needs of a connection."""

    transport: asyncio.Transport
    timers: Timers
    wire: ServerConnection
    number: int

    def serve(self, event: RequestReceived, request: Any) -> None: ...
    def answer(self, event: RequestReceived, response: Any) -> None: ...
    def wait_for(
        self, event: RequestReceived, work: Awaitable[Any], then: Callable[[Any], object]
    ) -> None: ...


class Faulty:
    """The faults of one connection; ``node`` is the id of the broker's node."""

    def __init__(self, faults: Faults, connection: Served, node: int) -> None:
        self._talk = faults.talk()
        self._connection = connection
        self._node = node
        self._exchange: Exchange | None = None

    def request(self, event: RequestReceived) -> None:
        """Do with a request what the rules say."""
        self._exchange = Exchange(
            self._connection.number,
            event.api_key,
            event.version,
            event.correlation_id,
            event.header.client_id,
            event.request,
            event.frame,
            self._connection.session.principal,
            self._node,
        )
        verdict = self._talk.request(self._exchange)
        if verdict is None:
            self._connection.serve(event, event.request)
        elif verdict.delay_ms:
            delay = asyncio.sleep(verdict.delay_ms / 1000)
            self._connection.wait_for(event, delay, lambda _: self._carry_out(event, verdict))
        else:
            self._carry_out(event, verdict)

    def response(self, response: Any) -> Delivery | None:
        """Return how the response to the last request is delivered; None if nothing happens to it."""
        exchange, self._exchange = self._exchange, None
        return None if exchange is None else self._talk.response(exchange, response)

    def deliver(self, event: RequestReceived, delivery: Delivery, frame: bytes) -> None:
        """Send a response."""
        steps = self._talk.steps(delivery, frame)
        self._connection.wait_for(event, self._take(steps), lambda _: None)

    def _carry_out(self, event: RequestReceived, verdict: Verdict) -> None:
        connection = self._connection
        if verdict.advance_ms:
            connection.timers.advance(verdict.advance_ms)
        if verdict.fate is Fate.DROP:
            connection.abort()
        elif verdict.fate is Fate.SWALLOW:
            connection.wire.skip_response(event)
        elif verdict.fate is Fate.ANSWER:
            connection.answer(event, verdict.answer)
        else:
            connection.serve(event, verdict.request)

    async def _take(self, steps: list[StepTo]) -> None:
        connection = self._connection
        for step in steps:
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
            elif connection.transport.is_closing():
                return
            elif isinstance(step, Send):
                connection.transport.write(step.data)
            elif isinstance(step, Hold):
                connection.timers.call_later(step.seconds, self._send_held)
            else:
                connection.close()

    def _send_held(self) -> None:
        if not self._connection.transport.is_closing():
            for frame in self._talk.release():
                self._connection.transport.write(frame)
