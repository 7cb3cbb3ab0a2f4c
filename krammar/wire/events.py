"""What connections report: received requests and responses, and errors of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from krammar.wire.errors import DecodeError, UnsupportedVersionError, WireError
from krammar.wire.heads import REQUEST_HEAD, HeaderPlaces
from krammar.wire.kafka import API_VERSIONS, has_api_versions
from krammar.wire.package import Package


class LocalProtocolError(WireError):
    """A call would violate the protocol, such as a response out of order."""


class CorrelationError(DecodeError):
    """The correlation id of a response is not that of the oldest waiting request.

    The request of the response is unknown, so the connection must be closed. ``correlation_id`` is that of the
    response, ``expected`` that of the waiting request (None if no request waits), and ``frame`` the response
    without its length prefix.
    """

    def __init__(
        self, message: str, *, correlation_id: int, expected: int | None, frame: bytes
    ) -> None:
        super().__init__(message, offset=0)
        self.correlation_id = correlation_id
        self.expected = expected
        self.frame = frame


class ResponseError(DecodeError):
    """A response is invalid.

    ``sent`` is its request, and ``frame`` its bytes without the length prefix. The path and the offset are
    those of the invalid field in the frame. The request no longer waits, and the connection can still be used.
    """

    def __init__(self, cause: DecodeError, *, sent: SentRequest, frame: bytes) -> None:
        super().__init__(
            f"response to correlation id {sent.correlation_id}: {cause}",
            path=cause.path,
            offset=cause.offset,
        )
        self.sent = sent
        self.frame = frame


class PushError(DecodeError):
    """A message that the server has sent by itself is invalid.

    ``frame`` are its bytes without the length prefix. The connection can still be used.
    """

    def __init__(self, cause: DecodeError | UnsupportedVersionError, *, frame: bytes) -> None:
        path, offset = (cause.path, cause.offset) if isinstance(cause, DecodeError) else ("", 0)
        super().__init__(str(cause), path=path, offset=offset)
        self.frame = frame


@dataclass(slots=True, eq=False)
class RequestReceived:
    """A request has been received. ``frame`` are its bytes without the length prefix."""

    header: Any
    request: Any
    api_key: int
    version: int
    correlation_id: int
    frame: bytes

    @classmethod
    def of(cls, header: Any, request: Any, frame: bytes, head: HeaderPlaces = REQUEST_HEAD) -> Self:
        """Return the event for a parsed frame. ``head`` are the places of the protocol's header."""
        if head is REQUEST_HEAD:
            key, version = header.request_api_key, header.request_api_version
            return cls(header, request, key, version, header.correlation_id, frame)
        key, version, number = (
            0 if place is None else getattr(header, place.name) for place in head
        )
        return cls(header, request, key, version, number, frame)


@dataclass(slots=True, eq=False)
class InvalidRequest:
    """A frame has been received that is not a valid request.

    Attributes:
        error: HeaderError, UnknownApiKeyError, UnsupportedVersionError or DecodeError, as from ``parse_request``
        header: None if it is invalid
        api_key, version, correlation_id: those at their places in the header, or None if the frame is too short
        frame: the bytes of the frame, without its length
        wants_api_versions: whether it is Kafka's ApiVersions in an unknown version, which
            ``unsupported_version_response`` answers
    """

    error: DecodeError | UnsupportedVersionError
    header: Any
    api_key: int | None
    version: int | None
    correlation_id: int | None
    frame: bytes
    wants_api_versions: bool = False

    @classmethod
    def of(
        cls, error: DecodeError | UnsupportedVersionError, frame: bytes, package: Package
    ) -> Self:
        """Return the event for a frame that could not be parsed."""
        key, version, number = (
            None if place is None else place.read(frame) for place in package.request_head
        )
        wants_versions = (
            isinstance(error, UnsupportedVersionError)
            and key == API_VERSIONS
            and number is not None
            and has_api_versions(package)
        )
        return cls(error, error.header, key, version, number, frame, wants_versions)


@dataclass(slots=True, eq=False)
class SentRequest:
    """A sent request, as part of ``ResponseReceived`` and ``ResponseError``."""

    request: Any
    api_key: int
    version: int
    correlation_id: int


@dataclass(slots=True, eq=False)
class ResponseReceived:
    """A response has been received.

    ``version`` is the version of the response's body: that of the request, or 0 if the broker does not know
    the requested version of ApiVersions. ``frame`` are the bytes without the length prefix.
    """

    sent: SentRequest
    header: Any
    response: Any
    version: int
    frame: bytes


@dataclass(slots=True, eq=False)
class PushReceived:
    """The server has sent a message by itself. ``frame`` are its bytes without the length prefix."""

    header: Any
    push: Any
    api_key: int
    version: int
    frame: bytes


@dataclass(slots=True, eq=False)
class ConnectionClosed:
    """The peer has closed the connection.

    If the last frame is incomplete, ``received`` of its ``expected`` bytes have arrived, prefix included;
    otherwise both are 0. ``unanswered`` is the number of requests that wait for a response.
    """

    received: int
    expected: int
    unanswered: int

    @property
    def clean(self) -> bool:
        """Whether the last frame was complete."""
        return self.received == 0
