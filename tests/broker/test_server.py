"""Connections: order, back-pressure, refused requests, and the start and end of brokers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    ErrorCode,
    LeaderAndIsrRequest,
    MetadataRequest,
    ProduceResponse,
)

from krammar.broker import Broker, BrokerConfig, BrokerError
from krammar.broker.releases import release_of
from krammar.wire.batches import read_batches
from tests.broker.requests import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
)
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


def closed(client: RawClient) -> bool:
    try:
        client.receive()
    except ConnectionError:
        return True
    return False


# ApiVersions


@pytest.mark.parametrize("version", range(6))
def test_api_versions_says_what_is_served(client: RawClient, version: int) -> None:
    response = client.call(
        ApiVersionsRequest(client_software_name="test", client_software_version="1.0"), version
    )
    assert response.error_code == ErrorCode.NONE
    offered = release_of(None).offered
    assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == offered


def test_api_versions_lists_features(client: RawClient) -> None:
    response = client.call(
        ApiVersionsRequest(client_software_name="test", client_software_version="1.0"), 4
    )
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized["transaction.version"] == 2
    assert finalized["kraft.version"] == 1
    assert "metadata.version" in finalized
    assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize("name", ["", "-a", "a b", "a-", "ä"])
def test_api_versions_refuses_an_odd_software_name(client: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    assert client.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_api_versions_tells_a_client_of_another_cluster(broker: Broker, client: RawClient) -> None:
    def ask(cluster: str | None, node: int) -> int:
        request = ApiVersionsRequest(
            client_software_name="test",
            client_software_version="1",
            cluster_id=cluster,
            node_id=node,
        )
        return int(client.call(request, 5).error_code)

    assert ask(None, -1) == ErrorCode.NONE
    assert ask(broker.cluster.cluster_id, broker.config.node_id) == ErrorCode.NONE
    assert ask("another", -1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert ask(None, 4711) == ErrorCode.REBOOTSTRAP_REQUIRED


def test_api_versions_of_an_unknown_version_is_answered_in_v0(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as sock:
        sock.sendall(bytes.fromhex("00000012 0012 6a5b 00000007 0004 74657374 00 0000 00"))
        head = _read(sock, 4)
        body = _read(sock, int.from_bytes(head, "big"))
    assert body[:6] == bytes.fromhex("00000007 0023")


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "closed"
        data += piece
    return data


# Order and back-pressure


def test_requests_are_answered_in_order_even_behind_a_long_poll(client: RawClient) -> None:
    create_topic(client, "empty")
    client.send(fetch_request([("empty", 0, 0)], max_wait_ms=200, min_bytes=1), 12)
    for _ in range(50):
        client.send(MetadataRequest(topics=[]), 12)
    assert type(client.receive()).__name__ == "FetchResponse"
    for _ in range(50):
        assert type(client.receive()).__name__ == "MetadataResponse"


def test_produce_without_acknowledgement_is_not_answered(client: RawClient) -> None:
    create_topic(client, "quiet")
    for _ in range(3):
        client.send(produce_request("quiet", batch(b"x"), acks=0), 9, expect_response=False)
    assert produce(client, "quiet", batch(b"y")).base_offset == 3


def test_frames_that_come_in_turns_do_not_mix(broker: Broker, client: RawClient) -> None:
    """Connections receive into one piece of memory until a large frame has its own."""
    create_topic(client, "turns", partitions=6)
    values = [bytes([65 + i]) * size for i, size in enumerate((20, 9_000, 40_000, 70_000, 300_000))]
    values.append(b"F" * 900_000)
    with ExitStack() as stack:
        others = [stack.enter_context(RawClient(broker.port)) for _ in values]
        frames = [
            other.wire.send_request(produce_request("turns", batch(value), partition=i), 12)
            for i, (other, value) in enumerate(zip(others, values, strict=True))
        ]
        begin = 0
        for end in (3, 15, 7_000, 45_000, 110_000, 300_050, 1_000_000):
            for other, frame in zip(others, frames, strict=True):
                other.socket.sendall(frame[begin:end])
                # The broker has probably read it before the next connection's request.
                client.call(MetadataRequest(topics=[]), 12)
            begin = end
        for other in others:
            assert other.receive().responses[0].partition_responses[0].error_code == 0
    for partition, value in enumerate(values):
        stored = fetch(client, "turns", partition=partition, partition_max_bytes=2 << 20).records
        assert [record.value for found in read_batches(stored) for record in found] == [value]


def test_a_failed_produce_without_acknowledgement_closes_the_connection(client: RawClient) -> None:
    client.send(produce_request("nowhere", batch(b"x"), acks=0), 9, expect_response=False)
    assert closed(client)


def test_a_client_that_does_not_read_is_not_read_from(broker: Broker, client: RawClient) -> None:
    create_topic(client, "big")
    value = bytes(900_000)
    for _ in range(10):
        assert produce(client, "big", batch(value)).error_code == 0
    request = fetch_request([("big", 0, 0)], partition_max_bytes=10 << 20, max_bytes=10 << 20)
    with RawClient(broker.port) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.socket.settimeout(0.5)
        sent = 0
        try:
            # Each fetches 9 MB; the broker only reads what fits into sockets, and one more response.
            while sent < 1_000_000:
                slow.send(request, 12)
                sent += 1
        except TimeoutError:
            pass
        assert sent < 1_000_000

        def buffered() -> int:
            return max(connection.unread for connection in broker.connections.open)

        assert 0 < broker.call(buffered) < 12 << 20
        assert produce(client, "big", batch(b"others are served")).error_code == 0


def test_a_client_that_stops_writing_still_gets_its_answers(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        create_topic(client, "last")
        client.send(fetch_request([("last", 0, 0)], max_wait_ms=100, min_bytes=1), 12)
        client.send(MetadataRequest(topics=[]), 12)
        client.socket.shutdown(socket.SHUT_WR)
        assert type(client.receive()).__name__ == "FetchResponse"
        assert type(client.receive()).__name__ == "MetadataResponse"
        assert closed(client)


# Refused requests


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xff\xff\xff", "negative frame length"),
        (b"\x7f\xff\xff\xff", "are accepted at most"),
        (b"GET / HTTP/1.1\r\n", "looks like HTTP"),
        (bytes.fromhex("00000002 0003"), "needs 4 bytes"),
        (bytes.fromhex("00000008 7fff 0000 00000001"), "unknown"),
        (bytes.fromhex("0000000b 0003 0000 00000001 ffff 00"), "MetadataRequest"),
    ],
)
def test_a_broken_frame_closes_the_connection_with_one_line(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes, said: str
) -> None:
    with caplog.at_level(logging.WARNING, "krammar.broker"), RawClient(broker.port) as client:
        client.socket.sendall(data)
        assert closed(client)
    assert len(caplog.records) == 1
    assert said in caplog.text
    assert "Traceback" not in caplog.text


def test_what_only_brokers_ask_is_refused(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with RawClient(broker.port) as client:
        client.send(LeaderAndIsrRequest(), 4)
        assert closed(client)
    assert "is not served" in caplog.text


def test_a_version_below_those_served_is_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.port) as client:
        client.send(fetch_request([]), 3)
        assert closed(client)
    assert (
        "FetchRequest v3 is not served, only v4 to v18; the client expects an old " in caplog.text
    )
    assert "api.version.request=true" in caplog.text


# Start and end of brokers


def descriptors() -> set[str]:
    names = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            names.add(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            continue
    return names


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_closing_frees_port_thread_and_files() -> None:
    with Broker.start():
        pass  # modules and files that are opened only once
    threads, files = set(threading.enumerate()), descriptors()
    broker = Broker.start()
    folder = Path(broker.config.log_dirs[0])
    port = broker.port
    with RawClient(port) as client:
        create_topic(client, "a", 5)
        produce(client, "a", batch(b"x"))
        broker.close()
        broker.close()
    assert set(threading.enumerate()) == threads
    assert {name for name in descriptors() - files if str(folder) in name} == set()
    assert not folder.exists()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))


def test_many_brokers_in_one_process_do_not_disturb_each_other() -> None:
    brokers = [Broker.start() for _ in range(5)]
    try:
        clients = [RawClient(broker.port) for broker in brokers]
        for number, client in enumerate(clients):
            create_topic(client, f"topic-{number}")
        for number, client in enumerate(clients):
            topics = client.call(MetadataRequest(topics=None), 12).topics
            assert [topic.name for topic in topics] == [f"topic-{number}"]
            client.close()
        assert len({broker.cluster.cluster_id for broker in brokers}) == 5
    finally:
        for broker in brokers:
            broker.close()


def test_async_with_runs_in_the_callers_loop(tmp_path: Path) -> None:
    async def main() -> int:
        config = BrokerConfig.defaults(
            **{"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        )
        async with Broker(config) as broker:
            assert broker.loop is asyncio.get_running_loop()

            def talk() -> int:
                with RawClient(broker.port) as client:
                    create_topic(client, "here")
                    return int(produce(client, "here", batch(b"x")).base_offset)

            return await asyncio.to_thread(talk)

    assert asyncio.run(main()) == 0


def test_a_second_start_finds_what_the_first_has_left(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topic_id = create_topic(client, "kept", 3)
        assert produce(client, "kept", batch(b"a", b"b"), 2).base_offset == 0
        cluster_id = broker.cluster.cluster_id
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert broker.cluster.cluster_id == cluster_id
        assert broker.cluster.topics["kept"].topic_id == topic_id
        assert produce(client, "kept", batch(b"c"), 2).base_offset == 2


def test_a_taken_port_is_a_clear_error(broker: Broker) -> None:
    with pytest.raises(BrokerError, match=f"cannot listen on 127.0.0.1:{broker.port}"):
        Broker.start(port=broker.port)


def test_a_folder_that_another_broker_holds_is_a_clear_error(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path), pytest.raises(BrokerError, match="in use"):
        Broker.start(data_dir=tmp_path)
    Broker.start(data_dir=tmp_path).close()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match="file"):
        Broker.start(data_dir=tmp_path / "file" / "data")


def test_the_response_class_is_what_the_table_says(client: RawClient) -> None:
    create_topic(client, "t")
    response = client.call(produce_request("t", batch(b"x")), 3)
    assert isinstance(response, ProduceResponse)


def test_a_topic_whose_logs_cannot_be_made_is_not_there(broker: Broker, client: RawClient) -> None:
    (broker.config.log_dirs[0] / "t-1").write_text("in the way")
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        ],
        timeout_ms=1000,
    )
    answer = client.call(request, 7).topics[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert client.call(MetadataRequest(topics=None), 12).topics == []
    (broker.config.log_dirs[0] / "t-1").unlink()
    assert client.call(request, 7).topics[0].error_code == ErrorCode.NONE
    assert produce(client, "t", batch(b"x"), 1).base_offset == 0


def test_only_produce_may_be_large(
    broker: Broker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(client, "t", max_message_bytes=str(30 << 20))
    assert produce(client, "t", batch(bytes(20 << 20))).error_code == ErrorCode.NONE
    with RawClient(broker.port) as other:
        # The length and the beginning of a Metadata request are enough.
        other.socket.sendall(bytes.fromhex("01000001 0003 000c"))
        assert closed(other)
    assert "the limit for requests other than Produce" in caplog.text


def test_a_fetch_ends_with_its_connection(broker: Broker) -> None:
    def watchers() -> int:
        log = broker.logs.get("t", 0)
        assert log is not None
        return len(log.watchers)

    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        create_topic(other, "t")
        client.send(fetch_request([("t", 0, 0)], max_wait_ms=2**31 - 1, min_bytes=1), 12)
        while broker.call(watchers) == 0:
            pass
        client.close()
        while broker.call(watchers):
            pass


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    uvloop = pytest.importorskip("uvloop")
    broker = Broker.start()
    with RawClient(broker.port) as client:
        assert isinstance(broker.loop, uvloop.Loop)
        create_topic(client, "t")
        assert produce(client, "t", batch(b"x")).base_offset == 0
        client.send(fetch_request([("t", 0, 1)], max_wait_ms=2**31 - 1, min_bytes=1), 12)
        broker.close()
        assert closed(client)
