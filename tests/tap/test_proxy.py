"""The tap between sockets: passed and changed frames, reports, and the end of connections."""

from __future__ import annotations

import hashlib
import random
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import kafka_wire
import pytest
from kafka_wire import ApiVersionsRequest, HeartbeatRequest, MetadataRequest, MetadataResponse

from krammar.faults import Faults
from krammar.proxy.addresses import Address
from krammar.proxy.link import Link
from krammar.proxy.relay import Resources
from krammar.tap.capture import Capture, CaptureWriter, Flag
from krammar.tap.frame import Frame, Observer, Status
from krammar.tap.proxy import Forward, Tap, TapError, Watcher
from krammar.wire.connection import ResponseReceived
from tests.ports import free_port
from tests.support.frames import framed
from tests.support.waiting import PATIENCE
from tests.tap.support import Client, Recorder, TapThread, Upstream, broker, upstream
from tests.tap.test_inspector import request, response

# A correlation id, and bytes that are not a valid body.
GARBAGE = b"\0\0\0\0" + bytes(range(1, 200))


def test_clients_are_kept_on_the_tap() -> None:
    with upstream(broker) as server, TapThread(server.address) as tap, Client(tap.address) as one:
        event = one.ask(MetadataRequest(topics=[]), 12)
        first, second, third = event.response.brokers
        # The first broker is the one that the tap was started for, so it keeps that port.
        assert (first.host, first.port) == tap.address
        assert second.host == "127.0.0.1"
        assert second.port not in (tap.address.port, server.address.port)
        assert second.rack == "r"
        assert (third.host, third.port) == ("", -1)
        assert {f"{b.host}:{b.port}" for b in (first, second)} == tap.ports

        with Client(Address(second.host, second.port)) as two:
            again = two.ask(MetadataRequest(topics=[]), 9)
            assert [(b.host, b.port) for b in again.response.brokers] == [
                (b.host, b.port) for b in (first, second, third)
            ]
        tap.recorder.wait(lambda r: len(r.frames) == 4)
        frames = tap.recorder.frames
        assert [frame.status for frame in frames] == [Status.OK] * 4
        # What observers see is what came, not what was passed on.
        came = frames[1].message.brokers[0]
        assert (came.host, came.port) == server.address
        assert frames[1].note == (
            f"{server.address} replaced by {tap.address}; "
            f"localhost:{server.address.port} replaced by 127.0.0.1:{second.port}"
        )
        assert tap.recorder.connections[2][1] == f"localhost:{server.address.port}"


def test_the_host_to_advertise() -> None:
    with (
        upstream(broker) as server,
        TapThread(server.address, advertise="tap.example") as tap,
        Client(tap.address) as client,
    ):
        event = client.ask(MetadataRequest(topics=[]), 12)
        assert [b.host for b in event.response.brokers] == ["tap.example", "tap.example", ""]


def test_listening_everywhere_advertises_the_address_that_the_client_came_by() -> None:
    with upstream(broker) as server:
        tap = TapThread(server.address)
        tap.forwards = [Forward(Address("0.0.0.0", 0), server.address)]
        with tap, Client(Address("127.0.0.2", tap.address.port)) as client:
            event = client.ask(MetadataRequest(topics=[]), 12)
            assert [b.host for b in event.response.brokers] == ["127.0.0.2", "127.0.0.2", ""]
            second = event.response.brokers[1]
            with Client(Address(second.host, second.port)) as other:
                assert other.ask(MetadataRequest(topics=[]), 12).response.brokers == (
                    event.response.brokers
                )


def test_several_bootstrap_addresses() -> None:
    with (
        upstream(broker) as one,
        upstream(broker) as two,
        TapThread(one.address, two.address) as tap,
    ):
        assert len(tap.listening) == 2
        for forward in tap.listening:
            with Client(forward.listen) as client:
                event = client.ask(MetadataRequest(topics=[]), 12)
                first = event.response.brokers[0]
                assert (first.host, first.port) == forward.listen


def test_no_version_is_offered_that_the_tap_cannot_read() -> None:
    with (
        upstream(broker) as server,
        TapThread(server.address) as tap,
        Client(tap.address) as client,
    ):
        event = client.ask(ApiVersionsRequest(), 3)
        offered = {k.api_key: (k.min_version, k.max_version) for k in event.response.api_keys}
        assert offered == {3: (0, MetadataRequest.max_version), 18: (0, 4)}
        assert event.response.finalized_features_epoch == 5
        tap.recorder.wait(lambda r: len(r.frames) == 2)
        (frame,) = (f for f in tap.recorder.frames if not f.is_request)
        assert frame.status == Status.OK
        assert len(frame.message.api_keys) == 4
        assert "Metadata 0 to 99 limited to 0 to 13" in frame.note
        assert "key 4000 removed" in frame.note


def test_frames_that_cannot_be_read_pass_untouched() -> None:
    seen = []

    def garbage(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(framed(GARBAGE))
        connection.recv(1)

    asking = request(MetadataRequest(topics=[]), 12, 0)
    with (
        upstream(garbage) as server,
        TapThread(server.address) as tap,
        Client(tap.address) as client,
    ):
        client.socket.sendall(framed(asking))
        assert client.read_exactly(len(GARBAGE) + 4) == framed(GARBAGE)
        assert seen == [framed(asking)]
        tap.recorder.wait(lambda r: len(r.frames) == 2)
        frame = tap.recorder.frames[1]
        assert frame.status == Status.UNDECODABLE
        assert (frame.api, frame.version) == ("Metadata", 12)
        assert frame.error.startswith("MetadataResponse v12: ")
        assert frame.path
        assert frame.offset > 4


def test_broken_and_unknown_requests_pass_untouched() -> None:
    broken = request(MetadataRequest(topics=[]), 12)[:-2]
    newer = b"\0\3\0\x63\0\0\0\x06\xff\xff\0later"
    strange = b"\x03\xe8\0\0\0\0\0\x05\xff\xff"
    sent = b"".join(map(framed, (broken, newer, strange, b"")))
    with upstream(echo) as server, TapThread(server.address) as tap, Client(tap.address) as client:
        client.socket.sendall(sent)
        assert client.read_exactly(len(sent)) == sent
        tap.recorder.wait(lambda r: len(r.frames) == 8)
        frames = [frame for frame in tap.recorder.frames if frame.is_request]
        assert [frame.status for frame in frames] == [
            Status.UNDECODABLE,
            Status.UNKNOWN,
            Status.UNKNOWN,
            Status.UNDECODABLE,
        ]


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def test_a_response_with_bytes_behind_it_is_rewritten_and_keeps_them() -> None:
    def careless(connection: socket.socket) -> None:
        connection.recv(65536)
        brokers = [MetadataResponse.Broker(node_id=1, host="broker.example", port=9)]
        message = MetadataResponse(brokers=brokers)
        connection.sendall(framed(response(message, 12, 0) + b"\0"))
        connection.recv(1)

    with (
        upstream(careless) as server,
        TapThread(server.address) as tap,
        Client(tap.address) as client,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        size = int.from_bytes(client.read_exactly(4), "big")
        data = client.read_exactly(size)
        tap.recorder.wait(lambda r: len(r.frames) == 2)
        (opened,) = tap.ports - {str(tap.address)}
        host, port = opened.rsplit(":", 1)
        rewritten = MetadataResponse(
            brokers=[MetadataResponse.Broker(node_id=1, host=host, port=int(port))]
        )
        assert data == response(rewritten, 12, 0) + b"\0"
        assert tap.recorder.frames[1].status == Status.SURPLUS


def test_bytes_that_are_no_frames_pass_untouched() -> None:
    hello = b"\xff\xff\xff\xff" + random.Random(1).randbytes(300_000)
    with upstream(echo) as server, TapThread(server.address) as tap, Client(tap.address) as client:
        sender = threading.Thread(target=client.socket.sendall, args=(hello,))
        sender.start()
        assert client.read_exactly(len(hello)) == hello
        sender.join(PATIENCE)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read_to_end() == b""
        tap.recorder.wait(lambda r: r.ended)
        assert tap.recorder.ended == {1: "by the client"}
        assert [frame.error for frame in tap.recorder.frames] == [
            "a negative frame length: -1; all further bytes are passed on without decoding"
        ] * 2


def test_frames_over_the_limit_pass_unread_and_the_next_are_read() -> None:
    big = framed(request(MetadataRequest(topics=[]), 12, 5) + bytes(200_000))
    small = framed(request(MetadataRequest(topics=[]), 12, 6))
    with (
        upstream(echo) as server,
        TapThread(server.address, max_frame=10_000) as tap,
        Client(tap.address) as client,
    ):
        sender = threading.Thread(target=client.socket.sendall, args=(big + small,))
        sender.start()
        assert client.read_exactly(len(big + small)) == big + small
        sender.join(PATIENCE)
        tap.recorder.wait(lambda r: len(r.frames) == 4)
        first, second = (frame for frame in tap.recorder.frames if frame.is_request)
        assert (first.api, first.size) == ("Metadata", len(big) - 4)
        assert first.error == (
            f"a frame of {len(big) - 4} bytes was passed on without decoding, because large frames take too much "
            "memory (--max-frame raises the limit)"
        )
        assert second.status == Status.OK


def test_large_frames_that_arrive_together_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half requests of many connections must not fill the memory, nor stop other clients."""
    monkeypatch.setattr(Tap, "max_large_frames", 1_000_000)
    topics = [MetadataRequest.Topic(name="x" * 30_000)] * 16
    large = framed(request(MetadataRequest(topics=topics), 12))
    small = framed(request(MetadataRequest(topics=[]), 12))

    def digest(connection: socket.socket) -> None:
        read = hashlib.sha256()
        while data := connection.recv(65536):
            read.update(data)
        connection.sendall(framed(read.digest()))

    def decoded(recorder: Recorder) -> list[bool]:
        return [f.status == Status.OK for f in recorder.frames if f.size == len(large) - 4]

    with (
        upstream(digest) as server,
        TapThread(server.address, max_frame=len(large)) as tap,
        Client(tap.address) as first,
        Client(tap.address) as second,
        Client(tap.address) as third,
    ):
        crowd = [first, second, third]
        part = len(large) * 3 // 4
        for client in crowd:
            client.socket.sendall(large[:part])
        # One of them passes on what it has, because all of them together are over the limit.
        tap.recorder.wait(decoded)
        unread = tap.recorder.frames[0]
        assert unread.error.startswith(f"a frame of {len(large) - 4} bytes was passed on without")
        assert len(unread.data) == 64
        for client in crowd:
            client.socket.sendall(large[part:] + small)
        tap.recorder.wait(lambda r: len(r.frames) == 6)
        # What has left does not count any more.
        for number, client in enumerate(crowd):
            client.socket.sendall(large)
            tap.recorder.wait(lambda r, count=4 + number: len(decoded(r)) == count)
            client.socket.shutdown(socket.SHUT_WR)
            sent = hashlib.sha256(large + small + large).digest()
            assert client.read_exactly(4 + len(sent)) == framed(sent)
        assert sorted(decoded(tap.recorder)) == [False] + [True] * 5


def test_a_frame_that_is_cut_passes_as_far_as_it_came() -> None:
    whole = framed(request(MetadataRequest(topics=[]), 12))
    for cut in (2, 9):
        with (
            upstream(echo) as server,
            TapThread(server.address) as tap,
            Client(tap.address) as client,
        ):
            client.socket.sendall(whole[:cut])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.read_to_end() == whole[:cut]
            tap.recorder.wait(lambda r: r.ended)
            size = 4 if cut < 4 else len(whole)
            assert tap.recorder.frames[0].error == (
                f"the connection ended in the middle of a frame: {cut} of {size} bytes arrived"
            )


def test_a_client_that_has_closed_its_side_gets_its_responses() -> None:
    def late(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass
        connection.sendall(framed(response(MetadataResponse(), 12, 0)))

    with upstream(late) as server, TapThread(server.address) as tap, Client(tap.address) as client:
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        client.socket.shutdown(socket.SHUT_WR)
        event = client.next()
        assert isinstance(event, ResponseReceived)
        assert client.read_to_end() == b""
        tap.recorder.wait(lambda r: r.ended)
        assert tap.recorder.ended == {1: "by the client"}


def test_what_came_before_the_broker_closed_arrives() -> None:
    answer = framed(b"\0\0\0\0" + bytes(3_000_000))

    def hasty(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with (
        upstream(hasty) as server,
        TapThread(server.address, stay=True) as tap,
        Client(tap.address) as client,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        assert client.read_to_end() == answer
        tap.recorder.wait(lambda r: r.ended)
        assert tap.recorder.ended == {1: "by the broker"}


class Slow(Observer):
    """Needs a millisecond for each frame."""

    def frame(self, frame: Frame) -> None:
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("most", "paused"), [(16 << 20, {1}), (24 << 10, {1, 2, 3, 4})], ids=["one", "all"]
)
def test_a_connection_waits_for_its_own_frames(
    most: int, paused: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait only if too much of all connections waits; at last everything is reported."""
    number = 500
    pauses: set[int] = set()
    pause = Link.pause

    def noticed(link: Link, is_paused: bool) -> None:
        pauses.add(link.connection.number)
        pause(link, is_paused)

    monkeypatch.setattr(Link, "pause", noticed)
    monkeypatch.setattr(Watcher, "max_queued_each", 8 << 10)
    monkeypatch.setattr(Watcher, "max_queued", most)
    greedy = len(paused)
    with (
        upstream(broker) as server,
        TapThread(server.address, observers=[Slow()]) as tap,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(Client(tap.address)) for _ in range(greedy)]
        for client in clients:
            send = client.connection.send_request
            requests = [send(MetadataRequest(topics=[]), 12) for _ in range(number)]
            client.socket.sendall(b"".join(requests))
        with Client(tap.address) as other:
            for _ in range(20):
                other.ask(MetadataRequest(topics=[]), 12)
        for client in clients:
            for _ in range(number):
                client.next()
        tap.recorder.wait(lambda r: len(r.frames) == 2 * (greedy * number + 20))
    assert pauses >= paused
    if greedy == 1:
        assert pauses == paused


def test_a_slow_client_slows_the_broker() -> None:
    size, number = 1_000_000, 64
    answer = framed(b"\0\0\0\0" + bytes(size - 4))

    def eager(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer * number)
        connection.recv(1)

    def taken(tap: TapThread) -> int:
        return sum(frame.size == size for frame in tap.recorder.frames)

    with (
        upstream(eager) as server,
        upstream(broker) as other,
        TapThread(server.address, other.address) as tap,
        Client(tap.listening[0].listen) as slow,
        Client(tap.listening[1].listen) as quick,
    ):
        slow.socket.sendall(slow.connection.send_request(MetadataRequest(topics=[]), 12))
        assert slow.read_exactly(len(answer)) == answer
        # While the slow client does not read, the tap has many turns of its loop in which it could read more
        # frames. It reads as many as the system's buffers hold, and one or two more.
        for _ in range(500):
            quick.ask(MetadataRequest(topics=[]), 12)
            assert taken(tap) <= 20
        for _ in range(number - 1):
            assert slow.read_exactly(len(answer)) == answer
        tap.recorder.wait(lambda r: taken(tap) == number)


def test_a_broker_that_cannot_be_reached() -> None:
    server = Upstream(broker)
    server.close()
    with TapThread(server.address) as tap:
        for _ in range(2):
            with Client(tap.address) as client:
                assert client.read_to_end() == b""
        tap.recorder.wait(lambda r: len(r.notices) == 2)
        assert all(
            notice.startswith(f"connection {number} of 127.0.0.1:")
            and notice.endswith(f": cannot reach {server.address}: connection refused")
            for number, notice in enumerate(tap.recorder.notices, 1)
        )
        assert not tap.recorder.frames


def test_a_host_that_does_not_exist() -> None:
    with TapThread(Address("no-such-host.invalid", 9092)) as tap:
        with Client(tap.address) as client:
            assert client.read_to_end() == b""
        tap.recorder.wait(lambda r: r.notices)
        assert tap.recorder.notices[0].endswith(": the host name cannot be resolved")


def test_the_tap_ends_when_the_brokers_have_gone() -> None:
    server = Upstream(broker)
    with TapThread(server.address) as tap, Client(tap.address) as client:
        client.ask(MetadataRequest(topics=[]), 12)
        server.close()
        assert client.read_to_end() == b""
        assert tap.join() == f"stopped: {server.address} does not accept connections any more"
        # Its end came by an end of the stream or by a reset, as the system would have it.
        assert tap.recorder.ended[1].startswith(("by the broker", "broker: "))


def test_the_tap_stays_where_one_broker_answers_or_it_is_told_to() -> None:
    def rude(connection: socket.socket) -> None:
        connection.recv(65536)

    with upstream(rude) as server, TapThread(server.address) as tap:
        for number in (1, 2):
            with Client(tap.address) as client:
                client.socket.sendall(framed(b"x" * 20))
                assert client.read_to_end() == b""
            tap.recorder.wait(lambda r, number=number: number in r.ended)
    server = Upstream(broker)
    with TapThread(server.address, stay=True) as tap:
        with Client(tap.address) as client:
            client.ask(MetadataRequest(topics=[]), 12)
            server.close()
            assert client.read_to_end() == b""
        with Client(tap.address) as client:
            assert client.read_to_end() == b""
        tap.recorder.wait(lambda r: any("connection refused" in n for n in r.notices))


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tap = TapThread(Address("127.0.0.1", 1))
        address = Address(*taken.getsockname()[:2])
        tap.forwards = [Forward(address, Address("127.0.0.1", 1))]
        with pytest.raises(TapError, match=f"cannot listen on {address}: address already in use"):
            tap.__enter__()


def test_an_upstream_that_names_brokers_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tap, "max_ports", 10)
    number = 20
    brokers = [
        MetadataResponse.Broker(node_id=index, host=f"b{index}.example", port=9092)
        for index in range(number)
    ]

    def vast(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(framed(response(MetadataResponse(brokers=brokers), 12, 0)))
        connection.recv(1)

    with upstream(vast) as server, TapThread(server.address) as tap, Client(tap.address) as client:
        event = client.ask(MetadataRequest(topics=[]), 12)
        assert len(tap.ports) == 10
        refused = [n for n in tap.recorder.notices if n.startswith("no port for broker ")]
        assert len(tap.ports) + len(refused) == number + 1
        # Addresses without a port do not change.
        assert event.response.brokers[-1] == brokers[-1]


def test_fixed_ports_of_brokers() -> None:
    brokers = [
        MetadataResponse.Broker(node_id=node, host=f"127.0.0.{node}", port=1) for node in (3, 4)
    ]

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(framed(response(MetadataResponse(brokers=brokers), 12, 0)))
        connection.recv(1)

    with upstream(serve) as server:
        tap = TapThread(server.address)
        port = free_port()
        tap.forwards = [Forward(Address("127.0.0.1", 0), server.address, f"3={port}")]
        with tap, Client(tap.address) as client:
            event = client.ask(MetadataRequest(topics=[]), 12)
            first, second = event.response.brokers
            assert (first.node_id, first.host, first.port) == (3, "127.0.0.1", port)
            # A node without a port keeps its address, and a notice names it.
            assert second == brokers[1]
            tap.recorder.wait(
                lambda r: any("node 4 is outside of broker_ports" in each for each in r.notices)
            )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("9-1", "2=2"), "the range 9-1 of ports ends before it begins"),
        (("1=9001", "1=9001"), "port 9001 of node 1 of the listener '#2' is also that of node 1"),
        (("1=9001", None), "the listener '#2' has no ports"),
    ],
)
def test_invalid_ports_of_brokers(given: tuple[str | None, ...], expected: str) -> None:
    anywhere = Address("127.0.0.1", 0)
    forwards = [Forward(anywhere, Address("127.0.0.1", 1), each) for each in given]
    with pytest.raises(TapError, match=f"--broker-ports: {expected}"):
        Tap(kafka_wire, forwards, [])


class Breaking(Observer):
    def frame(self, frame: Frame) -> None:
        raise BrokenPipeError(32, "Broken pipe")


def test_an_observer_that_cannot_write_ends_the_tap() -> None:
    with (
        upstream(broker) as server,
        TapThread(server.address, observers=[Breaking()]) as tap,
        Client(tap.address) as client,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        assert isinstance(tap.expect_failure(), BrokenPipeError)


def test_frames_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    writer = CaptureWriter(path)
    with (
        upstream(broker) as server,
        TapThread(server.address, observers=[writer]) as tap,
        Client(tap.address) as client,
    ):
        client.ask(MetadataRequest(topics=[]), 12)
        client.ask(ApiVersionsRequest(), 3)
        tap.recorder.wait(lambda r: len(r.frames) == 4)
        # Each record is written as soon as its frame was seen, not at the end.
        records = [record for record in Capture(path) if record.kind < 2]
        assert [record.data for record in records] == [f.data for f in tap.recorder.frames]
        assert [record.flags for record in records] == [0, Flag.CHANGED, 0, Flag.CHANGED]
        assert [record.time_ns for record in records] == sorted(r.time_ns for r in records)
    writer.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("broker.example:1", ("broker.example", 1)),
        ("[::1]:9092", ("::1", 9092)),
        (":9092", ("127.0.0.1", 9092)),
        ("9092", ("127.0.0.1", 9092)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "host:-1", "::1:9092", "a:b"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Address.parse(text)


def test_an_address_shows_as_it_is_read() -> None:
    assert str(Address("::1", 9)) == "[::1]:9"
    assert str(Address("h", 9)) == "h:9"


def test_large_frames_that_rules_read_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy collects frames for rules. Beyond the limit, they pass as they arrive."""
    monkeypatch.setattr(Tap, "max_large_frames", 1)  # so it is twice the largest frame
    topics = [MetadataRequest.Topic(name="x" * 30_000)] * 8
    large = framed(request(MetadataRequest(topics=topics), 12))
    part = len(large) * 3 // 4
    arrived = threading.Event()

    def serve(connection: socket.socket) -> None:
        data = b""
        while piece := connection.recv(65536):
            data += piece
            arrived.set()
        connection.sendall(framed(hashlib.sha256(data).digest()))

    faults = Faults(kafka_wire)
    faults.on("Metadata", topic="other").drop()
    with (
        upstream(serve) as server,
        TapThread(server.address, faults=faults, max_frame=len(large)) as tap,
        Client(tap.address) as first,
        Client(tap.address) as second,
    ):
        for client in (first, second):
            client.socket.sendall(large[:part])
        assert arrived.wait(PATIENCE)  # although no frame is complete
        for client in (first, second):
            client.socket.sendall(large[part:])
            client.socket.shutdown(socket.SHUT_WR)
            answer = framed(hashlib.sha256(large).digest())
            assert client.read_to_end() == answer


def test_what_rules_do_to_requests_that_take_long_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a request is processed in later turns, and the tap waits for what is noted there."""
    monkeypatch.setattr(Resources, "loop_seconds", -1.0)
    faults = Faults(kafka_wire)
    faults.on("Heartbeat", name="busy").answer("REQUEST_TIMED_OUT")
    with (
        upstream(broker) as server,
        TapThread(server.address, faults=faults) as tap,
        Client(tap.address) as client,
    ):
        client.socket.sendall(framed(request(HeartbeatRequest(group_id="g"), 4)))
        assert client.socket.recv(65536)
    assert [frame.note for frame in tap.recorder.frames] == ["busy: answered REQUEST_TIMED_OUT"]
