"""Connections without I/O. The caller passes received bytes, gets events, and sends the returned bytes.

asyncio, blocking sockets and tests use the same two classes:

```python
connection = ServerConnection(kafka_wire)
while data := sock.recv(65536):
    connection.receive_data(data)
    while (event := connection.next_event()) is not None:
        match event:
            case RequestReceived():
                sock.sendall(connection.send_response(event, answer(event)))
            case InvalidRequest():
                log.warning("%s", event.error)
                return
```

A response contains no api key or version. The order of responses, which Kafka guarantees for each connection,
and the correlation id identify the request. So both sides store the waiting requests, oldest first, and
require this order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

from krammar.wire.errors import DecodeError, UnsupportedVersionError, WireError
from krammar.wire.framing import MAX_FRAME, PREFIX, Buffer, FrameReader, message_frame
from krammar.wire.heads import REQUEST_HEAD, HeaderPlaces
from krammar.wire.kafka import API_VERSIONS, has_api_versions
from krammar.wire.negotiation import ReadResponse, read_response, unsupported_version_response
from krammar.wire.package import Package, package_of

__all__ = [
    "ClientConnection",
    "ConnectionClosed",
    "CorrelationError",
    "InvalidRequest",
    "LocalProtocolError",
    "PushError",
    "PushReceived",
    "ReadResponse",
    "RequestReceived",
    "ResponseError",
    "ResponseReceived",
    "SentRequest",
    "ServerConnection",
    "read_response",
    "unsupported_version_response",
]

# What connections report: errors of the protocol, and received messages.


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


# The connections.

E = TypeVar("E")


class _Connection(FrameReader, Generic[E]):
    """The common part of both sides: it receives bytes and cuts them into frames.

    ``max_frame`` can be changed between frames.
    """

    def __init__(self, protocol: ModuleType, max_frame: int) -> None:
        super().__init__(max_frame)
        self._package = package_of(protocol)
        self._ended = False

    def receive_data(self, data: Buffer, *, lent: bool = False) -> None:
        """Append bytes from the peer. Empty bytes mean that the peer has closed the connection.

        Bytes are parsed by ``next_event``. A caller that stops calling it should stop receiving too, so that
        memory stays bounded.

        Args:
            lent: read the bytes in place. The caller must not change them before it calls ``give_back``.
        """
        if self._ended:
            raise LocalProtocolError("bytes after the end of the connection")
        if data:
            self.feed(data, lent=lent)
        else:
            self._ended = True

    def next_event(self) -> E | ConnectionClosed | None:
        raise NotImplementedError

    def events(self) -> Iterator[E | ConnectionClosed]:
        """Yield the events of all bytes that have arrived. ConnectionClosed is the last event."""
        while (event := self.next_event()) is not None:
            yield event
            if isinstance(event, ConnectionClosed):
                return

    def _closed(self, unanswered: int) -> ConnectionClosed | None:
        if not self._ended:
            return None
        received = self.buffered
        return ConnectionClosed(received, self.expected if received else 0, unanswered)


class ServerConnection(_Connection[RequestReceived | InvalidRequest]):
    """The server's side of a connection: it receives requests and sends responses.

    Requests are answered in their order, by ``send_response``, or by ``skip_response`` if a request asks for no
    response (Produce with acks 0).

    Args:
        protocol: a generated package, such as ``kafka_wire``.
        max_frame: the largest accepted frame in bytes.
        allow_trailing: ignore bytes after the body of a request, as Kafka's brokers do. librdkafka sends three
            after Metadata v13.
        explain_limit: as for ``Package.parse_request``, like the remaining arguments.
    """

    def __init__(
        self,
        protocol: ModuleType,
        *,
        max_frame: int = MAX_FRAME,
        allow_trailing: bool = True,
        explain_limit: int | None = None,
        max_elements: int | None = None,
        views: Container[int] = (),
    ) -> None:
        super().__init__(protocol, max_frame)
        self._views = views
        self._allow_trailing = allow_trailing
        self._explain_limit = explain_limit
        self._max_elements = max_elements
        self._waiting: deque[RequestReceived | InvalidRequest] = deque()

    def next_event(self) -> RequestReceived | InvalidRequest | ConnectionClosed | None:
        """Return the next event, or None if more bytes are needed.

        Raises:
            FrameError: the length of a frame is negative or exceeds the limit. The connection must be closed.
        """
        frame = self.next_frame()
        if frame is None:
            return self._closed(len(self._waiting))
        event: RequestReceived | InvalidRequest
        try:
            header, request = self._package.parse_request(
                frame,
                allow_trailing=self._allow_trailing,
                explain_limit=self._explain_limit,
                max_elements=self._max_elements,
                views=self._views,
            )
        except (DecodeError, UnsupportedVersionError) as error:
            event = InvalidRequest.of(error, frame, self._package)
            if event.correlation_id is None:
                return event
        else:
            event = RequestReceived.of(header, request, frame, self._package.request_head)
        if self._package.responses.get(event.api_key or 0, "") is not None:
            self._waiting.append(event)
        return event

    @property
    def next_api_key(self) -> int | None:
        """Return the api key of the next request, or None if it has not arrived."""
        place = self._package.request_head.key
        return None if place is None else place.read(self.peek(PREFIX + place.end)[PREFIX:])

    def next_raw(self) -> bytes | None:
        """Return the next frame without parsing it, or None if it is incomplete.

        It is for frames that are not requests: the tokens after SaslHandshake v0. Raises FrameError.
        """
        return self.next_frame()

    @property
    def unanswered(self) -> int:
        """The number of requests that are neither answered nor skipped."""
        return len(self._waiting)

    def send_response(
        self, request: RequestReceived | InvalidRequest, response: Any, version: int | None = None
    ) -> bytes:
        """Return the frame of a response, length prefix included. On an error, the request still waits.

        Args:
            request: the oldest waiting request.
            version: the version of the response's body. Default: that of the request.

        Raises:
            LocalProtocolError: the request is not the oldest, or the response is of another class.
            UnsupportedVersionError: the response does not have this version.
            EncodeError: the layout cannot represent a value.
        """
        if not self._waiting or self._waiting[0] is not request:
            raise LocalProtocolError(self._why_not(request))
        key, correlation_id = request.api_key, request.correlation_id
        assert key is not None  # a request without them does not wait
        assert correlation_id is not None
        if version is None:
            assert request.version is not None
            version = request.version
        cls = self._package.response_class(key)
        if cls is None or not isinstance(response, cls):
            raise LocalProtocolError(
                f"{type(response).__name__} does not answer "
                f"{self._package.requests[key].name} (correlation id {correlation_id})"
            )
        package = self._package
        header_version = package.header_versions(key, version).response
        header = package.response_header(
            header_version, package.response_key(key), version, correlation_id
        )
        frame = message_frame(header, header_version, response, version)
        self._waiting.popleft()
        return frame

    def send_push(self, push: Any, version: int) -> bytes:
        """Return the frame of a message that no request asked for, length prefix included.

        Raises:
            LocalProtocolError: the object is not a push of the protocol.
            UnsupportedVersionError: the message does not have this version.
            EncodeError: the layout cannot represent a value.
        """
        package = self._package
        key: int = getattr(type(push), "api_key", -1)
        if key not in package.pushes or not isinstance(push, package.push_class(key)):
            raise LocalProtocolError(f"{type(push).__name__} is not a push of {package.name}")
        header_version = package.push_header_version(key, version)
        header = package.response_header(header_version, key, version, 0)
        return message_frame(header, header_version, push, version)

    def skip_response(self, request: RequestReceived | InvalidRequest) -> None:
        """Declare that a request gets no response, at any time and in any order.

        Raises:
            LocalProtocolError: the request does not wait.
        """
        for index, waiting in enumerate(self._waiting):
            if waiting is request:
                del self._waiting[index]
                return
        raise LocalProtocolError(self._why_not(request))

    def _why_not(self, request: RequestReceived | InvalidRequest) -> str:
        if any(waiting is request for waiting in self._waiting):
            return (
                f"correlation id {request.correlation_id} cannot be answered yet: "
                f"{self._waiting[0].correlation_id} came before it, and responses must keep the order"
            )
        return f"correlation id {request.correlation_id} does not wait for a response"


class ClientConnection(_Connection["ResponseReceived | PushReceived"]):
    """The client's side of a connection: it sends requests and receives responses.

    Args:
        protocol: a generated package, such as ``kafka_wire``.
        client_id: the client id in the header of each request, or None. Headers without a string ``ClientId`` lack it.
        max_frame: the largest accepted frame in bytes.
    """

    def __init__(
        self,
        protocol: ModuleType,
        *,
        client_id: str | None = "krammar",
        max_frame: int = MAX_FRAME,
    ) -> None:
        super().__init__(protocol, max_frame)
        self.client_id = client_id
        self._waiting: deque[SentRequest] = deque()
        self._next_id = 0
        self._largest_id = self._package.largest_correlation_id
        self._mismatch: CorrelationError | None = None

    def send_request(self, request: Any, version: int, *, expect_response: bool = True) -> bytes:
        """Return the frame of a request, length prefix included, with the next correlation id.

        On an error, the correlation id is not used.

        Args:
            expect_response: must be False if the request asks for no response (Produce with acks 0).

        Raises:
            LocalProtocolError: the object is not a request of the protocol.
            UnsupportedVersionError: the request does not have this version.
            EncodeError: the layout cannot represent a value.
        """
        key: int = getattr(type(request), "api_key", -1)
        if key not in self._package.requests or not isinstance(
            request, cls := self._package.request_class(key)
        ):
            raise LocalProtocolError(
                f"{type(request).__name__} is not a request of {self._package.name}"
            )
        correlation_id = self._next_id
        header_version = self._package.header_versions(key, version).request
        header = self._package.request_header(header_version, key, version, correlation_id)
        if self._package.has_client_id(header_version):
            header.client_id = self.client_id
        frame = message_frame(header, header_version, request, version)
        self._next_id = correlation_id + 1 if correlation_id < self._largest_id else 0
        if expect_response and cls.response_class is not None:
            self._waiting.append(SentRequest(request, key, version, correlation_id))
        return frame

    @property
    def waiting(self) -> tuple[SentRequest, ...]:
        """The requests that wait for a response, oldest first."""
        return tuple(self._waiting)

    def next_event(self) -> ResponseReceived | PushReceived | ConnectionClosed | None:
        """Return the next event, or None if more bytes are needed.

        Raises:
            ResponseError: the response is invalid. The connection can still be used.
            PushError: a message that the server sent by itself is invalid. The connection can still be used.
            CorrelationError: the response does not belong to the oldest request. The connection must be closed.
            FrameError: the length of a frame is negative or exceeds the limit. The connection must be closed.
        """
        if self._mismatch is not None:
            raise self._mismatch
        frame = self.next_frame()
        if frame is None:
            return self._closed(len(self._waiting))
        if self._package.is_push(frame):
            return self._push(frame)
        sent = self._match(frame)
        try:
            header, response, version = read_response(
                self._package, frame, sent.api_key, sent.version
            )
        except DecodeError as error:
            raise ResponseError(error, sent=sent, frame=frame) from error
        return ResponseReceived(sent, header, response, version, frame)

    def _push(self, frame: bytes) -> PushReceived:
        try:
            header, push = self._package.parse_push(frame)
        except (DecodeError, UnsupportedVersionError) as error:
            raise PushError(error, frame=frame) from error
        version = self._package.response_head.version
        assert version is not None  # `krammar check` requires it
        return PushReceived(header, push, push.api_key, getattr(header, version.name), frame)

    def _match(self, frame: bytes) -> SentRequest:
        """Remove and return the waiting request of a response."""
        expected = self._waiting[0].correlation_id if self._waiting else None
        head = self._package.response_head
        got = None if head.correlation_id is None else head.correlation_id.read(frame)
        key = None if head.key is None else head.key.read(frame)
        wanted = (
            None
            if key is None or not self._waiting
            else self._package.response_key(self._waiting[0].api_key)
        )
        if got is not None and got == expected and key == wanted:
            return self._waiting.popleft()
        if got is not None and got == expected:
            message = f"a response to correlation id {got} with key {key}, which must be {wanted}"
        elif got is None:
            message = f"a response of {len(frame)} bytes is too short for a correlation id"
        elif expected is None:
            message = f"a response to correlation id {got}, but no request is waiting"
        else:
            known = any(sent.correlation_id == got for sent in self._waiting)
            why = "was sent later" if known else "is not waiting"
            message = f"a response to correlation id {got}, which {why}; {expected} must be answered first"
        self._mismatch = CorrelationError(
            message, correlation_id=-1 if got is None else got, expected=expected, frame=frame
        )
        raise self._mismatch
