"""Whole frames: headers and bodies, through ``parse_request``, ``parse_response`` and both sides of a connection."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

from krammar.wire.connection import ClientConnection, ServerConnection
from krammar.wire.errors import WireError
from krammar.wire.events import InvalidRequest
from tests.random_definitions import reference
from tests.random_definitions.model import ALL, Field, Number, Package, Struct, Text, Versions
from tests.random_definitions.values import Values, build
from tests.random_definitions.ways import expect, identical, mutated

# The headers of a protocol without its own.
REQUEST_HEADER = Struct(
    "header",
    (
        Field("RequestApiKey", Number("int16"), 0),
        Field("RequestApiVersion", Number("int16"), 0),
        Field("CorrelationId", Number("int32"), 0),
        Field("ClientId", Text("string", ALL), "", versions=Versions(1), classic=True),
    ),
    "RequestHeader",
    highest=2,
    flexible_from=2,
)
RESPONSE_HEADER = Struct(
    "header",
    (Field("CorrelationId", Number("int32"), 0),),
    "ResponseHeader",
    highest=1,
    flexible_from=1,
)


def header_versions(request: Struct, version: int) -> tuple[int, int]:
    """The header versions of a request and its response: 1 and 0, and 2 and 1 when flexible; two have others."""
    flexible = request.flexible(version)
    before, after = (2, 1) if flexible else (1, 0)
    if request.name == "ApiVersionsRequest":
        after = 0
    if request.name == "ControlledShutdownRequest" and version == 0 and not flexible:
        before = 0
    return before, after


def frames(package: Package, module: ModuleType, rng: Random) -> None:
    """Exchange each request and its response in each version. Broken frames are invalid requests."""
    headers = {each.name: each for each in package.structs if each.role == "header"}
    requests = [each for each in package.structs if each.role == "request"]
    responses = {each.key: each for each in package.structs if each.role == "response"}
    for request in requests:
        for version in range(request.lowest, request.highest + 1):  # type: ignore[operator]
            exchange = _Exchange(
                module,
                rng,
                headers.get("RequestHeader", REQUEST_HEADER),
                headers.get("ResponseHeader", RESPONSE_HEADER),
                request,
                responses[request.key],
                version,
            )
            exchange.run()


class _Exchange:
    def __init__(
        self,
        module: Any,
        rng: Random,
        request_header: Struct,
        response_header: Struct,
        request: Struct,
        response: Struct,
        version: int,
    ) -> None:
        self.module = module
        self.rng = rng
        self.values = Values(rng)
        self.request_header = request_header
        self.response_header = response_header
        self.request = request
        self.response = response
        self.version = version
        self.header_versions = header_versions(request, version)

    def run(self) -> None:
        module, key, version = self.module, self.request.key, self.version
        expect(
            tuple(module.header_versions(key, version)) == self.header_versions,
            "header_versions",
            key,
            version,
        )
        request = self.values.message(self.request, version)
        header = self.values.message(self.request_header, self.header_versions[0])
        header |= {"RequestApiKey": key, "RequestApiVersion": version}
        body = reference.encode(self.request, version, request)
        frame = reference.encode(self.request_header, self.header_versions[0], header) + body
        sent = build(getattr(module, self.request.name), self.request, request)
        parsed = module.parse_request(frame)
        expect(identical(parsed.request, sent), "parse_request", frame, parsed.request, sent)
        head = build(module.RequestHeader, self.request_header, header)
        expect(identical(parsed.header, head), "the header of parse_request", parsed.header, head)
        self.connections(sent, body)
        for data in mutated(self.rng, frame):
            self.broken(data)

    def connections(self, sent: Any, body: bytes) -> None:
        """A client sends the request, and a server responds."""
        module, key, version = self.module, self.request.key, self.version
        client = ClientConnection(module, client_id="me")
        server = ServerConnection(module, max_elements=100_000)
        data = client.send_request(sent, version)
        header = self.usual(self.request_header)
        header |= {"RequestApiKey": key, "RequestApiVersion": version, "ClientId": "me"}
        if self.header_versions[0] == 0:
            header["ClientId"] = ""
        frame = reference.encode(self.request_header, self.header_versions[0], header) + body
        expect(data == prefixed(frame), "ClientConnection.send_request", data, prefixed(frame))
        server.receive_data(data[:5])
        expect(server.next_event() is None, "an event without a whole frame")
        server.receive_data(data[5:])
        (event,) = server.events()
        expect(identical(event.request, sent), "ServerConnection", event, sent)
        value = self.values.message(self.response, version)
        answer = build(getattr(module, self.response.name), self.response, value)
        reply = server.send_response(event, answer)
        expected = reference.encode(
            self.response_header, self.header_versions[1], self.usual(self.response_header)
        ) + reference.encode(self.response, version, value)
        expect(reply == prefixed(expected), "ServerConnection.send_response", reply, expected)
        client.receive_data(reply)
        (received,) = client.events()
        expect(identical(received.response, answer), "ClientConnection", received, answer)
        parsed = module.parse_response(expected, key, version)
        expect(identical(parsed.response, answer), "parse_response", parsed, answer)

    @staticmethod
    def usual(header: Struct) -> dict[str, Any]:
        """A header with its defaults, and correlation id 0."""
        return {item.name: item.default for item in header.fields}

    def broken(self, frame: bytes) -> None:
        """A frame that changed on its way is a request, or an invalid one."""
        server = ServerConnection(self.module, max_elements=100_000)
        server.receive_data(prefixed(frame))
        event = server.next_event()
        parsed: Any
        try:
            parsed = self.module.parse_request(frame, allow_trailing=True)
        except WireError as error:
            parsed = error
        expect(
            isinstance(event, InvalidRequest) == isinstance(parsed, WireError),
            "ServerConnection and parse_request differ",
            frame,
            event,
            parsed,
        )


def prefixed(frame: bytes) -> bytes:
    """A frame with its length."""
    return len(frame).to_bytes(4, "big") + frame
