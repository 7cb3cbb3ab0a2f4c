"""Whole frames: a conversation of a client and a server over all requests, responses and pushes of a package."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import ModuleType
from typing import Any

from krammar.wire.connection import (
    ClientConnection,
    InvalidRequest,
    PushReceived,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
)
from krammar.wire.errors import WireError
from tests.random_definitions import reference
from tests.random_definitions.headers import (
    field_of,
    header_value,
    header_versions,
    headers_of,
    limit,
)
from tests.random_definitions.model import Package, Struct
from tests.random_definitions.reference import Value
from tests.random_definitions.values import Values, build
from tests.random_definitions.ways import expect, identical, mutated


def frames(package: Package, module: ModuleType, rng: Random) -> None:
    """Exchange each message in each version. Broken frames are invalid requests."""
    conversation = _Conversation(package, module, rng)
    for message, response in package.messages:
        assert message.highest is not None
        for version in range(message.lowest, message.highest + 1):
            if message.role == "push":
                conversation.push(message, version)
            else:
                conversation.request(message, response, version)
    conversation.finish()


class _Conversation:
    """Both sides of a connection. A response waits until the next request, so that pushes come between them."""

    def __init__(self, package: Package, module: Any, rng: Random) -> None:
        self.module = module
        self.rng = rng
        self.headers = headers_of(package)
        self.values = Values(rng)
        self.client = ClientConnection(module, client_id="me")
        self.server = ServerConnection(module, max_elements=100_000)
        self.number = 0
        # The smaller of the two fields decides when the numbers begin again.
        tops = [
            limit(header, "id")
            for header in (self.headers.request, self.headers.response)
            if field_of(header, "id") is not None
        ]
        self.modulus = min(0x7FFFFFFF, *tops) + 1
        self.waiting: Iterator[None] = iter(())

    def request(self, message: Struct, response: Struct | None, version: int) -> None:
        """A client sends a request, and a server receives it."""
        module, key, number = self.module, message.key, self.number % self.modulus
        before, after = header_versions(message, version, self.headers)
        found = tuple(module.header_versions(key, version))
        expect(found[:1] == (before,), "header_versions", found, before)
        expect(response is None or found[1] == after, "header_versions", found, after)
        value = self.values.message(message, version)
        sent = build(getattr(module, message.name), message, value)
        body = reference.encode(message, version, value)
        self.parsed(message, version, before, sent, body)
        numbers = {"key": key, "version": version, "id": number}
        header = header_value(self.headers.request, before, numbers, "me")
        head = self.head(self.headers.request, before, header)
        if head is None:
            refused = _outcome(self.client.send_request, sent, version)
            expect(isinstance(refused, WireError), "a header that cannot be encoded", refused)
            return
        frame = head + body
        data = self.client.send_request(sent, version)
        self.number += 1
        expect(data == prefixed(frame), "ClientConnection.send_request", data, prefixed(frame))
        self.server.receive_data(data[:5])
        expect(self.server.next_event() is None, "an event without a whole frame")
        self.server.receive_data(data[5:])
        (event,) = self.server.events()
        expect(isinstance(event, RequestReceived), "ServerConnection", event)
        assert isinstance(event, RequestReceived)
        expect(identical(event.request, sent), "ServerConnection", event, sent)
        expect((event.api_key, event.version) == (key, version), "RequestReceived", event)
        self.finish()
        if response is None:
            expect(self.server.unanswered == len(self.client.waiting) == 0, "a one-way request")
            return
        expect(event.correlation_id == number, "RequestReceived", event, number)
        key = message.key if message.response_key is None else message.response_key
        numbers = {"key": key, "version": version, "id": number}
        self.waiting = self.response(event, message, response, after, numbers)
        next(self.waiting, None)
        if self.rng.random() < 0.5:
            self.finish()

    def parsed(self, message: Struct, version: int, before: int, sent: Any, body: bytes) -> None:
        """``parse_request`` reads any header. Changed frames are requests, or invalid ones."""
        value = self.values.message(self.headers.request, before)
        for role, number in (("key", message.key), ("version", version)):
            item = field_of(self.headers.request, role)
            assert item is not None
            value[item.name] = number
        frame = reference.encode(self.headers.request, before, value) + body
        parsed = self.module.parse_request(frame)
        expect(identical(parsed.request, sent), "parse_request", frame, parsed.request, sent)
        head = build(self.module.RequestHeader, self.headers.request, value)
        expect(identical(parsed.header, head), "the header of parse_request", parsed.header, head)
        for data in mutated(self.rng, frame):
            self.broken(data)

    def head(self, header: Struct, version: int, value: Value) -> bytes | None:
        """The bytes of a header, or None if its defaults cannot be encoded."""
        try:
            return reference.encode(header, version, value)
        except reference.Invalid:
            return None

    def response(
        self, event: Any, message: Struct, response: Struct, after: int, numbers: dict[str, int]
    ) -> Iterator[None]:
        """The server has a response, and sends it later."""
        version = numbers["version"]
        value = self.values.message(response, version)
        answer = build(getattr(self.module, response.name), response, value)
        header = header_value(self.headers.response, after, numbers)
        head = self.head(self.headers.response, after, header)
        if head is None:  # at once, because the client that waits for it can send nothing else
            refused = _outcome(self.server.send_response, event, answer)
            expect(isinstance(refused, WireError), "a header that cannot be encoded", refused)
            self.server.skip_response(event)
            self.client = ClientConnection(self.module, client_id="me")
            self.number = 0
            return
        yield
        reply = self.server.send_response(event, answer)
        frame = head + reference.encode(response, version, value)
        expect(reply == prefixed(frame), "ServerConnection.send_response", reply, frame)
        self.client.receive_data(reply)
        (received,) = self.client.events()
        assert isinstance(received, ResponseReceived)
        expect(identical(received.response, answer), "ClientConnection", received, answer)
        parsed = self.module.parse_response(frame, message.key, version)
        expect(identical(parsed.response, answer), "parse_response", parsed, answer)

    def finish(self) -> None:
        """Send the response that waits."""
        for _ in self.waiting:
            pass

    def push(self, message: Struct, version: int) -> None:
        """The server sends a message by itself."""
        _, number = header_versions(message, version, self.headers)
        value = self.values.message(message, version)
        push = build(getattr(self.module, message.name), message, value)
        numbers = {"key": message.key, "version": version, "id": 0}
        header = header_value(self.headers.response, number, numbers)
        head = self.head(self.headers.response, number, header)
        if head is None:
            refused = _outcome(self.server.send_push, push, version)
            expect(isinstance(refused, WireError), "a header that cannot be encoded", refused)
            return
        frame = head + reference.encode(message, version, value)
        data = self.server.send_push(push, version)
        expect(data == prefixed(frame), "ServerConnection.send_push", data, prefixed(frame))
        self.client.receive_data(data)
        (event,) = self.client.events()
        assert isinstance(event, PushReceived)
        expect(identical(event.push, push), "ClientConnection", event, push)
        expect((event.api_key, event.version) == (message.key, version), "PushReceived", event)
        parsed = self.module.parse_push(frame)
        expect(identical(parsed.push, push), "parse_push", parsed, push)
        for broken in mutated(self.rng, frame):
            found = _outcome(self.module.parse_push, broken)
            expect(isinstance(found, (tuple, WireError)), "parse_push", broken, found)

    def broken(self, frame: bytes) -> None:
        """A frame that changed on its way is a request, or an invalid one."""
        server = ServerConnection(self.module, max_elements=100_000)
        server.receive_data(prefixed(frame))
        event = server.next_event()
        parsed = _outcome(lambda: self.module.parse_request(frame, allow_trailing=True))
        expect(
            isinstance(event, InvalidRequest) == isinstance(parsed, WireError),
            "ServerConnection and parse_request differ",
            frame,
            event,
            parsed,
        )


def _outcome(action: Any, *arguments: Any) -> Any:
    try:
        return action(*arguments)
    except WireError as error:
        return error


def prefixed(frame: bytes) -> bytes:
    """A frame with its length."""
    return len(frame).to_bytes(4, "big") + frame
