"""Loading groups and offsets from a log: all versions, foreign and corrupt records; and logs that cannot be written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka_wire import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ErrorCode,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    ListGroupsRequest,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)

from krammar.broker import Broker
from krammar.broker.topics import TOPIC
from krammar.wire.batches import Record
from tests.broker.groups.support import (
    GROUP,
    as_member,
    codes,
    commit_request,
    fetch,
    heartbeat_request,
    join_request,
    leave_request,
    stable_member,
    sync_request,
)
from tests.broker.requests import create_topic
from tests.broker.support import RawClient

OFFSETS = "__consumer_offsets"
EMPTY = GroupMetadataValue(version=3, protocol=None, leader=None)


def written(folder: Path, records: Sequence[Record]) -> None:
    """Write a folder with these records in `__consumer_offsets`, one batch per record."""
    with Broker.start(data_dir=folder) as broker:
        broker.call(broker.topics.create, "t", 2)
        broker.call(broker.topics.ensure_internal, OFFSETS)
        log = broker.call(broker.logs.get, OFFSETS, 0)
        assert log is not None
        for record in records:
            broker.call(lambda record=record: log.append_records([record]))


def offset_key(partition: int, group: str = GROUP) -> bytes:
    return OffsetCommitKey(group=group, topic="t", partition=partition).encode()


def group_key(group: str = GROUP) -> bytes:
    return GroupMetadataKey(group=group).encode()


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_all_versions(tmp_path: Path, version: int) -> None:
    value = OffsetCommitValue(version=version, offset=7, metadata="old", commit_timestamp=2**62)
    if version == 0:
        old = LegacyOffsetCommitValue(version=0, offset=7, metadata="old", commit_timestamp=2**62)
        data = old.encode()
    else:
        data = value.encode()
    oldest = LegacyOffsetCommitKey(group=GROUP, topic="t", partition=1).encode()
    written(tmp_path, [Record(key=offset_key(0), value=data), Record(key=oldest, value=data)])
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        found = fetch(client, 7, None)
        assert found == {("t", 0): (7, "old", 0), ("t", 1): (7, "old", 0)}
        broker.call(broker.groups.offsets.expire)
        assert fetch(client, 7, None) == found


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_versions(tmp_path: Path, version: int) -> None:
    subscription = ConsumerProtocolSubscription(version=0, topics=["t"]).encode()
    value = GroupMetadataValue(
        version=version,
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/h",
                session_timeout=30_000,
                subscription=subscription,
                assignment=b"share",
            )
        ],
    )
    written(tmp_path, [Record(key=group_key(), value=value.encode())])
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        (group,) = client.call(DescribeGroupsRequest(groups=[GROUP]), 6).groups
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == ("m", "c", "/h")
        assert (member.member_metadata, member.member_assignment) == (subscription, b"share")
        state = broker.call(broker.groups.find, GROUP)
        assert state is not None
        assert (state.generation, state.leader, state.subscriptions) == (4, "m", {"t"})
        # Before version 1 the session's time counted for rebalances.
        assert state.members["m"].rebalance_timeout == 30_000


def test_what_came_later_counts(tmp_path: Path) -> None:
    value = OffsetCommitValue(version=3, offset=1)
    later = OffsetCommitValue(version=3, offset=2)
    written(
        tmp_path,
        [
            Record(key=offset_key(0), value=value.encode()),
            Record(key=offset_key(1), value=value.encode()),
            Record(key=group_key("gone"), value=EMPTY.encode()),
            Record(key=offset_key(0), value=later.encode()),
            Record(key=offset_key(1)),
            Record(key=group_key("gone")),
            Record(key=group_key("never was")),
        ],
    )
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert fetch(client, 7, None) == {("t", 0): (2, "", 0)}
        assert [g.group_id for g in client.call(ListGroupsRequest()).groups] == [GROUP]


def test_records_that_are_not_understood_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = StreamsGroupMetadataKey(group_id="next").encode()
    value = OffsetCommitValue(version=3, offset=1).encode()
    written(
        tmp_path,
        [
            Record(key=foreign, value=StreamsGroupMetadataValue(version=0, epoch=1).encode()),
            Record(key=b"\x00\x63from the future", value=b"?"),
            Record(key=b"\x00", value=b"?"),
            Record(key=None, value=b"?"),
            Record(key=b"\x00\x01\x00\x09short", value=value),
            Record(key=offset_key(1), value=b"\x00\x09too new"),
            Record(key=group_key(), value=b"\x00\x03"),
            Record(key=offset_key(0), value=value),
        ],
    )
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert fetch(client, 7, None) == {("t", 0): (1, "", 0)}
        assert [g.group_id for g in client.call(ListGroupsRequest()).groups] == [GROUP]
    warnings = [r.getMessage() for r in caplog.records if r.name == "krammar.broker.groups"]
    file = tmp_path / "__consumer_offsets-0" / f"{0:020}.log"
    skipped = [f"{file}: the record at offset {n} is skipped" for n in (2, 3, 4, 5, 6)]
    assert [w.partition(" skipped: ")[0] + " skipped" for w in warnings] == skipped


def refuse_writes(broker: Broker, *, refuse: bool = True) -> None:
    """Make all batches too large for `__consumer_offsets`, or let them in again."""

    def change() -> None:
        broker.topics.set_configs(TOPIC, OFFSETS, {"max.message.bytes": "10" if refuse else None})

    broker.call(change)


def test_what_cannot_be_written_is_not_acknowledged(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    joined = stable_member(client)
    me = as_member(joined)
    client.call(commit_request({0: 1}, **me), 9)
    refuse_writes(broker)
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes(client.call(commit_request({0: 2}, **me), 9)) == {0: code}
    assert client.call(join_request(group_id="new"), 9).error_code == code
    assert client.call(DescribeGroupsRequest(groups=["new"]), 6).groups[0].error_code != 0
    again = client.call(join_request(joined.member_id), 9)
    assert client.call(sync_request(again, {joined.member_id: b"x"}), 5).error_code == code
    assert fetch(client, 7) == {("t", 0): (1, "note", 0)}
    refuse_writes(broker, refuse=False)
    # The group had to begin again.
    assert client.call(heartbeat_request(again), 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = client.call(join_request(joined.member_id), 9)
    assert client.call(sync_request(again, {joined.member_id: b"x"}), 5).assignment == b"x"
    assert codes(client.call(commit_request({0: 3}, **as_member(again)), 9)) == {0: 0}
    assert fetch(client, 7) == {("t", 0): (3, "note", 0)}
    # An empty generation that is not written does no harm.
    refuse_writes(broker)
    assert client.call(leave_request(again), 5).error_code == ErrorCode.NONE
    assert client.call(DescribeGroupsRequest(groups=[GROUP]), 6).groups[0].group_state == "Empty"


def test_more_is_deleted_than_one_batch_can_say(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t", 60)
    client.call(commit_request(dict.fromkeys(range(60), 5)), 9)
    log = broker.call(broker.logs.get, OFFSETS, 0)
    assert log is not None
    before = broker.call(lambda: log.end_offset)
    broker.call(broker.topics.set_configs, TOPIC, OFFSETS, {"max.message.bytes": "500"})
    (result,) = client.call(DeleteGroupsRequest(groups_names=[GROUP])).results
    assert result.error_code == ErrorCode.NONE
    batches = broker.call(lambda: list(log.reader.batches(before)))
    assert len(batches) > 4
    assert all(batch.size_in_bytes <= 500 for batch in batches)
    assert sum(batch.records_count for batch in batches) == 61
    assert fetch(client, 7, None) == {}
