"""A broker that is killed under load, and a broker with a full disk."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka_wire as k
import pytest
from kafka_wire import ErrorCode

from tests.broker.challenge.disk import batch, read_batches, read_partition
from tests.broker.challenge.server import BrokerProcess
from tests.broker.crash_support import create_topics, produce_request, whole_batches
from tests.broker.support import RawClient
from tests.broker.torture import SETTINGS, Torture
from tests.ports import free_port
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("rounds", [4, pytest.param(20, marks=pytest.mark.sweep)])
def test_killed_again_and_again(tmp_path: Path, rounds: int) -> None:
    Torture(tmp_path, rounds, seed=20).run()


# --- one crash at a time


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process with the topic ``t`` of two partitions."""
    (tmp_path / "data").mkdir()
    with BrokerProcess(tmp_path, free_port(), overrides=SETTINGS) as started:
        with RawClient(started.port) as client:
            create_topics(client, {"t": (2, {})})
        yield started


def produce(
    client: RawClient, records: bytes, *, partition: int = 0, transactional_id: str | None = None
) -> Any:
    request = produce_request("t", partition, records, transactional_id=transactional_id)
    return client.call(request, 11).responses[0].partition_responses[0]


def init_producer(client: RawClient, transactional_id: str | None = None) -> tuple[int, int]:
    if transactional_id is not None:
        find(client, transactional_id, 1)
    request = k.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=600_000
    )
    answer = client.call(request, 4)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def find(client: RawClient, key: str, key_type: int) -> None:
    answer = client.call(k.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    assert answer.coordinators[0].error_code == 0


def fetch(client: RawClient, offset: int, *, committed: bool = False) -> Any:
    return (
        client.call(
            k.FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=int(committed),
                topics=[
                    k.FetchRequest.FetchTopic(
                        topic="t",
                        partitions=[
                            k.FetchRequest.FetchPartition(
                                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                            )
                        ],
                    )
                ],
            ),
            12,
        )
        .responses[0]
        .partitions[0]
    )


def restart(process: BrokerProcess) -> RawClient:
    process.kill()
    process.start()
    return RawClient(process.port)


def test_all_five_batches_on_their_way_are_known_after_a_crash(process: BrokerProcess) -> None:
    """Their responses may all have been lost, so that the producer sends them all again."""
    with RawClient(process.port) as client:
        producer, epoch = init_producer(client)
        batches = [
            batch(
                [b"%d" % number] * 3,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=number * 3,
            )
            for number in range(5)
        ]
        assert [produce(client, one).base_offset for one in batches] == [0, 3, 6, 9, 12]
    with restart(process) as client:
        again = [produce(client, one) for one in batches]
        assert [(one.error_code, one.base_offset) for one in again] == [
            (0, offset) for offset in (0, 3, 6, 9, 12)
        ]
        assert fetch(client, 0).high_watermark == 15
        gap = batch([b"x"], producer_id=producer, producer_epoch=epoch, base_sequence=16)
        assert produce(client, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        follows = batch([b"x"], producer_id=producer, producer_epoch=epoch, base_sequence=15)
        assert produce(client, follows).base_offset == 15


def test_all_five_batches_on_their_way_are_known_after_an_orderly_stop(
    process: BrokerProcess,
) -> None:
    with RawClient(process.port) as client:
        producer, epoch = init_producer(client)
        batches = [
            batch(
                [b"%d" % number],
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=number,
            )
            for number in range(5)
        ]
        for one in batches:
            assert produce(client, one).error_code == 0
    assert process.stop() == 0
    process.start()
    with RawClient(process.port) as client:
        assert [produce(client, one).base_offset for one in batches] == list(range(5))
        assert fetch(client, 0).high_watermark == 5


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_outlives_a_crash(process: BrokerProcess, commit: bool) -> None:
    """It blocks later records until its producer ends it, which is still possible."""

    def add(client: RawClient) -> None:
        answer = client.call(
            k.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="tx",
                v3_and_below_producer_id=producer,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[
                    k.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
                ],
            ),
            3,
        )
        [topic] = answer.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == 0

    with RawClient(process.port) as client:
        assert produce(client, batch([b"before"])).base_offset == 0
        producer, epoch = init_producer(client, "tx")
        add(client)
        inside = batch(
            [b"inside"],
            attributes=0x10,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0,
        )
        assert produce(client, inside, transactional_id="tx").base_offset == 1
        assert produce(client, batch([b"behind"])).base_offset == 2
    with restart(process) as client:
        found = fetch(client, 0, committed=True)
        assert (found.last_stable_offset, found.high_watermark) == (1, 3)
        assert [one.values() for one in read_batches(found.records)] == [[b"before"]]
        find(client, "tx", 1)
        answer = client.call(
            k.EndTxnRequest(
                transactional_id="tx",
                producer_id=producer,
                producer_epoch=epoch,
                committed=commit,
            ),
            3,
        )
        assert answer.error_code == 0
        found = fetch(client, 0, committed=True)
        while found.last_stable_offset < 4:
            found = fetch(client, 0, committed=True)
        aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []]
        assert aborted == ([] if commit else [(producer, 1)])
    with restart(process) as client:
        found = fetch(client, 0, committed=True)
        assert (found.last_stable_offset, found.high_watermark) == (4, 4)
        aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []]
        assert aborted == ([] if commit else [(producer, 1)])


def test_topics_and_settings_outlive_a_crash(process: BrokerProcess) -> None:
    with RawClient(process.port) as client:
        create_topics(client, {"made": (3, {"cleanup.policy": "compact"}), "gone": (1, {})})
        answer = client.call(
            k.DeleteTopicsRequest(
                topics=[k.DeleteTopicsRequest.DeleteTopicState(name="gone")], timeout_ms=10_000
            ),
            6,
        )
        assert answer.responses[0].error_code == 0
        answer = client.call(
            k.CreatePartitionsRequest(
                topics=[
                    k.CreatePartitionsRequest.CreatePartitionsTopic(
                        name="t", count=4, assignments=None
                    )
                ],
                timeout_ms=10_000,
            ),
            3,
        )
        assert answer.results[0].error_code == 0
        before = client.call(k.MetadataRequest(topics=None), 12)
    with restart(process) as client:
        after = client.call(k.MetadataRequest(topics=None), 12)
        assert after.cluster_id == before.cluster_id
        assert after.topics == before.topics
        assert {topic.name: len(topic.partitions) for topic in after.topics} == {"t": 4, "made": 3}
        answer = client.call(
            k.DescribeConfigsRequest(
                resources=[
                    k.DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=2,
                        resource_name="made",
                        configuration_keys=["cleanup.policy"],
                    )
                ]
            ),
            4,
        )
        [config] = answer.results[0].configs
        assert config.value == "compact"


def test_a_consumer_group_goes_on_behind_a_crash(process: BrokerProcess) -> None:
    """A member that knows of nothing reads everything at least once."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{process.port}",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    with contextlib.closing(consumer):
        consumer.subscribe(["t"])
        read: list[bytes | None] = []
        for turn in range(3):
            with RawClient(process.port) as client:
                written = [b"%d.%d" % (turn, at) for at in range(5)]
                assert produce(client, batch(list(written))).base_offset == turn * 5
            fresh: list[bytes | None] = []
            deadline = time.monotonic() + PATIENCE
            while len(set(fresh) & set(written)) < 5:
                assert time.monotonic() < deadline, f"of {written} came {fresh}"
                messages = consumer.consume(100, timeout=0.2)
                fresh += [one.value() for one in messages if one.error() is None]
            read += fresh
            consumer.commit(asynchronous=False)
            process.kill()
            process.start()
        [found] = consumer.committed([confluent_kafka.TopicPartition("t", 0)], 30)
        assert found.offset == 15
    assert list(dict.fromkeys(read)) == [b"%d.%d" % (a, b) for a in range(3) for b in range(5)]


# --- a full disk


LIMIT = 300_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose files can have no more than ``LIMIT`` bytes each, until ``make_room``."""

    def limit() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))

    (tmp_path / "data").mkdir()
    with BrokerProcess(tmp_path, free_port(), overrides=SETTINGS, preexec=limit) as started:
        with RawClient(started.port) as client:
            create_topics(client, {"t": (2, {})})
        yield started


def make_room(process: BrokerProcess) -> None:
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def fill(client: RawClient, size: int) -> int:
    """Produces batches of about ``size`` bytes until one is refused; how many were not."""
    for number in range(LIMIT // size + 10):
        answer = produce(client, batch([b"%d" % number, b"f" * size]))
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert answer.base_offset == -1
            return number
        assert answer.base_offset == number * 2
    raise AssertionError("the limit was not reached")


@pytest.mark.parametrize("size", [1000, 7000, 100_000])
def test_full_disk(small: BrokerProcess, size: int) -> None:
    with RawClient(small.port) as client:
        count = fill(client, size)
        assert count > 0
        # Refused records are not visible, accepted records are not lost.
        found = fetch(client, 0)
        assert found.high_watermark == count * 2
        log = small.data / "t-0" / f"{0:020}.log"
        assert [one.base_offset for one in read_batches(log.read_bytes())] == [
            number * 2 for number in range(count)
        ]
        # The broker keeps running: it refuses the same request again, and writes smaller ones.
        refused = produce(client, batch([b"f" * size * 2]))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, batch([b"small"]), partition=1).base_offset == 0
        with RawClient(small.port) as another:
            assert another.call(k.MetadataRequest(topics=None), 12).topics
        make_room(small)
        after = produce(client, batch([b"there is room", b"f" * size]))
        assert (after.error_code, after.base_offset) == (0, count * 2)
        assert fetch(client, count * 2).high_watermark == count * 2 + 2
    assert small.stop() == 0
    batches = read_partition(small.data / "t-0")
    assert [one.base_offset for one in batches] == [number * 2 for number in range(count + 1)]
    assert "Traceback" not in small.log()


def test_full_disk_and_a_crash(small: BrokerProcess) -> None:
    with RawClient(small.port) as client:
        count = fill(client, 5000)
    small.kill()
    small.start()
    with RawClient(small.port) as client:
        assert fetch(client, 0).high_watermark == count * 2
        again = produce(client, batch([b"f" * 10_000]))
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        make_room(small)
        assert produce(client, batch([b"f" * 10_000])).base_offset == count * 2


def test_full_disk_and_an_idempotent_producer(small: BrokerProcess) -> None:
    """A batch that was refused for want of room can be sent again, and is then written once."""
    with RawClient(small.port) as client:
        producer, epoch = init_producer(client)
        sequence = 0
        while True:
            waiting = batch(
                [b"%d" % sequence + b"f" * 9000],
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            answer = produce(client, waiting)
            if answer.error_code:
                break
            assert answer.base_offset == sequence
            sequence += 1
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        behind = batch(
            [b"behind"], producer_id=producer, producer_epoch=epoch, base_sequence=sequence + 1
        )
        assert produce(client, behind).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        make_room(small)
        assert produce(client, waiting).base_offset == sequence
        assert produce(client, waiting).base_offset == sequence
        assert produce(client, behind).base_offset == sequence + 1


def test_full_disk_and_committed_offsets(small: BrokerProcess) -> None:
    """The log of offsets is full: commits are refused, and earlier commits remain."""

    def commit(offset: int) -> int:
        answer = client.call(
            k.OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    k.OffsetCommitRequest.Topic(
                        name="t",
                        partitions=[
                            k.OffsetCommitRequest.Partition(
                                partition_index=0,
                                committed_offset=offset,
                                committed_metadata="m" * 4000,
                            )
                        ],
                    )
                ],
            ),
            8,
        )
        return int(answer.topics[0].partitions[0].error_code)

    def committed() -> int:
        answer = client.call(
            k.OffsetFetchRequest(
                groups=[
                    k.OffsetFetchRequest.Group(
                        group_id="g",
                        topics=[k.OffsetFetchRequest.Topics(name="t", partition_indexes=[0])],
                    )
                ]
            ),
            8,
        )
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    with RawClient(small.port) as client:
        find(client, "g", 0)
        offset = 0
        while (error := commit(offset)) == 0:
            offset += 1
            assert offset < LIMIT // 4000 + 10, "the limit was not reached"
        # The codes of Kafka's coordinators, which clients retry.
        assert error in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.KAFKA_STORAGE_ERROR,
        )
        assert committed() == offset - 1
        make_room(small)
        assert commit(offset) == 0
        assert committed() == offset
    with restart(small) as client:
        find(client, "g", 0)
        assert committed() == offset


def test_full_disk_and_new_topics(small: BrokerProcess) -> None:
    """Topics are created until the metadata log is full, and again when there is space."""

    def create(number: int) -> tuple[int, str]:
        name = f"topic-{number}-" + "x" * 200
        answer = client.call(
            k.CreateTopicsRequest(
                timeout_ms=10_000,
                topics=[
                    k.CreateTopicsRequest.CreatableTopic(
                        name=name,
                        num_partitions=1,
                        replication_factor=1,
                        assignments=[],
                        configs=[
                            k.CreateTopicsRequest.CreatableTopicConfig(
                                name="retention.ms", value="1000"
                            )
                        ],
                    )
                ],
            ),
            7,
        )
        return int(answer.topics[0].error_code), name

    metadata = small.data / "__cluster_metadata-0" / f"{0:020}.log"
    # So that it is full at once: no other file of the folder may grow by more than the rest.
    size = metadata.stat().st_size
    resource.prlimit(small.pid, resource.RLIMIT_FSIZE, (size + 2000, resource.RLIM_INFINITY))
    with RawClient(small.port) as client:
        number = 0
        while (result := create(number))[0] == 0:
            number += 1
            assert number < 50, "the limit was not reached"
        assert number > 0
        answer = client.call(k.MetadataRequest(topics=None), 12)
        assert len(answer.topics) == number + 1
        make_room(small)
        assert create(number)[0] == 0
    with restart(small) as client:
        answer = client.call(k.MetadataRequest(topics=None), 12)
        assert len(answer.topics) == number + 2
        assert result[1] in {topic.name for topic in answer.topics}


def test_a_torn_log_is_read_up_to_the_torn_batch() -> None:
    first, second = batch([b"1"]), batch([b"2"] * 9, base_offset=1)
    for size in (0, 5, len(second) - 1):
        found, is_torn = whole_batches(first + second[:size])
        assert [one.base_offset for one in found] == [0]
        assert is_torn == (size > 0)
    assert [one.base_offset for one in whole_batches(first + second)[0]] == [0, 1]
