"""Large responses to Fetch reach the client as they arrive, and name no broker."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka_wire import FetchResponse, ProduceResponse, ResponseHeader

from krammar.proxy import Proxy
from krammar.proxy.passing import ENDPOINTS_TAG, PassingResponse, hide_endpoints
from krammar.wire.batches import Record, encode_batch
from krammar.wire.primitives import encode_uvarint
from tests.proxy.support import Client, address
from tests.support.frames import framed, read_exactly, read_frame
from tests.support.waiting import PATIENCE
from tests.tap.support import TapThread, upstream

_NODE = FetchResponse.NodeEndpoint(node_id=1, host="broker-1.internal", port=9092)
_LEADER = FetchResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=3)
_NEWEST = FetchResponse.max_version


def _fetched(
    partitions: int = 2, size: int = 200_000, nodes: tuple[Any, ...] = ()
) -> FetchResponse:
    """A response with records in some partitions, and with moved leaders and aborted transactions in others."""
    part, aborted = FetchResponse.PartitionData, FetchResponse.AbortedTransaction
    records = encode_batch([Record(value=random.Random(size).randbytes(size))])
    return FetchResponse(
        node_endpoints=list(nodes),
        responses=[
            FetchResponse.FetchableTopicResponse(
                partitions=[
                    part(
                        partition_index=index,
                        records=None if index % 3 == 1 else records,
                        error_code=6 if index % 3 == 1 else 0,
                        current_leader=_LEADER if index % 3 == 1 else part().current_leader,
                        aborted_transactions=[aborted(producer_id=1, first_offset=2)] * (index % 3),
                    )
                    for index in range(partitions)
                ]
            )
            for _ in range(2)
        ],
    )


def _frame(message: Any, version: int) -> bytes:
    return framed(ResponseHeader(correlation_id=1).encode(1) + message.encode(version))


def _request(version: int) -> bytes:
    return framed(b"\0\1" + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff\0")


def _serve(*pieces: bytes, wait: Callable[[], object] = bool) -> Any:
    """Return a broker that answers one request with these bytes. It waits before the last piece."""

    def serve(connection: socket.socket) -> None:
        if not read_frame(connection):
            return
        for piece in pieces[:-1]:
            connection.sendall(piece)
        wait()
        connection.sendall(pieces[-1])
        while connection.recv(1000):  # with unread bytes, closing would be a reset
            pass

    return serve


@pytest.mark.parametrize("version", range(16, _NEWEST + 1))
def test_the_client_gets_bytes_before_the_end_has_arrived(version: int) -> None:
    frame = _frame(_fetched(), version)
    got = threading.Event()
    serve = _serve(frame[:300_000], frame[300_000:], wait=lambda: got.wait(PATIENCE))
    with (
        upstream(serve) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(_request(version))
        begin = read_exactly(client.socket, 299_900)
        got.set()
        assert begin + read_exactly(client.socket, len(frame) - len(begin)) == frame


@pytest.mark.parametrize("piece", [1 << 20, 999, 50_001])
def test_node_endpoints_are_hidden_in_as_many_bytes(piece: int) -> None:
    message = _fetched(nodes=(_NODE, _NODE))
    frame = _frame(message, _NEWEST)
    # The first piece shows that the response is large.
    pieces = [frame[:9], *(frame[at : at + piece] for at in range(9, len(frame), piece))]
    # A response that is rewritten follows.
    other = _frame(FetchResponse(node_endpoints=[_NODE]), _NEWEST)
    with (
        upstream(_serve(*pieces, other)) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(_request(_NEWEST) + _request(_NEWEST))
        got = read_frame(client.socket)
        assert len(got) == len(frame)
        found = FetchResponse.decode(got[9:], _NEWEST)
        assert found.responses == message.responses
        assert found.node_endpoints == []
        (node,) = FetchResponse.decode(read_frame(client.socket)[9:], _NEWEST).node_endpoints
        assert node.host == "127.0.0.1"


def test_a_small_response_in_pieces_keeps_its_endpoints() -> None:
    frame = _frame(FetchResponse(node_endpoints=[_NODE]), _NEWEST)
    with (
        upstream(_serve(*(frame[at : at + 1] for at in range(len(frame))))) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(_request(_NEWEST))
        got = read_frame(client.socket)
    (node,) = FetchResponse.decode(got[9:], _NEWEST).node_endpoints
    assert node.host == "127.0.0.1"


_INVALID = b"\1\5\xff\xff\xff\xff\x0f"
_TAGS = [
    (_INVALID, "the tagged fields at the end of a response are invalid"),
    (
        encode_uvarint(128) + b"".join(bytes([tag, 0]) for tag in range(128)),
        "the node endpoints of a response cannot be hidden: no tag is unused",
    ),
    (
        b"\1\5" + encode_uvarint(70_000) + bytes(70_000),
        "a response has 70005 bytes of tagged fields at its end (65536 at most)",
    ),
]


@pytest.mark.parametrize(("tags", "reason"), _TAGS)
def test_responses_with_other_tagged_fields_are_refused(
    tags: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    frame = framed(_frame(_fetched(), _NEWEST)[4:-1] + tags)
    assert _closed(frame, caplog) == reason


def test_fields_beyond_the_response_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    frame = framed(_frame(_fetched(), _NEWEST)[4:-50_000])
    assert _closed(frame, caplog) == "a response has fields that are longer than the response"


def _closed(frame: bytes, caplog: pytest.LogCaptureFixture) -> str:
    """Return why the proxy closes a connection with this response."""
    with (
        upstream(_serve(frame[:1000], frame[1000:])) as server,
        Proxy.start(str(server.address)) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(_request(_NEWEST))
        client.read_to_end()
    return caplog.records[-1].getMessage().rpartition(" closed: ")[2]


@pytest.mark.parametrize("tags", [None, *(tags for tags, _ in _TAGS)])
def test_the_tap_passes_what_it_cannot_read(tags: bytes | None) -> None:
    whole = _frame(_fetched(), _NEWEST)
    frame = framed(whole[4:-50_000] if tags is None else whole[4:-1] + tags)
    with (
        upstream(_serve(frame[:1000], frame[1000:])) as server,
        TapThread(server.address) as tap,
        Client(tap.address) as client,
    ):
        client.socket.sendall(_request(_NEWEST))
        assert read_frame(client.socket) == frame


@pytest.mark.parametrize(("key", "first"), [(0, 10), (1, 16)])
def test_every_version_in_any_pieces(key: int, first: int) -> None:
    cls: Any = {0: ProduceResponse, 1: FetchResponse}[key]
    chance = random.Random(key)
    hidden_ones = 0
    for version in range(first, cls.max_version + 1):
        assert [each.name for each in cls._layout(version).tags if each.tag == ENDPOINTS_TAG] == [
            "node_endpoints"
        ]
        for _ in range(100):
            message = _any(cls, chance)
            frame = _frame(message, version)
            passing = PassingResponse((ResponseHeader, 1), (cls, version), len(frame))
            begin = _followed(passing, frame, chance)
            assert passing.left == len(frame) - begin
            hidden = hide_endpoints(frame[begin:])
            assert len(hidden) == passing.left
            hidden_ones += hidden != frame[begin:]
            assert (hidden == frame[begin:]) == (not message.node_endpoints)
            found = cls.decode(frame[9:begin] + hidden, version)
            assert not found.node_endpoints
            found.unknown_tags = message.unknown_tags
            message.node_endpoints = []
            assert found.encode(version) == message.encode(version)
    assert hidden_ones > 50


def _any(cls: Any, chance: random.Random) -> Any:
    if cls is FetchResponse:
        message: Any = _fetched(chance.choice([0, 1, 2, 130]), chance.choice([0, 9, 300]))
    else:
        part = cls.PartitionProduceResponse(
            index=1, base_offset=7, record_errors=[cls.BatchIndexAndErrorMessage(batch_index=3)]
        )
        topic = cls.TopicProduceResponse(name="orders", partition_responses=[part] * 3)
        message = cls(responses=[topic] * chance.choice([0, 1, 200]))
    node = cls.NodeEndpoint(node_id=1, host="broker-1.internal", port=9092)
    message.node_endpoints = [node] * chance.choice([0, 1, 5])
    message.unknown_tags = dict.fromkeys(chance.choice([(), (3,), (126, 127, 128, 999)]), b"more")
    return message


def _followed(passing: PassingResponse, frame: bytes, chance: random.Random) -> int:
    """Follow a frame that arrives in pieces, after another one; return where its tagged fields begin."""
    at, position = 0, 0
    before = chance.randbytes(chance.randrange(20))
    while not passing.is_last or position > at:
        at += chance.choice([1, 2, 5, 100, 70_000])
        assert at < len(frame) + 70_000
        data = before + frame[:at]
        position = passing.follow(data, len(before) + position, len(data)) - len(before)
    return position
