"""Many clients of a broker at once: all are served, in turns."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kafka_wire import ApiVersionsRequest, MetadataRequest

from krammar.broker import Broker
from tests.broker.attacks import frame
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


def pipeline(port: int, number: int, requests: int) -> list[socket.socket]:
    clients = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(number)]
    data = frame(ApiVersionsRequest(), 0) * requests
    for client in clients:
        client.sendall(data)
    return clients


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_every_request_of_many_clients_is_answered(listener: str) -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with Broker.start(properties=properties) as broker:
        port = broker.addresses[listener][1]
        clients = pipeline(port, 50, 200)
        with RawClient(broker.port) as other:
            assert other.call(MetadataRequest(topics=[]), 12).brokers
        for client in clients:
            client.shutdown(socket.SHUT_WR)
            received = 0
            sizes: Any = bytearray()
            while piece := client.recv(1 << 16):
                sizes += piece
            at = 0
            while at < len(sizes):
                at += 4 + int.from_bytes(sizes[at : at + 4], "big")
                received += 1
            assert received == 200
            client.close()
        assert broker.call(lambda: broker.connections.budget.postponed) > 0


def test_clients_that_leave_while_they_wait(broker: Broker) -> None:
    for client in pipeline(broker.port, 50, 200):
        client.close()
    with RawClient(broker.port) as other:
        assert other.call(MetadataRequest(topics=[]), 12).brokers
        while broker.call(lambda: len(broker.connections.open)) > 1:
            pass
        budget: Any = broker.connections.budget
        assert broker.call(lambda: len(budget._known) + len(budget._strangers)) == 0


def test_nodes_of_a_process_share_a_budget() -> None:
    with Broker.start(nodes=3) as broker:
        connections = [node.connections for node in broker.nodes.values()]
        assert len({each.budget for each in connections}) == 1
        assert len({each.slices for each in connections}) == 1
