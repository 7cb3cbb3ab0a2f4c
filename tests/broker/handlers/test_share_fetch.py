"""ShareFetch and ShareAcknowledge: sessions, acquisition, waits, acknowledgements, locks, restarts and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    ErrorCode,
    ShareFetchRequest,
)

from krammar.broker import Broker
from krammar.broker.handlers.share_fetch import ShareFetchHandlers
from krammar.broker.share.records import StateBatch
from krammar.testing import KafkaBroker
from krammar.wire.batches import read_batches
from tests.authorization.support import log_in
from tests.broker.requests import batch, create_topic, open_transaction, produce, produce_request
from tests.broker.share.support import (
    ACCEPT,
    GROUP,
    OK,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    configure,
)
from tests.broker.support import RawClient
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _from_the_beginning(broker: Broker) -> None:
    configure(broker, auto_offset_reset="earliest")


@pytest.fixture
def topic(client: RawClient) -> UUID:
    return create_topic(client, "t")


@pytest.fixture
def member(broker: Broker, topic: UUID) -> Iterator[Member]:
    member = Member(broker.port, topic)
    yield member
    member.close()


@pytest.fixture
def other(broker: Broker, topic: UUID) -> Iterator[Member]:
    member = Member(broker.port, topic, "other")
    yield member
    member.close()


def fill(client: RawClient, *sizes: int) -> None:
    """Produce record batches of these sizes."""
    for size in sizes:
        assert produce(client, "t", batch(*[b"v"] * size)).error_code == 0


# -- fetching


@pytest.mark.parametrize("version", [1, 2])
def test_members_get_different_records(
    client: RawClient, member: Member, other: Member, version: int
) -> None:
    fill(client, 3, 2, 4)
    first = member.part(max_records=4, version=version)
    assert (first.error_code, first.acknowledge_error_code) == (OK, OK)
    offsets = [record.offset for each in read_batches(first.records) for record in each]
    assert offsets == [0, 1, 2, 3, 4]
    assert other.acquire(version=version) == [(5, 8, 1)]
    assert member.acquire(version=version) == []


def test_the_response_names_the_time_of_the_locks(broker: Broker, member: Member) -> None:
    assert member.ask().acquisition_lock_timeout_ms == 30_000
    configure(broker, record_lock_duration_ms="20000")
    assert member.ask().acquisition_lock_timeout_ms == 20_000


def test_only_batches_with_acquired_records_are_sent(client: RawClient, member: Member) -> None:
    fill(client, 2, 2, 2)
    member.acquire()
    part = member.part((0, 1, ACCEPT), (2, 3, RELEASE), (4, 5, ACCEPT))
    assert [each.base_offset for each in read_batches(part.records)] == [2]
    assert [(each.first_offset, each.delivery_count) for each in part.acquired_records] == [(2, 2)]


def test_a_strict_limit_cuts_a_batch(client: RawClient, member: Member) -> None:
    fill(client, 10)
    assert member.acquire(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert member.acquire(max_records=3) == [(3, 9, 1)]


def test_a_fetch_waits_for_records(client: RawClient, member: Member) -> None:
    member.send(max_wait_ms=60_000)
    fill(client, 1)
    assert acquired(member.client.receive()) == [(0, 0, 1)]


def test_a_fetch_waits_for_records_that_another_member_returns(
    client: RawClient, member: Member, other: Member
) -> None:
    fill(client, 4)
    member.acquire()
    other.send(max_wait_ms=60_000)
    assert member.acknowledge((0, 1, ACCEPT), (2, 3, RELEASE)) == OK
    assert acquired(other.client.receive()) == [(2, 3, 2)]


def test_a_fetch_ends_without_records(member: Member) -> None:
    member.ask()
    response = member.ask(max_wait_ms=1)
    assert (response.error_code, response.responses) == (OK, [])


def test_the_first_response_names_all_partitions(broker: Broker, client: RawClient) -> None:
    member = Member(broker.port, create_topic(client, "two", 2))
    assert produce(client, "two", batch(b"v"), 1).error_code == 0
    (topic,) = member.ask(partitions=[0, 1]).responses
    parts = sorted((each.partition_index, len(each.acquired_records)) for each in topic.partitions)
    assert parts == [(0, 0), (1, 1)]
    assert member.ask(partitions=[]).responses == []
    member.close()


def test_a_fetch_of_no_bytes_gets_no_records(client: RawClient, member: Member) -> None:
    fill(client, 1)
    assert member.acquire(max_bytes=0) == []
    assert member.acquire() == [(0, 0, 1)]


def test_all_partitions_get_their_turn(broker: Broker, client: RawClient) -> None:
    topic = create_topic(client, "two", 2)
    for partition in (0, 1):
        for _ in range(2):
            assert produce(client, "two", batch(b"v"), partition).error_code == 0
    member = Member(broker.port, topic)
    seen = []
    for _ in range(2):
        response = member.ask(partitions=[0, 1], max_records=1)
        (found,) = response.responses
        seen += [part.partition_index for part in found.partitions if part.acquired_records]
    assert sorted(seen) == [0, 1]
    member.close()


def test_new_records_wait_while_too_many_are_locked(
    broker: Broker, client: RawClient, member: Member
) -> None:
    configure(broker, partition_max_record_locks="100")
    fill(client, 100, 100)
    assert member.acquire(max_records=1) == [(0, 99, 1)]
    assert member.acquire() == []
    assert member.acquire((0, 98, ACCEPT), max_records=1) == [(100, 199, 1)]


def test_a_new_group_begins_at_the_end(broker: Broker, client: RawClient, member: Member) -> None:
    configure(broker, auto_offset_reset="latest")
    fill(client, 5)
    assert member.acquire() == []
    fill(client, 2)
    assert member.acquire() == [(5, 6, 1)]


def test_a_new_group_begins_at_a_time(broker: Broker, client: RawClient, member: Member) -> None:
    configure(broker, auto_offset_reset="by_duration:PT1M")
    now = broker.timers.now_ms()
    for age in (90_000, 30_000):
        data = batch(b"1", b"2", timestamp=now - age)
        assert produce(client, "t", data).error_code == 0
    assert member.acquire() == [(2, 3, 1)]


# -- acknowledging


def test_acknowledged_records_are_not_delivered_again(
    client: RawClient, member: Member, other: Member
) -> None:
    fill(client, 6)
    member.acquire()
    assert member.acknowledge((0, 2, ACCEPT), (3, 5, RELEASE, REJECT, RELEASE)) == OK
    assert other.acquire() == [(3, 3, 2), (5, 5, 2)]


def test_a_fetch_acknowledges_first(client: RawClient, member: Member) -> None:
    fill(client, 3)
    member.acquire()
    part = member.part((0, 0, ACCEPT), (1, 2, RELEASE))
    assert part.acknowledge_error_code == OK
    assert [(each.first_offset, each.last_offset) for each in part.acquired_records] == [(1, 2)]
    assert member.part((2, 2, ACCEPT)).acknowledge_error_code == OK
    part = member.part((2, 2, ACCEPT))
    assert (part.error_code, part.acknowledge_error_code) == (OK, ErrorCode.INVALID_RECORD_STATE)


def test_records_of_others_cannot_be_acknowledged(
    client: RawClient, member: Member, other: Member
) -> None:
    fill(client, 3)
    member.acquire()
    other.acquire()
    assert other.acknowledge((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert member.acknowledge((0, 2, ACCEPT)) == OK


@pytest.mark.parametrize(
    ("acks", "options"),
    [
        ([(2, 1, ACCEPT)], {}),
        ([(1, 2, ACCEPT), (0, 0, ACCEPT)], {}),
        ([(0, 2)], {}),
        ([(0, 2, ACCEPT, ACCEPT)], {}),
        ([(0, 2, 5)], {}),
        ([(0, 2, -1)], {}),
        ([(0, 2, RENEW)], {}),
        ([(0, 2, RENEW)], {"version": 1}),
        ([(0, 9, ACCEPT)], {}),
    ],
)
def test_invalid_acknowledgements_are_refused(
    client: RawClient, member: Member, acks: list[tuple[int, ...]], options: dict[str, Any]
) -> None:
    fill(client, 3)
    member.acquire()
    assert member.acknowledge(*acks, **options) == ErrorCode.INVALID_REQUEST
    assert member.acknowledge((0, 2, ACCEPT)) == OK


def test_partitions_that_were_not_fetched_have_nothing_to_acknowledge(
    client: RawClient, member: Member
) -> None:
    fill(client, 1)
    member.acquire()
    assert member.acknowledge((0, 0, ACCEPT), partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member.topic = UUID(int=77)
    assert member.acknowledge((0, 0, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID


# -- locks


def test_a_lock_ends_by_the_clock(
    broker: Broker, client: RawClient, member: Member, other: Member
) -> None:
    fill(client, 2)
    member.acquire()
    other.send(max_wait_ms=600_000)
    broker.advance_clock(31_000)
    assert acquired(other.client.receive()) == [(0, 1, 2)]
    assert member.acknowledge((0, 1, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_lock_can_be_extended(
    broker: Broker, client: RawClient, member: Member, other: Member
) -> None:
    fill(client, 2)
    member.acquire()
    broker.advance_clock(20_000)
    nothing = dict.fromkeys(("max_bytes", "min_bytes", "max_records", "max_wait_ms"), 0)
    part = member.part((0, 1, RENEW), is_renew_ack=True, **nothing)
    assert part.acknowledge_error_code == OK
    broker.advance_clock(20_000)
    assert other.acquire() == []
    assert member.acknowledge((0, 0, RENEW), is_renew_ack=True) == OK
    configure(broker, renew_acknowledge_enable="false")
    assert member.acknowledge((0, 0, RENEW), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    assert member.acknowledge((0, 1, ACCEPT)) == OK


def test_a_request_that_extends_locks_fetches_nothing(client: RawClient, member: Member) -> None:
    fill(client, 2)
    member.acquire()
    response = member.ask((0, 1, RENEW), is_renew_ack=True)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_record_is_delivered_only_so_often(
    broker: Broker, client: RawClient, member: Member
) -> None:
    configure(broker, delivery_count_limit="2")
    fill(client, 2)
    assert member.acquire() == [(0, 1, 1)]
    assert member.acquire((0, 0, ACCEPT), (1, 1, RELEASE)) == [(1, 1, 2)]
    assert member.acquire((1, 1, RELEASE)) == []


# -- sessions


def test_a_session_counts_requests(member: Member) -> None:
    assert member.ask(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge(epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.ask(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.ask().error_code == OK
    assert member.ask(epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(epoch=5) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge() == []
    assert member.ask().error_code == OK


def test_the_first_request_acknowledges_nothing(member: Member) -> None:
    assert member.ask((0, 0, ACCEPT)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("field", ["group_id", "member_id"])
@pytest.mark.parametrize("value", ["", None])
def test_group_and_member_are_required(member: Member, field: str, value: str | None) -> None:
    request = member.request()
    setattr(request, field, value)
    if field == "member_id" and value is None:
        request.member_id = "m" * 37
    assert member.client.call(request).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("way", ["fetch", "acknowledge", "disconnect"])
def test_the_end_of_a_session_returns_its_records(
    client: RawClient, member: Member, other: Member, way: str
) -> None:
    fill(client, 3)
    member.acquire()
    other.send(max_wait_ms=600_000)
    if way == "fetch":
        part = member.part((0, 0, ACCEPT), epoch=-1)
        assert (part.acknowledge_error_code, part.acquired_records) == (OK, [])
    elif way == "acknowledge":
        assert member.acknowledge((0, 0, ACCEPT), epoch=-1) == OK
    else:
        assert member.acknowledge((0, 0, ACCEPT)) == OK
        member.close()
    assert acquired(other.client.receive()) == [(1, 2, 2)]


def test_a_member_that_begins_again_has_its_records(client: RawClient, member: Member) -> None:
    fill(client, 3)
    member.acquire()
    assert member.acquire(epoch=0) == []
    member.epoch = 1
    assert member.acknowledge((0, 2, ACCEPT)) == OK


def test_there_are_only_so_many_sessions() -> None:
    with Broker.start(properties={"group.share.max.share.sessions": "1"}) as broker:
        with RawClient(broker.port) as client:
            topic = create_topic(client, "t")
        member, other = Member(broker.port, topic), Member(broker.port, topic, "other")
        assert member.ask().error_code == OK
        assert other.ask(max_wait_ms=1).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        member.close()
        handlers = broker.handlers.of(ShareFetchHandlers)
        until(lambda: broker.call(len, handlers.sessions) == 0)
        assert other.ask().error_code == OK
        other.close()


def test_partitions_leave_a_session(client: RawClient, member: Member) -> None:
    member.ask()
    fill(client, 1)
    request = member.request(partitions=[])
    request.forgotten_topics_data = [
        ShareFetchRequest.ForgottenTopic(topic_id=member.topic, partitions=[0])
    ]
    assert acquired(member.client.call(request)) == []
    member.epoch += 1
    assert member.acquire() == [(0, 0, 1)]


# -- rights and faults


def test_topics_that_a_member_may_not_read() -> None:
    rules = [
        {"allow": "alice", "operation": "read", "group": GROUP},
        {"allow": "alice", "operation": "read", "topic": "t"},
    ]
    with KafkaBroker.start(
        topics=["t", "u"], sasl="plain", users={"alice": "alice", "bob": "bob"}, acls=rules
    ) as broker:
        broker.produce("t", [b"1"])
        configure(broker.broker, auto_offset_reset="earliest")
        port = broker.broker.port
        ids = {name: topic.topic_id for name, topic in broker.broker.cluster.topics.items()}
        with log_in(port, "alice") as alice, log_in(port, "bob") as bob:
            refused = Member(bob, ids["t"]).ask()
            assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            member = Member(alice, ids["u"])
            assert member.part().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            member.topic = ids["t"]
            assert member.acquire() == [(0, 0, 1)]
            broker.produce("t", [b"2"])
            broker.deny("alice", "read", topic="t")
            request = member.request()
            request.topics = []  # the session has the topic
            (topic,) = alice.call(request).responses
            assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (topic.partitions[0].records, topic.partitions[0].acquired_records) == (b"", [])
            member.epoch += 1
            assert member.acknowledge((0, 0, ACCEPT)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_faults() -> None:
    with KafkaBroker.start(topics=["t"], records={"t": [b"1", b"2"]}) as broker:
        configure(broker.broker, auto_offset_reset="earliest")
        member = Member(broker.broker.port, broker.broker.cluster.topics["t"].topic_id)
        broker.faults.on("ShareFetch", topic="t").answer("NOT_LEADER_OR_FOLLOWER").once()
        assert member.part().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        member.epoch = 0  # the broker did not handle the request
        assert member.acquire() == [(0, 1, 1)]
        broker.faults.on("ShareAcknowledge").answer("INVALID_RECORD_STATE").once()
        assert member.acknowledge((0, 1, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
        member.epoch -= 1
        assert member.acknowledge((0, 1, ACCEPT)) == OK
        member.close()


# -- the log and the metadata


def test_unknown_partitions_are_errors(client: RawClient, member: Member) -> None:
    fill(client, 1)
    response = member.ask(partitions=[0, 7])
    assert {each.partition_index: each.error_code for each in response.responses[0].partitions} == {
        0: OK,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    member.topic = UUID(int=77)
    part = next(
        part
        for topic in member.ask().responses
        if topic.topic_id == member.topic
        for part in topic.partitions
    )
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_deletion_of_the_topic_ends_a_wait(client: RawClient, member: Member) -> None:
    member.ask()
    member.send(max_wait_ms=600_000)
    client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]), 6)
    response = member.client.receive()
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_deleted_records_are_skipped(client: RawClient, member: Member) -> None:
    fill(client, 3, 3)
    member.acquire(max_records=1)
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=4)
    client.call(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])]
        )
    )
    assert member.acquire((0, 2, RELEASE)) == [(4, 5, 1)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(broker: Broker, client: RawClient, member: Member, isolation: str) -> None:
    configure(broker, isolation_level=isolation)
    ended = []
    for name, committed in (("one", False), ("two", True)):
        header = open_transaction(client, name)
        request = produce_request("t", batch(b"1", b"2", **header), transactional_id=name)
        assert client.call(request, 12).responses[0].partition_responses[0].error_code == OK
        before = member.acquire()
        client.call(
            EndTxnRequest(
                transactional_id=name,
                producer_id=header["producer_id"],
                producer_epoch=header["producer_epoch"],
                committed=committed,
            ),
            4,
        )
        ended.append((before, member.acquire()))
    if isolation == "read_committed":
        assert ended == [([], []), ([], [(3, 4, 1)])]
    else:
        assert ended == [([(0, 1, 1)], []), ([(3, 4, 1)], [])]


def test_an_open_transaction_ends_a_wait(broker: Broker, client: RawClient, member: Member) -> None:
    configure(broker, isolation_level="read_committed")
    header = open_transaction(client)
    client.call(produce_request("t", batch(b"1", **header), transactional_id="id"), 12)
    member.send(max_wait_ms=600_000)
    client.call(
        EndTxnRequest(
            transactional_id="id",
            producer_id=header["producer_id"],
            producer_epoch=header["producer_epoch"],
            committed=True,
        ),
        4,
    )
    assert acquired(member.client.receive()) == [(0, 0, 1)]


def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    settings = {"group.share.delivery.count.limit": "3"}
    with Broker.start(data_dir=tmp_path, properties=settings) as broker:
        configure(broker, auto_offset_reset="earliest")
        with RawClient(broker.port) as client:
            topic = create_topic(client, "t")
            fill(client, 4)
        member = Member(broker.port, topic)
        assert member.acquire() == [(0, 3, 1)]
        assert member.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)) == OK
    with Broker.start(data_dir=tmp_path, properties=settings) as broker:
        state = broker.call(broker.share_states.read_summary, GROUP, topic, 0).state
        assert (state.start_offset, state.delivery_complete_count) == (1, 1)
        assert StateBatch(2, 2, 4, 1) in state.batches
        again = Member(broker.port, topic)
        assert [each[:2] for each in again.acquire()] == [(1, 1), (3, 3)]
        again.close()
    member.close()


def test_a_reset_of_the_group_replaces_the_state(
    broker: Broker, client: RawClient, member: Member
) -> None:
    fill(client, 4)
    member.acquire()
    broker.call(broker.share_states.initialize, GROUP, member.topic, 0, 7, 2)
    # As if another leader had taken over.
    assert member.acknowledge((0, 3, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert member.acknowledge((0, 3, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.acquire() == [(2, 3, 1)]
    assert member.acknowledge((2, 3, ACCEPT)) == OK
