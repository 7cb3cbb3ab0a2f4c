"""Committed offsets over sockets: in every version, over restarts, in transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    AddOffsetsToTxnRequest,
    CoordinatorType,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    ErrorCode,
    FindCoordinatorRequest,
    GroupMetadataKey,
    GroupMetadataValue,
    InitProducerIdRequest,
    ListGroupsRequest,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)

from krammar.broker import Broker
from krammar.broker.errors import ApiError
from krammar.broker.groups.shard import Shard
from krammar.util.turns import finish
from krammar.wire.batches import read_batches
from tests.broker.groups.support import (
    GROUP,
    as_member,
    codes,
    commit_request,
    fetch,
    heartbeat_request,
    join,
    join_request,
    leave_request,
    stable_member,
)
from tests.broker.requests import create_topic
from tests.broker.support import BrokerProcess, RawClient

NOTHING = (-1, "", ErrorCode.NONE)


class Clock:
    """A broker's clock, which the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize("version", range(2, 11))
def test_committing_in_each_version(client: RawClient, version: int) -> None:
    topic_id = create_topic(client, "t", 2)
    topic = topic_id if version >= 10 else "t"
    response = client.call(commit_request({0: 5, 1: 7}, topic), version)
    assert codes(response) == {0: 0, 1: 0}
    (answered,) = response.topics
    assert (answered.topic_id, answered.name) == (
        (topic_id, "") if version >= 10 else (answered.topic_id, "t")
    )
    assert fetch(client, 7, partitions=(1, 0)) == {
        ("t", 1): (7, "note", 0),
        ("t", 0): (5, "note", 0),
    }


@pytest.mark.parametrize("version", range(1, 11))
def test_fetching_in_each_version(client: RawClient, version: int) -> None:
    topic_id = create_topic(client, "t", 2)
    topic = topic_id if version >= 10 else "t"
    client.call(commit_request({1: 7}, leader_epoch=0), 9)
    found = fetch(client, version, topic, (0, 1))
    assert found == {(topic, 0): NOTHING, (topic, 1): (7, "note", 0)}
    assert fetch(client, version, topic, group="nothing") == {(topic, 0): NOTHING}
    if version >= 2:
        assert fetch(client, version, None) == {(topic, 1): (7, "note", 0)}
        assert fetch(client, version, None, group="nothing") == {}


def test_many_offsets_of_a_deleted_topic_are_forgotten_in_slices(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.connections.slices.budget.seconds = 0
    few_at_once(monkeypatch)
    create_topic(client, "t", 9)
    client.call(commit_request(dict.fromkeys(range(9), 5)), 9)
    create_topic(client, "kept")
    client.call(commit_request({0: 1}, "kept"), 9)
    slices = broker.connections.slices
    before = broker.call(lambda: slices.count)
    deletion = [DeleteTopicsRequest.DeleteTopicState(name="t")]
    client.call(DeleteTopicsRequest(topics=deletion, timeout_ms=1000), 6)
    while len(fetch(client, 7, None)) > 1:
        pass
    assert broker.call(lambda: slices.count) - before >= 4
    assert fetch(client, 7, None) == {("kept", 0): (1, "note", 0)}


def test_offsets_of_a_new_topic_with_the_same_name_are_kept(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of the old one are forgotten after the new one has some."""
    old = create_topic(client, "t")
    client.call(commit_request({0: 5}), 9)
    client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    new = create_topic(client, "t")
    client.call(commit_request({0: 7}), 9)
    group: Any = broker.call(lambda: broker.groups.find(GROUP))
    shard: Any = broker.call(lambda: next(iter(broker.groups._shards.all())))
    where = (group.group_id, ("t", 0))
    assert [shard.offsets.is_of(where, each) for each in (old, new)] == [False, True]


def test_pending_offsets_of_a_new_topic_with_the_same_name_are_kept(
    broker: Broker, client: RawClient
) -> None:
    old = create_topic(client, "t")
    client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    new = create_topic(client, "t")
    transaction = Transaction(client)
    transaction.commit(7)
    shard: Any = broker.call(lambda: next(iter(broker.groups._shards.all())))
    where = (GROUP, ("t", 0))
    assert [shard.offsets.is_of(where, each) for each in (old, new)] == [False, True]


def test_a_group_that_gets_a_member_while_it_is_deleted_keeps_new_offsets(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_at_once(monkeypatch)
    create_topic(client, "t", 4)
    client.call(commit_request(dict.fromkeys(range(4), 5)), 9)
    steps = broker.groups.delete(GROUP)
    broker.call(lambda: next(steps))
    joined = stable_member(client)
    response = client.call(commit_request({3: 9}, **as_member(joined)), 9)
    assert codes(response) == {3: 0}
    with pytest.raises(ApiError) as caught:
        broker.call(lambda: list(steps))
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    assert fetch(client, 7, None)["t", 3] == (9, "note", 0)


@pytest.mark.parametrize("pauses", range(1, 5))
def test_offsets_of_a_topic_that_gets_a_reader_while_they_are_deleted(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch, pauses: int
) -> None:
    few_at_once(monkeypatch)
    create_topic(client, "t", 4)
    client.call(commit_request(dict.fromkeys(range(4), 5)), 9)
    steps = broker.groups.offsets.delete(GROUP, [("t", index) for index in range(4)])
    for _ in range(pauses):
        broker.call(lambda: next(steps))
    joined = stable_member(client)
    response = client.call(commit_request({3: 9}, **as_member(joined)), 9)
    assert codes(response) == {3: 0}
    results = broker.call(lambda: finish(steps))
    assert results["t", 0] is ErrorCode.NONE
    assert fetch(client, 7, None)["t", 3] == (9, "note", 0)


def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps delete two offsets each."""
    monkeypatch.setattr(Shard, "forgotten_at_once", 2)


def test_a_partition_that_is_named_twice(client: RawClient) -> None:
    create_topic(client, "t", 2)
    client.call(commit_request({0: 5}), 9)
    topics = [OffsetFetchRequest.Topic(name="t", partition_indexes=[0, 1, 0])]
    response = client.call(OffsetFetchRequest(group_id=GROUP, topics=topics), 7)
    (topic,) = response.topics
    assert [partition.committed_offset for partition in topic.partitions] == [5, -1, 5]


def test_topics_that_are_not_there(client: RawClient) -> None:
    topic_id = create_topic(client, "t")
    other = topic_id.__class__(int=topic_id.int ^ 1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(client.call(commit_request({0: 1}, "other"), 9)) == {0: unknown}
    assert codes(client.call(commit_request({0: 1, 1: 1}), 9)) == {0: 0, 1: unknown}
    code = ErrorCode.UNKNOWN_TOPIC_ID
    assert codes(client.call(commit_request({0: 1}, other), 10)) == {0: code}
    assert fetch(client, 10, other) == {(other, 0): (-1, "", code)}
    assert fetch(client, 9, "other") == {("other", 0): NOTHING}


def test_a_text_that_is_too_long(client: RawClient) -> None:
    create_topic(client, "t")
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes(client.call(commit_request({0: 1}, metadata="x" * 4097), 9)) == {0: code}
    # Java counts a character beyond the 16-bit ones twice.
    wide = "\U0001d11e" * 2049
    assert codes(client.call(commit_request({0: 1}, metadata=wide), 9)) == {0: code}
    assert codes(client.call(commit_request({0: 1}, metadata="x" * 4096), 9)) == {0: 0}
    assert codes(client.call(commit_request({0: 1}, metadata=None), 9)) == {0: 0}
    assert fetch(client, 7) == {("t", 0): (1, "", 0)}


@pytest.mark.parametrize("retention", [2**63 - 1, -(2**63)])
def test_extreme_numbers(client: RawClient, retention: int) -> None:
    create_topic(client, "t")
    for offset in (2**63 - 1, -(2**63)):
        request = commit_request({0: offset}, retention_time_ms=retention)
        assert codes(client.call(request, 4)) == {0: 0}
        assert fetch(client, 7) == {("t", 0): (offset, "note", 0)}


def test_a_group_id_that_cannot_be_written_down(client: RawClient) -> None:
    create_topic(client, "t")
    code = ErrorCode.INVALID_GROUP_ID
    assert codes(client.call(commit_request({0: 1}, group_id="x" * 32768), 9)) == {0: code}


def test_only_members_of_the_generation_commit(client: RawClient) -> None:
    create_topic(client, "t")
    joined = stable_member(client)
    me = as_member(joined)

    def commit(version: int = 9, **who: object) -> int:
        return codes(client.call(commit_request({0: 1}, **who), version))[0]

    assert commit(**me) == ErrorCode.NONE
    assert commit() == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(**{**me, "generation_id_or_member_epoch": 2}) == ErrorCode.ILLEGAL_GENERATION
    assert commit(**{**me, "member_id": "nobody"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(**me, group_instance_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    other = {**me, "group_id": "nothing"}
    assert commit(8, **other) == ErrorCode.ILLEGAL_GENERATION
    assert commit(9, **other) == ErrorCode.GROUP_ID_NOT_FOUND
    again = join(client, member_id=joined.member_id)
    assert commit(**as_member(again)) == ErrorCode.REBALANCE_IN_PROGRESS
    client.call(leave_request(joined))
    assert commit() == ErrorCode.NONE


def test_a_client_that_is_no_member_has_a_simple_group(client: RawClient) -> None:
    create_topic(client, "t")
    assert codes(client.call(commit_request({0: 1}), 9)) == {0: 0}
    (group,) = client.call(ListGroupsRequest()).groups
    assert (group.group_id, group.protocol_type, group.group_state) == (GROUP, "", "Empty")
    # Kafka has an empty group id for clients of old.
    assert codes(client.call(commit_request({0: 1}, group_id=""), 9)) == {0: 0}


def delete_request(*partitions: int, topic: str = "t", group: str = GROUP) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.Topic(
                name=topic,
                partitions=[OffsetDeleteRequest.Partition(partition_index=p) for p in partitions],
            )
        ],
    )


def test_offsets_are_deleted_unless_members_read_the_topic(client: RawClient) -> None:
    create_topic(client, "t", 2)
    create_topic(client, "u")
    client.call(commit_request({0: 1, 1: 2}), 9)
    client.call(commit_request({0: 3}, "u"), 9)
    response = client.call(delete_request(1, 2))
    assert response.error_code == ErrorCode.NONE
    assert codes(response) == {1: 0, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetch(client, 7, None) == {("t", 0): (1, "note", 0), ("u", 0): (3, "note", 0)}
    joined = stable_member(client)
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert codes(client.call(delete_request(0))) == {0: code}
    assert codes(client.call(delete_request(0, topic="u"))) == {0: 0}
    assert fetch(client, 7, None) == {("t", 0): (1, "note", 0)}
    client.call(leave_request(joined))
    assert codes(client.call(delete_request(0))) == {0: 0}
    missing = client.call(delete_request(0, group="nothing"))
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert client.call(delete_request(0, group="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_a_group_of_another_kind_stay_while_it_has_members(client: RawClient) -> None:
    create_topic(client, "t")
    client.call(commit_request({0: 1}), 9)
    joined = join(client, protocol_type="connect")
    assert client.call(delete_request(0)).error_code == ErrorCode.NON_EMPTY_GROUP
    client.call(leave_request(joined))
    assert client.call(delete_request(0)).error_code == ErrorCode.NONE


def test_a_deleted_topic_takes_its_offsets_along(client: RawClient) -> None:
    create_topic(client, "t")
    create_topic(client, "u")
    client.call(commit_request({0: 1}), 9)
    client.call(commit_request({0: 2}, "u"), 9)
    client.call(
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1000
        ),
        6,
    )
    create_topic(client, "t")
    assert fetch(client, 7, None) == {("u", 0): (2, "note", 0)}


def test_what_is_written_is_what_kafka_writes(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        topic_id = create_topic(client, "t")
        client.call(commit_request({0: 5}, leader_epoch=3), 9)
        client.call(commit_request({0: 6}, retention_time_ms=1000), 4)
        joined = stable_member(client)
        client.call(leave_request(joined))
        client.call(DeleteGroupsRequest(groups_names=[GROUP]))
    data = (tmp_path / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()
    first, retained, stable, empty, offset, group = (
        record for batch in read_batches(data) for record in batch
    )
    key = OffsetCommitKey(group=GROUP, topic="t", partition=0)
    assert first.key == retained.key == offset.key == key.encode()
    assert first.value is not None and retained.value is not None
    value = OffsetCommitValue.decode(first.value)
    assert (value.version, value.offset, value.leader_epoch) == (4, 5, 3)
    assert (value.metadata, value.topic_id) == ("note", topic_id)
    value = OffsetCommitValue.decode(retained.value)
    assert (value.version, value.offset) == (1, 6)
    assert value.expire_timestamp == value.commit_timestamp + 1000
    assert stable.key == empty.key == group.key == GroupMetadataKey(group=GROUP).encode()
    assert stable.value is not None and empty.value is not None
    state = GroupMetadataValue.decode(stable.value)
    assert (state.version, state.generation, state.protocol) == (3, 1, "range")
    assert (state.protocol_type, state.leader) == ("consumer", joined.member_id)
    assert state.current_state_timestamp > 0
    (member,) = state.members
    assert (member.member_id, member.client_id) == (joined.member_id, "test")
    assert (member.client_host, member.session_timeout) == ("/127.0.0.1", 30_000)
    assert member.subscription == join_request().protocols[0].metadata
    assert member.assignment == joined.member_id.encode()
    state = GroupMetadataValue.decode(empty.value)
    assert (state.generation, state.protocol, state.leader) == (2, None, None)
    assert (state.protocol_type, state.members) == ("consumer", [])
    assert offset.value is group.value is None


def test_offsets_and_members_are_there_after_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        joined = stable_member(client, group_instance_id="one")
        me = {**as_member(joined), "group_instance_id": "one"}
        assert codes(client.call(commit_request({0: 5, 1: 6}, **me), 9)) == {0: 0, 1: 0}
        client.call(commit_request({0: 1}, group_id="gone"), 9)
        client.call(DeleteGroupsRequest(groups_names=["gone"]))
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert fetch(client, 7) == {("t", 0): (5, "note", 0)}
        (group,) = client.call(DescribeGroupsRequest(groups=[GROUP])).groups
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert group.members[0].member_assignment == joined.member_id.encode()
        # It continues normally.
        assert client.call(heartbeat_request(joined, group_instance_id="one")).error_code == 0
        assert codes(client.call(commit_request({0: 7}, **me), 9)) == {0: 0}
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert codes(client.call(delete_request(0))) == {0: code}
        groups = client.call(ListGroupsRequest()).groups
        assert [g.group_id for g in groups] == [GROUP]


def test_members_that_do_not_come_back_after_a_restart_are_out(tmp_path: Path) -> None:
    settings = {"group.min.session.timeout.ms": "1"}
    with (
        Broker.start(data_dir=tmp_path, properties=settings) as broker,
        RawClient(broker.port) as client,
    ):
        stable_member(client, session_timeout_ms=1000)
    with (
        Broker.start(data_dir=tmp_path, properties=settings) as broker,
        RawClient(broker.port) as client,
    ):
        joined = join(client)
        assert joined.generation_id == 2
        assert [m.member_id for m in joined.members] == [joined.member_id]


def test_acknowledged_commits_survive_a_crash(tmp_path: Path) -> None:
    with BrokerProcess(["--data-dir", tmp_path, "--port", "0"]) as process:
        with RawClient(process.port) as client:
            create_topic(client, "t")
            for offset in range(20):
                assert codes(client.call(commit_request({0: offset}), 9)) == {0: 0}
        process.kill()
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert fetch(client, 7) == {("t", 0): (19, "note", 0)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aging(clock: Clock) -> Iterator[Broker]:
    """A broker whose clock the test moves and that keeps offsets for a minute."""
    with Broker.start(clock=clock, properties={"offsets.retention.minutes": "1"}) as broker:
        yield broker


def test_offsets_of_a_simple_group_expire_after_their_commit(aging: Broker, clock: Clock) -> None:
    with RawClient(aging.port) as client:
        create_topic(client, "t", 2)
        client.call(commit_request({0: 1}), 9)
        clock.now += 30_000
        client.call(commit_request({1: 2}), 9)
        clock.now += 29_999
        aging.call(aging.groups.offsets.expire)
        assert len(fetch(client, 7, None)) == 2
        clock.now += 1
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {("t", 1): (2, "note", 0)}
        clock.now += 30_000
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {}
        assert client.call(ListGroupsRequest()).groups == []


def test_offsets_of_a_group_expire_after_its_last_member(aging: Broker, clock: Clock) -> None:
    with RawClient(aging.port) as client:
        create_topic(client, "t")
        create_topic(client, "u")
        joined = stable_member(client)
        client.call(commit_request({0: 1}, **as_member(joined)), 9)
        client.call(commit_request({0: 2}, "u", **as_member(joined)), 9)
        clock.now += 60_000
        # No member reads u, so the retention of its offset begins with the commit.
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {("t", 0): (1, "note", 0)}
        client.call(leave_request(joined))
        clock.now += 59_999
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {("t", 0): (1, "note", 0)}
        clock.now += 1
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {}
        assert client.call(ListGroupsRequest()).groups == []


def test_a_retention_of_the_clients_own(aging: Broker, clock: Clock) -> None:
    with RawClient(aging.port) as client:
        create_topic(client, "t")
        client.call(commit_request({0: 1}, retention_time_ms=120_000), 4)
        clock.now += 119_999
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {("t", 0): (1, "note", 0)}
        clock.now += 1
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7, None) == {}


class Transaction:
    """A transactional producer that commits offsets."""

    def __init__(self, client: RawClient, name: str = "writer") -> None:
        self.client = client
        self.name = name
        client.call(
            FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[name])
        )
        answer = client.call(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4
        )
        assert answer.error_code == 0, answer
        self.who = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def commit(self, offset: int, version: int = 3, **changes: object) -> int:
        if version < 5:
            added = self.client.call(
                AddOffsetsToTxnRequest(transactional_id=self.name, group_id=GROUP, **self.who), 3
            )
            assert added.error_code == 0, added
        topic = changes.pop("topic", "t")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=GROUP,
            **self.who,
            topics=[
                TxnOffsetCommitRequest.Topic(
                    **{"name" if isinstance(topic, str) else "topic_id": topic},
                    partitions=[
                        TxnOffsetCommitRequest.Partition(
                            partition_index=0, committed_offset=offset, committed_metadata="txn"
                        )
                    ],
                )
            ],
            **changes,
        )
        return codes(self.client.call(request, version))[0]

    def end(self, *, commit: bool) -> None:
        response = self.client.call(
            EndTxnRequest(transactional_id=self.name, committed=commit, **self.who), 4
        )
        assert response.error_code == 0, response


@pytest.mark.parametrize("version", range(7))
def test_offsets_of_a_transaction_wait_for_its_end(client: RawClient, version: int) -> None:
    topic_id = create_topic(client, "t")
    client.call(commit_request({0: 1}), 9)
    transaction = Transaction(client)
    assert transaction.commit(5, version, topic=topic_id if version >= 6 else "t") == 0
    assert fetch(client, 7) == {("t", 0): (1, "note", 0)}
    unstable = {("t", 0): (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    for fetch_version in (7, 8, 9):
        assert fetch(client, fetch_version, require_stable=True) == unstable
        assert fetch(client, fetch_version, None, require_stable=True) == unstable
    transaction.end(commit=True)
    assert fetch(client, 7, require_stable=True) == {("t", 0): (5, "txn", 0)}


def test_offsets_of_an_aborted_transaction_are_dropped(client: RawClient) -> None:
    create_topic(client, "t")
    transaction = Transaction(client)
    transaction.commit(5)
    transaction.end(commit=False)
    assert fetch(client, 7, require_stable=True) == {("t", 0): NOTHING}


def test_the_newer_commit_wins_over_a_transactions(client: RawClient) -> None:
    create_topic(client, "t")
    transaction = Transaction(client)
    transaction.commit(5)
    client.call(commit_request({0: 9}), 9)
    transaction.end(commit=True)
    assert fetch(client, 7) == {("t", 0): (9, "note", 0)}


def test_who_may_commit_in_a_transaction(client: RawClient) -> None:
    create_topic(client, "t")
    transaction = Transaction(client)
    unknown = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
    assert transaction.commit(1, **unknown) == ErrorCode.ILLEGAL_GENERATION
    joined = stable_member(client)
    assert transaction.commit(1, **unknown) == ErrorCode.UNKNOWN_MEMBER_ID
    stale = {**as_member(joined), "generation_id_or_member_epoch": 7}
    assert transaction.commit(1, **stale) == ErrorCode.ILLEGAL_GENERATION
    assert transaction.commit(1, **as_member(joined)) == ErrorCode.NONE
    # Clients from before KIP-447 do not say who they are.
    assert transaction.commit(2, version=2) == ErrorCode.NONE
    assert transaction.commit(1, topic="other") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    transaction.end(commit=True)
    assert fetch(client, 7) == {("t", 0): (2, "txn", 0)}


@pytest.mark.parametrize("end", [True, False, None])
def test_offsets_of_transactions_after_a_restart(tmp_path: Path, end: bool | None) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        client.call(commit_request({0: 1}), 9)
        transaction = Transaction(client)
        transaction.commit(5)
        if end is not None:
            transaction.end(commit=end)
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert fetch(client, 7) == {("t", 0): (5, "txn", 0) if end else (1, "note", 0)}
        if end is None:
            pending = {("t", 0): (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)}
            assert fetch(client, 7, require_stable=True) == pending
            transaction.client = client
            transaction.end(commit=True)
            assert fetch(client, 7, require_stable=True) == {("t", 0): (5, "txn", 0)}


def test_pending_offsets_keep_a_group_alive(aging: Broker, clock: Clock) -> None:
    with RawClient(aging.port) as client:
        create_topic(client, "t")
        client.call(commit_request({0: 1}), 9)
        transaction = Transaction(client)
        transaction.commit(5)
        clock.now += 50_000
        transaction.client = client
        aging.call(aging.groups.offsets.expire)
        clock.now += 20_000
        aging.call(aging.groups.offsets.expire)
        assert fetch(client, 7) == {("t", 0): (1, "note", 0)}


def test_deleting_a_group_drops_what_is_pending(client: RawClient) -> None:
    create_topic(client, "t")
    transaction = Transaction(client)
    transaction.commit(5)
    (result,) = client.call(DeleteGroupsRequest(groups_names=[GROUP])).results
    assert result.error_code == 0
    transaction.end(commit=True)
    assert fetch(client, 7) == {("t", 0): NOTHING}
