"""Periodic work of a broker: retention, rolling and compaction of topics, internal ones included."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka_wire import DeleteTopicsRequest, OffsetCommitRequest

from krammar.broker import Broker
from krammar.wire.batches import Record, encode_batch, read_batches
from tests.broker.requests import batch, create_topic, fetch, list_offset, produce
from tests.broker.support import BrokerProcess, RawClient
from tests.support.waiting import until

DAY = 24 * 3600 * 1000
NOW = 1_700_000_000_000


@dataclass
class Clock:
    """The broker's clock, which only moves when a test moves it."""

    now: int = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(clock: Clock) -> Iterator[Broker]:
    properties = {
        "log.retention.check.interval.ms": "20",
        "log.cleaner.backoff.ms": "20",
        "offsets.topic.segment.bytes": "2000",
        "log.segment.delete.delay.ms": "0",
    }
    with Broker.start(properties=properties, clock=clock) as broker:
        yield broker


def logs(broker: Broker, partition: str) -> list[Path]:
    return sorted((broker.config.log_dirs[0] / partition).glob("*.log"))


def test_old_segments_go(broker: Broker, client: RawClient, clock: Clock) -> None:
    create_topic(client, "t", retention_ms=str(DAY), segment_ms=str(DAY // 24))
    for hour in range(3):
        clock.now = NOW + hour * DAY // 12
        assert produce(client, "t", batch(b"x", timestamp=clock.now)).error_code == 0
    assert len(logs(broker, "t-0")) == 3
    clock.now = NOW + DAY + DAY // 24
    until(lambda: list_offset(client, "t", -2).offset == 1)
    until(lambda: len(logs(broker, "t-0")) == 2)
    assert fetch(client, "t", 1).error_code == 0


def test_a_log_that_is_too_large_loses_its_oldest_segments(
    broker: Broker, client: RawClient
) -> None:
    create_topic(client, "t", retention_bytes="3000", segment_bytes=str(1 << 20))
    for _ in range(20):
        produce(client, "t", batch(bytes(200_000), timestamp=NOW))
    until(lambda: list_offset(client, "t", -2).offset >= 15)
    assert list_offset(client, "t", -1).offset == 20


def test_a_compacted_topic_keeps_the_last_of_each_key(
    broker: Broker, client: RawClient, clock: Clock
) -> None:
    create_topic(client, "t", cleanup_policy="compact", segment_ms="1000")
    for number in range(50):
        record = Record(timestamp=clock.now, key=b"%d" % (number % 3), value=b"%d" % number)
        assert produce(client, "t", encode_batch([record])).error_code == 0
    clock.now += 2000
    # The active segment is never compacted: this begins another one.
    last = Record(timestamp=clock.now, key=b"last", value=b"")
    assert produce(client, "t", encode_batch([last])).base_offset == 50

    def found() -> list[tuple[int, bytes | None]]:
        # A fetch ends with its segment.
        records = fetch(client, "t").records + fetch(client, "t", 50).records
        return [(record.offset, record.value) for b in read_batches(records) for record in b]

    until(lambda: len(found()) == 4)
    assert found() == [(47, b"47"), (48, b"48"), (49, b"49"), (50, b"")]


def test_committed_offsets_are_compacted(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    for offset in range(200):
        response = client.call(
            OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequest.Topic(
                        name="t",
                        partitions=[
                            OffsetCommitRequest.Partition(
                                partition_index=0, committed_offset=offset
                            )
                        ],
                    )
                ],
            ),
            9,
        )
        assert response.topics[0].partitions[0].error_code == 0

    def size() -> int:
        return sum(file.stat().st_size for file in logs(broker, "__consumer_offsets-0"))

    # In the broker's event loop, so that no file is removed during the count.
    until(lambda: broker.call(size) < 6000)


def delete_topic(client: RawClient, name: str) -> None:
    response = client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
    assert response.responses[0].error_code == 0


def test_space_of_deleted_topics_is_freed_without_a_sweep(tmp_path: Path) -> None:
    # Retention runs after five minutes.
    properties = {"log.segment.delete.delay.ms": "0"}
    with (
        Broker.start(properties=properties, data_dir=tmp_path) as broker,
        RawClient(broker.port) as client,
    ):
        create_topic(client, "t", 3)
        produce(client, "t", batch(b"x"))
        delete_topic(client, "t")
        until(lambda: not list(tmp_path.glob("t-*")))


def test_space_of_deleted_topics_is_freed_after_a_crash(tmp_path: Path) -> None:
    arguments = ("--data-dir", tmp_path, "--port", 0, "--override")
    with BrokerProcess((*arguments, "log.segment.delete.delay.ms=3600000")) as process:
        with RawClient(process.port) as client:
            create_topic(client, "t", 3)
            produce(client, "t", batch(b"x"))
            delete_topic(client, "t")
        process.kill()
    with BrokerProcess((*arguments, "log.segment.delete.delay.ms=3600000")) as process:
        process.stop()
    assert len(list(tmp_path.glob("t-*-delete"))) == 3
    with BrokerProcess((*arguments, "log.segment.delete.delay.ms=1")):
        until(lambda: not list(tmp_path.glob("t-*")))


def test_a_deletion_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ("--data-dir", data, "--port", 0, "--override", "log.segment.delete.delay.ms=1")
    folders = [data / f"t-{partition}" for partition in range(3)]
    with BrokerProcess(arguments) as process, RawClient(process.port) as client:
        create_topic(client, "t", 3)
        produce(client, "t", batch(b"old"))
        for folder in folders:
            shutil.copytree(folder, tmp_path / folder.name)
        delete_topic(client, "t")
        process.kill()
    # As if the broker had died before it deleted the folders.
    for folder in folders[1:]:
        shutil.move(tmp_path / folder.name, folder)
    stranger = data / "stranger-0"
    stranger.mkdir()
    (stranger / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with BrokerProcess(arguments) as process, RawClient(process.port) as client:
        until(lambda: not list(data.glob("t-*")))
        create_topic(client, "t", 3)
        assert fetch(client, "t").high_watermark == 0
        process.stop()
    assert stranger.is_dir()
    assert not list(data.glob("*-stray"))
