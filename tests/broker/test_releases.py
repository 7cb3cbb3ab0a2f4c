"""A broker that serves as an older release of Apache Kafka (``krammar.kafka.version``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka_wire import ApiKey, ApiVersionsRequest, ApiVersionsResponse, ProduceRequest

from krammar.broker import ConfigError
from krammar.broker.apis import RANGES, SERVED
from krammar.broker.releases import release_of
from krammar.testing import KafkaBroker, KafkaCluster
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


@pytest.fixture(params=["3.9", "4.0"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(release: str) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics=["orders"], kafka_version=release) as broker:
        yield broker


def offered(broker: KafkaBroker | KafkaCluster, port: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(port) as client:
        response: ApiVersionsResponse = client.call(request, 4)
    assert response.error_code == 0
    return response


def test_offered_versions_and_features(broker: KafkaBroker, release: str) -> None:
    response = offered(broker, broker.port)
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert found == release_of(release).offered
    newest = {"3.9": (11, 4, 21), "4.0": (12, 5, 25)}[release]
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    assert (
        found[ApiKey.PRODUCE][1],
        found[ApiKey.END_TXN][1],
        levels["metadata.version"],
    ) == newest
    assert levels.get("transaction.version", 0) == (2 if release == "4.0" else 0)
    supported = {each.name: each.max_version for each in response.supported_features}
    assert supported["metadata.version"] == newest[2]


def test_other_versions_are_refused(broker: KafkaBroker, release: str) -> None:
    newest = release_of(release).offered[ApiKey.PRODUCE][1]
    with RawClient(broker.port) as client:
        client.call(ProduceRequest(acks=-1), newest)
        with pytest.raises(ConnectionError):
            client.call(ProduceRequest(acks=-1), newest + 1)


def test_clients(broker: KafkaBroker) -> None:
    seen = broker.faults.on("Produce").observe()
    settings = broker.clients.confluent_kafka
    producer = Producer({**settings, "transactional.id": "t"})
    producer.init_transactions(PATIENCE)
    for value in (b"one", b"two"):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.commit_transaction(PATIENCE)
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    messages = consumer.consume(2, PATIENCE)
    assert [message.value() for message in messages] == [b"one", b"two"]
    consumer.close()
    seen.expect()


def test_all_nodes_and_processes(release: str) -> None:
    with KafkaCluster.start(nodes=2, kafka_version=release, process=True) as cluster:
        assert cluster.add_node() == 3
        for address in cluster.bootstrap_servers.split(","):
            response = offered(cluster, int(address.rpartition(":")[2]))
            assert len(response.api_keys) == len(release_of(release).offered)


def test_the_newest_release() -> None:
    newest = release_of(None, telemetry=True)
    assert (newest.offered, newest.answered) == (RANGES, SERVED)
    for version in ("3.9", "4.0"):
        found = release_of(version)
        assert found.offered.items() <= {**found.answered}.items()
        for key, (low, high) in found.offered.items():
            assert RANGES[key][0] <= low <= high <= RANGES[key][1]


def test_an_unknown_release() -> None:
    with pytest.raises(ConfigError, match=r"krammar.kafka.version: '2.8' "):
        KafkaBroker.start(kafka_version="2.8")
