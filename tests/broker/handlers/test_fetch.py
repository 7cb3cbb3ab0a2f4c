"""Fetch: slices, limits, long polling, sessions; ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ErrorCode,
    FetchRequest,
    OffsetForLeaderEpochRequest,
)

from krammar.broker import Broker
from krammar.broker.fetch_sessions import FetchSessions
from krammar.broker.session import Session
from krammar.wire.batches import Record, encode_batch, read_headers
from tests.broker.requests import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    open_transaction,
    produce,
    produce_request,
)
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_gives_the_batches(client: RawClient, version: int) -> None:
    topic_id = create_topic(client, "t")
    sent = [batch(b"one", b"two"), batch(b"three")]
    for data in sent:
        assert produce(client, "t", data).error_code == 0
    request = fetch_request([(topic_id if version >= 13 else "t", 0, 0)])
    response = client.call(request, version)
    assert response.error_code == 0
    (topic,) = response.responses
    assert topic.topic_id == topic_id if version >= 13 else topic.topic == "t"
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.error_code) == (0, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)
    assert [h.base_offset for h in read_headers(partition.records)] == [0, 2]
    assert len(partition.records) == sum(map(len, sent))


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4)])
def test_a_fetch_begins_with_the_batch_that_holds_the_offset(
    client: RawClient, offset: int, first: int
) -> None:
    create_topic(client, "t")
    for _ in range(3):
        produce(client, "t", batch(b"x", b"y"))
    headers = list(read_headers(fetch(client, "t", offset).records))
    assert headers[0].base_offset == first
    assert headers[-1].next_offset == 6


@pytest.mark.parametrize(("offset", "code"), [(6, 0), (7, 1), (-1, 1), (1 << 60, 1)])
def test_offsets_out_of_range(client: RawClient, offset: int, code: int) -> None:
    create_topic(client, "t")
    for _ in range(3):
        produce(client, "t", batch(b"x", b"y"))
    answer = fetch(client, "t", offset)
    assert (answer.error_code, answer.records or b"") == (code, b"")


def test_unknown_topics_and_partitions(client: RawClient) -> None:
    topic_id = create_topic(client, "t")
    request = fetch_request([("t", 7, 0), ("nowhere", 0, 0)])
    response = client.call(request, 12)
    codes = [part.error_code for topic in response.responses for part in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    request = fetch_request([(topic_id, 7, 0), (UUID(int=9), 0, 0)])
    response = client.call(request, 16)
    codes = [part.error_code for topic in response.responses for part in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]


def test_nothing_asked_nothing_given(client: RawClient) -> None:
    response = client.call(fetch_request([]), 16)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])


# Limits (KIP-74)


def test_the_first_batch_comes_whole_however_small_the_limit(client: RawClient) -> None:
    create_topic(client, "t", 2)
    data = batch(bytes(5000))
    for partition in (0, 1):
        produce(client, "t", data, partition)
        produce(client, "t", data, partition)
    request = fetch_request([("t", 0, 0), ("t", 1, 0)], partition_max_bytes=100, max_bytes=100)
    response = client.call(request, 12)
    sizes = [len(part.records) for topic in response.responses for part in topic.partitions]
    assert sizes[0] == len(data)
    assert sizes[1] <= 100


def test_limits_of_partition_and_response(client: RawClient) -> None:
    create_topic(client, "t", 2)
    data = batch(bytes(1000))
    for partition in (0, 1):
        for _ in range(10):
            produce(client, "t", data, partition)
    request = fetch_request([("t", 0, 0), ("t", 1, 0)], partition_max_bytes=5000, max_bytes=7000)
    response = client.call(request, 12)
    sizes = [len(part.records) for topic in response.responses for part in topic.partitions]
    assert 4 * len(data) <= sizes[0] <= 5000
    assert len(data) <= sizes[1] <= 7000 - sizes[0]


# Long polling


def test_an_empty_fetch_waits_for_a_record(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000, min_bytes=1), 12)
    with RawClient(broker.port) as other:
        produce(other, "t", batch(b"at last"))
    partition = client.receive().responses[0].partitions[0]
    assert partition.high_watermark == 1
    assert partition.records


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t", 2)
    data = batch(bytes(1000))
    client.send(
        fetch_request([("t", 0, 0), ("t", 1, 0)], max_wait_ms=60_000, min_bytes=4 * len(data)), 12
    )
    with RawClient(broker.port) as other:
        for i in range(4):
            produce(other, "t", data, i % 2)
    response = client.receive()
    sizes = [len(part.records) for topic in response.responses for part in topic.partitions]
    assert sizes == [2 * len(data)] * 2


def test_a_fetch_ends_when_its_time_is_over(client: RawClient) -> None:
    create_topic(client, "t")
    begin = time.monotonic()
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=300, min_bytes=1), 12)
    assert client.receive().responses[0].partitions[0].error_code == 0
    assert time.monotonic() - begin >= 0.29


def test_a_waiting_fetch_learns_that_the_topic_is_gone(broker: Broker, client: RawClient) -> None:
    topic_id = create_topic(client, "t")
    client.send(fetch_request([(topic_id, 0, 0)], max_wait_ms=60_000, min_bytes=1), 16)
    with RawClient(broker.port) as other:
        other.call(
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000
            ),
            6,
        )
    assert client.receive().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_error_is_answered_at_once(client: RawClient) -> None:
    create_topic(client, "t")
    request = fetch_request([("t", 0, 0), ("nowhere", 0, 0)], max_wait_ms=60_000, min_bytes=1)
    response = client.call(request, 12)
    assert response.responses[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Sessions (KIP-227)


def told(response: Any) -> dict[tuple[str, int], int]:
    assert response.error_code == 0
    return {
        (topic.topic, part.partition_index): len(part.records or b"")
        for topic in response.responses
        for part in topic.partitions
    }


def test_a_session_names_only_what_has_changed(client: RawClient) -> None:
    create_topic(client, "a", 2)
    create_topic(client, "b")
    data = batch(b"x")
    produce(client, "a", data)
    response = client.call(
        fetch_request([("a", 0, 0), ("a", 1, 0), ("b", 0, 0)], session_epoch=0), 12
    )
    session = response.session_id
    assert session != 0
    assert told(response) == {("a", 0): len(data), ("a", 1): 0, ("b", 0): 0}

    def go_on(epoch: int, topics: list[tuple[str | UUID, int, int]], **fields: Any) -> Any:
        return client.call(
            fetch_request(topics, session_id=session, session_epoch=epoch, **fields), 12
        )

    # The client has read more of one partition; there are no new records.
    assert told(go_on(1, [("a", 0, 1)])) == {}
    produce(client, "b", data)
    response = go_on(2, [])
    assert (response.session_id, told(response)) == (session, {("b", 0): len(data)})
    # The partition was not consumed, so it is returned again.
    assert told(go_on(3, [])) == {("b", 0): len(data)}
    forgotten = [FetchRequest.ForgottenTopic(topic="b", partitions=[0])]
    assert told(go_on(4, [], forgotten_topics_data=forgotten)) == {}
    assert go_on(4, []).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert told(go_on(5, [("b", 0, 1)])) == {("b", 0): 0}
    response = client.call(fetch_request([("a", 0, 0)], session_id=session, session_epoch=-1), 12)
    assert (response.session_id, told(response)) == (0, {("a", 0): len(data)})
    assert go_on(6, []).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_is_by_name_or_by_id(client: RawClient) -> None:
    create_topic(client, "t")
    session = client.call(fetch_request([("t", 0, 0)], session_epoch=0), 12).session_id
    response = client.call(fetch_request([], session_id=session, session_epoch=1), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_errors_are_told_in_a_session_as_long_as_they_last(client: RawClient) -> None:
    request = fetch_request([("later", 0, 0)], session_epoch=0)
    response = client.call(request, 12)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.responses[0].partitions[0].error_code == unknown
    session = response.session_id
    response = client.call(fetch_request([], session_id=session, session_epoch=1), 12)
    assert response.responses[0].partitions[0].error_code == unknown
    create_topic(client, "later")
    response = client.call(fetch_request([], session_id=session, session_epoch=2), 12)
    assert response.responses[0].partitions[0].error_code == 0


def test_sessions_are_limited() -> None:
    properties = {"max.incremental.fetch.session.cache.slots": "3"}
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        request = fetch_request([("t", 0, 0)], session_epoch=0)
        sessions = [client.call(request, 12).session_id for _ in range(5)]
        assert all(sessions[:3]) and sessions[3:] == [0, 0]
        # A session that is closed makes room.
        client.call(fetch_request([], session_id=sessions[0], session_epoch=-1), 12)
        assert client.call(request, 12).session_id != 0


def test_partitions_of_all_sessions_are_limited(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FetchSessions, "most_partitions", 3)
    create_topic(client, "t", 3)
    two = fetch_request([("t", 0, 0), ("t", 1, 0)], session_epoch=0)
    first = client.call(two, 12).session_id
    assert first != 0
    assert client.call(two, 12).session_id == 0
    # A session that grows too much is closed; the client begins another one.
    more = fetch_request([("t", 2, 0), ("nowhere", 0, 0)], session_id=first, session_epoch=1)
    response = client.call(more, 12)
    assert response.session_id == 0
    assert sum(len(topic.partitions) for topic in response.responses) == 4
    gone = client.call(fetch_request([], session_id=first, session_epoch=2), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.call(two, 12).session_id != 0


# Leader epochs (KIP-320)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, ErrorCode.NONE), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epochs(client: RawClient, epoch: int, code: ErrorCode) -> None:
    create_topic(client, "t")
    request = fetch_request([("t", 0, 0)])
    request.topics[0].partitions = [
        FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1000
        )
    ]
    assert client.call(request, 12).responses[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(client: RawClient, version: int) -> None:
    create_topic(client, "t")
    produce(client, "t", batch(b"a", b"b"))

    def ask(topic: str, current: int, epoch: int) -> tuple[int, int, int]:
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=current, leader_epoch=epoch
                        )
                    ],
                )
            ],
        )
        part = client.call(request, version).topics[0].partitions[0]
        return part.error_code, part.leader_epoch, part.end_offset

    assert ask("t", -1, 0) == (0, 0, 2)
    assert ask("t", 0, 0) == (0, 0, 2)
    assert ask("t", 5, 0) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ask("u", -1, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


# ListOffsets


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(client: RawClient, version: int) -> None:
    create_topic(client, "t")
    for timestamp in (1000, 3000, 2000):
        records = [Record(timestamp=timestamp), Record(timestamp=timestamp + 500)]
        assert produce(client, "t", encode_batch(records)).error_code == 0

    def ask(timestamp: int) -> tuple[int, int, int]:
        part = list_offset(client, "t", timestamp, version=version)
        return part.error_code, part.timestamp, part.offset

    assert ask(-1) == (0, -1, 6)
    assert ask(-2) == (0, -1, 0)
    assert ask(0) == (0, 1000, 0)
    assert ask(1000) == (0, 1000, 0)
    assert ask(1001) == (0, 1500, 1)
    assert ask(1501) == (0, 3000, 2)
    assert ask(3500) == (0, 3500, 3)
    assert ask(3501) == (0, -1, -1)
    unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert ask(-3) == ((0, 3500, 3) if version >= 7 else unsupported)
    assert ask(-4) == ((0, -1, 0) if version >= 8 else unsupported)
    assert ask(-5) == ((0, -1, -1) if version >= 9 else unsupported)
    assert ask(-6) == ((0, -1, -1) if version >= 11 else unsupported)
    assert ask(-7) == unsupported


def test_list_offsets_behind_deleted_records(client: RawClient) -> None:
    create_topic(client, "t")
    for value in (b"a", b"b", b"c"):
        produce(client, "t", batch(value))
    response = client.call(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="t",
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        2,
    )
    assert response.topics[0].partitions[0].low_watermark == 2
    assert list_offset(client, "t", -2).offset == 2
    assert list_offset(client, "t", 0).offset == 2
    answer = fetch(client, "t", 1)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert answer.log_start_offset == 2


def test_list_offsets_of_what_is_not_there(client: RawClient) -> None:
    assert list_offset(client, "u", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(client, "t")
    assert list_offset(client, "t", -3).offset == -1
    assert list_offset(client, "t", 5).offset == -1
    assert (
        list_offset(client, "t", -1, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_what_is_not_committed_is_not_looked_up_for_who_reads_the_committed(
    client: RawClient,
) -> None:
    create_topic(client, "t")
    now = 1_700_000_000_000
    for number, transactional in enumerate([False, True, False]):
        options: dict[str, Any] = {}
        if transactional:
            options = open_transaction(client)
        data = batch(b"x", timestamp=now + number, **options)
        request = produce_request("t", data, transactional_id="id" if transactional else None)
        answer = client.call(request, 12).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, number)

    def look_up(timestamp: int, isolation: int) -> tuple[int, int]:
        part = list_offset(client, "t", timestamp, isolation_level=isolation)
        return part.timestamp, part.offset

    assert look_up(-3, 0) == (now + 2, 2)
    assert look_up(-3, 1) == (-1, -1)
    assert look_up(now + 1, 0) == (now + 1, 1)
    assert look_up(now + 1, 1) == (-1, -1)
    assert look_up(now, 1) == (now, 0)
    assert look_up(-1, 1) == (-1, 1)


def test_what_comes_between_reading_and_waiting_is_not_missed(
    broker: Broker, client: RawClient
) -> None:
    create_topic(client, "t")

    async def fetch_while_another_produces() -> Any:
        session = Session(broker.config.listeners[0], "127.0.0.1", 1, "test")
        request = fetch_request([("t", 0, 0)], max_wait_ms=600_000, min_bytes=1)
        steps = broker.handlers[FetchRequest.api_key](session, request, 12)
        answer = await broker.connections.slices.run_from_start(steps)
        log = broker.logs.get("t", 0)
        assert log is not None
        log.append(batch(b"x"))
        return await asyncio.wait_for(answer, PATIENCE)

    running = asyncio.run_coroutine_threadsafe(fetch_while_another_produces(), broker.loop)
    assert running.result().responses[0].partitions[0].high_watermark == 1


def test_records_go_from_a_topic_without_cleanup_policy(client: RawClient) -> None:
    """With an empty cleanup.policy, only DeleteRecords deletes records. Kafka 4.4 refuses DeleteRecords
    only if the policy is compact alone."""
    create_topic(client, "t", cleanup_policy="")
    produce(client, "t", batch(b"a", b"b", b"c"))
    where = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[where])]
    response = client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    [result] = response.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 2)
