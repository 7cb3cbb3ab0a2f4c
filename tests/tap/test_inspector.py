"""The tap's inspector: it matches responses to requests, decodes frames, and compares the bytes."""

from __future__ import annotations

from typing import Any

import kafka_wire
import pytest
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestHeader,
    ResponseHeader,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from krammar.tap.frame import Frame, Status
from krammar.tap.inspector import Inspector
from krammar.wire.skip import MAX_ELEMENTS
from tests.tap.support import inspector


def request(message: Any, version: int, correlation_id: int = 1) -> bytes:
    """Encode a request with its header."""
    header = RequestHeader(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="c",
    )
    headers = kafka_wire.header_versions(message.api_key, version)
    return bytes(header.encode(headers.request) + message.encode(version))


def response(message: Any, version: int, correlation_id: int = 1) -> bytes:
    """Encode a response with its header."""
    headers = kafka_wire.header_versions(message.api_key, version)
    header = ResponseHeader(correlation_id=correlation_id)
    return bytes(header.encode(headers.response) + message.encode(version))


def asked(version: int = 12, correlation_id: int = 1) -> Inspector:
    """An inspector that has seen a Metadata request."""
    seen = inspector()
    frame = seen.request(request(MetadataRequest(topics=[]), version, correlation_id), 0)
    assert frame.status == Status.OK
    return seen


BROKERS = MetadataResponse(brokers=[MetadataResponse.Broker(node_id=1, host="h", port=9)])


def test_a_request_and_its_response() -> None:
    seen = inspector()
    asking = MetadataRequest(topics=[MetadataRequest.Topic(name="a")])
    data = request(asking, 12, 77)
    frame = seen.request(data, 1_000)
    assert frame.status == Status.OK
    assert frame.is_good
    assert (frame.api, frame.api_key, frame.version) == ("Metadata", 3, 12)
    assert (frame.correlation_id, frame.size, frame.data) == (77, len(data), data)
    assert frame.message == asking
    assert frame.header.client_id == "c"
    assert frame.latency_ns is None

    answer = seen.response(response(BROKERS, 12, 77), 4_500)
    assert answer.status == Status.OK
    assert (answer.api, answer.version, answer.correlation_id) == ("Metadata", 12, 77)
    assert answer.latency_ns == 3_500
    assert answer.message == BROKERS
    again = seen.response(response(BROKERS, 12, 77), 5_000)
    assert again.status == Status.UNDECODABLE
    assert again.error == "no request with correlation id 77 is in flight"


def test_headers_of_their_own_kind() -> None:
    seen = inspector()
    for message, version in (
        (ControlledShutdownRequest(broker_id=3), 0),
        (ApiVersionsRequest(), 4),
    ):
        assert seen.request(request(message, version, version), 0).status == Status.OK
    answer = ControlledShutdownResponse(error_code=0)
    assert seen.response(response(answer, 0, 0), 0).status == Status.OK
    assert seen.response(response(ApiVersionsResponse(), 4, 4), 0).status == Status.OK


def test_bytes_that_encode_otherwise_are_a_mismatch_with_its_place() -> None:
    data = request(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 9)
    at = data.index(b"\x02\x07orders")
    # The count of topics as a varint of two bytes: legal, but not what any encoder writes.
    longer = data[:at] + b"\x82\x00" + data[at + 1 :]
    frame = inspector().request(longer, 0)
    assert frame.status == Status.MISMATCH
    assert not frame.is_good
    assert frame.message.topics[0].name == "orders"
    assert (frame.path, frame.offset) == ("topics", at)
    assert frame.error == (
        f"first difference at offset {at} (topics): received 0x82, re-encoded to 0x02; "
        f"received {len(longer)} bytes, re-encoded to {len(data)}"
    )


def test_a_mismatch_deep_inside_and_one_in_the_header() -> None:
    names = [MetadataRequest.Topic(name=f"t{index}") for index in range(4)]
    data = request(MetadataRequest(topics=names), 9)
    at = data.index(b"\x03t2")
    frame = inspector().request(data[:at] + b"\x83\x00" + data[at + 1 :], 0)
    assert (frame.status, frame.path, frame.offset) == (Status.MISMATCH, "topics[2].name", at)

    seen = asked(version=9)
    answer = response(BROKERS, 9)
    frame = seen.response(answer[:4] + b"\x80\x00" + answer[5:], 0)
    assert (frame.status, frame.path, frame.offset) == (Status.MISMATCH, "header.unknown_tags", 4)
    assert frame.message == BROKERS


def test_broken_bodies_say_where() -> None:
    data = request(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 9)
    at = data.index(b"\x07orders")
    seen = inspector()
    frame = seen.request(data[:at] + b"\x7f" + data[at + 1 :], 0)
    assert frame.status == Status.UNDECODABLE
    assert (frame.path, frame.offset) == ("topics[0].name", at + 1)
    assert frame.error.startswith("MetadataRequest v9: topics[0].name: needs 126 bytes")
    assert frame.header.client_id == "c"
    assert frame.message is None
    # The broker's response is matched anyway.
    assert seen.response(response(BROKERS, 9), 0).status == Status.OK

    frame = asked(version=9).response(response(BROKERS, 9)[:-3], 0)
    assert frame.status == Status.UNDECODABLE
    assert frame.error.startswith("MetadataResponse v9: ")
    assert frame.offset > 0


def test_frames_too_short() -> None:
    for data in (b"", b"\0", b"\0\3\0", b"\0\3\0\x09\0\0\0"):
        frame = inspector().request(data, 0)
        assert frame.status == Status.UNDECODABLE
        assert "request header" in frame.error.lower().replace("requestheader", "request header")
        answer = inspector().response(data[:3], 0)
        assert answer.error == f"{len(data[:3])} bytes are too short for a correlation id"


def test_unknown_keys_and_versions_are_no_mistakes_of_the_sender() -> None:
    seen = inspector()
    frame = seen.request(b"\x03\xe8\0\0\0\0\0\x05\xff\xff", 0)
    assert (frame.status, frame.api, frame.api_key) == (Status.UNKNOWN, "key 1000", 1000)
    answer = seen.response(b"\0\0\0\x05what", 9)
    assert (answer.status, answer.api, answer.latency_ns) == (Status.UNKNOWN, "key 1000", 9)

    frame = seen.request(b"\0\3\0\x63\0\0\0\x06\xff\xff\0", 0)
    assert (frame.status, frame.api, frame.version) == (Status.UNKNOWN, "Metadata", 99)
    assert "versions 0 to 13 are known" in frame.error
    assert seen.response(b"\0\0\0\x06what", 0).status == Status.UNKNOWN
    assert not frame.is_good


def test_the_answer_to_an_unknown_version_of_api_versions() -> None:
    refusal = ApiVersionsResponse(
        error_code=35,
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=3)],
    )
    for version in (4, 77):
        seen = inspector()
        sent = b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\x01\0\1c\0\1\1\0"
        assert seen.request(sent, 0).api == "ApiVersions"
        frame = seen.response(response(refusal, 0), 0)
        assert frame.status == Status.OK
        assert (frame.version, frame.body_version) == (version, 0)
        assert frame.message == refusal


def test_bytes_behind_a_message() -> None:
    frame = asked().response(response(BROKERS, 12) + b"\0\0", 0)
    assert frame.status == Status.SURPLUS
    assert frame.is_good
    assert frame.message == BROKERS
    assert frame.rest == b"\0\0"
    size = len(response(BROKERS, 12))
    assert frame.error == f"MetadataResponse v12: 2 bytes left over at offset {size}"
    data = request(MetadataRequest(topics=[]), 12)
    assert inspector().request(data + b"\1", 0).status == Status.SURPLUS


def test_responses_out_of_order_find_their_requests() -> None:
    seen = inspector()
    seen.request(request(MetadataRequest(topics=[]), 12, 1), 10)
    seen.request(request(HeartbeatRequest(group_id="g"), 4, 2), 20)
    late = seen.response(response(HeartbeatResponse(), 4, 2), 100)
    assert (late.status, late.api, late.latency_ns) == (Status.OK, "Heartbeat", 80)
    assert seen.response(response(BROKERS, 12, 1), 100).latency_ns == 90


def test_produce_without_acks_may_have_no_response() -> None:
    seen = inspector()
    for number in (1, 2):
        assert seen.request(request(ProduceRequest(acks=0), 9, number), 0).status == Status.OK
    seen.request(request(ProduceRequest(acks=1), 9, 3), 5)
    answer = seen.response(response(ProduceResponse(), 9, 3), 7)
    assert (answer.status, answer.latency_ns) == (Status.OK, 2)
    assert not seen._waiting
    # A broker that answers nevertheless is read.
    seen.request(request(ProduceRequest(acks=0), 9, 4), 0)
    assert seen.response(response(ProduceResponse(), 9, 4), 0).status == Status.OK


def test_a_produce_that_cannot_be_read_may_have_no_response() -> None:
    seen = inspector()
    produce = request(ProduceRequest(acks=0), 9, 1)
    assert seen.request(produce[:-2], 0).status == Status.UNDECODABLE
    seen.request(request(MetadataRequest(topics=[]), 12, 2), 0)
    assert seen.response(response(BROKERS, 12, 2), 0).status == Status.OK
    assert not seen._waiting


def test_requests_that_nobody_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspector, "max_waiting", 100)
    seen = inspector()
    for number in range(300):
        seen.request(request(HeartbeatRequest(group_id="g"), 0, number), 0)
    assert len(seen._waiting) == 100
    assert seen.response(response(HeartbeatResponse(), 0, 299), 0).status == Status.OK


def test_tokens_after_the_first_version_of_the_sasl_handshake() -> None:
    seen = inspector()
    seen.request(request(SaslHandshakeRequest(mechanism="PLAIN"), 0), 0)
    shaken = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    assert seen.response(response(shaken, 0), 0).status == Status.OK
    token = seen.request(b"\0user\0password", 0)
    assert (token.status, token.api_key, token.correlation_id) == (Status.TOKEN, None, None)
    assert token.is_good
    assert seen.response(b"", 0).status == Status.TOKEN
    # From the first message on, what cannot be read is a mistake again.
    assert seen.request(request(MetadataRequest(topics=[]), 12), 0).status == Status.OK
    assert seen.response(response(BROKERS, 12), 0).status == Status.OK
    assert seen.request(b"\0user\0password", 0).status == Status.UNKNOWN


@pytest.mark.parametrize(("version", "error_code"), [(1, 0), (0, 33)])
def test_no_tokens_otherwise(version: int, error_code: int) -> None:
    seen = inspector()
    seen.request(request(SaslHandshakeRequest(mechanism="PLAIN"), version), 0)
    shaken = SaslHandshakeResponse(error_code=error_code, mechanisms=["PLAIN"])
    assert seen.response(response(shaken, version), 0).status == Status.OK
    assert seen.request(b"\0user\0password", 0).status == Status.UNKNOWN


def test_frames_over_the_limit_are_matched_by_their_first_bytes() -> None:
    seen = inspector()
    head = request(MetadataRequest(topics=[]), 12, 9)
    frame = seen.oversized(True, head, 5_000_000, 0)
    assert (frame.status, frame.api, frame.size) == (Status.UNDECODABLE, "Metadata", 5_000_000)
    assert frame.error.startswith("a frame of 5000000 bytes was passed on without decoding")
    answer = seen.oversized(False, b"\0\0\0\x09", 6_000_000, 7)
    assert (answer.api, answer.version, answer.latency_ns) == ("Metadata", 12, 7)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            b"\xff\xff\xff\xfe",
            "a negative frame length: -2; all further bytes are passed on without decoding",
        ),
        (b"\0\0", "the connection ended in the middle of a frame: 2 of 4 bytes arrived"),
        (b"\0\0\0\x09abc", "the connection ended in the middle of a frame: 7 of 13 bytes arrived"),
    ],
)
def test_what_is_no_frame(data: bytes, error: str) -> None:
    frame: Frame = inspector().raw(False, data, 0)
    assert frame.raw
    assert frame.status == Status.UNDECODABLE
    assert frame.error == error


def test_a_request_with_too_many_elements_is_not_decoded() -> None:
    """Its response is still matched."""
    seen = inspector()
    topics = [MetadataRequest.Topic(name="a")] * (MAX_ELEMENTS + 1)
    frame = seen.request(request(MetadataRequest(topics=topics), 12), 0)
    assert (frame.status, frame.message) == (Status.UNDECODABLE, None)
    assert frame.error == f"MetadataRequest v12: more than {MAX_ELEMENTS} array elements"
    assert seen.response(response(BROKERS, 12), 1).status == Status.OK
    fewer = request(MetadataRequest(topics=topics[1:]), 12)
    assert seen.request(fewer, 2).status == Status.OK
