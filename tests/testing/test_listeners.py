"""Two listeners of one broker: for the test, and for a program in a container beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka_wire import MetadataRequest

from krammar.testing import KafkaBroker, KafkaCluster
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,DOCKER://0.0.0.0:0",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:0,DOCKER://host.docker.internal:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,DOCKER:PLAINTEXT",
}


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def process(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def broker(process: bool) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(TWO, process=process) as broker:
        yield broker


def test_each_listener_advertises_its_own_address(broker: KafkaBroker) -> None:
    host, _, port = broker.bootstrap_servers_of("DOCKER").rpartition(":")
    assert (host, broker.host) == ("host.docker.internal", "127.0.0.1")
    assert broker.bootstrap_servers_of("PLAINTEXT") == broker.bootstrap_servers
    assert int(port) not in (0, broker.port)
    for number, address in (
        (int(port), (host, int(port))),
        (broker.port, ("127.0.0.1", broker.port)),
    ):
        with RawClient(number) as client:
            (node,) = client.call(MetadataRequest(), 9).brokers
            assert (node.host, node.port) == address
    producer = Producer(broker.clients.confluent_kafka)
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE) == 0


def test_the_ports_stay(broker: KafkaBroker) -> None:
    before = broker.bootstrap_servers, broker.bootstrap_servers_of("DOCKER")
    for change in (broker.restart, broker.reset):
        change()
        assert (broker.bootstrap_servers, broker.bootstrap_servers_of("DOCKER")) == before


def test_an_unknown_listener(broker: KafkaBroker) -> None:
    with pytest.raises(ValueError, match="no listener 'DOKER', only PLAINTEXT, DOCKER"):
        broker.bootstrap_servers_of("DOKER")


def test_a_cluster(process: bool) -> None:
    with KafkaCluster.start(TWO, nodes=2, process=process) as cluster:
        hosts = [
            each.rpartition(":")[0] for each in cluster.bootstrap_servers_of("DOCKER").split(",")
        ]
        assert hosts == 2 * ["host.docker.internal"]
