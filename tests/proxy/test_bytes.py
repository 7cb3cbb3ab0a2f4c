"""Frames between sockets: what passes untouched and when, what is refused, back-pressure, and the end."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
import threading
from typing import Any

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestHeader,
    ResponseHeader,
)

from krammar.proxy import Exchange, Filter, Proxy, ProxyError, addresses, on
from krammar.proxy.heads import has_no_endpoints
from krammar.util.event_loop import new_event_loop
from krammar.wire.representation import kinds_of, named
from tests.proxy.support import Client, address, answering, echo, link
from tests.support.frames import framed, read_exactly, read_frame
from tests.support.waiting import PATIENCE
from tests.tap.support import Upstream, broker, upstream


@pytest.fixture(autouse=True, params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both event loops."""
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    else:
        pytest.importorskip("uvloop")


class Beats(Filter):
    """Reads Heartbeat, and nothing else."""

    @on(HeartbeatRequest, HeartbeatResponse)
    def read(self, message: Any, exchange: Exchange) -> None: ...


def head(key: int, version: int, correlation_id: int, client: bytes = b"test") -> bytes:
    return (
        key.to_bytes(2, "big")
        + version.to_bytes(2, "big")
        + correlation_id.to_bytes(4, "big")
        + len(client).to_bytes(2, "big")
        + client
    )


@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 20])
def test_unread_frames_keep_their_bytes(piece: int) -> None:
    chance = random.Random(piece)
    # Keys and versions that exist, and others; Fetch v15 has no addresses.
    kinds = [(1, 15), (4000, 7), (11, 99), (32767, 32767)]
    requests = [
        framed(head(*chance.choice(kinds), number) + chance.randbytes(chance.choice([0, 9, 3000])))
        for number in range(40)
    ]
    with (
        upstream(echo) as server,
        Proxy.start(str(server.address), [Beats()]) as proxy,
        Client(address(proxy)) as client,
    ):

        def send() -> None:
            data = b"".join(requests)
            for begin in range(0, len(data), piece):
                client.socket.sendall(data[begin : begin + piece])

        sender = threading.Thread(target=send)
        sender.start()
        for each in requests:
            assert read_frame(client.socket) == framed(each[8:12] + each[4:])
        sender.join()


def test_a_read_message_keeps_its_bytes_with_unknown_tags_and_bytes_after_it() -> None:
    beat = HeartbeatRequest(group_id="g", member_id="m").with_unknown_tags({9: b"new"})
    body = head(12, 4, 1) + b"\0" + beat.encode(4) + b"\1\2\3"
    reply = b"\0" + HeartbeatResponse().with_unknown_tags({7: b"x"}).encode(4) + b"\4\5"
    got: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        got.append(read_frame(connection))
        connection.sendall(framed(got[0][8:12] + reply))

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), [Beats()]) as proxy,
        Client(address(proxy)) as client,
    ):
        for each in framed(body):
            client.socket.sendall(bytes([each]))
        assert read_frame(client.socket) == framed(b"\0\0\0\1" + reply)
        assert got == [framed(body)]


def test_an_unread_frame_passes_before_it_is_complete() -> None:
    size = 3_000_000
    arrived, answered = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        assert read_exactly(connection, 500_000)
        arrived.set()
        assert read_exactly(connection, 4 + size - 500_000)
        connection.sendall(framed(bytes(3) + b"\1" + bytes(size))[:500_000])
        assert answered.wait(PATIENCE)
        connection.sendall(framed(bytes(3) + b"\1" + bytes(size))[500_000:])

    request = framed(head(4000, 0, 1) + bytes(size - 14))
    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), [Beats()]) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(request[:1_000_000])
        assert arrived.wait(PATIENCE)
        client.socket.sendall(request[1_000_000:])
        assert client.read_exactly(400_000)
        answered.set()
        assert client.read_exactly(size + 8 - 400_000)


def test_produce_without_a_response() -> None:
    got: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while frame := read_frame(connection):
            got.append(frame)
            if frame[4:6] != b"\0\0":
                connection.sendall(framed(frame[8:12] + frame[4:]))

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), [Beats()]) as proxy,
        Client(address(proxy)) as client,
    ):
        sent = []
        for version in range(ProduceRequest.max_version + 1):
            for name in (None, "transaction"):
                message = ProduceRequest(acks=0, transactional_id=name if version >= 3 else None)
                header = RequestHeader(
                    request_api_key=0, request_api_version=version, correlation_id=1, client_id="é"
                )
                assert ProduceRequest.flexible_from is not None
                flexible = version >= ProduceRequest.flexible_from
                sent.append(framed(header.encode(2 if flexible else 1) + message.encode(version)))
        # All have the same correlation id, so a response to the last one must not answer one of them.
        sent.append(framed(head(4000, 0, 1)))
        for each in b"".join(sent):
            client.socket.sendall(bytes([each]))
        assert read_frame(client.socket) == framed(b"\0\0\0\1" + sent[-1][4:])
        assert got == sent


def test_frames_without_headers_after_sasl_handshake_0() -> None:
    tokens = [b"\0user\0password", b"", b"abc", b"n,,n=user,r=nonce" * 9]

    def serve(connection: socket.socket) -> None:
        handshake = read_frame(connection)
        connection.sendall(framed(handshake[8:12] + bytes(2) + bytes(4)))
        for token in tokens:
            assert read_frame(connection) == framed(token)
            connection.sendall(framed(token[::-1]))
        echo(connection)

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), [Beats()], refuse_unknown=True) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(framed(head(17, 0, 1) + b"\0\5PLAIN"))
        assert len(read_frame(client.socket)) == 14
        for token in tokens:
            for each in framed(token):
                client.socket.sendall(bytes([each]))
            assert read_frame(client.socket) == framed(token[::-1])
        request = framed(head(1, 15, 5) + b"body")
        client.socket.sendall(request)
        assert read_frame(client.socket) == framed(b"\0\0\0\5" + request[4:])


def test_unknown_versions_are_no_tokens(caplog: pytest.LogCaptureFixture) -> None:
    frames: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while frame := read_frame(connection):
            frames.append(frame)
            connection.sendall(framed(frame[8:12] + bytes(2) + bytes(4)))

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), [Beats()]) as proxy,
        Client(address(proxy)) as client,
    ):
        handshake = framed(head(17, 0, 1) + b"\0\5PLAIN")
        client.socket.sendall(handshake)
        assert len(read_frame(client.socket)) == 14
        client.socket.sendall(framed(head(12, 20, 2) + b"body"))
        assert client.read_to_end() == b""
    assert frames == [handshake]
    (record,) = caplog.records
    assert record.getMessage().endswith("HeartbeatRequest v20 cannot be read: v0 to v4 are known")


@pytest.mark.parametrize(
    ("data", "options", "reason"),
    [
        (framed(head(4000, 7, 1)), {"refuse_unknown": True}, "api key 4000 v7 is unknown"),
        (
            framed(head(1, 99, 1)),
            {"refuse_unknown": True},
            "FetchRequest v99 cannot be read: v0 to v18 are known",
        ),
        # A broker reads the number of tagged fields as 0, and finds acks.
        (
            framed(head(0, 9, 1) + b"\x80\x80\x80\x80\x10" + bytes(9)),
            {},
            "a Produce request has no acks within its first 81920 bytes",
        ),
        # Its response has addresses, so it cannot pass unread.
        (framed(head(3, 99, 1)), {}, "MetadataRequest v99 cannot be read: v0 to v13 are known"),
        (framed(head(12, 9, 1)), {}, "HeartbeatRequest v9 cannot be read: v0 to v4 are known"),
        (b"\xff\xff\xff\xff" + bytes(20), {}, "the client sent a frame with the length -1"),
        (bytes(4), {}, "the client sent a frame with the length 0"),
        (
            framed(head(12, 4, 1) + bytes(2000)),
            {"max_frame": 1000},
            "a request of 2014 bytes is too large for filters (1000 bytes at most; max_frame raises the limit)",
        ),
        (
            struct.pack(">i", (52 << 20) + 1) + head(12, 4, 1),
            {},
            "a request of 54525953 bytes is too large for filters (54525952 bytes at most; max_frame raises the limit)",
        ),
    ],
)
def test_requests_that_are_refused(
    caplog: pytest.LogCaptureFixture, data: bytes, options: dict[str, Any], reason: str
) -> None:
    with (
        upstream(echo) as server,
        Proxy.start(str(server.address), [Beats()], **options) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(data)
        assert client.read_to_end() == b""
    (record,) = caplog.records
    assert record.getMessage().endswith(f": closed: {reason}")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff" + bytes(20), "the broker sent a frame with the length -1"),
        (framed(b"\0\0\0\x09" + bytes(9)), "a response to the unknown correlation id 9"),
        (framed(b"\0\0\0\1" + b"\xff" * 9), "ResponseHeader v1: unknown_tags"),
        (framed(b"\0\0\0\1" + bytes(2000)), "a response of 2004 bytes cannot be read ("),
    ],
)
def test_responses_that_are_refused(
    caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    def serve(connection: socket.socket) -> None:
        read_frame(connection)
        connection.sendall(data)
        connection.recv(1)

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), max_frame=1000) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(framed(head(3, 12, 1) + b"\0" + MetadataRequest().encode(12)))
        assert client.read_to_end() == b""
    (record,) = caplog.records
    assert ": closed: " in record.getMessage()
    assert reason in record.getMessage()


def test_addresses_are_those_of_the_proxy() -> None:
    with (
        upstream(broker) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        first, second, third = client.ask(MetadataRequest(topics=[]), 12).response.brokers
        assert f"{first.host}:{first.port}" == proxy.bootstrap_servers
        assert second.host == "127.0.0.1"
        assert second.port not in (first.port, server.address.port)
        assert (third.host, third.port) == ("", -1)
        with Client(addresses.Address(second.host, second.port)) as other:
            again = other.ask(MetadataRequest(topics=[]), 9).response.brokers
            assert [each.port for each in again] == [first.port, second.port, -1]


def test_a_broker_without_a_port_closes_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Proxy, "max_ports", 1)
    with (
        upstream(broker) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        assert client.read_to_end() == b""
        expected = f": closed: no port for broker localhost:{server.address.port}"
    assert caplog.records[-1].getMessage().endswith(expected)


@pytest.mark.parametrize("rack", [None, "", "rack-1"])
def test_node_endpoints_of_produce_and_fetch(rack: str | None) -> None:
    """They are a tagged field at the end, which is found without decoding."""

    def serve(connection: socket.socket) -> None:
        while frame := read_frame(connection):
            cls: Any = ProduceResponse if frame[5] == 0 else FetchResponse
            node = cls.NodeEndpoint(node_id=1, host="10.0.0.1", port=9092, rack=rack)
            message = cls(node_endpoints=[node])
            connection.sendall(framed(frame[8:12] + b"\0" + message.encode(frame[7])))

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        for key, cls in ((0, ProduceResponse), (1, FetchResponse)):
            version: int = cls.max_version
            acks = ProduceRequest(acks=1).encode(version) if key == 0 else b""
            client.socket.sendall(framed(head(key, version, 1) + b"\0" + acks))
            frame = read_frame(client.socket)
            (node,) = cls.decode(frame[9:], version).node_endpoints
            assert (node.host, node.rack) == ("127.0.0.1", rack)


def test_responses_without_node_endpoints_are_recognized() -> None:
    chance = random.Random(1)
    header = ResponseHeader(correlation_id=1).encode(1)
    topic = named(FetchResponse, kinds_of(FetchResponse)["responses"])
    part = named(topic, kinds_of(topic)["partitions"])
    recognized = 0
    for _ in range(2000):
        cls: Any = chance.choice([ProduceResponse, FetchResponse])
        nodes = [
            cls.NodeEndpoint(
                node_id=chance.randrange(3),
                host=chance.choice(["a", "broker-1.example"]),
                port=chance.choice([1, 255, 256, 9092, 9216, 65535]),
                rack=chance.choice([None, "", "r"]),
            )
            for _ in range(chance.choice([0, 1, 2]))
        ]
        message = cls(node_endpoints=nodes, throttle_time_ms=chance.choice([0, 0, 7]))
        if cls is FetchResponse and chance.random() < 0.7:
            records = chance.randbytes(20) + bytes(chance.randrange(4))
            data = part(records=records)
            message.responses = [topic(partitions=[data])]
        frame = framed(header + message.encode(cls.max_version))
        found = has_no_endpoints(b"x" + frame + b"y", 1, len(frame) + 1)
        assert not (found and nodes)
        recognized += found
    assert recognized > 200


def test_a_slow_client_slows_the_broker() -> None:
    size, number = 1_000_000, 64
    answer = framed(b"\0\0\0\1" + random.Random(1).randbytes(size - 4))
    sent = [0]

    def eager(connection: socket.socket) -> None:
        if not read_frame(connection):
            return
        for _ in range(number):
            connection.sendall(answer)
            sent[0] += 1
        connection.recv(1)

    with (
        upstream(eager) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as slow,
    ):
        slow.socket.sendall(framed(head(4000, 0, 1)))
        assert slow.read_exactly(len(answer)) == answer
        # While the client does not read, the proxy has many turns of its loop, and reads the bytes in the buffers.
        for _ in range(300):
            with Client(address(proxy)):
                pass
            assert sent[0] <= 20
        for _ in range(number - 1):
            assert slow.read_exactly(len(answer)) == answer


def test_a_slow_broker_slows_the_client() -> None:
    go_on, got = threading.Event(), [0]
    content = random.Random(1).randbytes(100_000)
    frames = [framed(head(4000, 0, number) + content) for number in range(400)]

    def lazy(connection: socket.socket) -> None:
        assert go_on.wait(PATIENCE)
        while frame := read_frame(connection):
            assert frame == frames[got[0]]
            got[0] += 1
            if got[0] == len(frames):
                connection.sendall(framed(frames[-1][8:12]))

    with (
        upstream(lazy) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.setblocking(False)
        data, sent, idle = b"".join(frames), 0, 0
        while idle < 300:
            try:
                sent += client.socket.send(data[sent : sent + 65536])
                idle = 0
            except BlockingIOError:
                idle += 1
                with Client(address(proxy)):
                    pass
        assert sent < len(data) // 2
        client.socket.settimeout(PATIENCE)
        go_on.set()
        client.socket.sendall(data[sent:])
        assert read_frame(client.socket) == framed(frames[-1][8:12])


def test_bytes_that_had_to_wait_come_first() -> None:
    first, second = random.Random(1).randbytes(4_000_000), random.Random(2).randbytes(10_000)

    async def write(here: socket.socket, there: socket.socket) -> bytes:
        end = link(Proxy("127.0.0.1:1")).peer
        await asyncio.get_running_loop().create_connection(lambda: end, sock=here)
        memory = bytearray(first)
        end.write_from(memoryview(memory))
        got = there.recv(1_000_000)  # now the socket has room again
        memory[: len(second)] = second
        end.write_from(memoryview(memory)[: len(second)])
        memory[:] = bytes(len(memory))
        there.setblocking(False)
        loop = asyncio.get_running_loop()
        while len(got) < len(first) + len(second):
            got += await loop.sock_recv(there, 1_000_000)
        end.transport.abort()  # type: ignore[union-attr]
        return got

    here, there = socket.socketpair()
    with here, there, asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(write(here, there)) == first + second


def test_the_end_waits_for_responses() -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def hold(request: Any) -> None:
        arrived.set()
        assert go_on.wait(PATIENCE)

    with upstream(answering(before=hold)) as server:
        proxy = Proxy.start(str(server.address))
        with Client(address(proxy)) as idle, Client(address(proxy)) as client:
            client.socket.sendall(client.connection.send_request(ApiVersionsRequest(), 3))
            assert arrived.wait(PATIENCE)
            ending = threading.Thread(target=proxy.close)
            ending.start()
            assert idle.read_to_end() == b""
            go_on.set()
            assert client.next().response.api_keys
            assert client.read_to_end() == b""
            ending.join(PATIENCE)


def test_the_end_does_not_wait_longer_than_it_is_told() -> None:
    arrived = threading.Event()

    def silent(connection: socket.socket) -> None:
        while connection.recv(1 << 20):
            arrived.set()

    for wait in (True, False):  # without waiting, the end comes while the connection is accepted
        with (
            upstream(silent) as server,
            Proxy.start(str(server.address), drain_timeout=0.05) as proxy,
            Client(address(proxy)) as client,
        ):
            client.socket.sendall(framed(head(4000, 0, 1)))
            assert not wait or arrived.wait(PATIENCE)
            proxy.close()
            assert client.read_to_end() == b""


@pytest.mark.parametrize("read", [False, True])
def test_a_client_that_has_closed_its_side_gets_its_responses(read: bool) -> None:
    with (
        upstream(echo) as server,
        Proxy.start(str(server.address), [Beats()] if read else []) as proxy,
        Client(address(proxy)) as client,
    ):
        requests = [framed(head(1, 15, number) + bytes(number * 1000)) for number in range(50)]
        client.socket.sendall(b"".join(requests))
        client.socket.shutdown(socket.SHUT_WR)
        expected = b"".join(framed(each[8:12] + each[4:]) for each in requests)
        assert client.read_to_end() == expected


def test_a_broker_that_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    server = Upstream(broker)
    server.close()
    with Proxy.start(str(server.address)) as proxy, Client(address(proxy)) as client:
        assert client.read_to_end() == b""
    (record,) = caplog.records
    assert record.getMessage().endswith(f": cannot reach {server.address}: connection refused")


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ProxyError, match=f"cannot listen on {place}: address already in use"):
            Proxy.start("localhost:1", listen=place)


def test_an_address_of_another_form() -> None:
    with pytest.raises(ValueError, match="'localhost' is not host:port"):
        Proxy.start("localhost")


def test_the_host_to_advertise() -> None:
    with (
        upstream(broker) as server,
        Proxy.start(str(server.address), advertise="proxy.example") as proxy,
    ):
        host, _, port = proxy.bootstrap_servers.partition(":")
        assert host == "proxy.example"
        with Client(addresses.Address("127.0.0.1", int(port))) as client:
            response: MetadataResponse = client.ask(MetadataRequest(topics=[]), 12).response
            assert {each.host for each in response.brokers} == {"proxy.example", ""}
