"""Fetch v16: topics by id, and records with exactly the bytes of the log files."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.broker.challenge.conftest import EMPTY, MANY, ONE, PARTITIONED, TAIL, TWO
from tests.broker.challenge.disk import TopicFolder, batch, read_batches
from tests.broker.challenge.server import BrokerProcess
from tests.broker.challenge.wire import (
    FETCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    FetchedPartition,
    FetchFrom,
    correlation_id,
    fetch_body,
    read_fetched,
    request_frame,
)

OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 1, 74, 75
STRANGER = UUID("00000000-0000-0000-0000-000000005478")


def good(index: int, end: int, records: bytes) -> FetchedPartition:
    """The response for a partition with offsets from 0 to ``end`` and no aborted transactions."""
    return FetchedPartition(index, 0, end, end, 0, None, -1, records, {})


def test_no_topics(connection: Connection) -> None:
    answer = connection.fetch(max_wait_ms=0)
    assert (answer.throttle_ms, answer.error, answer.session_id) == (0, 0, 0)
    assert answer.topics == []


def test_no_topics_as_the_first_of_a_session(connection: Connection) -> None:
    answer = connection.fetch(max_wait_ms=0, session_epoch=0)
    assert (answer.throttle_ms, answer.error) == (0, 0)
    assert answer.topics == []


def test_unknown_topic_id(connection: Connection) -> None:
    answer = connection.fetch((STRANGER, [FetchFrom()]))
    assert (answer.throttle_ms, answer.error) == (0, 0)
    [(topic_id, [partition])] = answer.topics
    assert topic_id == STRANGER
    assert (partition.index, partition.error) == (0, UNKNOWN_TOPIC_ID)
    assert partition.high_watermark == -1
    assert not partition.records
    assert not partition.aborted


def test_unknown_topic_id_beside_a_known_one(connection: Connection) -> None:
    answer = connection.fetch((STRANGER, [FetchFrom()]), (ONE.topic_id, [FetchFrom()]))
    assert answer.partition(STRANGER).error == UNKNOWN_TOPIC_ID
    assert answer.partition(ONE.topic_id) == good(0, 1, ONE.logs[0])


def test_an_error_is_told_at_once(connection: Connection) -> None:
    """The time limit of the socket is shorter than the time that the fetch may wait."""
    answer = connection.fetch((STRANGER, [FetchFrom()]), max_wait_ms=600_000)
    assert answer.partition(STRANGER).error == UNKNOWN_TOPIC_ID


def test_unknown_partition(connection: Connection) -> None:
    answer = connection.fetch((ONE.topic_id, [FetchFrom(partition=9)]))
    partition = answer.partition(ONE.topic_id, 9)
    assert partition.error == UNKNOWN_TOPIC_OR_PARTITION
    assert not partition.records


def test_empty_topic(connection: Connection) -> None:
    answer = connection.fetch((EMPTY.topic_id, [FetchFrom()]), max_wait_ms=10)
    assert answer.error == 0
    assert answer.topics == [(EMPTY.topic_id, [good(0, 0, b"")])]


@pytest.mark.parametrize(("topic", "end"), [(ONE, 1), (TWO, 4), (MANY, 39 * 7 + 5)])
def test_batches_as_on_disk(connection: Connection, topic: TopicFolder, end: int) -> None:
    answer = connection.fetch((topic.topic_id, [FetchFrom()]))
    assert answer.topics == [(topic.topic_id, [good(0, end, topic.logs[0])])]


def test_several_partitions(connection: Connection) -> None:
    answer = connection.fetch((PARTITIONED.topic_id, [FetchFrom(index) for index in range(3)]))
    for index, log in enumerate(PARTITIONED.logs):
        assert answer.partition(PARTITIONED.topic_id, index) == good(index, 1, log)


def test_several_topics(connection: Connection) -> None:
    topics = [ONE, EMPTY, TWO, PARTITIONED]
    answer = connection.fetch(*((topic.topic_id, [FetchFrom()]) for topic in topics))
    assert {topic_id for topic_id, _ in answer.topics} == {topic.topic_id for topic in topics}
    for topic in topics:
        assert answer.partition(topic.topic_id).records == topic.logs[0]


def test_from_an_offset_on(connection: Connection) -> None:
    """The response has complete batches, from the one with the offset, or the next one after a gap."""
    batches = list(read_batches(MANY.logs[0]))
    for offset in range(batches[-1].last_offset + 1):
        first = next(found for found in batches if found.last_offset >= offset)
        answer = connection.fetch((MANY.topic_id, [FetchFrom(offset=offset)]))
        assert answer.partition(MANY.topic_id).records == MANY.logs[0][first.position :]


def test_at_the_end(connection: Connection) -> None:
    answer = connection.fetch((TWO.topic_id, [FetchFrom(offset=4)]), max_wait_ms=10)
    assert answer.partition(TWO.topic_id) == good(0, 4, b"")


@pytest.mark.parametrize("offset", [5, 1 << 40, -1, -2])
def test_out_of_range(connection: Connection, offset: int) -> None:
    answer = connection.fetch((TWO.topic_id, [FetchFrom(offset=offset)]), max_wait_ms=600_000)
    partition = answer.partition(TWO.topic_id)
    assert partition.error == OFFSET_OUT_OF_RANGE
    assert not partition.records


@pytest.mark.parametrize("limit", [0, 1, 100, 1000, 4000])
def test_limits_of_a_partition(connection: Connection, limit: int) -> None:
    """The first batch is complete; the limit applies to later ones, and may cut a batch off."""
    log = MANY.logs[0]
    first = next(read_batches(log)).size
    answer = connection.fetch((MANY.topic_id, [FetchFrom(max_bytes=limit)]))
    records = answer.partition(MANY.topic_id).records
    assert records
    assert log.startswith(records)
    assert first <= len(records) <= max(first, limit)


def test_limit_of_a_response(connection: Connection) -> None:
    """The first partition with data uses the whole limit, and more if its first batch is larger."""
    topics = [(topic.topic_id, [FetchFrom()]) for topic in (EMPTY, TWO, ONE)]
    answer = connection.fetch(*topics, max_bytes=1)
    first = next(read_batches(TWO.logs[0])).data
    assert answer.partition(EMPTY.topic_id).records == b""
    assert answer.partition(TWO.topic_id).records == first
    assert answer.partition(ONE.topic_id).records == b""


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, 0),
        (2, 0),
        (1, FENCED_LEADER_EPOCH),
        (0, FENCED_LEADER_EPOCH),
        (3, UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epochs(connection: Connection, epoch: int, error: int) -> None:
    answer = connection.fetch((PARTITIONED.topic_id, [FetchFrom(leader_epoch=epoch)]))
    assert answer.partition(PARTITIONED.topic_id).error == error


def test_waits_for_what_is_produced(broker: BrokerProcess) -> None:
    """The fetch would wait for ten minutes, but another connection brings a batch."""
    records = batch([b"it is here"])
    with Connection(broker.port) as waiting, Connection(broker.port) as producer:
        body = fetch_body([(TAIL.topic_id, [FetchFrom(offset=1)])], max_wait_ms=600_000)
        waiting.send(request_frame(FETCH, 16, body, correlation_id=6))
        answer = producer.produce((TAIL.name, [(0, records)]))
        assert answer.partition(TAIL.name).base_offset == 1
        frame = waiting.receive()
    assert correlation_id(frame) == 6
    found = read_fetched(frame).partition(TAIL.topic_id)
    assert found.high_watermark == 2
    assert found.records is not None
    assert [found.values() for found in read_batches(found.records)] == [[b"it is here"]]


def test_waits_for_as_many_bytes_as_were_asked_for(broker: BrokerProcess) -> None:
    """One batch does not make up the bytes, so that the time limit ends the wait."""
    with Connection(broker.port) as connection:
        answer = connection.fetch((ONE.topic_id, [FetchFrom()]), min_bytes=5000, max_wait_ms=100)
        assert answer.partition(ONE.topic_id).records == ONE.logs[0]
