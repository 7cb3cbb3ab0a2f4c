"""Faults of the tap: between any client and any cluster, and in protocols that are not Kafka's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka_wire
import pytest
from kafka_wire import CreateTopicsRequest, ErrorCode, HeartbeatRequest, MetadataRequest

from krammar.broker import Broker
from krammar.faults import Faults
from krammar.proxy.addresses import Address
from krammar.wire.connection import CorrelationError, RequestReceived, ServerConnection
from krammar.wire.framing import PREFIX
from tests.broker.support import RawClient
from tests.faults.test_broker import codes, end_of, produce
from tests.support.waiting import until
from tests.tap.support import TapThread, upstream


@contextmanager
def tapped(**options: Any) -> Iterator[tuple[Faults, TapThread]]:
    """A broker with the topic orders, and a tap with rules before it."""
    with Broker.start() as broker, RawClient(broker.port) as client:
        orders = CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=2, replication_factor=1
        )
        client.call(CreateTopicsRequest(topics=[orders]), 5)
        faults = Faults(kafka_wire)
        address = Address("127.0.0.1", broker.port)
        with TapThread(address, faults=faults, stay=True, **options) as tap:
            yield faults, tap


def test_a_part_of_a_request_is_refused() -> None:
    with tapped() as (faults, tap), RawClient(tap.address.port) as client:
        rule = faults.on("Produce", topic="orders", partition=1).answer("NOT_LEADER_OR_FOLLOWER")
        assert codes(client.call(produce(0, 1), 9)) == {0: 0, 1: 6}
        assert codes(client.call(produce(1), 9)) == {1: 6}
        assert (end_of(client, 0), end_of(client, 1)) == (1, 0)
        rule.expect(times=2)
    notes = [frame.note for frame in tap.recorder.frames if frame.api == "Produce" and frame.note]
    assert notes == [f"{rule.name}: answered NOT_LEADER_OR_FOLLOWER"] * 2


def test_responses_keep_their_order() -> None:
    """The tap answers the second request itself while the first one is on its way."""
    with tapped() as (faults, tap), RawClient(tap.address.port) as client:
        faults.on("Heartbeat").answer("REBALANCE_IN_PROGRESS")
        faults.on("Metadata").delay(30).trickle(11, every_ms=1)
        for _ in range(3):
            client.send(MetadataRequest(), 9)
            client.send(HeartbeatRequest(group_id="g"), 4)
        for _ in range(3):
            assert client.receive().brokers
            assert client.receive().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1), ("middle", 1)])
def test_connections_are_dropped(when: str, written: int) -> None:
    with tapped() as (faults, tap):
        rule = faults.on("Produce").drop(when).once()
        with RawClient(tap.address.port) as client:
            with pytest.raises(ConnectionError):
                client.call(produce(0), 9)
            assert (client.wire.buffered > 0) == (when == "middle")
        rule.expect()
        with RawClient(tap.address.port) as client:
            assert end_of(client, 0) == written
        tap.recorder.wait(lambda seen: seen.ended)
        how = rule.name + ": dropped" if when == "before" else "closed by a filter"
        assert tap.recorder.ended[1].startswith(f"by the tap: {how}")


def test_two_responses_change_places() -> None:
    with tapped() as (faults, tap):
        faults.on("Metadata").reorder(ms=60_000).once()
        with RawClient(tap.address.port) as client:
            client.send(MetadataRequest(), 9)
            client.send(HeartbeatRequest(group_id="g"), 4)
            with pytest.raises(CorrelationError):
                client.receive()
        faults.on("Metadata").reorder(ms=1)
        with RawClient(tap.address.port) as client:
            assert client.call(MetadataRequest(), 9).brokers


def test_a_black_hole_keeps_the_connection_open() -> None:
    with tapped() as (faults, tap):
        rule = faults.on("Metadata", connection=1).black_hole()
        with RawClient(tap.address.port) as lost, RawClient(tap.address.port) as other:
            lost.send(MetadataRequest(), 9)
            rule.wait()
            assert other.call(MetadataRequest(), 9).brokers
            lost.send(HeartbeatRequest(group_id="g"), 4)
            lost.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                lost.receive()


def test_rules_select_the_node_that_metadata_has_named() -> None:
    with tapped() as (faults, tap), RawClient(tap.address.port) as client:
        rule = faults.on("Heartbeat", node=1).answer("NOT_COORDINATOR")
        faults.on("Heartbeat", node=2).drop()
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 25
        client.call(MetadataRequest(), 9)
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 16
        rule.expect(times=1)


def test_a_changed_request_reaches_the_broker_changed() -> None:
    seen: list[Any] = []

    def serve(connection: socket.socket) -> None:
        wire = ServerConnection(kafka_wire)
        while data := connection.recv(65536):
            wire.receive_data(data)
            while (event := wire.next_event()) is not None:
                seen.append(event)
                if isinstance(event, RequestReceived):
                    connection.sendall(wire.send_response(event, kafka_wire.HeartbeatResponse()))

    faults = Faults(kafka_wire)
    faults.on("Heartbeat").change("request.group_id", "other")
    with (
        upstream(serve) as server,
        TapThread(server.address, faults=faults, stay=True) as tap,
        RawClient(tap.address.port) as client,
    ):
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 0
        # Bytes that are not a request of the protocol pass unchanged.
        client.socket.sendall((6).to_bytes(PREFIX, "big") + b"\x7f\xff\0\0\0\1")
        tap.recorder.wait(lambda recorder: len(recorder.frames) >= 3)
        until(lambda: len(seen) == 2)
    assert seen[0].request.group_id == "other"


def test_responses_that_are_too_large_to_be_read_hold_up_nothing() -> None:
    with tapped(max_frame=64) as (faults, tap), RawClient(tap.address.port) as client:
        faults.on("Heartbeat").answer("REBALANCE_IN_PROGRESS")
        client.send(MetadataRequest(), 9)
        client.send(HeartbeatRequest(group_id="g"), 4)
        assert client.receive().brokers
        assert client.receive().error_code == ErrorCode.REBALANCE_IN_PROGRESS
