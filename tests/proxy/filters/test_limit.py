"""Limit: throttle times as Kafka sets them, and the connection that waits after its response."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kafka_wire import FetchRequest, MetadataRequest, ProduceRequest

from krammar.proxy.filters.limit import Limit
from krammar.wire.batches import Record, encode_batch
from tests.proxy.filters.support import Client, address, through
from tests.support.waiting import PATIENCE

RECORDS = encode_batch([Record(value=bytes(1000))])


class Clocked(Limit):
    """A limit whose clock only advances by its own waits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.waits: list[float] = []
        self.time = 1000.0
        self.waiting, self.go_on = threading.Event(), threading.Event()

    def now(self) -> float:
        return self.time

    async def wait(self, seconds: float) -> None:
        import asyncio

        self.waits.append(seconds)
        self.waiting.set()
        await asyncio.to_thread(self.go_on.wait, PATIENCE)
        self.time += seconds


def producing() -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="orders",
                partition_data=[ProduceRequest.PartitionProduceData(index=0, records=RECORDS)],
            )
        ],
    )


def fetching() -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchRequest.FetchTopic(
                topic="orders",
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=0, fetch_offset=0, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )


def test_the_response_comes_first_and_the_next_request_waits() -> None:
    limit = Clocked(produce=len(RECORDS))
    with through(limit) as (broker, proxy), Client(address(proxy)) as client:
        assert client.ask(producing(), 9).response.throttle_time_ms == 0
        assert client.ask(producing(), 9).response.throttle_time_ms == 1000
        client.socket.sendall(
            client.connection.send_request(producing(), 9)
            + client.connection.send_request(MetadataRequest(), 9)
        )
        assert limit.waiting.wait(PATIENCE)
        assert limit.waits == [1.0]
        assert len(broker.records("orders")) == 2
        with Client(address(proxy)) as other:  # only this connection waits
            other.ask(MetadataRequest(), 9)
        limit.go_on.set()
        assert client.next().response.throttle_time_ms == 1000
        assert client.next().response.brokers
        assert len(broker.records("orders")) == 3


def test_fetch() -> None:
    limit = Clocked(fetch=len(RECORDS) / 3)
    with through(limit) as (_, proxy), Client(address(proxy)) as client:
        assert client.ask(producing(), 9).response.throttle_time_ms == 0
        found = client.ask(fetching(), 11).response
        assert len(found.responses[0].partitions[0].records) == len(RECORDS)
        assert found.throttle_time_ms == 2000


def test_what_was_used_is_forgotten_after_its_time() -> None:
    limit = Clocked(produce=len(RECORDS))
    with through(limit) as (_, proxy), Client(address(proxy)) as client:
        for _ in range(3):
            assert client.ask(producing(), 9).response.throttle_time_ms == 0
            limit.time += 1


@pytest.mark.parametrize(("by", "expected"), [("client_id", 1000), ("connection", 0)])
def test_who_shares_a_rate(by: Any, expected: int) -> None:
    limit = Clocked(produce=len(RECORDS), by=by)
    with through(limit) as (_, proxy):
        with Client(address(proxy)) as client:
            client.ask(producing(), 9)
        with Client(address(proxy)) as client:
            assert client.ask(producing(), 9).response.throttle_time_ms == expected


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "produce, fetch: give at least one of them"),
        ({"produce": 0}, "produce = 0: write bytes per second, more than 0"),
        ({"fetch": "1 MB"}, "fetch = '1 MB': write bytes per second"),
        ({"fetch": 1, "by": "ip"}, "by = 'ip': write 'client_id', 'login' or 'connection'"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Limit(**arguments)
