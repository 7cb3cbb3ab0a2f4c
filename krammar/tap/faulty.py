"""Carries out the decisions of the rules of faults for one connection of the proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from krammar.faults import Faults
from krammar.faults.shape import Schema
from krammar.faults.steps import Exchange, Fate, Hold, Send, StepTo, Verdict, Wait
from krammar.proxy.delivery import reset
from krammar.tap.inspector import PRODUCE, Frame, encode
from krammar.wire.connection import read_response
from krammar.wire.framing import PREFIX, message_frame

# Why a connection ended, in the words of the proxy's other reasons.
DROPPED = "client: the connection was closed by a fault"


class Dropped(Exception):
    """A fault has closed the connection."""


@dataclass(slots=True, eq=False)
class _Open:
    """A request that was forwarded or answered here, and whose response has not reached the client.

    ``steps`` delivers the response; None until the response has arrived.
    """

    exchange: Exchange
    steps: list[StepTo] | None = None


class Faulty:
    """The faults of one connection. Responses reach the client in the order of their requests.

    Args:
        number: the connection's number, from 1.
        node: returns the id of the node that the client talks to, as far as it is known.
    """

    def __init__(
        self,
        faults: Faults,
        number: int,
        node: Callable[[], int | None],
        client: asyncio.StreamWriter,
        upstream: asyncio.StreamWriter,
    ) -> None:
        self._faults = faults
        self._talk = faults.talk()
        self._number = number
        self._node = node
        self._client = client
        self._upstream = upstream
        self._open: list[_Open] = []
        self._sending = asyncio.Lock()
        self._held: asyncio.TimerHandle | None = None

    def request(self, frame: Frame) -> Coroutine[Any, Any, None]:
        """Decide about a request, and return the awaitable that carries it out: forwarding, or the rules' action.

        The awaitable raises Dropped and OSError.
        """
        if frame.message is None:  # not a request of the protocol, so it passes
            return self._forward(frame.data)
        assert frame.api_key is not None
        assert frame.version is not None
        assert frame.correlation_id is not None
        exchange = Exchange(
            self._number,
            frame.api_key,
            frame.version,
            frame.correlation_id,
            frame.header.client_id,
            frame.message,
            frame.data,
            node=self._node(),
        )
        verdict = self._talk.request(exchange)
        frame.note = "; ".join(exchange.notes)
        opened = None
        if not _is_silent(self._faults, frame):
            opened = _Open(exchange)
            self._open.append(opened)
        if verdict is None:
            return self._forward(frame.data)
        return self._carry_out(frame, verdict, exchange, opened)

    async def _carry_out(
        self, frame: Frame, verdict: Verdict, exchange: Exchange, opened: _Open | None
    ) -> None:
        if verdict.delay_ms:
            await asyncio.sleep(verdict.delay_ms / 1000)
        if verdict.fate is Fate.DROP:
            if verdict.reset:
                reset(self._client.transport)
            raise Dropped
        if verdict.fate is Fate.SWALLOW:
            return
        if verdict.fate is Fate.ANSWER:
            if opened is not None:
                opened.steps = self._steps(exchange, verdict.answer, None)
                await self._send_ready()
            return
        data = frame.data
        if verdict.changed:
            data = _encoded(self._faults, frame, verdict.request)
        await self._forward(data)

    def response(self, frame: Frame, data: bytes) -> Coroutine[Any, Any, None]:
        """Decide about a response with its final bytes, and return the awaitable that delivers it.

        The awaitable raises Dropped and OSError.
        """
        opened = next(
            (
                each
                for each in self._open
                if each.steps is None and each.exchange.correlation_id == frame.correlation_id
            ),
            None,
        )
        if opened is None or frame.message is None:
            # Responses to unknown requests pass unchanged.
            ready: list[StepTo] = [Send(len(data).to_bytes(PREFIX, "big") + data)]
            if opened is None:
                return self._take(ready)
            opened.steps = ready
        else:
            exchange = opened.exchange
            came = data[: len(data) - len(frame.rest)]
            # The frame's own message must not change, because observers receive it.
            _, message, version = read_response(
                self._faults.schema.package, came, exchange.api_key, exchange.version
            )
            opened.steps = self._steps(exchange, message, data, version)
            frame.note = "; ".join(filter(None, (frame.note, *exchange.notes)))
        return self._send_ready()

    def unread(self, frame: Frame) -> None:
        """Note that a response is passed on unread, because it is too large."""
        self._open = [
            each for each in self._open if each.exchange.correlation_id != frame.correlation_id
        ]

    def close(self) -> None:
        if self._held is not None:
            self._held.cancel()

    def _steps(
        self, exchange: Exchange, message: object, data: bytes | None, version: int | None = None
    ) -> list[StepTo]:
        """How a response reaches the client; ``data`` are its bytes without the length prefix, if it came
        as bytes."""
        exchange.notes.clear()
        delivery = self._talk.response(exchange, message)
        if data is not None and (delivery is None or not delivery.changed):
            whole = len(data).to_bytes(PREFIX, "big") + data
        else:
            body = exchange.version if version is None else version
            answer = message if delivery is None else delivery.message
            whole = _encode_response(self._faults.schema, exchange, answer, body)
        return [Send(whole)] if delivery is None else self._talk.steps(delivery, whole)

    async def _forward(self, data: bytes) -> None:
        self._upstream.write(len(data).to_bytes(PREFIX, "big") + data)
        await self._upstream.drain()

    async def _send_ready(self) -> None:
        """Send the responses whose turn it is."""
        async with self._sending:
            while self._open and (steps := self._open[0].steps) is not None:
                self._open.pop(0)
                await self._take(steps)

    async def _take(self, steps: list[StepTo]) -> None:
        for step in steps:
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Send):
                self._client.write(step.data)
                await self._client.drain()
            elif isinstance(step, Hold):
                loop = asyncio.get_running_loop()
                self._held = loop.call_later(step.seconds, self._send_held)
            elif step.reset:
                reset(self._client.transport)
                raise Dropped
            else:
                with contextlib.suppress(OSError):
                    self._client.close()  # after what was written
                    await self._client.wait_closed()
                raise Dropped

    def _send_held(self) -> None:
        with contextlib.suppress(OSError):  # the client may have gone
            for held in self._talk.release():
                self._client.write(held)


def _is_silent(faults: Faults, frame: Frame) -> bool:
    """Whether no response comes to a request."""
    assert frame.api_key is not None
    if faults.schema.package.response_class(frame.api_key) is None:
        return True
    return frame.api_key == PRODUCE and getattr(frame.message, "acks", -1) == 0


def _encoded(faults: Faults, frame: Frame, request: object) -> bytes:
    changed = Frame(frame.time_ns, frame.connection, True, frame.data, frame.size)
    changed.api_key, changed.body_version = frame.api_key, frame.body_version
    changed.header, changed.message = frame.header, request
    return encode(faults.schema.package, changed) + frame.rest


def _encode_response(schema: Schema, exchange: Exchange, message: Any, version: int) -> bytes:
    """Return the frame of a response, length prefix included. Raises EncodeError."""
    package = schema.package
    header = package.get("ResponseHeader")(correlation_id=exchange.correlation_id)
    header_version = package.header_versions(exchange.api_key, version).response
    return message_frame(header, header_version, message, version)
