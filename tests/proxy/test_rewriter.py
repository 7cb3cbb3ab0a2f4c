"""Repeated responses are rewritten once, and the order of responses that the broker leaves out."""

from __future__ import annotations

import socket
from collections.abc import Callable

import kafka_wire
import pytest
from kafka_wire import ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse, MetadataResponse

from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.proxy.rewriter import MAX_BYTES, MAX_ENTRIES, Rewritten
from krammar.proxy.route import Route
from tests.proxy.support import address
from tests.support.frames import framed, read_frame
from tests.support.waiting import PATIENCE
from tests.tap.support import upstream as running

WINDOW = 16


def frames(key: int, version: int) -> bytes:
    """Requests with bodies that are not read, and correlation ids from 1."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big")
    return b"".join(
        framed(head + number.to_bytes(4, "big") + b"\xff\xff") for number in range(1, WINDOW + 1)
    )


def serving(bodies: Callable[[int], bytes]) -> Callable[[socket.socket], None]:
    """A broker that answers a request with the bytes for its number, after its correlation id."""

    def serve(connection: socket.socket) -> None:
        number = 0
        while frame := read_frame(connection):
            connection.sendall(framed(frame[8:12] + bodies(number)))
            number += 1

    return serve


def ask(proxy: Proxy, data: bytes) -> list[bytes]:
    with socket.create_connection(address(proxy), timeout=PATIENCE) as client:
        client.sendall(data)
        return [read_frame(client) for _ in range(WINDOW)]


def metadata(version: int, topic: str) -> bytes:
    response = MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="10.0.0.1", port=9092)],
        topics=[MetadataResponse.Topic(name=topic)],
    )
    return (b"\0" if version >= 9 else b"") + response.encode(version)


@pytest.mark.parametrize("version", range(MetadataResponse.max_version + 1))
def test_repeated_metadata_is_the_same_apart_from_its_correlation_id(version: int) -> None:
    with (
        running(serving(lambda number: metadata(version, "orders"))) as upstream,
        Proxy.start(str(upstream.address)) as proxy,
    ):
        for _ in range(2):  # on one connection, and on another one
            found = ask(proxy, frames(3, version))
            assert [int.from_bytes(each[4:8], "big") for each in found] == list(range(1, 17))
            assert len({each[8:] for each in found}) == 1
        begin = 9 if version >= 9 else 8
        (broker,) = MetadataResponse.decode(found[0][begin:], version).brokers
        assert broker.host == "127.0.0.1"
        assert broker.port != 9092


def test_another_response_is_rewritten_again() -> None:
    with (
        running(serving(lambda number: metadata(9, f"topic-{number // 2}"))) as upstream,
        Proxy.start(str(upstream.address)) as proxy,
    ):
        found = [MetadataResponse.decode(each[9:], 9) for each in ask(proxy, frames(3, 9))]
    assert [each.topics[0].name for each in found] == [f"topic-{n // 2}" for n in range(WINDOW)]


def test_repeated_versions_are_known_to_filters_of_each_connection() -> None:
    asked: list[object] = []

    class Ask(Filter):
        @on(kafka_wire.LeaveGroupRequest)
        async def ask(self, request: object, exchange: Exchange) -> None:
            asked.append(await exchange.send(HeartbeatRequest(group_id="g")))

    entry = ApiVersionsResponse.ApiVersion
    offered = ApiVersionsResponse(
        api_keys=[entry(api_key=12, min_version=0, max_version=2), entry(api_key=18, max_version=4)]
    )

    def serve(connection: socket.socket) -> None:
        while frame := read_frame(connection):
            key, version = int.from_bytes(frame[4:6], "big"), frame[7]
            body = offered.encode(0) if key == 18 else HeartbeatResponse().encode(2)
            assert key != 12 or version == 2
            connection.sendall(framed(frame[8:12] + body))

    leave = kafka_wire.LeaveGroupRequest(group_id="g", member_id="m").encode(0)
    with running(serve) as upstream, Proxy.start(str(upstream.address), [Ask()]) as proxy:
        for _ in range(2):
            with socket.create_connection(address(proxy), timeout=PATIENCE) as client:
                client.sendall(frames(18, 0))
                for _ in range(WINDOW):
                    read_frame(client)
                client.sendall(framed(b"\0\x0d\0\0\0\0\0\x20\xff\xff" + leave))
                assert read_frame(client)[4:8] == b"\0\0\0\x20"
    assert len(asked) == 2


def test_the_memory_of_rewritten_responses_is_bounded() -> None:
    rewritten, route = Rewritten(), Route(3, 9)
    for number in range(3 * MAX_ENTRIES):
        body = number.to_bytes(4, "big") + bytes(MAX_BYTES // 16)
        rewritten.add(route, bytes(8) + body, bytes(8) + body, None)
        assert len(rewritten.known) <= MAX_ENTRIES
        sizes = [len(key[1]) + len(found.rest or b"") for key, found in rewritten.known.items()]
        assert sum(sizes) <= MAX_BYTES
    before = len(rewritten.known)
    rewritten.add(route, bytes(MAX_BYTES), bytes(MAX_BYTES), None)
    rewritten.add(Route(1, 17), bytes(20), bytes(20), None)  # Fetch does not repeat
    assert len(rewritten.known) == before


def test_an_answer_follows_the_responses_before_it_though_the_broker_omits_one() -> None:
    class Beat(Filter):
        @on(HeartbeatRequest)
        def beat(self, request: HeartbeatRequest, exchange: Exchange) -> HeartbeatResponse:
            return HeartbeatResponse()

    def serve(connection: socket.socket) -> None:
        ids = [read_frame(connection)[8:12] for _ in range(3)]
        connection.sendall(framed(ids[0] + b"one") + framed(ids[2] + b"four"))
        connection.recv(1)

    def request(key: int, number: int, body: bytes = b"") -> bytes:
        return framed(
            key.to_bytes(2, "big") + b"\0\0" + number.to_bytes(4, "big") + b"\xff\xff" + body
        )

    beat = HeartbeatRequest(group_id="g", member_id="m").encode(0)
    data = request(11, 1) + request(11, 2) + request(12, 3, beat) + request(11, 4)
    with (
        running(serve) as upstream,
        Proxy.start(str(upstream.address), [Beat()]) as proxy,
        socket.create_connection(address(proxy), timeout=PATIENCE) as client,
    ):
        client.sendall(data)
        found = [read_frame(client)[7] for _ in range(3)]
    assert found == [1, 3, 4]
