"""Several addresses of a cluster, of which one is enough."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from kafka_wire import MetadataRequest

from krammar.client import Client as KafkaClient
from krammar.proxy import Connection, Filter, Proxy
from krammar.proxy.addresses import ANY, Upstreams
from krammar.testing import KafkaBroker, KafkaCluster
from tests.proxy.support import Client, address


@pytest.fixture
def dead() -> Iterator[str]:
    """An address that refuses connections: the socket is bound, and does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


class Watch(Filter):
    """Collects the addresses of brokers."""

    def __init__(self) -> None:
        self.upstreams: list[str] = []

    def opened(self, connection: Connection) -> None:
        self.upstreams.append(connection.upstream)


@pytest.mark.parametrize("form", ["text", "list"])
@pytest.mark.parametrize("first", ["dead", "alive"])
def test_the_next_address_is_tried(
    form: str, first: str, dead: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    with KafkaBroker.start(topics=["orders"]) as broker:
        both = [dead, broker.bootstrap_servers]
        if first == "alive":
            both.reverse()
        upstream = both if form == "list" else ", ".join(both)
        with Proxy.start(upstream, [watch]) as proxy:
            with KafkaClient(proxy.bootstrap_servers) as client:
                assert list(client.topics()) == ["orders"]
                records = client.producer().send("orders", b"value")
                assert records.result().offset == 0
            for _ in range(3):
                with Client(address(proxy)) as raw:
                    found = raw.ask(MetadataRequest(), 9).response
                    # The first port is not that of a broker, because it can lead to any.
                    assert found.brokers[0].port != address(proxy).port
        assert set(watch.upstreams) == {broker.bootstrap_servers}
    # Later connections begin with the address that was reached.
    refusals = [each for each in caplog.messages if "cannot reach" in each]
    assert [each.rpartition("cannot reach ")[2] for each in refusals] == (
        [f"{dead}: connection refused"] if first == "dead" else []
    )


def test_a_broker_that_dies_while_the_proxy_runs() -> None:
    with KafkaCluster.start(nodes=2) as cluster:
        places = cluster.bootstrap_servers.split(",")
        assert len(places) == 2
        watch = Watch()
        with Proxy.start(places, [watch]) as proxy:
            for place in places:
                with Client(address(proxy)) as raw:
                    assert raw.ask(MetadataRequest(), 9).response.brokers
                assert watch.upstreams[-1] == place
                if place == places[0]:
                    cluster.stop_node(1)


def test_no_address_can_be_reached(dead: str, caplog: pytest.LogCaptureFixture) -> None:
    unknown = "no-such-host.invalid:9092"
    with Proxy.start([dead, unknown]) as proxy, Client(address(proxy)) as client:
        assert client.read_to_end() == b""
    assert [each.rpartition(": cannot reach ")[2] for each in caplog.messages] == [
        f"{dead}: connection refused",
        f"{unknown}: the host name cannot be resolved",
    ]


def test_one_address_has_the_first_port() -> None:
    with KafkaBroker.start() as broker, Proxy.start(broker.bootstrap_servers) as proxy:
        with Client(address(proxy)) as raw:
            found = raw.ask(MetadataRequest(), 9).response
        assert found.brokers[0].port == address(proxy).port


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ([], "upstream has no address"),
        ("", "'' is not host:port"),
        ("a:1,", "'' is not host:port"),
        (["a:1", "b"], "'b' is not host:port"),
    ],
)
def test_addresses_of_another_form(addresses: str | list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proxy(addresses)


def test_an_address_that_is_given_twice_counts_once() -> None:
    found = Upstreams("a:1,a:1")
    assert found.broker != ANY
    assert found.to_try(found.broker) == (found.broker,)
