"""Reading what librdkafka's producer has written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from krammar.broker import Broker
from krammar.client import At, Client, ClientError, Reader, TopicPartition
from krammar.client.errors import (
    CorruptBatchError,
    OffsetOutOfRange,
    StateError,
    TruncatedError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from krammar.faults import Faults
from krammar.wire.batches import Record
from tests.support.waiting import PATIENCE

Seen = list[tuple[int, int]]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def produce(
    broker: Broker, topic: str, records: list[tuple[int, Record]], **settings: object
) -> None:
    """Write with librdkafka."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **settings}
    )
    for partition, record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            timestamp=record.timestamp,
            headers=record.headers or None,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def read(reader: Reader) -> tuple[Seen, ClientError | None]:
    """Partitions and offsets up to the first error."""
    seen: Seen = []
    try:
        for at, record in reader.records():
            seen.append((at.partition, record.offset))
    except ClientError as error:
        return seen, error
    return seen, None


def sample(count: int, partitions: int) -> list[tuple[int, Record]]:
    """Records of all kinds."""
    return [
        (
            i % partitions,
            Record(
                i // partitions,
                1_700_000_000_000 + i,
                None if i % 3 == 0 else b"k%d" % i,
                None if i % 7 == 0 else b"" if i % 7 == 1 else b"v%d" % i * (i % 50),
                [("h", b"%d" % i), ("null", None)] if i % 5 == 0 else None,
            ),
        )
        for i in range(count)
    ]


def by_partition(records: list[tuple[int, Record]]) -> dict[int, list[Record]]:
    result: dict[int, list[Record]] = defaultdict(list)
    for partition, record in records:
        result[partition].append(record)
    return result


@pytest.mark.parametrize("codec", CODECS)
def test_all_records_of_all_partitions(broker: Broker, client: Client, codec: str) -> None:
    client.admin.create_topic("t", 4)
    records = sample(2000, 4)
    produce(broker, "t", records, **{"compression.type": codec})
    seen = [(at.partition, record) for at, record in client.records("t")]
    assert by_partition(seen) == by_partition(records)


def test_parts_of_partitions(broker: Broker, client: Client) -> None:
    """Begins and ends within batches show what lies between them alone."""
    client.admin.create_topic("t", 2)
    produce(broker, "t", sample(200, 2))
    reader = client.fetch({("t", 0): 17, ("t", 1): 99}, until={("t", 0): 23, ("t", 1): 100})
    seen = sorted((at.partition, record.offset) for at, record in reader.records())
    assert seen == [*((0, offset) for offset in range(17, 23)), (1, 99)]
    assert reader.finished
    assert reader.positions() == {("t", 0): 23, ("t", 1): 100}


def test_an_empty_part_asks_for_nothing(client: Client) -> None:
    reader = client.fetch({("not there", 0): 5}, until={("not there", 0): 5})
    assert list(reader) == []


def test_small_answers(broker: Broker) -> None:
    """Limits far below the size of a batch make reading slow, but it returns all records."""
    with Client(broker.bootstrap_servers, fetch_max_bytes=1, max_partition_fetch_bytes=1) as client:
        client.admin.create_topic("t", 3)
        records = sample(300, 3)
        produce(broker, "t", records, **{"batch.num.messages": 7})
        seen = [(at.partition, record) for at, record in client.records("t")]
        assert by_partition(seen) == by_partition(records)


def test_a_record_of_900_kilobytes(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 1)
    produce(broker, "t", [(0, Record(0, 1, None, bytes(900_000)))])
    [(_, record)] = client.records("t")
    assert record.value == bytes(900_000)


def test_several_topics_at_once(broker: Broker, client: Client) -> None:
    for name in ("a", "b"):
        client.admin.create_topic(name, 2)
        produce(broker, name, sample(10, 2))
    partitions = client.partitions("a") + client.partitions("b")
    reader = client.fetch(
        dict.fromkeys(partitions, At.EARLIEST), until=dict.fromkeys(partitions, At.LATEST)
    )
    assert {(at, record.offset) for at, record in reader.records()} == {
        (at, offset) for at in partitions for offset in range(5)
    }


def test_records_that_come_later(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 1)
    reader = client.fetch({("t", 0): At.LATEST})
    assert reader.poll(1) == []
    assert not reader.finished
    produce(broker, "t", sample(3, 1))
    [fetched] = reader.poll(60_000)
    assert fetched.at == ("t", 0)
    assert next(iter(fetched)).offset == 0
    assert fetched.high_watermark >= 1


def test_offsets_by_place_and_time(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 2)
    stamps = [100, 300, 200, 400]
    produce(broker, "t", [(0, Record(i, stamp, None, b"x")) for i, stamp in enumerate(stamps)])

    def offsets(at: int) -> list[tuple[int, int]]:
        found = client.list_offsets({("t", 0): at, ("t", 1): at})
        return [found[TopicPartition("t", i)][:2] for i in (0, 1)]

    assert offsets(At.EARLIEST) == [(0, -1), (0, -1)]
    assert offsets(At.LATEST) == [(4, -1), (0, -1)]
    assert offsets(At.MAX_TIMESTAMP) == [(3, 400), (-1, -1)]
    assert offsets(101) == [(1, 300), (-1, -1)]
    assert offsets(401) == [(-1, -1), (-1, -1)]


@pytest.fixture
def hasty(broker: Broker) -> Iterator[Client]:
    """A client that asks again at once if its answer can be too old, as for a topic that does not exist."""
    with Client(broker.bootstrap_servers, retry_backoff_ms=1) as client:
        yield client


def test_a_topic_that_does_not_exist(hasty: Client) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nope"):
        hasty.topics(["nope"])
    with pytest.raises(UnknownTopicOrPartition, match="nope-0"):
        hasty.list_offsets({("nope", 0): At.LATEST})
    with pytest.raises(UnknownTopicOrPartition, match="nope-0"):
        list(hasty.fetch({("nope", 0): 0}, until={("nope", 0): 1}))


def test_a_partition_that_does_not_exist(hasty: Client) -> None:
    hasty.admin.create_topic("t", 1)
    with pytest.raises(UnknownTopicOrPartition, match="t-1"):
        list(hasty.fetch({("t", 1): 0}, until={("t", 1): 1}))


def test_an_offset_out_of_range_stops_its_partition_alone(broker: Broker, client: Client) -> None:
    client.admin.create_topic("t", 2)
    produce(broker, "t", sample(20, 2))
    client.admin.delete_records({("t", 0): 4})
    partitions = client.partitions("t")
    reader = client.fetch(dict.fromkeys(partitions, 0), until=dict.fromkeys(partitions, 10))
    seen, error = read(reader)
    assert isinstance(error, OffsetOutOfRange)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 0)
    assert (error.log_start_offset, error.end_offset) == (4, 10)
    reader.seek(partitions[0], error.log_start_offset)
    more, error = read(reader)
    assert error is None
    assert sorted(seen + more) == [*((0, o) for o in range(4, 10)), *((1, o) for o in range(10))]


def log_file(folder: Path, partition: str) -> Path:
    return folder / partition / f"{0:020}.log"


def test_a_damaged_batch(tmp_path: Path) -> None:
    """The batches before it are read. The error contains the offset after it."""
    with Broker.start(data_dir=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("t", 1)
        for i in range(3):
            produce(broker, "t", [(0, Record(i, 1, None, b"v%d" % i * 20))])
        at = log_file(tmp_path, "t-0").read_bytes().index(b"v1v1")
        with log_file(tmp_path, "t-0").open("r+b") as file:
            file.seek(at)
            file.write(b"X")
        reader = client.fetch({("t", 0): 0}, until={("t", 0): 3})
        seen, error = read(reader)
        assert seen == [(0, 0)]
        assert isinstance(error, CorruptBatchError)
        assert (error.offset, error.next_offset) == (1, 2)
        reader.seek(TopicPartition("t", 0), 2)
        assert read(reader) == ([(0, 2)], None)
        with Client(broker.bootstrap_servers, check_crcs=False) as careless:
            assert len(list(careless.records("t"))) == 3


def test_a_log_that_was_cut_is_noticed(tmp_path: Path) -> None:
    """A broker comes back without the last records, and gets others in their place."""
    with Broker.start(data_dir=tmp_path) as broker:
        port = broker.port
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_topic("t", 1)
        produce(broker, "t", [(0, Record(0, 1, None, b"kept"))])
        size = log_file(tmp_path, "t-0").stat().st_size
        produce(broker, "t", [(0, Record(i, 1, None, b"lost")) for i in range(1, 5)])
        client = Client(broker.bootstrap_servers)
        reader = client.fetch({("t", 0): 0})
        while reader.positions() != {("t", 0): 5}:
            reader.poll(60_000)
        before = reader.epochs()[TopicPartition("t", 0)]
    with log_file(tmp_path, "t-0").open("r+b") as file:
        file.truncate(size)
    with Broker.start(data_dir=tmp_path, port=port) as broker:
        # As if another broker had become the leader.
        partition = broker.cluster.topics["t"].partitions[0]
        broker.call(setattr, partition, "leader_epoch", before + 1)
        produce(broker, "t", [(0, Record(i, 1, None, b"new")) for i in range(1, 9)])
        seen, error = read(reader)
        client.close()
        assert seen == []
        assert isinstance(error, TruncatedError)
        assert (error.position, error.diverges_at) == (5, 1)


def test_a_topic_that_was_created_again(client: Client) -> None:
    """The client does not mistake its records for a continuation of the old topic."""
    client.admin.create_topic("t", 1)
    with client.producer() as producer:
        producer.send("t", b"old")
    reader = client.fetch({("t", 0): 0})
    while reader.positions() != {("t", 0): 1}:
        reader.poll(60_000)
    client.admin.delete_topic("t")
    client.admin.create_topic("t", 1)
    with client.producer() as producer:
        for _ in range(3):
            producer.send("t", b"new")
    with pytest.raises(UnknownTopicId, match=r"t-0 .*created again"):
        reader.poll(60_000)
    reader.seek(TopicPartition("t", 0), 0)
    assert next(iter(reader.poll(60_000)[0])).value == b"new"


def test_a_topic_that_is_gone(hasty: Client) -> None:
    hasty.admin.create_topic("t", 1)
    reader = hasty.fetch({("t", 0): 0})
    assert reader.poll(1) == []
    hasty.admin.delete_topic("t")
    with pytest.raises((UnknownTopicId, UnknownTopicOrPartition)):
        reader.poll(60_000)


def test_a_negative_offset(client: Client) -> None:
    client.admin.create_topic("t", 1)
    with pytest.raises(ValueError, match="t-0: offset -7 is negative"):
        client.fetch({("t", 0): -7})


def test_a_client_that_is_closed(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        pass
    with pytest.raises(StateError, match="the client is closed"):
        client.topics()


@pytest.fixture
def three(broker: Broker, client: Client) -> Faults:
    """Three records in t-0; the broker's faults."""
    client.admin.create_topic("t", 1)
    with client.producer() as producer:
        for number in range(3):
            producer.send("t", b"%d" % number)
    return broker.faults


def values(client: Client) -> list[bytes | None]:
    return [record.value for _, record in client.records("t")]


NO_RECORDS = ("responses[*].partitions[*].records", "")
REPLICA = "responses[*].partitions[*].preferred_read_replica"


@pytest.mark.parametrize("node", [1, 2], ids=["there", "gone"])
def test_a_preferred_replica_is_asked_for_the_same_records(
    three: Faults, client: Client, node: int
) -> None:
    """The leader's answer has no records, but its end (KIP-392). Without the replica, the leader is asked."""
    rule = three.on("Fetch", versions="11-").change(REPLICA, node).change(*NO_RECORDS).once()
    assert values(client) == [b"0", b"1", b"2"]
    rule.expect()


def test_tiered_storage_that_answers_late(three: Faults, client: Client) -> None:
    """The offset is not on the broker's disk, so an answer without records does not mean that none are left."""
    empty = three.on("Fetch", versions="1-").change(*NO_RECORDS).times(3)
    local = three.on(
        "ListOffsets", versions="1-", where="request.topics[*].partitions[*].timestamp == -4"
    )
    local.change("response.topics[*].partitions[*].offset", 3)
    assert values(client) == [b"0", b"1", b"2"]
    empty.expect(times=3)
    local.expect(times=3)


def test_a_quota_is_no_missing_topic(three: Faults, client: Client) -> None:
    rule = (
        three.on("Fetch", versions="1-")
        .change("responses", [])
        .change("throttle_time_ms", 1)
        .times(9)
    )
    assert values(client) == [b"0", b"1", b"2"]
    rule.expect(times=9)


def test_a_reader_asks_again_after_an_empty_answer(broker: Broker) -> None:
    fetches = broker.faults.on("Fetch").delay(0)
    with Client(broker.bootstrap_servers, fetch_max_wait_ms=10) as client:
        client.admin.create_topic("t", 1)
        assert client.fetch({("t", 0): 0}).poll(1000) == []
    assert fetches.matched > 2


def test_a_reader_that_is_closed(client: Client) -> None:
    reader = client.fetch({("t", 0): 0})
    reader.close()
    with pytest.raises(StateError):
        reader.poll(0)


def test_read_committed(broker: Broker, client: Client) -> None:
    """Aborted records are hidden, committed and plain ones are not, and an open transaction is the end."""
    client.admin.create_topic("t", 1)
    producers = []
    for name in ("a", "b"):
        producers.append(
            confluent_kafka.Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
            )
        )
        producers[-1].init_transactions(60)
    expected = []
    for number in range(6):
        # Two transactions that are interleaved; of each pair one is aborted.
        for producer in producers:
            producer.begin_transaction()
        for _ in range(3):
            for name, producer in zip("ab", producers, strict=True):
                value = f"{name}{number}".encode()
                producer.produce("t", value, partition=0)
                producer.flush()
                if (name == "a") == (number % 2 == 0):
                    expected.append(value)
        for name, producer in zip("ab", producers, strict=True):
            if (name == "a") == (number % 2 == 0):
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
    produce(broker, "t", [(0, Record(0, 1, None, b"plain"))])
    expected.append(b"plain")
    producers[0].begin_transaction()
    producers[0].produce("t", b"open", partition=0)
    producers[0].flush()
    produce(broker, "t", [(0, Record(0, 1, None, b"behind"))])

    with Client(broker.bootstrap_servers, isolation_level="read_committed") as committed:
        assert [record.value for _, record in committed.records("t")] == expected
        # Beginning in the midst of an aborted transaction, too.
        for begin in range(0, 30, 7):
            values = [record.value for _, record in committed.records("t", begin=begin)]
            assert values == expected[len(expected) - len(values) :]
        [stable] = committed.list_offsets({("t", 0): At.LATEST}).values()
        [end] = committed.list_offsets(
            {("t", 0): At.LATEST}, isolation_level="read_uncommitted"
        ).values()
        assert end.offset == stable.offset + 2
    assert len(list(client.records("t"))) == 36 + 3
    producers[0].abort_transaction(60)


def test_control_batches_are_never_shown(broker: Broker, client: Client) -> None:
    """A partition that holds nothing but a marker at its end is read to the end."""
    client.admin.create_topic("t", 1)
    with client.producer(transactional_id="x") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"1", partition=0)
    reader = client.fetch({("t", 0): 0}, until={("t", 0): At.LATEST})
    assert [record.value for _, record in reader.records()] == [b"1"]
    assert reader.positions() == {("t", 0): 2}
