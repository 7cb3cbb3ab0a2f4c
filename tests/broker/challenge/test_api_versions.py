"""ApiVersions, correlation ids, several requests on one connection, and several connections."""

from __future__ import annotations

import struct

import pytest

from tests.broker.challenge.conftest import EMPTY, ONE
from tests.broker.challenge.server import BrokerProcess
from tests.broker.challenge.wire import (
    API_VERSIONS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    UNSUPPORTED_VERSION,
    Connection,
    FetchFrom,
    Reader,
    api_versions_body,
    correlation_id,
    describe_body,
    fetch_body,
    read_api_versions,
    read_described,
    read_fetched,
    request_frame,
)


def api_versions_request(version: int, number: int, client_id: str | None = "challenge") -> bytes:
    return request_frame(
        API_VERSIONS,
        version,
        api_versions_body(version),
        correlation_id=number,
        client_id=client_id,
        flexible=version >= 3,
    )


@pytest.mark.parametrize("version", range(5))
def test_lists_what_the_challenge_needs(connection: Connection, version: int) -> None:
    answer = connection.api_versions(version)
    assert answer.error == 0
    assert answer.throttle_ms == 0
    # Produce up to 11, Fetch up to 16, ApiVersions up to 4, DescribeTopicPartitions 0.
    for key, wanted in {0: 11, 1: 16, 18: 4, 75: 0}.items():
        low, high = answer.ranges[key]
        assert 0 <= low <= wanted <= high
    assert answer.ranges[18][0] == 0
    assert answer.ranges[75] == (0, 0)


def test_says_the_same_in_every_version(connection: Connection) -> None:
    answers = [connection.api_versions(version).ranges for version in range(5)]
    assert all(answer == answers[0] for answer in answers)
    assert all(0 <= low <= high for low, high in answers[0].values())


@pytest.mark.parametrize("version", [3, 4])
def test_features_stand_in_tags(connection: Connection, version: int) -> None:
    """Features with a lowest level of 0 are shown from v4 on: older clients refuse them."""
    tags = connection.api_versions(version).tags
    supported: dict[str, tuple[int, int]] = {}
    read = Reader(tags[0])

    def feature() -> None:
        name = read.compact_string()
        supported[name] = (read.int16(), read.int16())
        read.tags()

    read.compact_array(feature)
    read.end()
    assert "metadata.version" in supported
    if version == 3:
        assert all(low > 0 for low, _ in supported.values())
    assert all(low <= high for low, high in supported.values())
    epoch = Reader(tags[1])
    assert epoch.int64() >= 0
    read = Reader(tags[2])
    finalized: dict[str, int] = {}

    def level() -> None:
        name = read.compact_string()
        high, low = read.int16(), read.int16()
        assert low <= high
        finalized[name] = high
        read.tags()

    read.compact_array(level)
    read.end()
    # From the folder.
    assert finalized["metadata.version"] == 20


@pytest.mark.parametrize("version", [99, 0x7FFF, -1, -32768])
def test_unknown_version_is_answered_in_the_first_form(
    connection: Connection, version: int
) -> None:
    body = api_versions_body(3)
    connection.send(request_frame(API_VERSIONS, version, body, correlation_id=0x7F4B9A31))
    frame = connection.receive()
    assert correlation_id(frame) == 0x7F4B9A31
    assert struct.unpack_from(">h", frame, 4) == (UNSUPPORTED_VERSION,)
    answer = read_api_versions(frame, 0)
    # Without it the client would not know how to ask again.
    assert answer.ranges[API_VERSIONS][0] == 0
    assert connection.api_versions(min(4, answer.ranges[API_VERSIONS][1])).error == 0


def test_the_version_behind_the_last_is_unknown(connection: Connection) -> None:
    highest = connection.api_versions(0).ranges[API_VERSIONS][1]
    connection.send(request_frame(API_VERSIONS, highest + 1, api_versions_body(3)))
    answer = read_api_versions(connection.receive(), 0)
    assert answer.error == UNSUPPORTED_VERSION
    assert answer.ranges[API_VERSIONS] == (0, highest)


@pytest.mark.parametrize("number", [0, 1, 7, 0x7FFFFFFF, -1, -0x80000000, 1870644833])
@pytest.mark.parametrize("version", [0, 4])
def test_correlation_ids_come_back(connection: Connection, number: int, version: int) -> None:
    connection.send(api_versions_request(version, number))
    assert correlation_id(connection.receive()) == number


@pytest.mark.parametrize("client_id", [None, "", "kafka-cli", "größe-日本", "c" * 300])
@pytest.mark.parametrize("version", [0, 2, 4])
def test_client_ids(connection: Connection, client_id: str | None, version: int) -> None:
    connection.send(api_versions_request(version, 3, client_id))
    assert read_api_versions(connection.receive(), version).error == 0


def test_tags_of_a_request_are_skipped(connection: Connection) -> None:
    """The header has two unknown tags, and the body has one."""
    header = struct.pack(">hhih", API_VERSIONS, 4, 9, 1) + b"c" + b"\x02\x05\x01x\x63\x02yz"
    body = b"\x02n\x02v" + b"\x01\x0a\x03abc"
    connection.send(struct.pack(">i", len(header) + len(body)) + header + body)
    frame = connection.receive()
    assert correlation_id(frame) == 9
    assert read_api_versions(frame, 4).error == 0


def test_requests_one_after_the_other(connection: Connection) -> None:
    for number in range(20):
        connection.send(api_versions_request(number % 5, number))
        frame = connection.receive()
        assert correlation_id(frame) == number
        assert read_api_versions(frame, number % 5).error == 0


def mixed(number: int) -> bytes:
    """One of three requests, by the number that it carries."""
    match number % 3:
        case 0:
            return api_versions_request(4, number)
        case 1:
            body = describe_body([ONE.name])
            return request_frame(DESCRIBE_TOPIC_PARTITIONS, 0, body, correlation_id=number)
        case _:
            body = fetch_body([(ONE.topic_id, [FetchFrom()])])
            return request_frame(FETCH, 16, body, correlation_id=number)


def check_mixed(number: int, frame: bytes) -> None:
    assert correlation_id(frame) == number
    match number % 3:
        case 0:
            assert read_api_versions(frame, 4).error == 0
        case 1:
            assert read_described(frame).topics[0].topic_id == ONE.topic_id
        case _:
            assert read_fetched(frame).partition(ONE.topic_id).records == ONE.logs[0]


def test_pipelined_requests_are_answered_in_order(connection: Connection) -> None:
    connection.send(b"".join(mixed(number) for number in range(60)))
    for number in range(60):
        check_mixed(number, connection.receive())


def test_a_waiting_request_holds_back_those_behind_it(connection: Connection) -> None:
    waits = fetch_body([(EMPTY.topic_id, [FetchFrom()])], max_wait_ms=150)
    connection.send(
        request_frame(FETCH, 16, waits, correlation_id=1) + api_versions_request(4, 2) + mixed(4)
    )
    frame = connection.receive()
    assert correlation_id(frame) == 1
    assert read_fetched(frame).partition(EMPTY.topic_id).records == b""
    assert correlation_id(connection.receive()) == 2
    check_mixed(4, connection.receive())


def test_a_request_byte_by_byte(connection: Connection) -> None:
    for byte in mixed(1) + mixed(2):
        connection.send(bytes([byte]))
    check_mixed(1, connection.receive())
    check_mixed(2, connection.receive())


def test_many_connections_at_once(broker: BrokerProcess) -> None:
    connections = [Connection(broker.port) for _ in range(100)]
    try:
        assert len(connections) == 100
        for turn in range(3):
            for number, connection in enumerate(connections):
                connection.send(mixed(turn * 1000 + number))
            for number, connection in reversed(list(enumerate(connections))):
                check_mixed(turn * 1000 + number, connection.receive())
    finally:
        for connection in connections:
            connection.close()


def test_half_a_request_on_one_connection_stops_no_other(broker: BrokerProcess) -> None:
    with Connection(broker.port) as slow, Connection(broker.port) as quick:
        request = mixed(1)
        slow.send(request[:-3])
        assert quick.api_versions(4).error == 0
        slow.send(request[-3:])
        check_mixed(1, slow.receive())


def test_a_waiting_fetch_on_one_connection_stops_no_other(broker: BrokerProcess) -> None:
    with Connection(broker.port) as waiting, Connection(broker.port) as quick:
        body = fetch_body([(EMPTY.topic_id, [FetchFrom()])], max_wait_ms=300)
        waiting.send(request_frame(FETCH, 16, body, correlation_id=5))
        for _ in range(5):
            assert quick.api_versions(4).error == 0
        assert correlation_id(waiting.receive()) == 5


@pytest.mark.parametrize(("key", "version"), [(DESCRIBE_TOPIC_PARTITIONS, 9), (9999, 0), (-1, 0)])
def test_what_is_not_served_ends_the_connection_alone(
    broker: BrokerProcess, key: int, version: int
) -> None:
    with Connection(broker.port) as bad, Connection(broker.port) as good:
        bad.send(request_frame(key, version, describe_body(["x"])))
        assert bad.closed_by_broker()
        assert good.api_versions(4).error == 0


@pytest.mark.parametrize("size", [-1, 0, 3, 0x7FFFFFFF])
def test_a_frame_of_a_wrong_size_ends_the_connection_alone(
    broker: BrokerProcess, size: int
) -> None:
    with Connection(broker.port) as bad, Connection(broker.port) as good:
        bad.send(struct.pack(">i", size) + b"\x00\x12\x00")
        assert bad.closed_by_broker()
        assert good.api_versions(4).error == 0
