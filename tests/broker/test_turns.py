"""Many clients at once: the budget of a turn, and the order in which they are served."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from kafka_wire import ApiVersionsRequest, MetadataRequest

from krammar.broker import Broker
from krammar.util import turns as turns_module
from krammar.util.turns import Turns
from tests.broker.attacks import frame
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


class Client:
    """Counts its turns, and waits for more."""

    def __init__(self, turns: Turns, name: str, order: list[str], *, known: bool = True) -> None:
        self.turns, self.name, self.order, self.known = turns, name, order, known
        self.left = 3

    def go_on(self) -> None:
        served = 0
        while self.left:
            if not self.turns.grant(served, turns_module.time.monotonic()):
                self.turns.wait(self, known=self.known)
                return
            served += 1
            self.left -= 1
            self.order.append(self.name)


def test_a_turn_has_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 1.0)
    turns = Turns()
    now = 0.0
    monkeypatch.setattr(turns_module.time, "monotonic", lambda: now)

    async def serve() -> list[bool]:
        nonlocal now
        found = [turns.grant(0, now)]
        now = 0.9
        found.append(turns.grant(0, now))
        now = 1.0
        found.append(turns.grant(0, now))  # the same turn
        await asyncio.sleep(0)
        found.append(turns.grant(0, now))
        return found

    assert asyncio.run(serve()) == [True, True, False, True]


def test_clients_take_turns_and_strangers_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests fit into a turn."""
    order: list[str] = []
    now = 0.0

    def clock() -> float:
        return now

    class Slow(list[str]):
        def append(self, name: str) -> None:
            nonlocal now
            now += turns_module.TURN_SECONDS * 0.4
            super().append(name)

    monkeypatch.setattr(turns_module.time, "monotonic", clock)
    order = Slow()

    async def serve() -> None:
        turns = Turns()
        names = [("s1", False), ("s2", False), ("a", True), ("b", True)]
        clients = [Client(turns, name, order, known=known) for name, known in names]
        for each in clients:
            turns.wait(each, known=each.known)
        while any(each.left for each in clients):
            now_before = len(order)
            await asyncio.sleep(0)
            assert len(order) - now_before <= 3

    asyncio.run(serve())
    # The first stranger of a turn is served in any case.
    assert "".join(order) == "s1abs2abs1abs2s1s2"


def test_a_client_alone_is_not_interrupted() -> None:
    order: list[str] = []

    async def serve() -> None:
        Client(Turns(), "a", order).go_on()

    asyncio.run(serve())
    assert order == ["a"] * 3


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
        assert broker.call(lambda: broker.connections.turns.postponed) > 0


def test_clients_that_leave_while_they_wait(broker: Broker) -> None:
    for client in pipeline(broker.port, 50, 200):
        client.close()
    with RawClient(broker.port) as other:
        assert other.call(MetadataRequest(topics=[]), 12).brokers
        while broker.call(lambda: len(broker.connections.open)) > 1:
            pass
        turns: Any = broker.connections.turns
        assert broker.call(lambda: len(turns._clients) + len(turns._strangers)) == 0


def test_nodes_of_a_process_share_turns() -> None:
    with Broker.start(nodes=3) as broker:
        connections = [node.connections for node in broker.nodes.values()]
        assert len({each.turns for each in connections}) == 1
        assert len({each.slices for each in connections}) == 1
