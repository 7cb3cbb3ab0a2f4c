"""Carries out what the rules of faults decide about one connection's requests and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from krammar.faults.steps import Delivery, Exchange, Fate, Hold, Send, StepTo, Verdict, Wait

if TYPE_CHECKING:
    from krammar.broker.session import Session
    from krammar.broker.timers import Timers
    from krammar.faults import Faults
    from krammar.wire.connection import RequestReceived, ServerConnection


class Served(Protocol):
    """What this needs of a connection."""

    transport: asyncio.Transport
    session: Session
    timers: Timers
    wire: ServerConnection
    task: asyncio.Future[Any] | None

    def pump(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Faulty:
    """The faults of one connection.

    Args:
        number: the connection's number, from 1.
        serve: lets the broker handle a request; returns whether to go on with the next one at once.
        answer: sends a response; returns the same.
    """

    def __init__(
        self,
        faults: Faults,
        connection: Served,
        number: int,
        node: int,
        serve: Callable[[RequestReceived, Any], bool],
        answer: Callable[[RequestReceived, Any], bool],
    ) -> None:
        self._talk = faults.talk()
        self._connection = connection
        self._number = number
        self._node = node
        self._serve = serve
        self._answer = answer
        self._exchange: Exchange | None = None

    def request(self, event: RequestReceived) -> bool:
        """Do with a request what the rules say; return whether to go on with the next one at once."""
        self._exchange = Exchange(
            self._number,
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
            return self._serve(event, event.request)
        if verdict.delay_ms:
            task = asyncio.ensure_future(asyncio.sleep(verdict.delay_ms / 1000))
            self._wait_for(task, partial(self._carry_out, event, verdict))
            return False
        return self._carry_out(event, verdict)

    def response(self, response: Any) -> Delivery | None:
        """Return how the response to the last request is delivered; None if nothing happens to it."""
        exchange, self._exchange = self._exchange, None
        return None if exchange is None else self._talk.response(exchange, response)

    def deliver(self, delivery: Delivery, frame: bytes) -> bool:
        """Send a response; return whether to go on with the next request at once."""
        task = asyncio.ensure_future(self._take(self._talk.steps(delivery, frame)))
        self._wait_for(task, lambda: True)
        return False

    def _wait_for(self, task: asyncio.Future[None], then: Callable[[], bool]) -> None:
        connection = self._connection
        connection.task = task

        def finish(task: asyncio.Future[None]) -> None:
            connection.task = None
            if not task.cancelled():
                task.result()
                if not connection.transport.is_closing() and then():
                    connection.pump()

        task.add_done_callback(finish)

    def _carry_out(self, event: RequestReceived, verdict: Verdict) -> bool:
        connection = self._connection
        if verdict.advance_ms:
            connection.timers.advance(verdict.advance_ms)
        if verdict.fate is Fate.DROP:
            connection.abort()
            return False
        if verdict.fate is Fate.SWALLOW:
            connection.wire.skip_response(event)
            return True
        if verdict.fate is Fate.ANSWER:
            return self._answer(event, verdict.answer)
        return self._serve(event, verdict.request)

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
