"""The requests in flight of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from krammar.proxy.interface import Exchange
from krammar.proxy.work import Work


class PendingRequest:
    """A request in flight whose response is read or counted.

    ``exchange``  None if no filter reads the response
    ``started``   when the request has arrived, by ``time.perf_counter``; 0 if it is not counted
    """

    __slots__ = ("correlation_id", "exchange", "started", "work")

    def __init__(
        self, correlation_id: int, work: Work, exchange: Exchange | None, started: float
    ) -> None:
        self.started = started
        self.correlation_id = correlation_id
        self.work = work
        self.exchange = exchange


class Own:
    """A request that a filter has sent; ``future`` gets the frame of its response."""

    __slots__ = ("correlation_id", "future")

    def __init__(self, correlation_id: int, future: asyncio.Future[bytes]) -> None:
        self.correlation_id = correlation_id
        self.future = future


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
Entry = int | PendingRequest | Own | FilterAnswer | Token
