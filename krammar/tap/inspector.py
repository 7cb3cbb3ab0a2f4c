"""Inspects frames: decodes them, matches responses with requests, and compares the re-encoded bytes.

It does no I/O, so the same code inspects live connections and captures.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from krammar.tap.frame import Frame, Status
from krammar.wire.connection import read_response
from krammar.wire.errors import (
    DecodeError,
    EncodeError,
    UnknownApiKeyError,
    UnsupportedVersionError,
)
from krammar.wire.framing import LARGEST_FRAME, PREFIX, FrameError, frame_size
from krammar.wire.kafka import PRODUCE, SASL_HANDSHAKE, has_acks, has_tokens
from krammar.wire.layout import Node
from krammar.wire.package import Package
from krammar.wire.skip import MAX_ELEMENTS, TooManyElements
from krammar.wire.tracing import trace_frame


class _Waiting(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    time_ns: int
    is_silent: bool  # there may be no response: Produce with acks 0, or one that cannot be decoded


class Inspector:
    """Inspects the frames of one connection, in the order in which they arrived.

    Attributes:
        max_waiting: far more requests than a normal connection has in flight. The oldest ones are
            dropped first, so that requests without a response cannot fill the memory.
    """

    max_waiting = 10_000

    def __init__(self, package: Package, connection: int) -> None:
        self._package = package
        self._connection = connection
        self._waiting: deque[_Waiting] = deque(maxlen=self.max_waiting)
        self._tokens = False
        self._has_acks, self._has_tokens = has_acks(package), has_tokens(package)

    def request(self, data: bytes, time_ns: int) -> Frame:
        """Inspect a frame of the client, without its length prefix."""
        frame = self._begin(True, data, len(data), time_ns)
        try:
            frame.header, frame.message = self._package.parse_request(
                data, max_elements=MAX_ELEMENTS
            )
        except (DecodeError, UnsupportedVersionError) as error:
            if self._tokens:
                frame.status = Status.TOKEN
                frame.api, frame.api_key = "Sasl token", None
                frame.version = frame.correlation_id = None
                return frame
            if isinstance(error, TooManyElements) or not self._read_loosely(frame):
                frame.header = error.header
                self._failed(frame, error)
                self._expect(frame)
                return frame
        self._tokens = False
        assert frame.api_key is not None
        assert frame.version is not None
        frame.body_version = frame.version
        self._expect(frame)
        self._compare(frame)
        return frame

    def response(self, data: bytes, time_ns: int) -> Frame:
        """Inspect a frame of the broker, without its length prefix."""
        frame = self.matched(data, time_ns)
        self.decode(frame)
        return frame

    def matched(self, data: bytes, time_ns: int) -> Frame:
        """Return a frame of the broker with what its request says. ``decode`` does the rest."""
        frame = self._begin(False, data, len(data), time_ns)
        if not frame.is_push:
            self._match(frame)
        return frame

    def decode(self, frame: Frame) -> None:
        """Decode a frame that ``matched`` has returned, and compare its bytes.

        Another thread can do this, if no other response of the connection is inspected meanwhile.
        """
        if frame.is_push:
            self._decode_push(frame)
            return
        if frame.api_key is None or frame.version is None:
            return
        try:
            frame.header, frame.message, frame.body_version = read_response(
                self._package, frame.data, frame.api_key, frame.version
            )
        except (DecodeError, UnsupportedVersionError) as error:
            if not self._read_loosely(frame):
                self._failed(frame, error)
                return
        if self._has_tokens and frame.api_key == SASL_HANDSHAKE and frame.version == 0:
            self._tokens = self._tokens or not frame.message.error_code
        self._compare(frame)

    def _decode_push(self, frame: Frame) -> None:
        try:
            frame.header, frame.message = self._package.parse_push(frame.data)
        except (DecodeError, UnsupportedVersionError) as error:
            self._failed(frame, error)
            return
        assert frame.version is not None
        frame.body_version = frame.version
        self._compare(frame)

    def oversized(self, is_request: bool, head: bytes, size: int, time_ns: int) -> Frame:
        """Report a frame of ``size`` bytes that was not decoded, to save memory; ``head`` are its first bytes."""
        frame = self._begin(is_request, head, size, time_ns)
        if is_request:
            self._expect(frame)
        elif not frame.is_push and not self._match(frame):
            return frame
        frame.status = Status.UNDECODABLE
        frame.error = (
            f"a frame of {size} bytes was passed on without decoding, because large frames take too much memory "
            "(--max-frame raises the limit)"
        )
        return frame

    def raw(self, is_request: bool, data: bytes, time_ns: int) -> Frame:
        """Report bytes that are not a frame: an impossible length, or the beginning of an incomplete frame."""
        frame = Frame(time_ns, self._connection, is_request, data, len(data), raw=True)
        frame.status = Status.UNDECODABLE
        expected = PREFIX
        if len(data) >= PREFIX:
            try:
                expected += frame_size(data, LARGEST_FRAME)
            except FrameError as error:
                frame.error = f"{error}; all further bytes are passed on without decoding"
                return frame
        frame.error = f"the connection ended in the middle of a frame: {len(data)} of {expected} bytes arrived"
        return frame

    def _begin(self, is_request: bool, data: bytes, size: int, time_ns: int) -> Frame:
        frame = Frame(time_ns, self._connection, is_request, data, size)
        if is_request:
            head = self._package.request_head
            frame.api_key, frame.version, frame.correlation_id = (
                None if place is None else place.read(data) for place in head
            )
            self._name(frame)
        else:
            head = self._package.response_head
            frame.is_push = self._package.is_push(data)
            if frame.is_push:
                frame.api_key, frame.version = (
                    None if place is None else place.read(data) for place in head[:2]
                )
                self._name(frame)
            elif head.correlation_id is not None:
                frame.correlation_id = head.correlation_id.read(data)
        return frame

    def _name(self, frame: Frame) -> None:
        if frame.api_key is not None:
            if frame.is_push:
                frame.api = self._package.pushes[frame.api_key].name
                return
            known = self._package.requests.get(frame.api_key)
            frame.api = known.api_name if known else f"key {frame.api_key}"

    def _expect(self, frame: Frame) -> None:
        """Remember a request, so that its response can be matched."""
        if frame.api_key is None or frame.version is None or frame.correlation_id is None:
            return
        if self._package.responses.get(frame.api_key, "") is None:
            return  # requests of this api have no response
        silent = (
            self._has_acks
            and frame.api_key == PRODUCE
            and (frame.message is None or frame.message.acks == 0)
        )
        frame.is_answered = not silent
        self._waiting.append(
            _Waiting(
                frame.api_key,
                frame.version,
                frame.correlation_id,
                frame.time_ns,
                silent,
            )
        )

    def _match(self, frame: Frame) -> bool:
        """Find the request of a response by its correlation id.

        Brokers respond in order, but a response out of order is accepted: the tap shows what
        ``ClientConnection`` of krammar.wire would refuse.
        """
        waiting = self._waiting
        index = next(
            (i for i, known in enumerate(waiting) if known.correlation_id == frame.correlation_id),
            None,
        )
        if index is None:
            if self._tokens:
                frame.status = Status.TOKEN
                frame.api, frame.correlation_id = "Sasl token", None
            else:
                frame.status = Status.UNDECODABLE
                frame.error = (
                    f"{len(frame.data)} bytes are too short for a correlation id"
                    if frame.correlation_id is None
                    else f"no request with correlation id {frame.correlation_id} is in flight"
                )
            return False
        request = waiting[index]
        del waiting[index]
        # Silent requests before this one got no response. (librdkafka's mock brokers respond even to Produce
        # with acks 0, so silent requests are matched too.)
        while index and waiting[0].is_silent:
            waiting.popleft()
            index -= 1
        frame.api_key, frame.version = request.api_key, request.version
        frame.latency_ns = frame.time_ns - request.time_ns
        self._name(frame)
        return True

    def _read_loosely(self, frame: Frame) -> bool:
        """Decode a message that is followed by more bytes; return whether that is possible.

        Kafka's own clients and brokers ignore such bytes, and librdkafka's mock brokers send them.
        """
        key, version, data, package = frame.api_key, frame.version, frame.data, self._package
        assert key is not None or frame.is_request
        if key is None or version is None:
            return False
        try:
            versions = package.header_versions(key, version)
            if frame.is_request:
                header_class, header_version = package.get("RequestHeader"), versions.request
                body_class = package.request_class(key)
            else:
                header_class, header_version = package.get("ResponseHeader"), versions.response
                body_class = package.response_class(key)
            header, begin = header_class.decode_from(data, 0, header_version)
            message, end = body_class.decode_from(data, begin, version)
        except (DecodeError, UnsupportedVersionError):
            return False
        frame.header, frame.message, frame.body_version = header, message, version
        frame.rest = data[end:]
        return True

    def _failed(self, frame: Frame, error: DecodeError | UnsupportedVersionError) -> None:
        unknown = isinstance(error, (UnknownApiKeyError, UnsupportedVersionError))
        frame.status = Status.UNKNOWN if unknown else Status.UNDECODABLE
        frame.error = str(error)
        if isinstance(error, DecodeError):
            frame.path, frame.offset = error.path, error.offset

    def _compare(self, frame: Frame) -> None:
        """Encode header and body, and compare the bytes."""
        try:
            again = encoded_frame(self._package, frame) + frame.rest
        except EncodeError as error:
            frame.status = Status.MISMATCH
            frame.error, frame.path = f"the message cannot be encoded: {error}", error.path
            return
        if again == frame.data:
            if frame.rest:
                frame.status = Status.SURPLUS
                frame.offset = len(frame.data) - len(frame.rest)
                frame.error = (
                    f"{type(frame.message).__name__} v{frame.body_version}: {len(frame.rest)} bytes "
                    f"left over at offset {frame.offset}"
                )
            return
        frame.status = Status.MISMATCH
        frame.offset = offset = _first_difference(frame.data, again)
        frame.path = self._path_at(frame, offset)
        place = f" ({frame.path})" if frame.path else ""
        frame.error = (
            f"first difference at offset {offset}{place}: received {_byte(frame.data, offset)}, "
            f"re-encoded to {_byte(again, offset)}"
        )
        if len(again) != len(frame.data):
            frame.error += f"; received {len(frame.data)} bytes, re-encoded to {len(again)}"

    def _path_at(self, frame: Frame, offset: int) -> str:
        """Return the path of the field that contains the byte at ``offset``."""
        assert frame.api_key is not None
        header, body = trace_frame(
            self._package,
            frame.data,
            frame.api_key,
            frame.body_version,
            is_request=frame.is_request,
            is_push=frame.is_push,
        ).parts
        if offset < header.node.end:
            return "header" + _path(header.node, offset)
        return _path(body.node, offset).removeprefix(".")


def encoded_frame(package: Package, frame: Frame) -> bytes:
    """Encode a frame's header and message, without length prefix. Raises EncodeError."""
    assert frame.api_key is not None
    if frame.is_push:
        version = package.push_header_version(frame.api_key, frame.body_version)
    else:
        versions = package.header_versions(frame.api_key, frame.body_version)
        version = versions.request if frame.is_request else versions.response
    header: bytes = frame.header.encode(version)
    body: bytes = frame.message.encode(frame.body_version)
    return header + body


def _first_difference(left: bytes, right: bytes) -> int:
    """Return the first offset at which two different byte strings differ.

    The binary search compares slices: 33 ms if the last byte of 50 MB differs, instead of 4 s byte by byte.
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _byte(data: bytes, offset: int) -> str:
    return f"0x{data[offset]:02x}" if offset < len(data) else "the end"


def _path(node: Node, offset: int) -> str:
    for child in node.children:
        if child.offset <= offset < child.end:
            step = child.name if child.name.startswith("[") else f".{child.name}"
            return step + _path(child, offset)
    return ""
