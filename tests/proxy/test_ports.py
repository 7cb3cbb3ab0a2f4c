"""The ports of brokers: which ones they are, where they lead, and when they close."""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_wire import (
    HeartbeatRequest,
    MetadataRequest,
)

from krammar.proxy import Proxy, ProxyError
from krammar.proxy.addresses import ANY, Address
from krammar.proxy.listeners import Listeners
from krammar.proxy.ports import FixedPorts, PortUses, fixed_ports
from krammar.proxy.rewriter import NodeIds
from tests.proxy.support import (
    Brokers,
    Client,
    Nodes,
    address,
    free_range,
    is_open,
    ports,
    reached,
)
from tests.support.waiting import until


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    found = Brokers()
    yield found
    found.close()


# -- what the user writes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("19092-19094", {0: 19092, 1: 19093, 2: 19094}),
        ("19092", {0: 19092}),
        ("1=19092, 2=19093", {1: 19092, 2: 19093}),
        ("1000-1002=19092-19094,7=19100", {1000: 19092, 1001: 19093, 1002: 19094, 7: 19100}),
        ({"1": 19092, "5-6": "19093-19094"}, {1: 19092, 5: 19093, 6: 19094}),
    ],
)
def test_ports_by_node_id(given: Any, expected: dict[int, int]) -> None:
    assert FixedPorts(given).by_node == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "'' is no port and no range of ports"),
        ("here", "'here' is no port and no range of ports"),
        ("=19092", "write NODE=PORT"),
        ("19092,19093", "write one range of ports, or NODE=PORT for each of them"),
        ("19099-19092", "the range 19099-19092 of ports ends before it begins"),
        ("0-10", "0 is no port that clients can connect to"),
        ("65000-65536", "port 65536 is greater than 65535"),
        ("1-100=19092-19101", "nodes 1-100 need 100 ports, but 19092-19101 has 10"),
        ("1=19092,1=19093", "node 1 has two ports, 19092 and 19093"),
        ("1=19092,2=19092", "port 19092 belongs to two nodes"),
        ("10000-20000", "there are more than 1024 ports"),
        ("x=19092", "'x' is no node id and no range of node ids"),
        ("2147483648=19092", "node id 2147483648 is greater than 2147483647"),
        ({}, "no ports"),
    ],
)
def test_invalid_ports(given: Any, expected: str) -> None:
    with pytest.raises(ValueError, match="broker_ports") as raised:
        Proxy("127.0.0.1:1", broker_ports=given)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("given", "listen", "metrics", "expected"),
    [
        ("19092-19094", {"": 19093}, None, "port 19093 of node 1 is also that of the listener"),
        (
            "19092-19094",
            {"": 9093},
            19094,
            "port 19094 of node 2 is also that of the page with metrics",
        ),
        (
            "19092-19094",
            {"a": 1, "b": 2},
            None,
            "each of the listeners a, b needs ports of its own",
        ),
        ({"a": "19092"}, {"a": 1, "b": 2}, None, "the listener 'b' has no ports"),
        ({"a": "19092", "c": "19093"}, {"a": 1}, None, "there is no listener 'c'"),
        (
            {"a": "19092-19093", "b": "19093-19094"},
            {"a": 1, "b": 2},
            None,
            "port 19093 of node 0 of the listener 'b' is also that of node 1 of the listener 'a'",
        ),
        ({"a": "19092", "b": "x"}, {"a": 1, "b": 2}, None, "b: 'x' is no port"),
    ],
)
def test_ports_that_belong_to_two_things(
    given: Any, listen: dict[str, int], metrics: int | None, expected: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        fixed_ports(given, listen, metrics)


# -- fixed ports


def test_fixed_ports_are_those_of_the_node_ids_after_a_restart_too(brokers: Brokers) -> None:
    with free_range(4) as first:
        given = f"{first}-{first + 3}"
        for order in ([1, 2, 3], [3, 1, 2]):
            brokers.nodes = {node: f"127.0.0.{10 * node}" for node in order}
            with Proxy.start(brokers.bootstrap, broker_ports=given) as proxy:
                found = ports(address(proxy))
                assert found == {node: first + node for node in (1, 2, 3)}
                for node, port in found.items():
                    assert reached(port) == f"127.0.0.{10 * node}"


def test_a_broker_that_moves_keeps_its_port(brokers: Brokers) -> None:
    brokers.nodes = {1: "127.0.0.10", 2: "127.0.0.20"}
    with Proxy.start(brokers.bootstrap) as proxy:
        before = ports(address(proxy))
        brokers.nodes = {1: "127.0.0.11", 2: "127.0.0.20"}
        assert ports(address(proxy)) == before
        assert reached(before[1]) == "127.0.0.11"
        assert reached(before[2]) == "127.0.0.20"


def test_the_port_of_a_node_that_is_not_known_yet_serves_only_metadata(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.nodes = {1: "127.0.0.10"}
    with (
        free_range(2) as first,
        Proxy.start(brokers.bootstrap, broker_ports=f"{first}-{first + 1}") as proxy,
    ):
        place = Address("127.0.0.1", first + 1)
        with Client(place) as client:  # of before a restart of the proxy
            client.socket.sendall(client.connection.send_request(HeartbeatRequest(group_id="g"), 4))
            assert client.read_to_end() == b""
        assert "on the port of a node whose address no response has named yet" in caplog.text
        with Client(place) as client:
            answer = client.ask(MetadataRequest(topics=[]), 12).response
            assert [(each.node_id, each.port) for each in answer.brokers] == [(1, first + 1)]
        with Client(place) as client:
            answer = client.ask(HeartbeatRequest(group_id="g"), 4).response
            assert answer.throttle_time_ms == 10
        assert proxy.bootstrap_servers


def test_a_node_outside_of_the_ports(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "krammar.proxy")
    brokers.nodes = {7: "127.0.0.10"}
    with (
        free_range(2) as first,
        Proxy.start(brokers.bootstrap, broker_ports=f"{first}-{first + 1}") as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
        assert client.read_to_end() == b""
    assert (
        f"no port for broker 127.0.0.10:{brokers.port}: node 7 is outside of broker_ports, which has nodes 0 to 1"
        in caplog.text
    )


def test_a_fixed_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ProxyError) as raised:
            Proxy.start("127.0.0.1:1", broker_ports={"3": port})
    expected = f"cannot listen on 127.0.0.1:{port}: address already in use (the port of node 3)"
    assert str(raised.value) == expected


# -- free ports


def test_a_port_closes_that_no_response_names_and_no_connection_uses(brokers: Brokers) -> None:
    brokers.nodes = {1: "127.0.0.10", 2: "127.0.0.20", 3: "127.0.0.30"}
    with Proxy.start(brokers.bootstrap, broker_port_timeout=0.2) as proxy:
        found = ports(address(proxy))
        with Client(Address("127.0.0.1", found[2])) as client:
            client.ask(MetadataRequest(topics=[]), 12)
            brokers.nodes = {1: "127.0.0.10"}
            # A connection would be a use.
            until(lambda: ports(address(proxy)) and 3 not in proxy.listeners[""]._ports)
            assert not is_open(found[3])
            assert ports(address(proxy))[1] == found[1]
            assert proxy.listeners[""]._ports.keys() == {1, 2}
            client.ask(MetadataRequest(topics=[]), 12)
        until(lambda: ports(address(proxy)) and 2 not in proxy.listeners[""]._ports)
        assert not is_open(found[2])
        # A broker that returns gets the port that clients remember.
        brokers.nodes = {3: "127.0.0.30"}
        assert ports(address(proxy)) == {3: found[3]}


def test_the_oldest_port_makes_room(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Proxy, "max_ports", 3)
    monkeypatch.setattr(Listeners, "idle_seconds", 0.0)
    with Proxy.start(brokers.bootstrap) as proxy:
        found: dict[int, int] = {}
        for node in (1, 2, 3, 4):
            brokers.nodes = {node: f"127.0.0.{10 * node}"}
            found |= ports(address(proxy))
        assert [is_open(found[node]) for node in (1, 2, 3, 4)] == [False, False, True, True]
        assert len(set(found.values())) == 4
        with Client(Address("127.0.0.1", found[3])), Client(Address("127.0.0.1", found[4])):
            brokers.nodes = {5: "127.0.0.50"}
            with Client(address(proxy)) as client:
                client.socket.sendall(
                    client.connection.send_request(MetadataRequest(topics=[]), 12)
                )
                assert client.read_to_end() == b""
        assert "no port for broker" in caplog.text


def test_an_address_that_another_broker_has_taken(brokers: Brokers) -> None:
    """A client that remembers the port of the broker before must not reach the other one."""
    brokers.nodes = {1: "127.0.0.10", 2: "127.0.0.20"}
    with Proxy.start(brokers.bootstrap) as proxy:
        found = ports(address(proxy))
        brokers.nodes = {2: "127.0.0.20", 3: "127.0.0.10"}
        ports(address(proxy))
        with Client(Address("127.0.0.1", found[1])) as client:
            client.socket.sendall(client.connection.send_request(HeartbeatRequest(group_id="g"), 4))
            assert client.read_to_end() == b""


def test_the_system_offers_the_ports_of_others(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[int] = []

    def is_of_another(uses: PortUses[int], node: int, port: int) -> bool:
        offered.append(port)
        return len(offered) < 3

    monkeypatch.setattr(PortUses, "is_of_another", is_of_another)
    brokers.nodes = {1: "127.0.0.10"}
    with Proxy.start(brokers.bootstrap) as proxy:
        assert ports(address(proxy)) == {1: offered[2]}
        assert len(set(offered)) == 3
        assert not is_open(offered[0])
        monkeypatch.setattr(PortUses, "is_of_another", lambda uses, node, port: True)
        brokers.nodes = {2: "127.0.0.20"}
        with Client(address(proxy)) as client:
            client.socket.sendall(client.connection.send_request(MetadataRequest(topics=[]), 12))
            assert client.read_to_end() == b""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_no_other_broker_gets_a_closed_port_until_many_others_have_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PortUses, "most_retired", 10)
    uses: PortUses[int] = PortUses(60, Clock())
    for node in range(100):
        uses.use(node)
        uses.close(node, 1000 + node)
    assert [uses.is_of_another(-1, 1000 + each) for each in (89, 90, 99)] == [False, True, True]
    assert not uses.is_of_another(99, 1099)
    assert (uses.former(99), uses.former(89)) == (1099, 0)
    assert len(uses._former) == len(uses._retired) == 10


def test_uses_end_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    uses: PortUses[int] = PortUses(40, clock)
    assert uses.period == 10
    uses.use(1)
    clock.now = 30
    uses.use(2)
    assert uses.oldest(10) == 1
    assert uses.oldest(10, lambda each: each == 1) is None
    clock.now = 60
    assert uses.overdue() == []
    clock.now = 61
    assert uses.overdue() == [1]
    assert uses.since(30) == [2]


# -- a search


def search(rounds: int, seed: int, monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> None:
    """Let brokers come, move and go, and clients connect to ports that they got at any time.

    A port leads to the last address that was named for its node id, or serves metadata only, or is closed. Open files,
    ports and what the proxy remembers stay bounded.
    """
    monkeypatch.setattr(Proxy, "max_ports", 12)
    monkeypatch.setattr(Listeners, "idle_seconds", 0.0)
    monkeypatch.setattr(PortUses, "most_retired", 4 * rounds)
    monkeypatch.setattr(NodeIds, "most", 40)
    rng = random.Random(seed)
    remembered: list[tuple[int, int]] = []
    last: Nodes = {}
    reached_at_all, most_files = 0, 0
    with Proxy.start(brokers.bootstrap, broker_port_timeout=rng.choice([0.02, 60])) as proxy:
        place, files = address(proxy), 0
        for number in range(rounds):
            nodes = rng.sample(range(200), rng.randrange(1, 9))
            # Addresses are used again, by other brokers too.
            hosts = rng.sample(range(2, 60), len(nodes))
            kept = {node: host for node, host in brokers.nodes.items() if rng.random() < 0.6}
            moved = {n: f"127.0.1.{h}" for n, h in zip(nodes, hosts, strict=True)}
            merged = {**kept, **moved}
            brokers.nodes = {}
            for node, host in list(merged.items())[:8]:
                if host not in brokers.nodes.values():
                    brokers.nodes[node] = host
            found = ports(place)
            assert found.keys() == brokers.nodes.keys()
            assert len(set(found.values())) == len(found)
            last |= brokers.nodes
            remembered += found.items()
            for node, port in rng.sample(remembered, min(3, len(remembered))):
                try:
                    with Client(Address("127.0.0.1", port)) as client:
                        sent = client.connection.send_request(HeartbeatRequest(group_id="g"), 4)
                        client.socket.sendall(sent)
                        if not client.socket.recv(1, socket.MSG_PEEK):
                            continue  # the address of the node is not known
                        client.next()
                        answer = client.ask(MetadataRequest(topics=[]), 12).response
                except OSError:
                    continue  # the port is closed
                assert answer.cluster_id == last[node]
                owner = [n for n, host in brokers.nodes.items() if host == answer.cluster_id]
                assert owner in ([node], [])
                reached_at_all += 1
            if number == 20:
                files = len(os.listdir("/proc/self/fd"))
            most_files = max(most_files, len(os.listdir("/proc/self/fd")))
            listeners = proxy.listeners[""]
            assert len(listeners._ports) <= 11
            assert len(proxy._services.nodes) <= 40
            assert len(listeners._uses._last) == len(listeners._ports)
        assert reached_at_all > rounds // 10
        until(lambda: len(os.listdir("/proc/self/fd")) <= files + 30)
        assert ANY not in {each.upstream for each in listeners._own}


def test_brokers_that_come_move_and_go(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> None:
    search(120, 1, monkeypatch, brokers)


@pytest.mark.search
@pytest.mark.parametrize("seed", range(2, 10))
def test_brokers_that_come_move_and_go_for_long(
    seed: int, monkeypatch: pytest.MonkeyPatch, brokers: Brokers
) -> None:
    search(1_000, seed, monkeypatch, brokers)
