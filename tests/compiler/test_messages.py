"""Requests without a response, messages that the server sends by itself, and headers of one's own.

The protocol resembles RabbitMQ Stream. All bytes are written manually.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from krammar.tap.describe import Description
from krammar.tap.exchanges import Exchanges, State, TappedExchange
from krammar.tap.frame import Frame, Status
from krammar.tap.inspector import Inspector
from krammar.wire.connection import (
    ClientConnection,
    CorrelationError,
    InvalidRequest,
    LocalProtocolError,
    PushError,
    PushReceived,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
)
from krammar.wire.errors import HeaderError, UnknownApiKeyError, UnsupportedVersionError
from krammar.wire.message import Push
from krammar.wire.package import package_of
from tests.compiler.conftest import Build, Report, write_files
from tests.compiler.support import gen
from tests.compiler.tshark import Conversation, frames, needs_tshark, write_pcap

STREAM = """\
// The header of everything that a client sends. Version 0 precedes requests without a response.
RequestHeader => not top level, max version 1
  Key: uint16
  Version: uint16
  CorrelationId: uint32 // v1+

// The header of everything that the server sends. Version 0 precedes pushes.
ResponseHeader => not top level, max version 1
  Key: uint16
  Version: uint16
  CorrelationId: uint32 // v1+

DeclarePublisherRequest => key 1, max version 1, min version 1, header 1, response header 1, response key 0x8001
  PublisherId: uint8
  Reference: nullable-int16-string
  Stream: int16-string

DeclarePublisherResponse =>
  ResponseCode: uint16

// Sends messages. The server confirms them with PublishConfirm.
PublishRequest => key 2, max version 1, min version 1, one way, header 0
  PublisherId: uint8
  Messages: int32[=>]PublishedMessage
    PublishingId: uint64
    Body: int32-bytes

// Confirms messages.
PublishConfirm => key 3, max version 1, min version 1, push, header 0
  PublisherId: uint8
  PublishingIds: int32[uint64]

Deliver => key 8, max version 2, min version 1, push, header 0
  SubscriptionId: uint8
  Offset: uint64 // v2+
  Chunk: int32-bytes
"""

DECLARE = bytes.fromhex("0001 0001 00000000  07 0003 726566 0001 73")
DECLARED = bytes.fromhex("8001 0001 00000000  0001")
PUBLISH = bytes.fromhex("0002 0001  07 00000001 ffffffffffffffff 00000002 6869")
CONFIRM = bytes.fromhex("0003 0001  07 00000001 ffffffffffffffff")
DELIVER = bytes.fromhex("0008 0002  01 0000000000000009 00000001 78")


@pytest.fixture(scope="module")
def stream(build: Build) -> Any:
    return build({"stream.krm": STREAM})


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def declare(p: Any) -> Any:
    return p.DeclarePublisherRequest(publisher_id=7, reference="ref", stream="s")


def publish(p: Any) -> Any:
    message = p.PublishRequest.PublishedMessage(publishing_id=2**64 - 1, body=b"hi")
    return p.PublishRequest(publisher_id=7, messages=[message])


def test_a_conversation_has_these_bytes(stream: Any) -> None:
    client, server = ClientConnection(stream), ServerConnection(stream)

    assert client.send_request(declare(stream), 1) == framed(DECLARE)
    assert client.send_request(publish(stream), 1) == framed(PUBLISH)
    assert [each.api_key for each in client.waiting] == [1]

    server.receive_data(framed(DECLARE) + framed(PUBLISH))
    first, second = server.next_event(), server.next_event()
    assert isinstance(first, RequestReceived) and isinstance(second, RequestReceived)
    assert (first.api_key, first.version, first.correlation_id) == (1, 1, 0)
    assert (second.api_key, second.request) == (2, publish(stream))
    assert server.unanswered == 1

    confirm = stream.PublishConfirm(publisher_id=7, publishing_ids=[2**64 - 1])
    deliver = stream.Deliver(subscription_id=1, offset=9, chunk=b"x")
    sent = server.send_push(confirm, 1)
    sent += server.send_response(first, stream.DeclarePublisherResponse(response_code=1))
    sent += server.send_push(deliver, 2)
    assert sent == framed(CONFIRM) + framed(DECLARED) + framed(DELIVER)

    client.receive_data(sent)
    one, two, three = list(client.events())
    assert isinstance(one, PushReceived) and isinstance(three, PushReceived)
    assert (one.api_key, one.version, one.push, one.frame) == (3, 1, confirm, CONFIRM)
    assert (three.push, three.version, three.header.key) == (deliver, 2, 8)
    assert isinstance(two, ResponseReceived) and two.response.response_code == 1
    assert client.waiting == ()


def test_pushes_are_in_the_package(stream: Any) -> None:
    assert [(each.key, each.name, each.max_version) for each in stream.pushes()] == [
        (3, "PublishConfirm", 1),
        (8, "Deliver", 2),
    ]
    assert issubclass(stream.Deliver, Push) and stream.Deliver.api_key == 8
    assert [each.name for each in stream.requests()] == [
        "DeclarePublisherRequest",
        "PublishRequest",
    ]
    assert stream.parse_push(DELIVER).push.chunk == b"x"
    assert not package_of(stream).is_push(DECLARED)


def test_what_a_connection_refuses_to_send(stream: Any) -> None:
    client, server = ClientConnection(stream), ServerConnection(stream)

    with pytest.raises(LocalProtocolError, match="PublishRequest is not a push"):
        server.send_push(publish(stream), 1)
    with pytest.raises(LocalProtocolError, match="Deliver is not a request"):
        client.send_request(stream.Deliver(), 1)
    with pytest.raises(UnsupportedVersionError):
        server.send_push(stream.Deliver(), 3)
    server.receive_data(framed(PUBLISH))
    event = server.next_event()
    assert isinstance(event, RequestReceived)
    with pytest.raises(LocalProtocolError, match="does not wait"):
        server.send_response(event, stream.DeclarePublisherResponse())


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (DELIVER[:-1], "chunk"),
        (DELIVER + b"?", "left over"),
        (b"\0\x08\0\3" + DELIVER[4:], "has no version 3"),
        (b"\0\x08\0", "too short"),
    ],
)
def test_a_bad_push_does_not_end_the_connection(stream: Any, data: bytes, cause: str) -> None:
    client = ClientConnection(stream)
    client.receive_data(framed(data) + framed(DELIVER))

    with pytest.raises(PushError, match=cause) as caught:
        client.next_event()
    assert caught.value.frame == data
    assert isinstance(client.next_event(), PushReceived)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"\0\1" + DECLARED[2:], "with key 1, which must be 32769"),
        (DECLARED[:4] + b"\0\0\0\5" + DECLARED[8:], "correlation id 5, which is not waiting"),
        (DECLARED[:3], "too short for a correlation id"),
    ],
)
def test_a_response_of_another_request_ends_it(stream: Any, data: bytes, cause: str) -> None:
    client = ClientConnection(stream)
    client.send_request(declare(stream), 1)
    client.receive_data(framed(data))

    with pytest.raises(CorrelationError, match=cause):
        client.next_event()


def test_bad_requests_are_events(stream: Any) -> None:
    server = ServerConnection(stream)
    server.receive_data(
        b"".join(
            map(framed, (b"\xff\xff\0\1\0\0\0\5", b"\0\1\xff\xff\0\0\0\6", PUBLISH[:-1], b"\0"))
        )
    )
    events = [server.next_event() for _ in range(4)]

    assert all(isinstance(each, InvalidRequest) for each in events)
    unknown, version, cut, short = events
    assert isinstance(unknown, InvalidRequest) and isinstance(version, InvalidRequest)
    assert isinstance(cut, InvalidRequest) and isinstance(short, InvalidRequest)
    assert isinstance(unknown.error, UnknownApiKeyError) and unknown.api_key == 65535
    assert (version.version, version.correlation_id) == (65535, 6)
    assert isinstance(short.error, HeaderError)
    # A request without a response waits for none, even if it is invalid.
    assert server.unanswered == 2


def test_the_tap_pairs_requests_with_responses_and_shows_pushes(stream: Any) -> None:
    inspector, ended = Inspector(package_of(stream), 1), list[TappedExchange]()
    exchanges = Exchanges(lambda frame: Description(), ended.append)
    frames: list[Frame] = [
        inspector.request(DECLARE, 10),
        inspector.request(PUBLISH, 20),
        inspector.response(CONFIRM, 30),
        inspector.response(DECLARED, 40),
        inspector.response(DELIVER, 50),
    ]
    for frame in frames:
        exchanges.frame(frame)

    assert [frame.status for frame in frames] == [Status.OK] * 5
    assert [frame.api for frame in frames] == [
        "DeclarePublisher",
        "Publish",
        "PublishConfirm",
        "DeclarePublisher",
        "Deliver",
    ]
    assert frames[3].latency_ns == 30
    assert [each.state for each in ended] == [State.SILENT, State.PUSH, State.OK, State.PUSH]


@pytest.mark.parametrize("data", [DELIVER[:-1], DELIVER[:3], b"\0\x08\0\3" + DELIVER[4:]])
def test_the_tap_reports_bad_pushes(stream: Any, data: bytes) -> None:
    frame = Inspector(package_of(stream), 1).response(data, 1)
    assert frame.status is not Status.OK and frame.error


# -- diagnostics ---------------------------------------------------------------------------------

RESPONSE = "PingResponse =>\n  A: int8\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "PingRequest => key 1, max version 0, one way\n  A: int8\n\n" + RESPONSE,
            'E503: "PingRequest" is `one way`',
        ),
        (
            "P => not top level, push\n  A: int8\n",
            "E502: only a message with a `key` can have `push`",
        ),
        (
            "PingRequest => key 1, max version 0, one way, push\n  A: int8\n",
            "E502: `one way` and `push`",
        ),
        (
            "P => key 1, max version 0, push, response key 3\n  A: int8\n",
            "E502: `push` and `response key`",
        ),
        (
            "P => key 1, max version 0, push, admin\n  A: int8\n",
            "E502: only a request can have `admin`",
        ),
        ("PingRequest => key 1, max version 0, push\n  A: int8\n", 'E509: "PingRequest" is a push'),
        (
            "PingRequest => key 40000, max version 0\n  A: int8\n\n" + RESPONSE,
            "E301: the key 40000 does not fit",
        ),
        ("P => key 70000, max version 0, push\n  A: int8\n", "E301: the key 70000"),
        ("P => key 1, max version 0, push\n  A: int8\n", "E510: ResponseHeader has no api key"),
        (
            "PingRequest => key 1, max version 0, header 3\n  A: int8\n\n" + RESPONSE,
            "E511: PingRequest has header 3",
        ),
        (
            "PingRequest => key 1, max version 0, response key 3\n  A: int8\n\n" + RESPONSE,
            "E510: ResponseHeader",
        ),
        (STREAM.replace("key 3,", "key 0x8001,"), "E203: the server sends key 32769"),
        (
            STREAM.replace(", header 1, response header 1", ", header 0, response header 1"),
            "no correlation id",
        ),
        (STREAM.replace("push, header 0", "psh, header 0"), 'did you mean "push"?'),
    ],
)
def test_diagnostics(report: Report, text: str, message: str) -> None:
    assert message in report(text)


def test_without_one_way_the_hint_names_it(report: Report) -> None:
    shown = report("PingRequest => key 1, max version 0\n  A: int8\n")
    assert "or write `one way`" in shown


def test_header_versions_begin_with_versions_of_the_message(build: Build) -> None:
    package = build(
        "RequestHeader => not top level, max version 3, flexible v2+\n  RequestApiKey: int16\n"
        "  RequestApiVersion: int16\n  CorrelationId: int32\n"
        "  ClientId: nullable-string // v1+, not flexible\n  InstanceId: string // v3+\n\n"
        "ResponseHeader => not top level, max version 1, flexible v1+\n  CorrelationId: int32\n\n"
        "PingRequest => key 1, max version 4, flexible v2+, header 3 v3+, response header 0 v4+\n"
        "  A: int8\n\n" + RESPONSE
    )
    found = [tuple(package.header_versions(1, version)) for version in range(5)]
    assert found == [(1, 0), (1, 0), (2, 1), (3, 1), (3, 0)]


# -- Wireshark -----------------------------------------------------------------------------------


@needs_tshark
def test_wireshark_shows_pushes_and_pairs_responses(tmp_path: Path) -> None:
    source = write_files(tmp_path / "stream", {"stream.krm": STREAM})
    result = gen(source, tmp_path / "out", "--backend", "wireshark", "--option", "name=streams")
    assert result.exit_code == 0, result.output
    talk = Conversation()
    for body, by_client in (
        (DECLARE, True),
        (PUBLISH, True),
        (CONFIRM, False),
        (DECLARED, False),
        (DELIVER, False),
        (b"\0\x08\0\x09" + DELIVER[4:], False),
    ):
        talk.frame(body, by_client=by_client)

    found = frames(
        tmp_path / "out" / "streams.lua", write_pcap(tmp_path / "a.pcap", [talk]), "streams"
    )

    labels = [
        [part.label for part in shown.children if re.fullmatch(r"[A-Z]\w+ v\d", part.label)]
        for shown in found
    ]
    assert labels == [
        ["RequestHeader v1", "DeclarePublisherRequest v1"],
        ["RequestHeader v0", "PublishRequest v1"],
        ["ResponseHeader v0", "PublishConfirm v1"],
        ["ResponseHeader v1", "DeclarePublisherResponse v1"],
        ["ResponseHeader v0", "Deliver v2"],
        [],
    ]
    (ids,) = found[2].named("publish_confirm.publishing_ids.elements")
    assert [each.show for each in ids.children] == [str(2**64 - 1)]
    assert [shown.named("response_to") != [] for shown in found] == [False] * 3 + [
        True,
        False,
        False,
    ]
