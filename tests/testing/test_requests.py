"""The last requests of a broker, as a failing test shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    FetchRequest,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
)

from krammar.broker.recent import MOST, MOST_BYTES
from krammar.testing import KafkaBroker, KafkaCluster
from krammar.util.clock import time_ns
from krammar.wire.batches import Record, encode_batch
from tests.broker.support import RawClient


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics=["orders"], process=request.param) as broker:
        yield broker


def produce(value: bytes, acks: int = -1) -> ProduceRequest:
    part = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([Record(value=value)]))
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
    return ProduceRequest(acks=acks, topic_data=[topic])


def about(line: str) -> str:
    """A line without times and sizes."""
    found = re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6} #(\d+) +(.*)", line)
    assert found, line
    text = re.sub(r"[\d.]+ ms|[\d,]+ B (?!of)", "", found[2])
    return f"#{found[1]} " + re.sub(r" +", " ", text)


def test_lines(broker: KafkaBroker) -> None:
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.call(ApiVersionsRequest(), 3)
        client.call(produce(b"one"), 9)
        client.send(produce(b"two", acks=0), 9, expect_response=False)
        client.call(HeartbeatRequest(group_id="g", member_id="m"), 4)
        broker.faults.on("Metadata").drop("before")
        with pytest.raises(ConnectionError):
            other.call(MetadataRequest(), 9)
        lines = list(map(about, broker.requests()))
    assert lines[0].startswith("#1 ApiVersions v3 ")
    assert lines[1:] == [
        "#1 Produce v9 ok orders[0], 71 B of records → orders[0]",
        "#1 Produce v9 no response acks 0, orders[0], 71 B of records",
        "#1 Heartbeat v4 error group g, generation 0, member m → UNKNOWN_MEMBER_ID",
        "#2 Metadata v9 unanswered fault 1: dropped the connection before the request was handled; no response before"
        " the connection ended",
    ]


def test_requests_that_wait_and_large_ones(broker: KafkaBroker) -> None:
    with RawClient(broker.port) as client:
        client.call(produce(bytes(2 * MOST_BYTES)), 9)
        part = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
        topics = [FetchRequest.FetchTopic(topic="orders", partitions=[part])]
        client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics), 12)
        broker.wait_until(lambda: len(broker.requests()) == 2)
        large, waiting = broker.requests()
    assert "undecodable" in large and "too large to be remembered" in large
    assert " waiting " in waiting and "orders[0]" in waiting


def test_how_many(broker: KafkaBroker) -> None:
    with RawClient(broker.port) as client:
        for _ in range(MOST + 10):
            client.call(HeartbeatRequest(group_id="g"), 4)
        assert len(broker.requests()) == MOST
        assert broker.requests(since_ns=time_ns()) == []
        since = time_ns()
        client.call(HeartbeatRequest(group_id="g"), 4)
        assert len(broker.requests(since_ns=since)) == 1


def test_all_nodes_of_a_cluster() -> None:
    with KafkaCluster.start(nodes=2) as cluster:
        for address in cluster.bootstrap_servers.split(","):
            with RawClient(int(address.rpartition(":")[2])) as client:
                client.call(HeartbeatRequest(group_id="g"), 4)
        assert len(cluster.requests()) == 2
        cluster.restart()
        with RawClient(int(address.rpartition(":")[2])) as client:
            client.call(HeartbeatRequest(group_id="g"), 4)
        assert len(cluster.requests()) == 3
