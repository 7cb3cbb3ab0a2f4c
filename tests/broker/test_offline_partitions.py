"""Partitions whose disk fails, or cannot be read at the start: what clients and administrators see, as in Kafka."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from kafka_wire import (
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    FindCoordinatorRequest,
    MetadataRequest,
    OffsetFetchRequest,
)

from krammar.broker import Broker, BrokerError, Cluster
from krammar.broker.transactions.completion import Completion
from krammar.util.turns import finish
from tests.broker.disk_job import records, started
from tests.broker.faulty_disk import Disk
from tests.broker.groups.support import codes, commit_request
from tests.broker.requests import create_topic, fetch, list_offset, produce
from tests.broker.support import RawClient
from tests.broker.transactions.support import Producer, find_coordinators
from tests.support.waiting import PATIENCE

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def unreadable(folder: Path, partition: str) -> Path:
    """Let the kernel refuse to read a log: a folder is in its place. Returns where its segment is now."""
    segment = folder / partition / f"{0:020}.log"
    aside = folder.parent / f"{partition}.log"
    segment.rename(aside)
    segment.mkdir()
    return aside


def mend(folder: Path, partition: str, aside: Path) -> None:
    segment = folder / partition / f"{0:020}.log"
    segment.rmdir()
    aside.rename(segment)


def described(client: RawClient, version: int = 13) -> dict[int, Any]:
    """The partitions of topic t in Metadata."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="t")])
    [topic] = client.call(request, version).topics
    assert topic.error_code == 0
    return {partition.partition_index: partition for partition in topic.partitions}


def log_dir(client: RawClient) -> tuple[int, dict[tuple[str, int], int]]:
    """The error of the only log folder, and its partitions with their sizes."""
    [found] = client.call(DescribeLogDirsRequest(topics=None), 4).results
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in found.topics
        for partition in topic.partitions
    }
    assert found.total_bytes > 0
    return found.error_code, sizes


def check_offline(client: RawClient, *, epoch: int = 0) -> None:
    """Partition 1 of topic t is offline, and everything else is online."""
    for version in range(14):
        partitions = described(client, version)
        assert partitions[0].error_code == 0 and partitions[0].leader_id == 1
        offline = partitions[1]
        assert offline.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (offline.leader_id, offline.replica_nodes, offline.isr_nodes) == (-1, [1], [1])
        assert offline.offline_replicas == ([1] if version >= 5 else [])
        if version >= 7:
            assert offline.leader_epoch == epoch
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")]
    )
    [topic] = client.call(request, 0).topics
    assert [
        (each.error_code, each.leader_id, each.offline_replicas) for each in topic.partitions
    ] == [(0, 1, []), (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])]
    error, sizes = log_dir(client)
    assert error == STORAGE and ("t", 0) in sizes and ("t", 1) not in sizes
    assert produce(client, "t", records(1, b"k"), 1).error_code == STORAGE
    assert fetch(client, "t", 0, 1).error_code == STORAGE
    assert list_offset(client, "t", -1, 1).error_code == STORAGE
    assert produce(client, "t", records(1, b"k"), 0).error_code == 0


def fill(client: RawClient) -> None:
    create_topic(client, "t", 2)
    for partition in (0, 1):
        assert produce(client, "t", records(0, b"k"), partition).error_code == 0


def test_a_failed_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    with started(tmp_path, "interval") as (broker, client):
        fill(client)
        assert log_dir(client)[0] == 0
        with disk.failing("fsync", "t-1/.*"):
            broker.call(broker.logs.flush)
        check_offline(client)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        shown = admin.list_topics("t", timeout=PATIENCE).topics["t"].partitions[1]
        assert shown.leader == -1 and shown.error.code() == ErrorCode.LEADER_NOT_AVAILABLE
    with started(tmp_path, "interval") as (_, client):
        assert described(client)[1].leader_id == 1 and described(client)[1].offline_replicas == []
        assert log_dir(client)[0] == 0


@pytest.mark.parametrize("call", ["open", "pread"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_cannot_be_read_at_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    clean: bool,
) -> None:
    folder = tmp_path / "data"
    with started(folder, "interval") as (broker, client):
        fill(client)
        broker.call(broker.logs.flush)
    if not clean:
        (folder / ".kafka_cleanshutdown").unlink()
    caplog.clear()
    with monkeypatch.context() as patch:
        if call == "open":
            aside = unreadable(folder, "t-1")
        disk = Disk(folder, patch, ["pread"])
        if call == "pread":
            disk.fail("pread", "t-1/.*log")
        with started(folder, "interval") as (broker, client):
            check_offline(client)
            offline = "kafka_server_replicamanager_offlinereplicacount"
            assert broker.metrics.value(offline) == 1
            broker.call(broker.logs.flush)
            broker.call(lambda: finish(broker.logs.maintaining()))
            create_topic(client, "u")
        if call == "open":
            mend(folder, "t-1", aside)
        else:
            assert disk.failed
    [line] = [each.getMessage() for each in caplog.records if each.name == "krammar.broker.log"]
    error = "Is a directory" if call == "open" else "Input/output error"
    assert f"{folder}/t-1: the disk failed" in line and error in line and "is offline" in line
    assert not (folder / ".kafka_cleanshutdown").exists()
    with started(folder, "interval") as (_, client):
        assert described(client)[1].leader_id == 1
        assert produce(client, "t", records(1, b"k"), 1).base_offset == 1


def test_deleted_records_stay_deleted_while_a_log_is_unreadable(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(folder, "interval") as (broker, client):
        fill(client)
        assert produce(client, "t", records(1, b"k"), 1).base_offset == 1
        broker.call(lambda: broker.logs.get("t", 1).retention.delete_records(1))
    aside = unreadable(folder, "t-1")
    with started(folder, "interval") as (broker, client):
        check_offline(client)
        broker.call(broker.logs.flush)
    mend(folder, "t-1", aside)
    with started(folder, "interval") as (broker, client):
        assert list_offset(client, "t", -2, 1).offset == 1


def test_a_topic_with_an_unreadable_log_can_be_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(folder, "interval") as (_, client):
        fill(client)
    unreadable(folder, "t-1")
    with started(folder, "interval") as (broker, client):
        broker.call(lambda: finish(broker.topics.deleting(broker.cluster.topics["t"])))
        fill(client)
        assert log_dir(client)[0] == 0


def test_offsets_that_cannot_be_read_are_not_reported_as_missing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0])]
    )
    with started(folder, "interval") as (_, client):
        fill(client)
        find_coordinators(client, "g")
        assert codes(client.call(commit_request({0: 1}), 9)) == {0: 0}
    aside = unreadable(folder, "__consumer_offsets-0")
    with started(folder, "interval") as (_, client):
        found = client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.call(request, 7).error_code == ErrorCode.NOT_COORDINATOR
        assert codes(client.call(commit_request({0: 2}), 9)) == {0: ErrorCode.NOT_COORDINATOR}
    mend(folder, "__consumer_offsets-0", aside)
    with started(folder, "interval") as (_, client):
        assert client.call(FindCoordinatorRequest(key="g", key_type=0), 3).error_code == 0


def test_transactions_whose_states_cannot_be_read_continue_later(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(folder, "interval") as (_, client):
        fill(client)
        find_coordinators(client)
        producer = Producer(client).begun()
        assert producer.produce(("t", 0), b"1") == 0
    aside = unreadable(folder, "__transaction_state-0")
    with started(folder, "interval") as (_, client):
        producer.client = client
        assert producer.end() is ErrorCode.NOT_COORDINATOR
        assert Producer(client).init() is ErrorCode.NOT_COORDINATOR
    mend(folder, "__transaction_state-0", aside)
    with started(folder, "interval") as (_, client):
        producer.client = client
        assert producer.end() == 0


def test_a_transaction_waits_for_a_partition_that_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction's outcome is decided. So it is not lost or half visible, and the broker logs one line about it."""
    monkeypatch.setattr(Completion, "retry_seconds", 0.01)
    folder = tmp_path / "data"
    with started(folder, "interval") as (_, client):
        fill(client)
        find_coordinators(client)
        producer = Producer(client).begun()
        assert producer.produce(("t", 0), b"1") == producer.produce(("t", 1), b"1") == 0
    aside = unreadable(folder, "t-1")
    with started(folder, "interval") as (broker, client):
        producer.client = client
        assert producer.end() == 0
        assert Producer(client).init() is ErrorCode.CONCURRENT_TRANSACTIONS
        for _ in range(5):
            broker.call(broker.transactions.completion.complete_all)
    lines = [each for each in caplog.records if "it will be retried" in each.getMessage()]
    assert len(lines) == 1
    mend(folder, "t-1", aside)
    with started(folder, "interval") as (_, client):
        Producer(client).begun()
        for partition in (0, 1):
            answer = fetch(client, "t", 0, partition, isolation_level=1)
            assert answer.last_stable_offset == answer.high_watermark >= 3
            assert not answer.aborted_transactions


def test_several_nodes_share_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    with (
        Cluster.start(data_dir=tmp_path, properties={"krammar.fsync": "interval"}) as cluster,
        RawClient(cluster.port) as client,
    ):
        create_topic(client, "t", 2)
        with disk.failing("fsync", "t-1/.*"):
            cluster.call(cluster.logs.flush)
        offline = described(client)[1]
        assert offline.leader_id == -1 and offline.offline_replicas == offline.replica_nodes


def test_the_metadata_log_is_necessary(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started(folder, "interval") as (_, client):
        fill(client)
    [segment] = (folder / "__cluster_metadata-0").glob("*.log")
    data = segment.read_bytes()
    segment.unlink()
    segment.mkdir()
    with pytest.raises(BrokerError, match=f"{segment}.*Is a directory"):
        Broker.start(data_dir=folder)
    segment.rmdir()
    segment.write_bytes(data)
    with started(folder, "interval") as (_, client):
        assert described(client)[1].leader_id == 1
    shutil.rmtree(folder)


def test_producers_are_not_forgotten_if_the_log_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their last batches are in the log and in a snapshot, which remains."""
    folder = tmp_path / "data"
    with started(folder, "interval") as (broker, client):
        fill(client)
        find_coordinators(client)
        producer = Producer(client).begun()
        assert producer.produce(("t", 1), b"1") == 0
        broker.call(lambda: broker.logs.get("t", 1).retention.roll())
    with monkeypatch.context() as patch:
        disk = Disk(folder, patch, ["pread"])
        disk.fail("pread", "t-1/.*log")
        with started(folder, "interval") as (_, client):
            check_offline(client)
        assert disk.failed
    with started(folder, "interval") as (broker, client):
        known = broker.call(lambda: broker.logs.get("t", 1).producers.in_transaction)
        assert known(producer.id, producer.epoch)
