"""A broker that serves as an older release of Apache Kafka (``krammar.kafka.version``)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka_wire import (
    ApiKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConfigResourceType,
    DescribeConfigsRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    TxnOffsetCommitRequest,
)

from krammar.broker import ConfigError
from krammar.broker.apis import RANGES, SERVED
from krammar.broker.releases import release_of
from krammar.testing import KafkaBroker, KafkaCluster
from krammar.wire.batches import Record, encode_batch
from tests.broker.requests import produce_request
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

RELEASES = ["2.8", "3.9", "4.0", "4.1", "4.2", "4.3"]


# They have neither consumer groups (KIP-848) nor transactions of version 2 (KIP-890).
OLD = ("2.8", "3.9")


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(release: str) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics=["orders"], kafka_version=release) as broker:
        yield broker


def offered(broker: KafkaBroker | KafkaCluster, port: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(port) as client:
        response: ApiVersionsResponse = client.call(request, 3)
    assert response.error_code == 0
    return response


def test_offered_versions_and_features(broker: KafkaBroker, release: str) -> None:
    response = offered(broker, broker.port)
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert found == release_of(release).offered
    newest = {
        "2.8": (9, 3, 0),
        "3.9": (11, 4, 21),
        "4.0": (12, 5, 25),
        "4.1": (13, 5, 27),
        "4.2": (13, 5, 29),
        "4.3": (13, 5, 30),
    }[release]
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    assert (
        found[ApiKey.PRODUCE][1],
        found[ApiKey.END_TXN][1],
        levels.get("metadata.version", 0),
    ) == newest
    assert levels.get("transaction.version", 0) == (0 if release in OLD else 2)
    supported = {each.name: each.max_version for each in response.supported_features}
    assert supported.get("metadata.version", 0) == newest[2]


def test_other_versions_are_refused(broker: KafkaBroker, release: str) -> None:
    newest = release_of(release).offered[ApiKey.TXN_OFFSET_COMMIT][1]
    request = TxnOffsetCommitRequest(transactional_id="t", group_id="g")
    with RawClient(broker.port) as client:
        client.call(request, newest)
        with pytest.raises(ConnectionError):
            client.call(request, newest + 1)


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
    for version in RELEASES:
        found = release_of(version)
        assert found.offered.items() <= {**found.answered}.items()
        for key, (low, high) in found.offered.items():
            assert RANGES[key][0] <= low <= high <= RANGES[key][1]


def test_an_unknown_release() -> None:
    with pytest.raises(ConfigError, match=r"krammar.kafka.version: '2.7' "):
        KafkaBroker.start(kafka_version="2.7")


def settings(client: RawClient, kind: int, name: str) -> dict[str, str | None]:
    """Return the values of the settings of a resource."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0
    return {each.name: each.value for each in result.configs}


def test_settings_of_a_release(broker: KafkaBroker, release: str) -> None:
    with RawClient(broker.port) as client:
        topic = settings(client, ConfigResourceType.TOPIC, "orders")
        node = settings(client, ConfigResourceType.BROKER, "1")
    limit = {"2.8": None, "3.9": str(2**63 - 1)}.get(release, "3600000")
    assert topic.get("message.timestamp.after.max.ms") == limit
    assert node.get("log.message.timestamp.after.max.ms") == limit
    assert node["metric.reporters"] == (
        "" if release in OLD else "org.apache.kafka.common.metrics.JmxReporter"
    )
    assert ("message.downconversion.enable" in topic) == (release in OLD)
    assert ("zookeeper.connect" in node) == (release in OLD)
    assert ("remote.storage.enable" in topic) == (release != "2.8")
    assert ("group.coordinator.background.threads" in node) == (release == "4.3")
    # Of Kafka 4.4.
    assert "errors.deadletterqueue.group.enable" not in topic


def alter(client: RawClient, name: str, value: str) -> tuple[int, str | None]:
    """Set a setting of the topic ``orders``."""
    request = IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=name, config_operation=0, value=value)
    resource = request.AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name="orders", configs=[config]
    )
    (result,) = client.call(request(resources=[resource]), 1).responses
    return result.error_code, result.error_message


def test_values_that_a_release_accepts(broker: KafkaBroker, release: str) -> None:
    with RawClient(broker.port) as client:
        code, message = alter(client, "segment.bytes", "14")
        assert (code == 0) == (release in (*OLD, "4.0")), message
        invalid = ErrorCode.INVALID_REQUEST if release == "2.8" else ErrorCode.INVALID_CONFIG
        assert alter(client, "segment.bytes", "13")[0] == invalid
        code, message = alter(client, "message.downconversion.enable", "false")
        assert (code == 0) == (release in OLD), message
        assert alter(client, "errors.deadletterqueue.group.enable", "true") == (
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: errors.deadletterqueue.group.enable",
        )


def test_settings_of_groups(broker: KafkaBroker, release: str) -> None:
    kind = DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=ConfigResourceType.GROUP, resource_name="g", configuration_keys=None
    )
    with RawClient(broker.port) as client:
        (result,) = client.call(kind(resources=[resource]), 4).results
    assert result.error_code == (ErrorCode.INVALID_REQUEST if release in OLD else 0)
    names = {each.name for each in result.configs}
    assert ("consumer.session.timeout.ms" in names) == (release not in OLD)
    assert ("streams.session.timeout.ms" in names) == (release in ("4.1", "4.2", "4.3"))


def test_timestamps_of_the_future(broker: KafkaBroker, release: str) -> None:
    """By default, Kafka 4.0 and newer refuse records more than an hour in the future (KIP-1030)."""
    future = int(time.time() * 1000) + 2 * 3_600_000
    records = encode_batch([Record(timestamp=future, value=b"later")])
    with RawClient(broker.port) as client:
        answer = client.call(produce_request("orders", records), 9)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == (0 if release in OLD else ErrorCode.INVALID_TIMESTAMP)
