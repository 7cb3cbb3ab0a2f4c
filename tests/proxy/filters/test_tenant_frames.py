"""Names that are changed in the bytes of Produce and Fetch: the same as if the messages were decoded."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import kafka_wire as kw
import pytest

from krammar.proxy import Connection, Exchange
from krammar.proxy.chain import Chain
from krammar.proxy.exchange import run_at_once, run_request, run_response
from krammar.proxy.filters import tenant_apis, tenants
from krammar.proxy.filters.tenants import Tenants
from krammar.wire.errors import WireError
from krammar.wire.framing import PREFIX
from krammar.wire.layout import Array, Layout, Nested, Scalar, Text
from krammar.wire.representation import kinds_of, named

OWN, OTHER = UUID(int=7), UUID(int=8)
REQUESTS: list[tuple[Any, int]] = [
    (cls, version)
    for cls in (kw.ProduceRequest, kw.FetchRequest)
    for version in range(cls.max_version + 1)
]
RESPONSES: list[tuple[Any, int]] = [(cls.response_class, version) for cls, version in REQUESTS]
IDS = [f"{cls.__name__} v{version}" for cls, version in REQUESTS]


def build(cls: Any, layout: Layout, name: str, topic_id: UUID = OWN, elements: int = 2) -> Any:
    """Return a message without tagged fields and error messages."""

    def value(item: Any, type_: Any) -> Any:
        if isinstance(type_, Array):
            return [value(item, type_.element) for _ in range(elements)]
        if isinstance(type_, Nested):
            return build(named(cls, kinds_of(cls)[item.name]), type_.layout, name, topic_id)
        if isinstance(type_, Text):
            if "message" in item.name:
                return None
            return name if item.entity else "x" if type_.kind == "string" else b"x" * 200
        if isinstance(type_, Scalar) and type_.code == "16s":
            return topic_id
        return -1 if item.name == "replica_id" else 0

    fresh = cls()
    for item in layout.fields:
        setattr(fresh, item.name, value(item, item.type))
    return fresh


def framed(header: bytes, body: bytes) -> bytes:
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def request_frame(message: Any, version: int) -> bytes:
    """Encode a request with its header and length."""
    headers = kw.header_versions(message.api_key, version)
    header = kw.RequestHeader(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=7,
        client_id="test",
    )
    return framed(header.encode(headers.request), message.encode(version))


def response_frame(message: Any, version: int) -> bytes:
    headers = kw.header_versions(message.api_key, version)
    header = kw.ResponseHeader(correlation_id=7)
    return framed(header.encode(headers.response), message.encode(version))


class Place:
    """A chain with the tenant blue, which has the topic of one id."""

    def __init__(self) -> None:
        self.filter = Tenants("blue")
        self.filter._memory.ids.learn(OWN, "blue.orders")
        self.filter._memory.ids.learn(OTHER, "red.orders")
        self.chain = Chain(kw, [self.filter])
        self.connection = Connection(1, "client", "broker")

    def patch(self, frame: bytes, key: int, version: int, is_request: bool) -> bytes | None:
        route = self.chain.routes[key << 16 | version]
        assert route is not None
        patch = route.patch_request if is_request else route.patch_response
        assert patch is not None
        around = b"x" * 5 + frame + b"x" * 500
        pieces = patch(bytearray(around), 5, 5 + len(frame), self.connection)
        return None if pieces is None else b"".join(pieces)

    def decoded(self, frame: bytes, key: int, version: int, is_request: bool) -> Any:
        """What becomes of a frame if it is decoded; None for an answer."""
        try:
            return self._decoded(frame, key, version, is_request)
        except WireError as error:
            return "not UTF-8" if "UTF-8" in str(error) else error

    def _decoded(self, frame: bytes, key: int, version: int, is_request: bool) -> Any:

        async def send(*_: Any) -> Any:
            raise AssertionError

        route = self.chain.routes[key << 16 | version]
        assert route is not None
        exchange = Exchange(self.connection, key, version, 7, "test", send)
        if not is_request:
            read = self.chain.frames.read_response(route, frame)
            _, response = run_at_once(run_response(route.responses, read.message, exchange))
            return self.chain.frames.changed(frame, read, response)
        read = self.chain.frames.read_request(route, frame)
        _, settled = run_at_once(run_request(route, read.message, exchange))
        assert settled is not None
        return None if settled.answer else self.chain.frames.changed(frame, read, settled.request)


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=IDS)
def test_requests(cls: Any, version: int) -> None:
    layout, place = kw.layout(cls, version), Place()
    for name in ("orders", "x" * 120, "x" * 130):
        frame = request_frame(build(cls, layout, name), version)
        expected = request_frame(build(cls, layout, f"blue.{name}"), version)
        assert place.patch(frame, cls.api_key, version, True) == expected


@pytest.mark.parametrize(("cls", "version"), RESPONSES, ids=IDS)
def test_responses(cls: Any, version: int) -> None:
    layout, place = kw.layout(cls, version), Place()
    for name in ("orders", "x" * 120, "x" * 124):
        frame = response_frame(build(cls, layout, f"blue.{name}"), version)
        expected = response_frame(build(cls, layout, name), version)
        assert place.patch(frame, cls.api_key, version, False) == expected
    other = response_frame(build(cls, layout, "red.orders", OTHER), version)
    assert place.patch(other, cls.api_key, version, False) is None


@pytest.mark.parametrize(
    ("cls", "version"), REQUESTS + RESPONSES, ids=[*IDS, *(f"{each} response" for each in IDS)]
)
def test_any_other_bytes_are_decoded_or_changed_in_the_same_way(cls: Any, version: int) -> None:
    place = Place()
    is_request = hasattr(cls, "response_class")
    make = request_frame if is_request else response_frame
    name = "o" if is_request else "blue.o"
    frame = make(build(cls, kw.layout(cls, version), name, elements=1), version)
    frames = [
        frame[:place_] + bytes((value,)) + frame[place_ + 1 :]
        for place_ in range(PREFIX + 8, len(frame))
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, frame[place_] ^ 1} - {frame[place_]}
        if frame[place_ - 1 : place_ + 2] != b"xxx"
    ]
    frames += [frame[:end] for end in range(PREFIX + 8, len(frame))] + [frame + b"\0"]
    changed = 0
    for each in frames:
        patched = place.patch(each, cls.api_key, version, is_request)
        if patched is None:
            continue
        changed += 1
        expected = place.decoded(each, cls.api_key, version, is_request)
        # Text is not decoded here. The broker refuses what is not UTF-8.
        assert expected == patched or expected == "not UTF-8"
    assert changed


def test_versions_that_are_refused_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tenant_apis.ALLOWED, kw.FetchRequest, 12)
    assert tenants.Tenants("blue").patch(kw.FetchRequest, 13) is None
    assert tenants.Tenants("blue").patch(kw.FetchResponse, 13) is None
    assert tenants.Tenants("blue").patch(kw.FetchResponse, 12) is not None


def test_sessions_of_others_are_not_passed() -> None:
    place = Place()
    for version in (7, 12, 17):
        layout = kw.layout(kw.FetchRequest, version)
        request = build(kw.FetchRequest, layout, "orders")
        request.session_id = 5
        frame = request_frame(request, version)
        place.filter._memory.sessions.clear()
        assert place.patch(frame, 1, version, True) is None
        response = build(kw.FetchResponse, kw.layout(kw.FetchResponse, version), "blue.orders")
        response.session_id = 5
        assert place.patch(response_frame(response, version), 1, version, False) is not None
        assert place.patch(frame, 1, version, True) is not None
