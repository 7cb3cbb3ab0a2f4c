"""Faults as a filter of the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import kafka_wire
import pytest
from kafka_wire import ApiVersionsRequest, CreateTopicsRequest, HeartbeatRequest, MetadataRequest

from krammar.broker import Broker
from krammar.faults import Faults
from krammar.proxy import Proxy
from krammar.wire.connection import CorrelationError, ResponseError
from tests.broker.support import RawClient
from tests.faults.test_broker import codes, end_of, produce
from tests.proxy.support import address


@contextmanager
def proxied() -> Iterator[tuple[Faults, int]]:
    """A broker with the topic orders, and a proxy with rules before it: the rules, and the proxy's port."""
    with Broker.start() as broker:
        with RawClient(broker.port) as client:
            orders = CreateTopicsRequest.CreatableTopic(
                name="orders", num_partitions=2, replication_factor=1
            )
            client.call(CreateTopicsRequest(topics=[orders]), 5)
        faults = Faults(kafka_wire)
        with Proxy.start(broker.bootstrap_servers, [faults]) as proxy:
            yield faults, address(proxy).port


def test_a_part_of_a_request_is_refused_and_rules_end() -> None:
    with proxied() as (faults, port), RawClient(port) as client:
        assert codes(client.call(produce(0, 1), 9)) == {0: 0, 1: 0}
        rule = faults.on("Produce", topic="orders", partition=1).answer("NOT_LEADER_OR_FOLLOWER")
        assert codes(client.call(produce(0, 1), 9)) == {0: 0, 1: 6}
        assert codes(client.call(produce(1), 9)) == {1: 6}
        assert (end_of(client, 0), end_of(client, 1)) == (2, 1)
        faults.remove(rule)
        assert codes(client.call(produce(1), 9)) == {1: 0}
    rule.expect(times=2)
    assert faults.history[0].frame[:2] == b"\0\0"


def test_responses_keep_their_order() -> None:
    with proxied() as (faults, port), RawClient(port) as client:
        faults.on("Heartbeat").answer("REBALANCE_IN_PROGRESS").trickle(3, every_ms=1)
        faults.on("Metadata").delay(30).trickle(11, every_ms=1)
        for _ in range(3):
            client.send(MetadataRequest(), 9)
            client.send(HeartbeatRequest(group_id="g"), 4)
            client.send(ApiVersionsRequest(), 2)
        for _ in range(3):
            assert client.receive().brokers
            assert client.receive().error_code == 27
            assert client.receive().api_keys


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1), ("middle", 1)])
def test_connections_are_dropped(when: str, written: int) -> None:
    with proxied() as (faults, port):
        rule = faults.on("Produce").drop(when).once()
        with RawClient(port) as client:
            with pytest.raises(ConnectionError):
                client.call(produce(0), 9)
            assert (client.wire.buffered > 0) == (when == "middle")
        rule.expect()
        with RawClient(port) as client:
            assert end_of(client, 0) == written


def test_two_responses_change_places() -> None:
    with proxied() as (faults, port):
        faults.on("Metadata").reorder(ms=60_000).once()
        with RawClient(port) as client:
            client.send(MetadataRequest(), 9)
            client.send(HeartbeatRequest(group_id="g"), 4)
            with pytest.raises(CorrelationError):
                client.receive()
        faults.on("Metadata").reorder(ms=1)
        with RawClient(port) as client:
            assert client.call(MetadataRequest(), 9).brokers


def test_a_black_hole_answers_nothing_more_on_its_connection() -> None:
    with proxied() as (faults, port):
        rule = faults.on("Metadata", client_id="lost").black_hole()
        with RawClient(port, client_id="lost") as lost, RawClient(port) as other:
            lost.send(HeartbeatRequest(group_id="g"), 4)
            lost.send(MetadataRequest(), 9)
            lost.send(HeartbeatRequest(group_id="g"), 4)
            rule.wait()
            assert other.call(MetadataRequest(), 9).brokers
            assert lost.receive().error_code == 25
            lost.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                lost.receive()


def test_delays_corrupt_bytes_and_nodes() -> None:
    with proxied() as (faults, port), RawClient(port) as client:
        faults.on("Heartbeat", node=1).delay(1, of="request").answer("NOT_COORDINATOR")
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 25
        client.call(MetadataRequest(), 9)
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 16
        faults.on("Metadata").truncate(3).once()
        with pytest.raises(ResponseError):
            client.call(MetadataRequest(), 9)


def test_messages_that_no_rule_is_about_are_not_named() -> None:
    faults = Faults(kafka_wire)
    assert faults.methods() == []
    waits = faults.on("Heartbeat", versions="3-4")
    assert faults.methods() == []
    waits.delay(1)
    named = {(each.message.__name__, each.low) for each, _ in faults.methods()}
    assert {name for name, _ in named} == {
        "HeartbeatRequest",
        "HeartbeatResponse",
        "MetadataResponse",  # it has the names of topics
    }
    assert {version for name, version in named if name == "HeartbeatRequest"} == {3, 4}
    faults.clear()
    assert faults.methods() == []
