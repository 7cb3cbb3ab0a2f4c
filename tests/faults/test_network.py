"""Faults of the network: resets, jitter and bandwidth, in a broker, a proxy and the tap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import kafka_wire
import pytest
from kafka_wire import HeartbeatRequest, HeartbeatResponse, MetadataRequest

from krammar.faults import FaultError, Faults
from krammar.faults.steps import Send, Wait
from krammar.proxy import Proxy
from krammar.proxy.addresses import Address
from krammar.testing import KafkaBroker
from tests.broker.support import RawClient
from tests.faults.support import engine, exchange
from tests.faults.test_file import read
from tests.proxy.support import address
from tests.tap.support import TapThread


@contextmanager
def faulty(place: str) -> Iterator[tuple[Faults, int]]:
    """Rules in a broker, a proxy or the tap, and the port for clients."""
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker.start())
        faults = Faults(kafka_wire)
        if place == "broker":
            yield broker.faults, broker.port
        elif place == "proxy":
            proxy = stack.enter_context(Proxy.start(broker.bootstrap_servers, [faults]))
            yield faults, address(proxy).port
        else:
            upstream = Address(broker.host, broker.port)
            tap = stack.enter_context(TapThread(upstream, faults=faults, stay=True))
            yield faults, tap.address.port


@pytest.mark.parametrize("place", ["broker", "proxy", "tap"])
@pytest.mark.parametrize("when", ["before", "after", "middle"])
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_ends_with_a_reset(place: str, when: str, reset: bool) -> None:
    with faulty(place) as (faults, port), RawClient(port) as client:
        faults.on("Metadata").drop(when, reset=reset)
        client.send(MetadataRequest(), 9)

        def read_to_end() -> None:
            while client.socket.recv(1000):
                pass

        if reset:
            with pytest.raises(ConnectionResetError):
                read_to_end()
            verb = "reset"
        else:
            read_to_end()
            verb = "dropped"
        assert faults.history[0].action.startswith(f"{verb} the connection")


def test_jitter_is_the_same_for_the_same_seed() -> None:
    def delays(seed: int) -> list[float]:
        faults, talk = engine()
        faults.on("Heartbeat").delay(10, jitter=20, of="request", seed=seed)
        found = []
        for _ in range(20):
            verdict = talk.request(exchange(HeartbeatRequest(), 4))
            assert verdict is not None
            found.append(verdict.delay_ms)
        return found

    assert delays(1) == delays(1) != delays(2)
    assert all(0 <= each <= 30 for each in delays(1)) and len(set(delays(1))) > 2


def test_bandwidth() -> None:
    faults, talk = engine()
    faults.on("Heartbeat").bandwidth(500)
    known = exchange(HeartbeatRequest(), 4)
    talk.request(known)
    delivery = talk.response(known, HeartbeatResponse())
    assert delivery is not None
    assert delivery.delivery.steps(bytes(25)) == [
        Send(bytes(10)),
        Wait(0.02),
        Send(bytes(10)),
        Wait(0.02),
        Send(bytes(5)),
    ]
    with pytest.raises(FaultError, match="bandwidth must be at least 1, not 0"):
        faults.on("Heartbeat").bandwidth(0)


def test_files_have_them(tmp_path: Path) -> None:
    faults = read(
        tmp_path,
        """
        [[fault]]
        api = "Heartbeat"
        drop = { when = "after", reset = true }
        delay_ms = { ms = 5, jitter = 2 }
        bandwidth = 1000
        """,
    )
    assert [action.key for action in faults.rules[0].actions] == ["drop", "delay_ms", "bandwidth"]
