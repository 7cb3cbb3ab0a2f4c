"""A frame that was inspected, and the interface of observers, which receive frames."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The result of inspecting a frame."""

    OK = "ok"  # decoded, and encoded to the same bytes
    SURPLUS = "surplus"  # the same, but more bytes follow, which receivers ignore
    MISMATCH = "mismatch"  # decoded, but encoded to other bytes
    UNDECODABLE = "undecodable"  # the bytes do not follow their layout
    UNKNOWN = "unknown"  # the definitions do not have the api key or version
    TOKEN = "token"  # not a Kafka message, but the bare bytes that follow SaslHandshake version 0


_GOOD = (Status.OK, Status.SURPLUS, Status.TOKEN)


@dataclass(slots=True, eq=False)
class Frame:
    """A frame and its inspection.

    Attributes:
        time_ns: when it arrived, in nanoseconds since 1970
        latency_ns: for responses: the time since the request
        data: the bytes without the length prefix; only the first ones if ``size`` is larger
        size: the frame's size in bytes
        is_answered: for requests: whether a response is certain to follow
        is_push: whether the server sent it by itself
        raw: whether ``data`` are bytes that are not a frame, including their length prefix
        version: the version of the request
        body_version: the version in which the body was decoded
        error, path, offset: what is wrong, in which field, and where in ``data`` (-1 if unknown)
        rest: the bytes after the message
        note: what the proxy has changed
    """

    time_ns: int
    connection: int
    is_request: bool
    data: bytes
    size: int
    api: str = "?"
    api_key: int | None = None
    version: int | None = None
    correlation_id: int | None = None
    body_version: int = -1
    header: Any = None
    message: Any = None
    status: Status = Status.OK
    error: str = ""
    path: str = ""
    offset: int = -1
    latency_ns: int | None = None
    rest: bytes = b""
    note: str = ""
    raw: bool = False
    is_answered: bool = False
    is_push: bool = False

    @property
    def is_good(self) -> bool:
        """Whether the frame was decoded and encodes to the same bytes, or is a bare SASL token."""
        return self.status in _GOOD


class Observer:
    """Receives all events of a proxy, or of the replay of a capture, in order. The methods of this class do nothing.

    An OSError of a method ends the proxy, because frames can no longer be shown or stored.
    """

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        """Handle a new connection of a client to the proxy, and of the proxy to the broker."""

    def frame(self, frame: Frame) -> None:
        """Handle a frame. ``frame.note`` describes how the proxy has changed it."""

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        """Handle the end of a connection."""

    def notice(self, text: str) -> None:
        """Handle another event, such as a new listening port or an unreachable broker."""

    def close(self) -> None:
        """Release resources after the last event."""
