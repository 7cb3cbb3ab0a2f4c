"""Filters inside of a broker: Produce without a response, real clients, several nodes, and what they must not touch."""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_wire import (
    ApiVersionsRequest,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

from krammar.broker import Broker, ConfigError
from krammar.proxy import Exchange, Filter, on
from krammar.testing import KafkaBroker, KafkaCluster
from krammar.wire.batches import Record, encode_batch
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


class Upper(Filter):
    """Renames topics, and sees records as bytes."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    @on(ProduceRequest)
    def produce(self, request: ProduceRequest, exchange: Exchange) -> None:
        for topic in request.topic_data:
            topic.name = (topic.name or "").upper()
            self.records += [each.records for each in topic.partition_data]

    @on(MetadataRequest)
    def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
        for topic in request.topics or ():
            topic.name = (topic.name or "").upper()

    @on(MetadataResponse)
    def answer(self, response: MetadataResponse, exchange: Exchange) -> None:
        for topic in response.topics:
            topic.name = (topic.name or "").lower()

    @on(ProduceResponse)
    def done(self, response: ProduceResponse, exchange: Exchange) -> None:
        for topic in response.responses:
            topic.name = (topic.name or "").lower()


def test_a_real_client_and_records_as_bytes() -> None:
    upper = Upper()
    with KafkaBroker.start(filters=[upper]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"x" * 900_000)
        producer.flush(PATIENCE)
        assert broker.topics == {"ORDERS": 1}
        (record,) = broker.records("ORDERS")
        assert record.value == b"x" * 900_000
    assert {type(each) for each in upper.records} == {bytes}


def produce(acks: int) -> ProduceRequest:
    batch = encode_batch([Record(value=b"one")])
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


@pytest.mark.parametrize("acks", [0, 1])
def test_an_answer_to_produce_without_acks_is_dropped(acks: int) -> None:
    class Refuse(Filter):
        @on(ProduceRequest)
        def refuse(self, request: ProduceRequest, exchange: Exchange) -> ProduceResponse:
            return ProduceResponse(throttle_time_ms=7)

    with (
        KafkaBroker.start(topics=["orders"], filters=[Refuse()]) as broker,
        RawClient(broker.port) as client,
    ):
        client.send(produce(acks), 9, expect_response=acks != 0)
        if acks:
            assert client.receive().throttle_time_ms == 7
        assert client.call(MetadataRequest(topics=[])).brokers
        assert broker.records("orders") == []


def test_produce_without_acks_leaves_the_next_response_alone() -> None:
    class Reads(Filter):
        @on(ProduceRequest, ProduceResponse)
        def read(self, message: Any, exchange: Exchange) -> None: ...

    with (
        KafkaBroker.start(topics=["orders"], filters=[Reads()]) as broker,
        RawClient(broker.port) as client,
    ):
        client.send(produce(0), 9, expect_response=False)
        assert client.call(HeartbeatRequest(group_id="g")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_filter_does_not_change_objects_of_the_broker() -> None:
    class Blind(Filter):
        @on(MetadataResponse)
        def clear(self, response: MetadataResponse, exchange: Exchange) -> None:
            for topic in response.topics:
                topic.partitions.clear()
            response.brokers.clear()

    with KafkaBroker.start(topics={"orders": 3}, filters=[Blind()]) as broker:
        with RawClient(broker.port) as client:
            for _ in range(2):
                response = client.call(MetadataRequest(topics=None))
                assert response.brokers == []
                assert [(each.name, each.partitions) for each in response.topics] == [
                    ("orders", [])
                ]
        assert broker.topics == {"orders": 3}


def reset(connection: socket.socket) -> None:
    """End a connection by RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_filter_that_waits_ends_with_its_connection() -> None:
    class Ask(Filter):
        started, ended = threading.Event(), threading.Event()

        @on(FetchRequest)
        async def ask(self, request: FetchRequest, exchange: Exchange) -> None:
            self.started.set()
            try:
                await asyncio.Event().wait()  # ends only by cancellation
            finally:
                self.ended.set()

    ask = Ask()
    with KafkaBroker.start(filters=[ask]) as broker:
        with RawClient(broker.port) as client:
            client.send(FetchRequest(max_wait_ms=1), 12)
            assert ask.started.wait(PATIENCE)
            reset(client.socket)
        assert ask.ended.wait(PATIENCE)


def test_a_filter_asks_what_the_broker_does_not_serve() -> None:
    class Ask(Filter):
        error: Any = None

        @on(MetadataRequest)
        async def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
            try:
                await exchange.send(FetchRequest(), 3)
            except ConnectionError as error:
                self.error = error

    ask = Ask()
    with KafkaBroker.start(filters=[ask]) as broker, RawClient(broker.port) as client:
        client.call(MetadataRequest(topics=[]))
    assert str(ask.error) == "the broker does not serve FetchRequest v3"


def test_all_nodes_of_a_cluster_have_the_filters() -> None:
    class Count(Filter):
        def __init__(self) -> None:
            self.nodes: set[str] = set()

        @on(FetchResponse, MetadataResponse)
        def count(self, response: Any, exchange: Exchange) -> None:
            self.nodes.add(exchange.connection.upstream)

    count = Count()
    with KafkaCluster.start(nodes=2, filters=[count]) as cluster:
        for place in cluster.bootstrap_servers.split(","):
            with RawClient(int(place.rpartition(":")[2])) as client:
                client.call(MetadataRequest(topics=[]))
        assert count.nodes == set(cluster.bootstrap_servers.split(","))


def test_a_broker_without_filters_has_no_chain() -> None:
    with Broker.start() as broker, RawClient(broker.port) as client:
        assert client.call(ApiVersionsRequest(), 0).api_keys
        assert not broker.connections.chains


def test_what_is_no_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"filters: are not a list of filters, such as \[OnlySmall"
    ):
        KafkaBroker.start(filters=[Upper])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="is not a Filter"):
        Broker.start(filters=[Upper])  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []  # its folder is deleted


@pytest.mark.kafka_broker(filters=[Upper()])
def test_the_fixture_has_filters(kafka_broker: KafkaBroker) -> None:
    with RawClient(kafka_broker.port) as client:
        client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]))
    assert kafka_broker.topics == {"ORDERS": 1}
