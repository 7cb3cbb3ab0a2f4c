"""Requests in flight, and requests whose fields depend on the version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from krammar.client.errors import ClientError
from krammar.wire.message import Request


class RequestInFlight:
    """A request in flight. When it is ``done``, either ``response`` or ``error`` is set.

    ``end`` is the number of bytes that the connection has written when the request is written.
    """

    __slots__ = ("connection", "done", "end", "error", "expires", "request", "response", "version")

    def __init__(
        self, connection: object, request: Any, version: int, expires: float, end: int
    ) -> None:
        self.connection = connection
        self.request = request
        self.version = version
        self.expires = expires  # by time.monotonic
        self.response: Any = None
        self.error: ClientError | None = None
        self.done = False
        self.end = end

    def result(self) -> Any:
        """Return the response.

        Raises:
            TransportError: the connection is broken, or the request has expired.
            ProtocolError: the response is malformed.
        """
        if self.error is not None:
            raise self.error
        return self.response


@dataclass(frozen=True, slots=True)
class ByVersion:
    """A request whose fields depend on the version: its class, and what builds it for a version."""

    cls: type[Request]
    build: Callable[[int], Request]
