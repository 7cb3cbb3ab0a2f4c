"""Requests that are cheap to send and expensive to answer: the broker stays responsive, and its memory bounded.

How long each takes is in the table that ``make attack`` prints; here the work is bounded, not the time.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_wire import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    ErrorCode,
    FetchRequest,
    MetadataRequest,
    OffsetFetchRequest,
)

from krammar.broker import Broker
from krammar.broker import connection as connection_module
from krammar.broker.connection import TLS_PIECE, Connection
from krammar.broker.connections import RECEIVE_SIZE
from krammar.broker.handlers.fetch import MAX_FETCH
from krammar.wire.batches import read_batches
from tests.broker.attacks import ATTACKS, MEGABYTE, Attack, Victim, frame, measure
from tests.broker.requests import batch, create_topic, fetch_request, produce, produce_request
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE, until

# Some attacks use topics of earlier ones.
pytestmark = pytest.mark.xdist_group("attacks")


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from /proc, which is not there")
    with Victim(tmp_path_factory.mktemp("data")) as victim:
        yield victim
        victim.end()
    assert [line for line in victim.log if "Traceback" in line] == []


@pytest.mark.parametrize("attack", [pytest.param(each, id=each.name) for each in ATTACKS])
def test_attack(victim: Victim, attack: Attack) -> None:
    """The other client's requests are all answered, or this raises."""
    cost = measure(victim, attack.run)
    assert cost.sent < 9_000_000
    assert cost.grown < 256 * MEGABYTE, f"{cost.grown / MEGABYTE:.0f} MB more"
    assert len(cost.latencies) >= 100


# Requests that are answered in slices.


def topics_seen_meanwhile(other: RawClient, client: RawClient) -> set[int]:
    """Return the numbers of topics that another client sees until ``client`` has its response."""
    seen = set()
    client.socket.setblocking(False)
    while True:
        seen.add(len(other.call(MetadataRequest(topics=None), 12).topics))
        try:
            client.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        client.socket.settimeout(PATIENCE)
        return seen


def test_others_are_served_while_topics_are_made_and_deleted(
    broker: Broker, client: RawClient
) -> None:
    broker.connections.slices.budget.seconds = 0
    names = [f"t{number}" for number in range(500)]
    topics = [MetadataRequest.Topic(name=name) for name in names]
    deletions = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    with RawClient(broker.port) as other:
        other.call(MetadataRequest(topics=None), 12)
        client.send(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        assert set(range(1, 500)) & topics_seen_meanwhile(other, client)
        assert [topic.error_code for topic in client.receive().topics] == [0] * 500
        client.send(DeleteTopicsRequest(topics=deletions, timeout_ms=1000), 6)
        assert set(range(1, 500)) & topics_seen_meanwhile(other, client)
        assert [each.error_code for each in client.receive().responses] == [0] * 500


def test_a_topic_that_is_deleted_while_it_is_made(broker: Broker, client: RawClient) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name="wide", num_partitions=2000, replication_factor=1
    )
    client.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    with RawClient(broker.port) as other:
        # Without creation, because this request may come before the other one has an effect.
        wide = [MetadataRequest.Topic(name="wide")]
        asked = MetadataRequest(topics=wide, allow_auto_topic_creation=False)
        while other.call(asked, 12).topics[0].error_code:
            pass
        assert broker.call(len, broker.logs) < 2000
        deleted = other.call(
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name="wide")], timeout_ms=1000
            ),
            6,
        )
        assert deleted.responses[0].error_code == ErrorCode.NONE
        # One of the same name has nothing to do with it.
        create_topic(other, "wide", 3)
    assert client.receive().topics[0].error_code == ErrorCode.NONE
    assert broker.call(len, broker.logs) == 3


def test_a_client_that_goes_while_its_topics_are_made(broker: Broker) -> None:
    with RawClient(broker.port) as gone:
        topics = [MetadataRequest.Topic(name=f"t{number}") for number in range(500)]
        gone.send(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        gone.socket.shutdown(socket.SHUT_WR)
        with RawClient(broker.port) as other:
            until(lambda: other.call(MetadataRequest(topics=None), 12).topics)
    with RawClient(broker.port) as other:
        until(lambda: len(other.call(MetadataRequest(topics=None), 12).topics) == 500)


def test_a_stop_while_topics_are_made(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=f"t{number}", num_partitions=50, replication_factor=1
            )
            for number in range(40)
        ]
        client.send(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        with RawClient(broker.port) as other:
            until(lambda: other.call(MetadataRequest(topics=None), 12).topics)
    with Broker.start(data_dir=tmp_path) as broker:
        made = broker.call(lambda: list(broker.cluster.topics.values()))
        assert 0 < len(made) <= 40
        # Topics whose creation has begun are complete.
        assert broker.call(len, broker.logs) == 50 * len(made)


# Requests that are refused, and duplicates that are answered once.


def refused(broker: Broker, listener: str, data: bytes) -> bool:
    """Return whether the broker closes a connection without a response."""
    with socket.create_connection(("127.0.0.1", broker.addresses[listener][1]), PATIENCE) as plain:
        plain.sendall(data)
        try:
            return plain.recv(1) == b""
        except ConnectionResetError:
            return True


def test_nothing_is_read_before_a_login(caplog: pytest.LogCaptureFixture) -> None:
    """The beginning of a frame is enough."""
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with Broker.start(properties=properties) as broker:
        data = frame(FetchRequest(), 12)
        assert refused(broker, "SASL_PLAINTEXT", struct.pack(">i", 500_000) + data[4:8])
        # An api key that does not exist is no way around it.
        assert refused(broker, "SASL_PLAINTEXT", struct.pack(">ihh", 8, 999, 0) + bytes(4))
    assert "FetchRequest was sent before authentication; connection closed" in caplog.messages[0]
    assert "unknown api key 999" in caplog.messages[1]


def test_too_many_elements(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    limit = connection_module.MAX_ELEMENTS
    topics = [MetadataRequest.Topic(name="a")] * (limit + 1)
    assert refused(broker, "PLAINTEXT", frame(MetadataRequest(topics=topics), 12))
    with RawClient(broker.port) as client:
        response = client.call(MetadataRequest(topics=topics[1:]), 12)
        assert [topic.name for topic in response.topics] == ["a"]
    [line] = caplog.messages
    assert f"MetadataRequest v12: more than {limit} array elements" in line


def test_large_broken_frames_are_not_explained(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (10, 1000):
        data = frame(MetadataRequest(topics=[MetadataRequest.Topic(name="a")] * number), 12)
        assert refused(broker, "PLAINTEXT", struct.pack(">i", len(data) - 5) + data[4:-1])
    assert "at offset" in caplog.messages[0]
    assert "does not match the layout" in caplog.messages[1]


def test_groups_are_described_once(client: RawClient) -> None:
    response = client.call(DescribeGroupsRequest(groups=["g"] * 100), 5)
    assert [group.group_id for group in response.groups] == ["g"]
    groups = [OffsetFetchRequest.Group(group_id="g", topics=None)] * 100
    response = client.call(OffsetFetchRequest(groups=groups), 9)
    assert [group.group_id for group in response.groups] == ["g"]


# Clients that do not read.


class Deaf:
    """A client that asks for everything and reads nothing."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", broker.port))
        request = fetch_request([("t", 0, 0)], max_bytes=1 << 30, partition_max_bytes=1 << 30)
        self.socket.sendall(frame(request, 12))
        while not broker.call(lambda: broker.connections.blocked):
            pass


def filled(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        for _ in range(10):
            assert produce(client, "t", batch(bytes(1_000_000))).error_code == 0


def fetch_all(client: RawClient) -> int:
    """The number of batches in a fetch of all data."""
    request = fetch_request([("t", 0, 0)], max_bytes=1 << 30, partition_max_bytes=1 << 30)
    records = client.call(request, 12).responses[0].partitions[0].records
    return len(list(read_batches(records)))


def test_idle_connections_are_aborted_where_responses_are_not_read() -> None:
    with Broker.start(properties={"connections.max.idle.ms": "1000"}) as broker:
        filled(broker)
        deaf = Deaf(broker)
        # Closing politely would wait for the client to read.
        while broker.call(lambda: broker.connections.open):
            pass
        deaf.socket.close()


def test_unfinished_requests_are_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The largest one goes, and the others can be finished."""
    whole = frame(produce_request("t", batch(bytes(MEGABYTE * 7 // 5))), 12)
    with (
        Broker.start(properties={"socket.request.max.bytes": str(MEGABYTE * 3 // 2)}) as broker,
        RawClient(broker.port) as first,
        RawClient(broker.port) as second,
    ):
        broker.connections.max_unfinished = 0
        create_topic(first, "t")
        for client, size in ((first, MEGABYTE), (second, len(whole) - 1)):
            client.socket.sendall(whole[:size])
            # What arrives before a request is known to be large does not count.
            while size - 2 * RECEIVE_SIZE > broker.call(
                lambda: max(broker.connections.unfinished.values(), default=0)
            ):
                pass
        second.socket.settimeout(PATIENCE)
        with RawClient(broker.port) as third:
            third.socket.sendall(whole[:MEGABYTE])
            assert second.socket.recv(1) == b""
            for client in (first, third):
                client.socket.sendall(whole[MEGABYTE:])
                assert client.socket.recv(4)
        assert not broker.call(lambda: broker.connections.unfinished)
    assert any("its unfinished request has 1 MB" in line for line in caplog.messages)


def test_unread_responses_are_limited(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    connections = broker.connections
    most = connections.max_unread
    filled(broker)
    with RawClient(broker.port) as client:
        assert fetch_all(client) == 8
        deaf = Deaf(broker)
        connections.max_unread = MEGABYTE
        # Others get one batch, enough to continue.
        assert fetch_all(client) == 1
        assert broker.call(lambda: len(connections.open)) == 2
        connections.unread_seconds = 0
        assert fetch_all(client) == 1
        while broker.call(lambda: connections.blocked):
            pass
        connections.max_unread = most
        assert fetch_all(client) == 8
    assert any("bytes of responses" in line for line in caplog.messages)
    deaf.socket.close()


def test_a_large_batch_waits_until_others_have_read(broker: Broker) -> None:
    """Each client that does not read would hold one; small batches are served meanwhile."""
    connections, slices = broker.connections, broker.connections.slices
    usual = connections.max_unread, slices.budget.seconds
    filled(broker)
    with RawClient(broker.port) as client:
        create_topic(client, "large", max_message_bytes=str(MAX_FETCH * 2))
        large = batch(bytes(MAX_FETCH))
        assert produce(client, "large", large).error_code == 0
        asked = [("large", 0, 0)]

        def fetched(**given: int) -> int:
            request = fetch_request(asked, max_bytes=1, partition_max_bytes=1 << 30, **given)
            return len(client.call(request, 12).responses[0].partitions[0].records)

        assert fetched() == len(large)
        # Of several requests at once, one reads it.
        connections.max_unread, slices.budget.seconds = MEGABYTE, 0
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(broker.port)) for _ in range(5)]
            request = fetch_request([("nowhere", 0, 0), *asked], max_bytes=1)
            held = broker.call(lambda: connections.holds)
            broker.call(lambda: [each.send(request, 12) for each in clients])
            sizes = [len(each.receive().responses[1].partitions[0].records) for each in clients]
            assert sorted(sizes) == [0] * 4 + [len(large)]
            assert broker.call(lambda: connections.holds) == held + 1
        connections.max_unread, slices.budget.seconds = usual
        deaf = Deaf(broker)
        connections.max_unread = MEGABYTE
        assert fetched(max_wait_ms=0) == 0
        assert fetched(max_wait_ms=100) == 0
        assert fetch_all(client) == 1
        deaf.socket.close()
        while broker.call(lambda: broker.connections.blocked):
            pass
        assert fetched(max_wait_ms=0) == len(large)


def test_large_responses_are_written_as_the_client_reads(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transports copy what they cannot send at once."""
    monkeypatch.setattr(Connection, "large_response", MEGABYTE)
    filled(broker)
    deaf = Deaf(broker)
    [(unread, written)] = broker.call(
        lambda: [
            (each.unread, each.transport.get_write_buffer_size())
            for each in broker.connections.blocked
        ]
    )
    assert unread > 3 * MEGABYTE
    assert written <= TLS_PIECE
    deaf.socket.close()
    with RawClient(broker.port) as client:
        assert fetch_all(client) == 8
