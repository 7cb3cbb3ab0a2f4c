"""Brokers of many versions: each request in the newest that both sides have."""

from __future__ import annotations

import pytest
from kafka_wire import ApiKey, FetchRequest

from krammar.broker import Broker
from krammar.broker.apis import RANGES
from krammar.client import At, Client, Committed, TopicPartition
from krammar.client.errors import UnsupportedError
from tests.client.proxy import Proxy

# The last versions of the requests in some releases of Kafka.
RELEASES = {
    "2.1": {
        ApiKey.PRODUCE: 7,
        ApiKey.FETCH: 10,
        ApiKey.LIST_OFFSETS: 4,
        ApiKey.METADATA: 7,
        ApiKey.OFFSET_COMMIT: 6,
        ApiKey.OFFSET_FETCH: 5,
        ApiKey.FIND_COORDINATOR: 2,
        ApiKey.LIST_GROUPS: 2,
        ApiKey.DESCRIBE_GROUPS: 2,
        ApiKey.API_VERSIONS: 2,
        ApiKey.CREATE_TOPICS: 3,
        ApiKey.DELETE_TOPICS: 3,
        ApiKey.DELETE_RECORDS: 1,
        ApiKey.INIT_PRODUCER_ID: 1,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
        ApiKey.ADD_PARTITIONS_TO_TXN: 1,
        ApiKey.ADD_OFFSETS_TO_TXN: 1,
        ApiKey.END_TXN: 1,
        ApiKey.TXN_OFFSET_COMMIT: 2,
        ApiKey.DESCRIBE_CONFIGS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 1,
        ApiKey.CREATE_PARTITIONS: 1,
        ApiKey.DELETE_GROUPS: 1,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: None,
        ApiKey.OFFSET_DELETE: None,
        ApiKey.DESCRIBE_CLUSTER: None,
    },
    "2.8": {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 11,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.LIST_GROUPS: 4,
        ApiKey.API_VERSIONS: 3,
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
    },
    "4.4": {},
}


def offered_by(broker: Broker) -> dict[int, tuple[int, int]]:
    """Return the versions that a broker offers, by api key, to be changed."""
    offered = broker.handlers.release.offered
    assert isinstance(offered, dict)
    return offered


@pytest.fixture(params=sorted(RELEASES))
def release(request: pytest.FixtureRequest, behind: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    offered = offered_by(behind)
    for key, last in RELEASES[name].items():
        if last is None:
            monkeypatch.delitem(offered, key)
        else:
            monkeypatch.setitem(offered, key, (offered[key][0], last))
    return name


def test_all_that_is_asked(release: str, proxy: Proxy, behind: Broker) -> None:
    if release != "4.4":
        behind.call(behind.cluster.features.__setitem__, "transaction.version", 0)
    proxy.last_api_versions = offered_by(behind)[ApiKey.API_VERSIONS][1]
    with Client(behind.bootstrap_servers, isolation_level="read_committed") as client:
        made = client.admin.create_topic("t", 2, 1)
        assert (made.topic_id.int == 0) == (release == "2.1")
        with client.producer() as producer:
            for i in range(100):
                producer.send("t", b"%d" % i, partition=i % 2)
        with client.producer(transactional_id="x") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"100", partition=0)
                producer.send_offsets({TopicPartition("t", 0): 5}, "g")
            producer.begin()
            producer.send("t", b"101", partition=0).result()
            producer.abort()
        values = sorted(int(record.value or b"") for _, record in client.records("t"))
        assert values == list(range(101))
        assert client.list_offsets({("t", 0): At.EARLIEST})[TopicPartition("t", 0)].offset == 0
        assert client.groups.committed("g", [("t", 0)]) == {("t", 0): Committed(5)}
        client.groups.commit("h", {("t", 1): 7})
        assert client.groups.committed("h") == {("t", 1): Committed(7)}
        assert [g.group_id for g in client.groups.list()] == ["g", "h"]
        assert client.admin.topic_configs("t")["retention.ms"].value is not None
        assert client.admin.describe_cluster().nodes
        assert client.admin.log_dirs()[0].sizes
        client.admin.delete_records({("t", 0): 5})
        client.admin.create_partitions("t", 3)
        assert len(client.partitions("t")) == 3
        client.groups.delete("h")
        client.admin.delete_topic("t")
        assert "t" not in client.topics()


def test_what_an_old_broker_does_not_have(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = offered_by(broker)
    monkeypatch.delitem(offered, ApiKey.OFFSET_DELETE)
    monkeypatch.setitem(offered, ApiKey.LIST_OFFSETS, (1, 6))
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("t", 1)
        with pytest.raises(UnsupportedError, match="does not have OffsetDeleteRequest"):
            client.groups.delete_offsets("g", [("t", 0)])
        with pytest.raises(
            UnsupportedError, match="ListOffsetsRequest is needed in a version from 7"
        ):
            client.list_offsets({("t", 0): At.MAX_TIMESTAMP})


def test_the_newest_common_version(broker: Broker, client: Client) -> None:
    client.topics()
    [connection] = client.cluster.connections
    assert connection.versions.of(FetchRequest) == min(
        FetchRequest.max_version, RANGES[ApiKey.FETCH][1]
    )
    assert connection.versions.of(FetchRequest, high=7) == 7
    assert connection.versions.features["transaction.version"] == 2
