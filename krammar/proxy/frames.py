"""Decodes and encodes the frames of a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from krammar.proxy.route import Route
from krammar.wire.framing import PREFIX, body_frame, message_frame
from krammar.wire.kafka import PRODUCE, has_acks
from krammar.wire.negotiation import fell_back
from krammar.wire.package import Package
from krammar.wire.skip import MAX_ELEMENTS, check_elements


class Read(NamedTuple):
    """A decoded frame: its header, its body, the version of the body, and where the body is in the frame."""

    header: Any
    message: Any
    version: int
    begin: int
    end: int


class Frames:
    """Decodes and encodes frames with their length prefixes."""

    def __init__(self, package: Package) -> None:
        self.package = package

    def version_of(
        self, request: Any, version: int | None, offered: Mapping[int, tuple[int, int]]
    ) -> int:
        """Return the version of a request of a filter: the given one, or the newest one that is offered.

        Raises:
            ValueError: the request gets no response.
        """
        self.check_answered(request)
        cls = type(request)
        if version is not None:
            return version
        _, newest = offered.get(cls.api_key, (0, cls.max_version))
        return int(min(newest, cls.max_version))

    def check_answered(self, request: Any) -> None:
        """Raise ValueError if a request gets no response."""
        cls = type(request)
        if cls.response_class is None or (
            cls.api_key == PRODUCE and has_acks(self.package) and request.acks == 0
        ):
            raise ValueError(f"{cls.__name__} gets no response (send a request that gets one)")

    def read_request(self, route: Route, frame: bytes) -> Read:
        """Decode a request. Raises DecodeError; TooManyElements before that takes long."""
        headers = self.package.header_versions(route.api_key, route.version)
        header, begin = self.package.get("RequestHeader").decode_from(
            frame, PREFIX, headers.request
        )
        cls = self.package.request_class(route.api_key)
        if len(frame) > MAX_ELEMENTS:  # each has a byte at least
            check_elements(cls, route.version, frame, begin, MAX_ELEMENTS)
        message, end = cls.decode_from(frame, begin, route.version)
        return Read(header, message, route.version, begin, end)

    def read_response(self, route: Route, frame: bytes) -> Read:
        """Decode a response. Raises DecodeError."""
        # Before decoding, not after an error as in krammar.wire: bytes after a body are no error.
        version = 0 if fell_back(self.package, frame, route.api_key, PREFIX) else route.version
        headers = self.package.header_versions(route.api_key, version)
        header, begin = self.package.get("ResponseHeader").decode_from(
            frame, PREFIX, headers.response
        )
        cls = self.package.response_class(route.api_key)
        message, end = cls.decode_from(frame, begin, version)
        return Read(header, message, version, begin, end)

    def settled(self, route: Route, frame: bytes, read: Read, message: Any) -> bytes:
        """Return the frame of a message after the methods of filters. Raises EncodeError."""
        if message is read.message and not route.in_place:
            return frame
        return self.changed(frame, read, message)

    def changed(self, frame: bytes, read: Read, message: Any) -> bytes:
        """Return a frame with another body; header and bytes after the body stay. Raises EncodeError."""
        return body_frame(frame[PREFIX : read.begin], message, read.version, frame[read.end :])

    def request(self, correlation_id: int, client_id: str, request: Any, version: int) -> bytes:
        """Return the frame of a request of the proxy, or of a filter. Raises EncodeError."""
        key = type(request).api_key
        header = self.package.get("RequestHeader")(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        header_version = self.package.header_versions(key, version).request
        return message_frame(header, header_version, request, version)

    def answer(self, route: Route, correlation_id: int, message: Any) -> bytes:
        """Return the frame of a filter's answer. Raises EncodeError."""
        headers = self.package.header_versions(route.api_key, route.version)
        header = self.package.get("ResponseHeader")(correlation_id=correlation_id)
        return message_frame(header, headers.response, message, route.version)
