"""The states of share partitions: what is stored, what is refused, and what the log retains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from kafka_wire import ErrorCode, ShareSnapshotValue, ShareUpdateValue

from krammar.broker import Broker
from krammar.broker.errors import ApiError
from krammar.broker.share.records import (
    ShareState,
    ShareStateUpdate,
    StateBatch,
    combined,
)
from krammar.broker.share.state import ShareStates, coordinator_key, parse_coordinator_key
from krammar.logfiles.internal_topics import decode_record
from krammar.wire.batches import Record
from tests.support.waiting import until

T = TypeVar("T")

STATES = "__share_group_state"
GROUP = "workers"
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
NEVER_STARTED = ShareState(0, -1, -1, ())


class Partition:
    """Partition 0 of a topic, as a share group reads it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.states: ShareStates = broker.share_states
        self.topic = broker.call(broker.topics.create, "t", 1).topic_id

    def read(self, leader_epoch: int = 0) -> ShareState:
        return self.broker.call(self.states.load, GROUP, self.topic, 0, leader_epoch)

    def write(
        self, *batches: StateBatch, start: int = -1, complete: int = 0, **epochs: int
    ) -> None:
        update = ShareStateUpdate(
            epochs.get("state_epoch", 0), epochs.get("leader_epoch", 0), start, complete, batches
        )
        self.broker.call(self.states.store, GROUP, self.topic, 0, update)

    def initialize(self, state_epoch: int = 0, start_offset: int = 0) -> None:
        args = (GROUP, self.topic, 0, state_epoch, start_offset)
        self.broker.call(self.states.initialize, *args)

    def delete(self) -> None:
        self.broker.call(self.states.delete, GROUP, self.topic, 0)

    def records(self) -> list[Any]:
        """Return the decoded values of the state's records; None for a tombstone."""
        log = self.broker.call(self.broker.logs.get, STATES, 0)
        assert log is not None
        records = self.broker.call(lambda: [r for batch in log.reader.batches() for r in batch])
        found = [decode_record(STATES, record.key, record.value) for record in records]
        assert None not in found
        return [each.value for each in found if each is not None]


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """A share partition of a broker with one partition of `__share_group_state`."""
    with Broker.start(data_dir=tmp_path) as broker:
        yield Partition(broker)


def test_state_that_was_never_initialized(partition: Partition) -> None:
    assert partition.read() == NEVER_STARTED
    summary = partition.broker.call(partition.states.read_summary, GROUP, partition.topic, 0)
    assert summary is not None and summary.leader_epoch == 0


def test_written_batches_are_read_back(partition: Partition) -> None:
    partition.initialize(state_epoch=1, start_offset=10)
    assert partition.read() == ShareState(1, 10, 0, ())
    acquired = StateBatch(10, 14, AVAILABLE, 1)
    partition.write(acquired, state_epoch=1)
    partition.write(StateBatch(12, 12, ACKNOWLEDGED, 1), complete=1, state_epoch=1)
    batches = (
        StateBatch(10, 11, AVAILABLE, 1),
        StateBatch(12, 12, ACKNOWLEDGED, 1),
        StateBatch(13, 14, AVAILABLE, 1),
    )
    assert partition.read() == ShareState(1, 10, 1, batches)
    partition.write(start=13, complete=0, state_epoch=1)
    assert partition.read() == ShareState(1, 13, 0, batches[2:])


def test_states_survive_a_restart(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        partition = Partition(broker)
        partition.initialize(start_offset=3)
        partition.write(StateBatch(4, 9, ARCHIVED, 5), complete=6)
        before = partition.read()
    with Broker.start(data_dir=tmp_path) as broker:
        partition.broker, partition.states = broker, broker.share_states
        assert partition.read() == before == ShareState(0, 3, 6, (StateBatch(4, 9, ARCHIVED, 5),))


def test_older_leaders_are_fenced(partition: Partition) -> None:
    partition.initialize()
    partition.read(leader_epoch=4)
    for refused in (lambda: partition.read(3), lambda: partition.write(leader_epoch=3)):
        with pytest.raises(ApiError) as error:
            refused()
        assert error.value.code is ErrorCode.FENCED_LEADER_EPOCH
    partition.write(leader_epoch=4)


def test_writers_with_an_older_state_epoch_are_fenced(partition: Partition) -> None:
    partition.initialize(state_epoch=2)
    for refused in (
        lambda: partition.write(state_epoch=1),
        lambda: partition.initialize(state_epoch=1),
    ):
        with pytest.raises(ApiError) as error:
            refused()
        assert error.value.code is ErrorCode.FENCED_STATE_EPOCH


def test_initialization_replaces_the_state(partition: Partition) -> None:
    partition.initialize(state_epoch=1, start_offset=0)
    partition.write(StateBatch(0, 5, ACKNOWLEDGED, 1), state_epoch=1)
    partition.initialize(state_epoch=2, start_offset=40)
    assert partition.read() == ShareState(2, 40, 0, ())


def test_unknown_partitions_are_refused(partition: Partition) -> None:
    with pytest.raises(ApiError) as error:
        partition.broker.call(partition.states.initialize, GROUP, partition.topic, 7, 0, 0)
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError) as error:
        partition.broker.call(partition.states.read_summary, GROUP, UUID(int=99), 0)
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, AVAILABLE, 1),
        StateBatch(-1, 4, AVAILABLE, 1),
        StateBatch(0, 4, 1, 1),
        StateBatch(0, 4, AVAILABLE, -1),
    ],
)
def test_invalid_batches_are_refused(partition: Partition, batch: StateBatch) -> None:
    with pytest.raises(ApiError) as error:
        partition.write(batch)
    assert error.value.code is ErrorCode.INVALID_REQUEST
    assert partition.read() == NEVER_STARTED


def test_deleted_states_are_gone(partition: Partition) -> None:
    partition.initialize(start_offset=5)
    partition.delete()
    partition.delete()
    assert [value is None for value in partition.records()] == [False, True]
    assert partition.read() == NEVER_STARTED


def test_a_snapshot_follows_many_updates(tmp_path: Path) -> None:
    properties = {"share.coordinator.snapshot.update.records.per.snapshot": "2"}
    with Broker.start(data_dir=tmp_path, properties=properties) as broker:
        partition = Partition(broker)
        partition.initialize()
        for offset in range(4):
            partition.write(StateBatch(offset, offset, ACKNOWLEDGED, 1), complete=offset + 1)
        kinds = [(type(value), value.snapshot_epoch) for value in partition.records()]
        snapshot, update = ShareSnapshotValue, ShareUpdateValue
        assert kinds == [(snapshot, 0), (update, 0), (update, 0), (snapshot, 1), (update, 1)]
        assert partition.read().batches == (StateBatch(0, 3, ACKNOWLEDGED, 1),)


def test_records_before_the_snapshots_are_pruned(tmp_path: Path) -> None:
    properties = {"share.coordinator.snapshot.update.records.per.snapshot": "0"}
    with Broker.start(data_dir=tmp_path, properties=properties) as broker:
        partition = Partition(broker)
        for offset in range(5):
            partition.initialize(start_offset=offset)
        broker.advance_clock(300_000)
        log = broker.call(broker.logs.get, STATES, 0)
        assert log is not None
        until(lambda: broker.call(lambda: log.log_start_offset) == 4)
        assert partition.read().start_offset == 4


def test_cold_states_do_not_hold_the_records_of_others(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        partition = Partition(broker)
        partition.initialize(start_offset=7)
        broker.advance_clock(200_000)
        broker.call(broker.share_states.initialize, "other", partition.topic, 0, 0, 0)
        broker.advance_clock(101_000)
        log = broker.call(broker.logs.get, STATES, 0)
        assert log is not None
        until(lambda: broker.call(lambda: log.log_start_offset) == 1)
        assert partition.read().start_offset == 7


def test_states_of_deleted_topics_are_pruned(partition: Partition) -> None:
    broker = partition.broker
    partition.initialize()
    topic = broker.cluster.topics["t"]
    broker.call(lambda: [*broker.topics.deleting(topic)])
    broker.advance_clock(300_000)
    log = broker.call(broker.logs.get, STATES, 0)
    assert log is not None
    until(lambda: broker.call(lambda: (log.log_start_offset, log.end_offset)) == (2, 2))


def test_corrupt_records_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        partition = Partition(broker)
        partition.initialize(start_offset=5)
        log = broker.call(broker.logs.get, STATES, 0)
        assert log is not None
        key = broker.call(lambda: next(iter(next(iter(log.reader.batches()))))).key
        for data in (b"", ShareSnapshotValue(start_offset=-9).encode()):
            broker.call(lambda data=data: log.append_records([Record(key=key, value=data)]))
    with Broker.start(data_dir=tmp_path) as broker:
        partition.broker, partition.states = broker, broker.share_states
        assert partition.read().start_offset == 5
    assert "the record at offset 2 is skipped: start_offset: -9" in caplog.text


def test_combined_batches_prefer_more_deliveries_then_the_higher_state() -> None:
    current = (StateBatch(0, 9, ACKNOWLEDGED, 1),)
    added = [StateBatch(2, 3, AVAILABLE, 2), StateBatch(8, 12, AVAILABLE, 1)]
    assert combined(current, added, 1) == (
        StateBatch(1, 1, ACKNOWLEDGED, 1),
        StateBatch(2, 3, AVAILABLE, 2),
        StateBatch(4, 9, ACKNOWLEDGED, 1),
        StateBatch(10, 12, AVAILABLE, 1),
    )


def test_keys_of_coordinators() -> None:
    topic = UUID(int=5)
    key = coordinator_key("a:b", topic, 3)
    assert key == "a:b:AAAAAAAAAAAAAAAAAAAABQ:3"
    assert parse_coordinator_key(key) == ("a:b", topic, 3)
    for wrong in (
        "a",
        "a:b",
        ":AAAAAAAAAAAAAAAAAAAABQ:3",
        "g:short:3",
        "g:AAAAAAAAAAAAAAAAAAAABQ:-3",
    ):
        with pytest.raises(ValueError, match="is not"):
            parse_coordinator_key(wrong)
