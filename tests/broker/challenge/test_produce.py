"""Produce v11: the response, the files on the disk, and the result of a fetch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.broker.challenge.disk import (
    CRC_AT,
    NOW,
    KafkaFolder,
    TopicFolder,
    batch,
    read_batches,
    read_partition,
)
from tests.broker.challenge.server import BrokerProcess
from tests.broker.challenge.wire import (
    NIL,
    PRODUCE,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    FetchFrom,
    ProducedPartition,
    produce_body,
    request_frame,
)
from tests.ports import free_port

CORRUPT_MESSAGE, INVALID_RECORD = 2, 87
EXISTING = batch([b"was there"], timestamp=NOW)


def topics() -> list[TopicFolder]:
    """One topic per test, so that all begin at offset 0."""
    names = ["single", "several", "growing", "broken", "alone", "refused", "kept", "silent"]
    found = [TopicFolder(name, UUID(int=0x4000 + at)) for at, name in enumerate(names)]
    found.append(TopicFolder("wide", UUID(int=0x5000), [b""] * 4))
    found.append(TopicFolder("wide-too", UUID(int=0x5001), [b""] * 2))
    found.append(TopicFolder("existing", UUID(int=0x5002), [EXISTING], leader_epoch=5))
    return found


TOPICS = {topic.name: topic for topic in topics()}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("produce")
    KafkaFolder(folder / "data", list(TOPICS.values()), timestamp=NOW, leader_change=True).write()
    settings = {"auto.create.topics.enable": "false"}
    with BrokerProcess(folder, free_port(), overrides=settings) as process:
        yield process


def refused(index: int) -> tuple[int, int, int, int, int]:
    return (index, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


def summary(partition: ProducedPartition) -> tuple[int, int, int, int, int]:
    assert partition.record_errors == []
    return (
        partition.index,
        partition.error,
        partition.base_offset,
        partition.append_time,
        partition.log_start,
    )


def as_written(sent: bytes, base_offset: int, leader_epoch: int = 0) -> bytes:
    """Return a batch as it is in the log: the broker sets two fields that the CRC does not cover."""
    at_offset = base_offset.to_bytes(8, "big")
    return at_offset + sent[8:12] + leader_epoch.to_bytes(4, "big") + sent[16:]


def fetched(connection: Connection, name: str, partition: int = 0) -> bytes:
    topic_id = TOPICS[name].topic_id
    answer = connection.fetch((topic_id, [FetchFrom(partition)]), max_wait_ms=0)
    found = answer.partition(topic_id, partition)
    assert found.error == 0
    assert found.records is not None
    return found.records


def on_disk(data: Path, name: str, partition: int = 0) -> bytes:
    return (data / f"{name}-{partition}" / "00000000000000000000.log").read_bytes()


def test_unknown_topic(connection: Connection) -> None:
    answer = connection.produce(("nobody-made-this", [(0, batch([b"x"]))]))
    assert answer.throttle_ms == 0
    [(name, [partition])] = answer.topics
    assert name == "nobody-made-this"
    assert summary(partition) == refused(0)


def test_unknown_partition(connection: Connection) -> None:
    answer = connection.produce(("single", [(7, batch([b"x"]))]))
    [(name, [partition])] = answer.topics
    assert name == "single"
    assert summary(partition) == refused(7)


def test_negative_partition(connection: Connection) -> None:
    answer = connection.produce(("single", [(-1, batch([b"x"]))]))
    assert summary(answer.partition("single", -1)) == refused(-1)


def test_one_record(connection: Connection, data: Path) -> None:
    sent = batch([b"Hello CodeCrafters!"], timestamp=NOW)
    answer = connection.produce(("single", [(0, sent)]))
    assert answer.throttle_ms == 0
    assert [name for name, _ in answer.topics] == ["single"]
    assert summary(answer.partition("single")) == (0, 0, 0, -1, 0)
    written = as_written(sent, 0)
    assert on_disk(data, "single") == written
    assert fetched(connection, "single") == written


def test_several_records_in_a_batch(connection: Connection, data: Path) -> None:
    values = [b"foo", b"bar", None, b"", b"x" * 5000]
    sent = batch(
        values, timestamp=NOW, keys=[b"k", None, b"", b"\x00", b"k"], headers=[("a", b"1")]
    )
    assert summary(connection.produce(("several", [(0, sent)])).partition("several")) == (
        0,
        0,
        0,
        -1,
        0,
    )
    [found] = read_partition(data / "several-0")
    assert found.data == as_written(sent, 0)
    assert (found.base_offset, found.last_offset, found.count) == (0, 4, 5)
    records = list(found.records())
    assert [record.value for record in records] == values
    assert [record.key for record in records] == [b"k", None, b"", b"\x00", b"k"]
    assert all(record.headers == [("a", b"1")] for record in records)
    assert fetched(connection, "several") == found.data


def test_batch_after_batch(connection: Connection, data: Path) -> None:
    written = b""
    offset = 0
    for number in range(10):
        sent = batch([b"%d.%d" % (number, at) for at in range(number + 1)], timestamp=NOW + number)
        assert summary(connection.produce(("growing", [(0, sent)])).partition("growing")) == (
            0,
            0,
            offset,
            -1,
            0,
        )
        written += as_written(sent, offset)
        offset += number + 1
        # Before the response is sent, the batch is in the file.
        assert on_disk(data, "growing") == written
    assert fetched(connection, "growing") == written


def test_the_leader_epoch_that_a_client_writes_counts_for_nothing(
    connection: Connection, data: Path
) -> None:
    sent = batch([b"x"], leader_epoch=99, timestamp=NOW)
    assert connection.produce(("alone", [(0, sent)])).partition("alone").base_offset == 0
    assert on_disk(data, "alone") == as_written(sent, 0)


def test_the_offset_that_a_client_writes_has_to_be_0(connection: Connection, data: Path) -> None:
    sent = batch([b"x"], base_offset=5, timestamp=NOW)
    partition = connection.produce(("refused", [(0, sent)])).partition("refused")
    assert (partition.error, partition.base_offset) == (INVALID_RECORD, -1)
    assert on_disk(data, "refused") == b""


def test_several_partitions(connection: Connection, data: Path) -> None:
    sent = {index: batch([b"to %d" % index], timestamp=NOW) for index in (2, 0, 3)}
    answer = connection.produce(("wide", [*sent.items(), (4, batch([b"to nobody"]))]))
    assert [name for name, _ in answer.topics] == ["wide"]
    for index, records in sent.items():
        assert summary(answer.partition("wide", index)) == (index, 0, 0, -1, 0)
        assert on_disk(data, "wide", index) == as_written(records, 0)
        assert fetched(connection, "wide", index) == as_written(records, 0)
    assert summary(answer.partition("wide", 4)) == refused(4)
    assert on_disk(data, "wide", 1) == b""


def test_several_topics_and_partitions(connection: Connection, data: Path) -> None:
    one, two, three = (batch([b"%d" % at, b"+"], timestamp=NOW + at) for at in range(3))
    answer = connection.produce(
        ("wide-too", [(1, one), (0, two)]),
        ("nobody", [(0, batch([b"x"]))]),
        ("existing", [(0, three)]),
    )
    assert sorted(name for name, _ in answer.topics) == ["existing", "nobody", "wide-too"]
    assert summary(answer.partition("wide-too", 0)) == (0, 0, 0, -1, 0)
    assert summary(answer.partition("wide-too", 1)) == (1, 0, 0, -1, 0)
    assert summary(answer.partition("nobody")) == refused(0)
    # After the batch in the folder, with the partition's leader epoch.
    assert summary(answer.partition("existing")) == (0, 0, 1, -1, 0)
    assert on_disk(data, "wide-too", 1) == as_written(one, 0)
    assert on_disk(data, "wide-too", 0) == as_written(two, 0)
    assert on_disk(data, "existing") == EXISTING + as_written(three, 1, leader_epoch=5)
    assert fetched(connection, "existing") == EXISTING + as_written(three, 1, leader_epoch=5)


@pytest.mark.parametrize("flip", [CRC_AT, CRC_AT + 3, 21, 57, 61, -1])
def test_a_damaged_batch_is_refused(connection: Connection, data: Path, flip: int) -> None:
    damaged = bytearray(batch([b"value"], timestamp=NOW))
    damaged[flip] ^= 0x40
    partition = connection.produce(("broken", [(0, bytes(damaged))])).partition("broken")
    assert partition.error == CORRUPT_MESSAGE
    assert partition.base_offset == -1
    assert on_disk(data, "broken") == b""
    assert connection.produce(("broken", [(0, None)])).partition("broken").error in (
        CORRUPT_MESSAGE,
        INVALID_RECORD,
    )
    assert on_disk(data, "broken") == b""


def test_a_refused_batch_beside_a_good_one(connection: Connection, data: Path) -> None:
    good = batch([b"good"], timestamp=NOW)
    bad = good[:-1] + b"\x01"
    answer = connection.produce(("refused", [(0, bad)]), ("kept", [(0, good)]))
    assert answer.partition("refused").error == CORRUPT_MESSAGE
    assert summary(answer.partition("kept")) == (0, 0, 0, -1, 0)
    assert on_disk(data, "refused") == b""
    assert on_disk(data, "kept") == as_written(good, 0)


def test_without_acknowledgement_nothing_is_answered(connection: Connection) -> None:
    sent = batch([b"quiet"], timestamp=NOW)
    connection.send(request_frame(PRODUCE, 11, produce_body([("silent", [(0, sent)])], acks=0)))
    # The next response belongs to the next request, and is sent after the batch was written.
    assert connection.describe("silent").topics[0].topic_id != NIL
    assert fetched(connection, "silent") == as_written(sent, 0)


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    topic = TopicFolder("again", UUID(int=0x6000), [EXISTING])
    KafkaFolder(tmp_path / "data", [topic], timestamp=NOW).write()
    process = BrokerProcess(tmp_path, free_port())
    written = EXISTING
    for turn in range(3):
        with process, Connection(process.port) as connection:
            sent = batch([b"turn %d" % turn], timestamp=NOW)
            answer = connection.produce(("again", [(0, sent)])).partition("again")
            assert summary(answer) == (0, 0, turn + 1, -1, 0)
            written += as_written(sent, turn + 1)
            answers = connection.fetch((topic.topic_id, [FetchFrom()]))
            assert answers.partition(topic.topic_id).records == written
            assert process.stop() == 0
        assert (tmp_path / "data" / "again-0" / "00000000000000000000.log").read_bytes() == written
    assert [found.values() for found in read_batches(written)] == [
        [b"was there"],
        [b"turn 0"],
        [b"turn 1"],
        [b"turn 2"],
    ]
