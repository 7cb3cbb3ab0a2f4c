"""Connections without I/O: give them the bytes that came, take events; ask them for the bytes to send.

The same two classes serve asyncio, blocking sockets and tests, which move the bytes:

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

Responses carry no hint of their form: which request one answers is known by the order alone, which
Kafka guarantees for each connection, and by the correlation id, which repeats it. So both sides
remember the requests that are waiting, oldest first, and insist on that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from krammar.wire.errors import DecodeError, UnsupportedVersionError, WireError
from krammar.wire.framing import MAX_FRAME, PREFIX, Buffer, FrameReader, join_frame
from krammar.wire.package import Package, package_of

# Only ApiVersions is treated in a way of its own: it is what a client asks before it can know which
# versions the broker has, so that it must be answered even in a version that does not exist (KIP-511).
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35


class LocalProtocolError(WireError):
    """A call that would break the protocol, such as a response before it is its turn."""


class CorrelationError(DecodeError):
    """A response whose correlation id is not that of the oldest request that is waiting.

    Which request it answers cannot be known, so the connection is of no more use.
    ``correlation_id`` is the response's, ``expected`` the waiting request's (None where none is
    waiting), ``frame`` the response's bytes without the length prefix.
    """

    def __init__(
        self, message: str, *, correlation_id: int, expected: int | None, frame: bytes
    ) -> None:
        super().__init__(message, offset=0)
        self.correlation_id = correlation_id
        self.expected = expected
        self.frame = frame


class ResponseError(DecodeError):
    """A response that does not follow its layout. ``sent`` is the request that it answers, ``frame``
    its bytes without the length prefix; path and offset say where in the frame reading failed.

    The request is not waiting any more, and the connection can be used on.
    """

    def __init__(self, cause: DecodeError, *, sent: SentRequest, frame: bytes) -> None:
        super().__init__(
            f"response to correlation id {sent.correlation_id}: {cause}",
            path=cause.path,
            offset=cause.offset,
        )
        self.sent = sent
        self.frame = frame


@dataclass(slots=True, eq=False)
class RequestReceived:
    """A request, read. ``frame`` holds its bytes without the length prefix."""

    header: Any
    request: Any
    api_key: int
    version: int
    correlation_id: int
    frame: bytes


@dataclass(slots=True, eq=False)
class InvalidRequest:
    """A frame that is no request of the protocol.

    ``error`` is what ``parse_request`` raises: HeaderError, UnknownApiKeyError,
    UnsupportedVersionError or DecodeError. ``header`` is None where it could not be read; key, version
    and correlation id are what the first bytes say, None where the frame is too short for them.
    """

    error: DecodeError | UnsupportedVersionError
    header: Any
    api_key: int | None
    version: int | None
    correlation_id: int | None
    frame: bytes

    @property
    def wants_api_versions(self) -> bool:
        """Whether this is ApiVersions in a version that the protocol does not have, which
        ``unsupported_version_response`` answers."""
        return (
            isinstance(self.error, UnsupportedVersionError)
            and self.api_key == API_VERSIONS
            and self.correlation_id is not None
        )


@dataclass(slots=True, eq=False)
class SentRequest:
    """A request that was sent, as ``ResponseReceived`` and ``ResponseError`` name it."""

    request: Any
    api_key: int
    version: int
    correlation_id: int


@dataclass(slots=True, eq=False)
class ResponseReceived:
    """A response, read, and the request that it answers.

    ``version`` is that of the response's body: 0 where a broker says so that it does not have the
    version of ApiVersions it was asked in, else the request's. ``frame`` holds the bytes without the
    length prefix.
    """

    sent: SentRequest
    header: Any
    response: Any
    version: int
    frame: bytes


@dataclass(slots=True, eq=False)
class ConnectionClosed:
    """The peer has closed its side.

    Of the ``expected`` bytes of a last frame, prefix included, ``received`` came; both are 0 where the
    last frame was whole. ``unanswered`` is the number of requests that wait for their response.
    """

    received: int
    expected: int
    unanswered: int

    @property
    def clean(self) -> bool:
        """Whether no frame was cut."""
        return self.received == 0


class ReadResponse(NamedTuple):
    """A response frame, read, and the version of its body."""

    header: Any
    response: Any
    version: int


def read_response(package: Package, frame: Buffer, api_key: int, version: int) -> ReadResponse:
    """Read a response frame, without its length prefix, to a request of that key and version.

    A broker that does not have the version of ApiVersions it was asked in answers in version 0
    (KIP-511), which only the error code tells. Raises UnknownApiKeyError, UnsupportedVersionError and
    DecodeError.
    """
    try:
        return ReadResponse(*package.parse_response(frame, api_key, version), version)
    except (DecodeError, UnsupportedVersionError):
        if api_key != API_VERSIONS or version == 0:
            raise
        if int.from_bytes(frame[4:6], "big", signed=True) != UNSUPPORTED_VERSION:
            raise
        try:
            return ReadResponse(*package.parse_response(frame, api_key, 0), 0)
        except (DecodeError, UnsupportedVersionError):
            pass
        raise


def unsupported_version_response(
    protocol: ModuleType, serves: Mapping[int, tuple[int, int]] | Iterable[int] | None = None
) -> Any:
    """The body, to be sent in version 0, that answers ApiVersions in an unknown version (KIP-511).

    It says UNSUPPORTED_VERSION and which versions there are: those of ``protocol``, limited to the
    keys in ``serves``, and where that is a mapping, to its first and last versions. Raises
    UnknownApiKeyError for a protocol without ApiVersions.
    """
    package = package_of(protocol)
    response = package.response_class(API_VERSIONS)
    entry = package.get(response._kinds["api_keys"])
    limits = serves if isinstance(serves, Mapping) else None
    keys = package.requests if serves is None else set(serves)
    entries = []
    for key, (low, high) in package.versions().items():
        if key not in keys:
            continue
        if limits is not None:
            low, high = max(low, limits[key][0]), min(high, limits[key][1])
        if low <= high:
            entries.append(entry(api_key=key, min_version=low, max_version=high))
    return response(error_code=UNSUPPORTED_VERSION, api_keys=entries)


class _Connection:
    """What both sides do alike: take bytes in, cut frames."""

    def __init__(self, protocol: ModuleType, max_frame: int) -> None:
        self._package = package_of(protocol)
        self._frames = FrameReader(max_frame)
        self._ended = False

    def receive_data(self, data: Buffer) -> None:
        """Give it the bytes that came from the peer; no bytes mean that the peer has closed its side.

        Nothing is read until ``next_event`` is called, so a caller that stops calling it can stop
        receiving too, and memory stays bounded.
        """
        if self._ended:
            raise LocalProtocolError("bytes after the end of the connection")
        if data:
            self._frames.feed(data)
        else:
            self._ended = True

    @property
    def buffered(self) -> int:
        """The bytes that came and were not made into an event yet."""
        return self._frames.buffered

    @property
    def expected(self) -> int:
        """The bytes of the frame whose beginning is there, prefix included; 4 until that is whole."""
        return self._frames.expected

    @property
    def max_frame(self) -> int:
        """The largest frame that is accepted, in bytes; it can be changed between frames."""
        return self._frames.max_frame

    @max_frame.setter
    def max_frame(self, size: int) -> None:
        self._frames.max_frame = size

    def _closed(self, unanswered: int) -> ConnectionClosed | None:
        if not self._ended:
            return None
        received = self._frames.buffered
        return ConnectionClosed(received, self._frames.expected if received else 0, unanswered)


class ServerConnection(_Connection):
    """The side that reads requests and sends responses.

    ``protocol`` is a generated package, such as ``kafka_wire``; ``max_frame`` the largest frame that is
    accepted, in bytes. ``allow_trailing`` leaves bytes behind a request alone, as Kafka's brokers do.

    Requests are answered in the order in which they came, each by ``send_response`` or, where the
    request asks for no response (Produce with acks 0), declared by ``skip_response``.
    """

    def __init__(
        self, protocol: ModuleType, *, max_frame: int = MAX_FRAME, allow_trailing: bool = False
    ) -> None:
        super().__init__(protocol, max_frame)
        self._allow_trailing = allow_trailing
        self._waiting: deque[RequestReceived | InvalidRequest] = deque()

    def next_event(self) -> RequestReceived | InvalidRequest | ConnectionClosed | None:
        """What came next, or None until more bytes are there.

        Raises FrameError for a length prefix that is negative or over the limit; the connection can
        only be closed then.
        """
        frame = self._frames.next_frame()
        if frame is None:
            return self._closed(len(self._waiting))
        event: RequestReceived | InvalidRequest
        try:
            header, request = self._package.parse_request(
                frame, allow_trailing=self._allow_trailing
            )
        except (DecodeError, UnsupportedVersionError) as error:
            event = InvalidRequest(
                error, error.header, _int(frame, 0, 2), _int(frame, 2, 4), _int(frame, 4, 8), frame
            )
            if event.correlation_id is None:
                return event
        else:
            event = RequestReceived(
                header,
                request,
                header.request_api_key,
                header.request_api_version,
                header.correlation_id,
                frame,
            )
        self._waiting.append(event)
        return event

    @property
    def next_api_key(self) -> int | None:
        """The api key of the request whose beginning is there; None until that is known."""
        return _int(self._frames.peek(PREFIX + 2), PREFIX, PREFIX + 2)

    def next_raw(self) -> bytes | None:
        """The next frame as it is, for what stands between requests: the tokens that follow
        SaslHandshake v0. None until it is whole. Raises FrameError."""
        return self._frames.next_frame()

    def events(self) -> Iterator[RequestReceived | InvalidRequest | ConnectionClosed]:
        """The events that the bytes so far make up; ends behind ConnectionClosed."""
        while (event := self.next_event()) is not None:
            yield event
            if isinstance(event, ConnectionClosed):
                return

    @property
    def unanswered(self) -> int:
        """The number of requests that were neither answered nor skipped."""
        return len(self._waiting)

    def send_response(
        self, request: RequestReceived | InvalidRequest, response: Any, version: int | None = None
    ) -> bytes:
        """The frame of a response, length prefix included.

        ``request`` must be the oldest that is waiting. ``version`` is that of the response's body and
        the request's unless given. Raises LocalProtocolError for a request that is not the oldest, and
        for a response of another kind; UnsupportedVersionError; EncodeError. On an error the
        request goes on waiting.
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
                f"{self._package.requests[key][0]} (correlation id {correlation_id})"
            )
        parts: list[bytes] = []
        header = self._package.get("ResponseHeader")(correlation_id=correlation_id)
        header._encode_parts(self._package.header_versions(key, version).response, parts)
        response._encode_parts(version, parts)
        frame = join_frame(parts)
        self._waiting.popleft()
        return frame

    def skip_response(self, request: RequestReceived | InvalidRequest) -> None:
        """Declare that a request gets no response; at any time, in any order.

        Raises LocalProtocolError where it is not waiting.
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
                f"{self._waiting[0].correlation_id} came before it, and responses keep the order"
            )
        return f"correlation id {request.correlation_id} does not wait for a response"


class ClientConnection(_Connection):
    """The side that sends requests and reads responses.

    ``protocol`` is a generated package, such as ``kafka_wire``; ``client_id`` the name that goes into
    each request's header, None for none; ``max_frame`` the largest frame that is accepted, in bytes.
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
        self._error: CorrelationError | None = None

    def send_request(self, request: Any, version: int, *, expect_response: bool = True) -> bytes:
        """The frame of a request, length prefix included. It takes the next correlation id.

        ``expect_response`` is to be false where the request asks for none (Produce with acks 0).
        Raises LocalProtocolError for what is no request of the protocol; UnsupportedVersionError;
        EncodeError. On an error no correlation id is used up.
        """
        key: int = getattr(type(request), "api_key", -1)
        if key not in self._package.requests or not isinstance(
            request, cls := self._package.request_class(key)
        ):
            raise LocalProtocolError(
                f"{type(request).__name__} is no request of {self._package.name}"
            )
        correlation_id = self._next_id
        parts: list[bytes] = []
        header = self._package.get("RequestHeader")(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.client_id,
        )
        header._encode_parts(self._package.header_versions(key, version).request, parts)
        request._encode_parts(version, parts)
        frame = join_frame(parts)
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        if expect_response and cls.response_class is not None:
            self._waiting.append(SentRequest(request, key, version, correlation_id))
        return frame

    @property
    def waiting(self) -> tuple[SentRequest, ...]:
        """The requests whose response has not come yet, oldest first."""
        return tuple(self._waiting)

    def next_event(self) -> ResponseReceived | ConnectionClosed | None:
        """What came next, or None until more bytes are there.

        Raises ResponseError for a response that does not follow its layout, CorrelationError for one
        that answers no request or another than the oldest, and FrameError for a length prefix that is
        negative or over the limit. After the last two the connection can only be closed.
        """
        if self._error is not None:
            raise self._error
        frame = self._frames.next_frame()
        if frame is None:
            return self._closed(len(self._waiting))
        sent = self._match(frame)
        try:
            header, response, version = read_response(
                self._package, frame, sent.api_key, sent.version
            )
        except DecodeError as error:
            raise ResponseError(error, sent=sent, frame=frame) from error
        return ResponseReceived(sent, header, response, version, frame)

    def events(self) -> Iterator[ResponseReceived | ConnectionClosed]:
        """The events that the bytes so far make up; ends behind ConnectionClosed."""
        while (event := self.next_event()) is not None:
            yield event
            if isinstance(event, ConnectionClosed):
                return

    def _match(self, frame: bytes) -> SentRequest:
        """The request that a response answers, which from then on is not waiting."""
        expected = self._waiting[0].correlation_id if self._waiting else None
        got = _int(frame, 0, 4)
        if got is not None and got == expected:
            return self._waiting.popleft()
        if got is None:
            message = f"a response of {len(frame)} bytes is too short for a correlation id"
        elif expected is None:
            message = f"a response to correlation id {got}, but no request is waiting"
        else:
            known = any(sent.correlation_id == got for sent in self._waiting)
            why = "was sent later" if known else "is not waiting"
            message = (
                f"a response to correlation id {got}, which {why}; {expected} is to be answered"
            )
        self._error = CorrelationError(
            message, correlation_id=-1 if got is None else got, expected=expected, frame=frame
        )
        raise self._error


def _int(frame: bytes, begin: int, end: int) -> int | None:
    return int.from_bytes(frame[begin:end], "big", signed=True) if len(frame) >= end else None
