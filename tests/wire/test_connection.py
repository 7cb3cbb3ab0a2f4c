"""Connections without I/O: both sides against each other, hostile bytes, and the order of responses."""

from __future__ import annotations

import pickle
import tracemalloc

import kafka_wire
import pytest
import wafka_wire
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    RequestHeader,
)

from krammar.wire.connection import (
    ClientConnection,
    ConnectionClosed,
    CorrelationError,
    InvalidRequest,
    LocalProtocolError,
    RequestReceived,
    ResponseError,
    ResponseReceived,
    ServerConnection,
    unsupported_version_response,
)
from krammar.wire.errors import (
    DecodeError,
    EncodeError,
    HeaderError,
    UnknownApiKeyError,
    UnsupportedVersionError,
)
from krammar.wire.framing import FrameError
from tests.support.frames import framed


def metadata(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(name=topic) for topic in topics])


def brokers(number: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=index, host=f"broker-{index}", port=9092 + index)
            for index in range(number)
        ],
        cluster_id="c",
    )


def one(connection: ServerConnection, data: bytes) -> RequestReceived | InvalidRequest:
    connection.receive_data(data)
    event = connection.next_event()
    assert isinstance(event, (RequestReceived, InvalidRequest))
    return event


def raw_request(key: int, version: int, correlation_id: int = 7, rest: bytes = b"") -> bytes:
    return framed(
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + correlation_id.to_bytes(4, "big", signed=True)
        + rest
    )


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_both_sides_against_each_other(piece: int) -> None:
    client = ClientConnection(kafka_wire, client_id="tester")
    server = ServerConnection(kafka_wire)
    requests = [
        (ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3),
        (metadata("a", "b"), 12),
        (metadata("c"), 1),
        (HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 0),
        (kafka_wire.ControlledShutdownRequest(broker_id=1), 0),
    ]
    answers = [
        ApiVersionsResponse(),
        brokers(3),
        brokers(1),
        HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS),
        kafka_wire.ControlledShutdownResponse(error_code=0),
    ]
    stream = b"".join(client.send_request(request, version) for request, version in requests)
    assert [sent.correlation_id for sent in client.waiting] == [0, 1, 2, 3, 4]

    received = []
    for begin in range(0, len(stream), piece):
        server.receive_data(stream[begin : begin + piece])
        received += server.events()
    assert [(e.request, e.version) for e in received] == requests
    # Header version 0, of ControlledShutdown v0 alone, has no client id.
    assert [e.header.client_id for e in received] == ["tester"] * 4 + [""]
    assert b"".join(framed(event.frame) for event in received) == stream
    assert server.unanswered == 5

    back = b"".join(
        server.send_response(event, answer) for event, answer in zip(received, answers, strict=True)
    )
    responses = []
    for begin in range(0, len(back), piece):
        client.receive_data(back[begin : begin + piece])
        responses += client.events()
    assert [e.response for e in responses] == [
        ApiVersionsResponse(),
        brokers(3),
        # version 1 has no cluster id
        MetadataResponse(brokers=brokers(1).brokers),
        answers[3],
        answers[4],
    ]
    assert [e.sent.correlation_id for e in responses] == [0, 1, 2, 3, 4]
    assert [e.sent.request for e in responses] == [request for request, _ in requests]
    assert client.waiting == ()
    assert server.unanswered == 0


def test_end_of_the_connection() -> None:
    client = ClientConnection(kafka_wire)
    data = client.send_request(metadata("a"), 9)
    server = ServerConnection(kafka_wire)
    server.receive_data(data + data[:9])
    server.receive_data(b"")
    events = list(server.events())
    assert isinstance(events[0], RequestReceived)
    closed = events[1]
    assert isinstance(closed, ConnectionClosed)
    assert (closed.received, closed.expected, closed.unanswered) == (9, len(data), 1)
    assert not closed.clean
    assert len(events) == 2
    with pytest.raises(LocalProtocolError, match="after the end"):
        server.receive_data(data)

    client.receive_data(b"")
    end = client.next_event()
    assert isinstance(end, ConnectionClosed)
    assert end.clean
    assert end.unanswered == 1


def test_end_within_a_prefix() -> None:
    server = ServerConnection(kafka_wire)
    server.receive_data(b"\0\0")
    server.receive_data(b"")
    closed = server.next_event()
    assert isinstance(closed, ConnectionClosed)
    assert (closed.received, closed.expected) == (2, 4)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes: 104857600 are accepted at most"),
        (b"\xff\xff\xff\xff", "a negative frame length: -1"),
        (b"\x80\0\0\0", "a negative frame length: -2147483648"),
        (b"\x16\x03\x01\x02", r"\(it looks like TLS\)"),
        (b"GET ", r"\(it looks like HTTP\)"),
    ],
)
@pytest.mark.parametrize("kind", [ServerConnection, ClientConnection])
def test_hostile_prefixes(kind: type, prefix: bytes, message: str) -> None:
    connection = kind(kafka_wire)
    connection.receive_data(prefix[:3])
    assert connection.next_event() is None
    tracemalloc.start()
    connection.receive_data(prefix[3:])
    with pytest.raises(FrameError, match=message) as caught:
        connection.next_event()
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    assert caught.value.limit == 104857600
    connection.receive_data(b"more")
    with pytest.raises(FrameError, match=message):
        connection.next_event()


def test_the_frame_limit_is_the_callers() -> None:
    data = ClientConnection(kafka_wire).send_request(metadata("a" * 100), 9)
    size = len(data) - 4
    assert isinstance(one(ServerConnection(kafka_wire, max_frame=size), data), RequestReceived)
    server = ServerConnection(kafka_wire, max_frame=size - 1)
    server.receive_data(data[:4])
    with pytest.raises(FrameError, match=f"{size} bytes: {size - 1}"):
        server.next_event()


def test_a_claimed_length_allocates_nothing() -> None:
    server = ServerConnection(kafka_wire)
    tracemalloc.start()
    server.receive_data((100 * 1024 * 1024).to_bytes(4, "big"))
    assert server.next_event() is None
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_frame_in_pieces_takes_memory_in_proportion() -> None:
    size = 1_000_000
    piece = b"x"
    server = ServerConnection(kafka_wire)
    server.receive_data(size.to_bytes(4, "big"))
    tracemalloc.start()
    for _ in range(200_000):
        server.receive_data(piece)
        assert server.next_event() is None
    assert tracemalloc.get_traced_memory()[1] < 500_000
    tracemalloc.stop()
    assert server.buffered == 200_004


def test_a_broken_header_names_the_best_guess() -> None:
    event = one(ServerConnection(kafka_wire), raw_request(3, 9, 5, b"\x00\x50abc"))
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, HeaderError)
    assert event.error.api_key == 3
    assert event.header is None
    assert (event.api_key, event.version, event.correlation_id) == (3, 9, 5)


@pytest.mark.parametrize(
    ("body", "known"),
    [(b"", (None, None, None)), (b"\0\3", (3, None, None)), (b"\0\3\0\1\0\0", (3, 1, None))],
)
def test_frames_too_short_for_a_header(
    body: bytes, known: tuple[int | None, int | None, int | None]
) -> None:
    server = ServerConnection(kafka_wire)
    event = one(server, framed(body))
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, HeaderError)
    assert (event.api_key, event.version, event.correlation_id) == known
    assert server.unanswered == 0
    with pytest.raises(LocalProtocolError, match="does not wait"):
        server.send_response(event, brokers(1), 1)


def test_unknown_key_and_unknown_version() -> None:
    server = ServerConnection(kafka_wire)
    event = one(server, raw_request(999, 0, 4, b"\xff\xff"))
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, UnknownApiKeyError)
    assert event.header.correlation_id == 4
    server.skip_response(event)
    event = one(server, raw_request(3, 99, 5, b"\xff\xff\0"))
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, UnsupportedVersionError)
    assert (event.error.min_version, event.error.max_version) == (0, 13)
    assert not event.wants_api_versions


def test_a_broken_body_keeps_the_header_and_the_connection() -> None:
    client = ClientConnection(kafka_wire, client_id="c")
    good = client.send_request(metadata("a"), 9)
    server = ServerConnection(kafka_wire)
    # The number of topics, the byte behind the header, claims 127.
    at = good.index(b"\x02\x02a")
    event = one(server, good[:at] + b"\x80" + good[at + 1 :])
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, DecodeError)
    assert event.error.path == "topics"
    assert event.error.offset == at - 4
    assert event.header.client_id == "c"
    later = one(server, good)
    assert isinstance(later, RequestReceived)
    with pytest.raises(LocalProtocolError, match="keep the order"):
        server.send_response(later, brokers(1))
    server.skip_response(event)
    assert server.send_response(later, brokers(1))


def test_responses_keep_the_order_of_the_requests() -> None:
    client = ClientConnection(kafka_wire)
    server = ServerConnection(kafka_wire)
    server.receive_data(b"".join(client.send_request(metadata(n), 9) for n in "abc"))
    first, second, third = server.events()
    assert isinstance(first, RequestReceived)
    assert isinstance(second, RequestReceived)
    assert isinstance(third, RequestReceived)
    with pytest.raises(LocalProtocolError, match="1 cannot be answered yet: 0 came before it"):
        server.send_response(second, brokers(1))
    server.skip_response(second)
    client.receive_data(server.send_response(first, brokers(1)))
    with pytest.raises(LocalProtocolError, match="0 does not wait"):
        server.send_response(first, brokers(1))
    with pytest.raises(LocalProtocolError, match="1 does not wait"):
        server.skip_response(second)
    client.receive_data(server.send_response(third, brokers(3)))
    assert isinstance(client.next_event(), ResponseReceived)
    with pytest.raises(
        CorrelationError, match="correlation id 2, which was sent later; 1 must be"
    ) as e:
        client.next_event()
    assert (e.value.correlation_id, e.value.expected) == (2, 1)
    with pytest.raises(CorrelationError):
        client.next_event()


def test_a_response_must_answer_its_request_and_stay_encodable() -> None:
    client = ClientConnection(kafka_wire)
    server = ServerConnection(kafka_wire)
    event = one(server, client.send_request(metadata("a"), 9))
    with pytest.raises(LocalProtocolError, match="HeartbeatResponse does not answer MetadataReq"):
        server.send_response(event, HeartbeatResponse())
    with pytest.raises(EncodeError) as caught:
        server.send_response(event, MetadataResponse(brokers=[MetadataResponse.Broker(port=2**40)]))
    assert caught.value.path == "brokers[0].port"
    with pytest.raises(UnsupportedVersionError):
        server.send_response(event, brokers(1), 77)
    assert server.unanswered == 1
    assert server.send_response(event, brokers(1))


def test_requests_without_response() -> None:
    client = ClientConnection(kafka_wire)
    server = ServerConnection(kafka_wire)
    produce = ProduceRequest(
        acks=0,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t",
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=b"x" * 9)],
            )
        ],
    )
    server.receive_data(client.send_request(produce, 9, expect_response=False))
    server.receive_data(client.send_request(metadata("a"), 9))
    first, second = server.events()
    assert isinstance(first, RequestReceived)
    assert isinstance(second, RequestReceived)
    assert first.request == produce
    server.skip_response(first)
    client.receive_data(server.send_response(second, brokers(2)))
    event = client.next_event()
    assert isinstance(event, ResponseReceived)
    assert event.response == brokers(2)
    assert event.sent.correlation_id == 1


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_api_versions_in_an_unknown_version_is_answered(version: int) -> None:
    server = ServerConnection(kafka_wire)
    # The bytes after the correlation id are unknown in a future version.
    event = one(server, raw_request(18, version, 77, b"\x00\x50"))
    assert isinstance(event, InvalidRequest)
    assert event.wants_api_versions
    serves = {3: (5, 99), 18: (0, 3), 9999: (0, 1), 1: (40, 50)}
    body = unsupported_version_response(kafka_wire, serves)
    answer = server.send_response(event, body, 0)
    assert answer == (
        b"\0\0\0\x16"
        b"\0\0\0\x4d"  # correlation id; header version 0 even where the request's is flexible
        b"\0\x23"  # UNSUPPORTED_VERSION
        b"\0\0\0\x02"
        b"\0\3\0\5\0\x0d"
        b"\0\x12\0\0\0\3"
    )


def test_all_that_the_protocol_has_is_listed() -> None:
    body = unsupported_version_response(kafka_wire)
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION
    listed = {key.api_key: (key.min_version, key.max_version) for key in body.api_keys}
    assert set(listed) == set(kafka_wire.ApiKey)
    assert listed[18] == (ApiVersionsRequest.min_version, ApiVersionsRequest.max_version)
    some = unsupported_version_response(kafka_wire, iter([1, 18]))
    assert [key.api_key for key in some.api_keys] == [1, 18]
    with pytest.raises(UnknownApiKeyError):
        unsupported_version_response(wafka_wire)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_client_reads_that_answer(version: int) -> None:
    client = ClientConnection(kafka_wire)
    client.send_request(ApiVersionsRequest(), version)
    body = unsupported_version_response(kafka_wire, [18])
    client.receive_data(framed(b"\0\0\0\0" + body.encode(0)))
    event = client.next_event()
    assert isinstance(event, ResponseReceived)
    assert event.version == 0
    assert event.sent.version == version
    assert event.response == body


def test_a_broken_api_versions_response_is_not_taken_for_it() -> None:
    client = ClientConnection(kafka_wire)
    client.send_request(ApiVersionsRequest(), 3)
    client.receive_data(framed(b"\0\0\0\0\0\x23\0\0\0\x02\0\x12"))
    with pytest.raises(ResponseError, match="ApiVersionsResponse v3: api_keys: null"):
        client.next_event()


def test_responses_to_nothing() -> None:
    client = ClientConnection(kafka_wire)
    client.receive_data(framed(b"\0\0\0\x09abc"))
    with pytest.raises(CorrelationError, match="9, but no request is waiting"):
        client.next_event()
    client = ClientConnection(kafka_wire)
    client.send_request(metadata("a"), 9)
    client.receive_data(framed(b"\0\0\0\x09abc"))
    with pytest.raises(CorrelationError, match="9, which is not waiting; 0 must be answered first"):
        client.next_event()
    client = ClientConnection(kafka_wire)
    client.send_request(metadata("a"), 9)
    client.receive_data(framed(b"\0\0"))
    with pytest.raises(CorrelationError, match="a response of 2 bytes is too short"):
        client.next_event()


def test_a_broken_response_says_where_and_the_connection_goes_on() -> None:
    client = ClientConnection(kafka_wire)
    server = ServerConnection(kafka_wire)
    server.receive_data(b"".join(client.send_request(metadata(n), 12) for n in "ab"))
    first, second = server.events()
    assert isinstance(first, RequestReceived)
    assert isinstance(second, RequestReceived)
    good = server.send_response(first, brokers(3))
    client.receive_data(framed(good[4:-1]))
    with pytest.raises(ResponseError) as caught:
        client.next_event()
    error = caught.value
    assert str(error).startswith("response to correlation id 0: MetadataResponse v12: ")
    assert error.offset == len(good) - 5
    assert error.sent.request == metadata("a")
    assert error.frame == good[4:-1]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    client.receive_data(server.send_response(second, brokers(1)))
    event = client.next_event()
    assert isinstance(event, ResponseReceived)
    assert event.sent.correlation_id == 1


def test_misuse_of_the_client_uses_up_no_correlation_id() -> None:
    client = ClientConnection(kafka_wire)
    with pytest.raises(LocalProtocolError, match="MetadataResponse is not a request of kafka_wire"):
        client.send_request(brokers(1), 9)
    with pytest.raises(LocalProtocolError, match="ProduceRequest is not a request of kafka_wire"):
        client.send_request(wafka_wire.ProduceRequest(), 3)
    with pytest.raises(UnsupportedVersionError):
        client.send_request(metadata("a"), 14)
    with pytest.raises(EncodeError):
        client.send_request(MetadataRequest(topics=None), 0)
    assert client.waiting == ()
    data = client.send_request(metadata("a"), 9)
    assert RequestHeader.decode_from(data, 4, 2)[0].correlation_id == 0


def test_correlation_ids_begin_again() -> None:
    client = ClientConnection(kafka_wire)
    client._next_id = 0x7FFFFFFF
    client.send_request(metadata("a"), 9)
    client.send_request(metadata("a"), 9)
    assert [sent.correlation_id for sent in client.waiting] == [0x7FFFFFFF, 0]


def test_no_client_id() -> None:
    client = ClientConnection(kafka_wire, client_id=None)
    event = one(ServerConnection(kafka_wire), client.send_request(metadata("a"), 9))
    assert event.header.client_id is None


@pytest.mark.parametrize("piece", [1, 1000])
def test_wafka_has_header_version_1_only(piece: int) -> None:
    client = ClientConnection(wafka_wire, client_id="w")
    server = ServerConnection(wafka_wire)
    request = wafka_wire.ProduceRequest(
        acks=1,
        topic_data=[
            wafka_wire.ProduceRequest.TopicData(
                name="t",
                partition_data=[
                    wafka_wire.ProduceRequest.PartitionData(index=2, records=["a", "b"])
                ],
            )
        ],
    )
    data = client.send_request(request, 3)
    events = []
    for begin in range(0, len(data), piece):
        server.receive_data(data[begin : begin + piece])
        events += server.events()
    (event,) = events
    assert isinstance(event, RequestReceived)
    assert event.request == request
    assert event.header == wafka_wire.RequestHeader(
        request_api_key=0, request_api_version=3, correlation_id=0, client_id="w"
    )
    response = wafka_wire.ProduceResponse()
    client.receive_data(server.send_response(event, response))
    answer = client.next_event()
    assert isinstance(answer, ResponseReceived)
    assert answer.response == response


def test_wafka_knows_no_other_request() -> None:
    server = ServerConnection(wafka_wire)
    event = one(server, raw_request(0, 2, 1, b"\xff\xff"))
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, UnsupportedVersionError)
    server.skip_response(event)
    event = one(server, raw_request(18, 0, 2, b"\xff\xff"))
    assert isinstance(event, InvalidRequest)
    assert isinstance(event.error, UnknownApiKeyError)
    assert not event.wants_api_versions


def test_what_is_no_generated_package() -> None:
    with pytest.raises(TypeError, match="is not a package that krammar generated"):
        ServerConnection(pickle)


def test_bytes_behind_a_request_are_left_alone_where_that_is_allowed() -> None:
    frame = ClientConnection(kafka_wire).send_request(MetadataRequest(topics=[]), 12)
    longer = (len(frame) - 1).to_bytes(4, "big") + frame[4:] + b"\0\0\0"
    strict = ServerConnection(kafka_wire, allow_trailing=False)
    strict.receive_data(longer)
    event = strict.next_event()
    assert isinstance(event, InvalidRequest) and "3 bytes left over" in str(event.error)
    lenient = ServerConnection(kafka_wire)  # librdkafka sends them after Metadata v13
    lenient.receive_data(longer)
    event = lenient.next_event()
    assert isinstance(event, RequestReceived) and event.request == MetadataRequest(topics=[])
