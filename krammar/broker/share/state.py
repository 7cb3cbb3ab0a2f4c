"""The share coordinator (KIP-932): the states of share partitions, in memory and in `__share_group_state`."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka_wire import ErrorCode

from krammar.broker.cluster import SHARE_STATE_TOPIC
from krammar.broker.errors import ApiError, coordinator_errors, invalid_request
from krammar.broker.groups.records import fits
from krammar.broker.share.records import (
    SNAPSHOT,
    UNKNOWN,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    Snapshot,
    check_state_record,
    combined,
    snapshot_of,
    snapshot_record,
    state_problem,
    state_tombstone,
    update_of,
    update_record,
)
from krammar.logfiles.internal_topics import decode_record
from krammar.logfiles.uuids import format_uuid, parse_uuid
from krammar.util.logs import FewWarnings
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.log.log import PartitionLog
    from krammar.broker.log.manager import LogManager
    from krammar.broker.timers import Timers
    from krammar.broker.topics import Topics
    from krammar.wire.batches import Record

log = logging.getLogger("krammar.broker.share")

_NOT_INITIALIZED = ShareState(0, UNKNOWN, UNKNOWN, ())


@dataclass(slots=True, eq=False)
class _Stored:
    """A state, and its records in the log.

    Attributes:
        offset: the offset of the newest snapshot record
        updates: the number of update records after it
    """

    snapshot: Snapshot
    offset: int
    updates: int = 0


@dataclass(slots=True, eq=False)
class _StateLog:
    """The states of one partition of `__share_group_state`."""

    log: PartitionLog
    states: dict[SharePartitionKey, _Stored] = field(default_factory=dict)

    def load(self) -> None:
        """Read all records. Corrupt and invalid ones are skipped with a warning."""
        few = FewWarnings(log.warning)
        for batch in self.log.reader.batches():
            for record in () if batch.is_control else batch:
                try:
                    self._replay(record)
                except (WireError, ValueError) as error:
                    few(
                        f"{self.log.file_of(record.offset)}: the record at offset {record.offset} is skipped: {error}"
                    )
        few.end(self.log.path)

    def _replay(self, record: Record) -> None:
        decoded = decode_record(SHARE_STATE_TOPIC, record.key, record.value)
        if decoded is None:
            return
        own: Any = decoded.key
        value: Any = decoded.value
        key = (own.group_id, own.topic_id, own.partition)
        if value is None:
            self.states.pop(key, None)
            return
        check_state_record(own, value)
        if decoded.kind == SNAPSHOT:
            self.states[key] = _Stored(snapshot_of(value), record.offset)
        # An update without its snapshot has no meaning: the state was deleted in between.
        elif (known := self.states.get(key)) is not None:
            known.snapshot = known.snapshot.updated(update_of(value))
            known.updates += 1


class ShareStates:
    """The states of all share partitions of the cluster. Every change is written to the log first.

    All nodes of the process use one object. A node serves the requests about the partitions of
    `__share_group_state` that it leads; ``partition_for`` returns the partition of a state.

    Methods raise ApiError with Kafka's codes: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH and
    FENCED_STATE_EPOCH; NOT_COORDINATOR if the log cannot be read or written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        cluster: ClusterMetadata,
        logs: LogManager,
        topics: Topics,
    ) -> None:
        self._config = config
        self._timers = timers
        self._cluster = cluster
        self._logs = logs
        self._topics = topics
        self._loaded: dict[int, _StateLog] = {}

    def start(self) -> None:
        """Load the states soon, and from then on drop records that are no longer needed."""
        self._timers.in_turns(self._load_existing, self._numbers())
        self._prune_later()

    # -- requests

    def load(self, group: str, topic: UUID, partition: int, leader_epoch: int) -> ShareState:
        """Return the state of a share partition for its leader, and fence older leaders."""
        key = (group, topic, partition)
        self._check(group, topic, partition)
        states = self._of(key)
        known = states.states.get(key)
        if known is not None and leader_epoch < known.snapshot.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        state = _NOT_INITIALIZED if known is None else known.snapshot.state
        if leader_epoch != UNKNOWN and (
            known is None or leader_epoch != known.snapshot.leader_epoch
        ):
            begin = ShareStateUpdate(
                state.state_epoch,
                leader_epoch,
                UNKNOWN,
                state.delivery_complete_count,
                (),
            )
            self._append(states, key, begin)
        return state

    def store(self, group: str, topic: UUID, partition: int, update: ShareStateUpdate) -> None:
        """Store what has changed of a share partition."""
        key = (group, topic, partition)
        self._check(group, topic, partition)
        problem = state_problem(update.start_offset, update.batches)
        if problem is not None:
            raise invalid_request(problem)
        states = self._of(key)
        known = states.states.get(key)
        if known is not None:
            snapshot = known.snapshot
            if UNKNOWN != update.leader_epoch < snapshot.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            if UNKNOWN != update.state_epoch < snapshot.state.state_epoch:
                raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
        self._append(states, key, update)

    def initialize(
        self, group: str, topic: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """Replace the state of a share partition by a new one, without batches."""
        key = (group, topic, partition)
        self._check(group, topic, partition)
        if problem := state_problem(start_offset, ()):
            raise invalid_request(problem)
        states = self._of(key)
        known = states.states.get(key)
        if known is not None and UNKNOWN != state_epoch < known.snapshot.state.state_epoch:
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
        now = self._timers.now_ms()
        complete = UNKNOWN if start_offset == UNKNOWN else 0
        state = ShareState(state_epoch, start_offset, complete, ())
        number = 0 if known is None else known.snapshot.snapshot_epoch + 1
        self._snapshot(states, key, Snapshot(number, 0, now, now, state))

    def delete(self, group: str, topic: UUID, partition: int) -> None:
        """Delete the state of a share partition, if it exists."""
        key = (group, topic, partition)
        states = self._of(key)
        if key in states.states:
            self._forget(states, key)

    def read_summary(self, group: str, topic: UUID, partition: int) -> Snapshot | None:
        """Return what is stored about a share partition; None if it has no state."""
        key = (group, topic, partition)
        self._check(group, topic, partition)
        known = self._of(key).states.get(key)
        return None if known is None else known.snapshot

    def all_keys(self) -> list[SharePartitionKey]:
        """Return the share partitions that have a state, without those whose log cannot be read."""
        loaded = map(self._load_existing, self._numbers())
        return [key for each in loaded if each is not None for key in each.states]

    def partition_for(self, group: str, topic: UUID, partition: int) -> int:
        """Return the partition of `__share_group_state` that has the state of a share partition."""
        key = coordinator_key(group, topic, partition)
        return self._topics.coordinating_partition(SHARE_STATE_TOPIC, key)

    def _check(self, group: str, topic_id: UUID, partition: int) -> None:
        if not fits(group):
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if partition < 0:
            raise invalid_request("The partition id is negative.")
        topic = self._cluster.topics_by_id.get(topic_id)
        if topic is None or partition not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # -- the logs

    def _numbers(self) -> list[int]:
        topic = self._cluster.topics.get(SHARE_STATE_TOPIC)
        return [] if topic is None else sorted(topic.partitions)

    def _of(self, key: SharePartitionKey) -> _StateLog:
        """Return the log of a share partition's state. Creates `__share_group_state` if it is missing."""
        self._topics.ensure_internal(SHARE_STATE_TOPIC)
        return self._log_of(self.partition_for(*key))

    def _log_of(self, number: int) -> _StateLog:
        partition_log = self._logs.get(SHARE_STATE_TOPIC, number)
        if partition_log is None or partition_log.offline:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        states = self._loaded.get(number)
        if states is None or states.log is not partition_log:
            states = _StateLog(partition_log)
            try:
                states.load()
            except (ApiError, OSError, WireError) as error:
                log.error("%s-%d cannot be read: %s", SHARE_STATE_TOPIC, number, error)
                raise ApiError(ErrorCode.NOT_COORDINATOR) from error
            self._loaded[number] = states
        return states

    def _load_existing(self, number: int) -> _StateLog | None:
        try:
            return self._log_of(number)
        except ApiError:  # requests that need the partition report the error
            return None

    def _append(self, states: _StateLog, key: SharePartitionKey, update: ShareStateUpdate) -> None:
        """Write an update, or a snapshot if the state is new or has many updates."""
        known = states.states.get(key)
        now = self._timers.now_ms()
        if known is None:
            start = update.start_offset
            state = ShareState(
                max(update.state_epoch, 0),
                start,
                update.delivery_complete_count,
                combined((), update.batches, start),
            )
            self._snapshot(states, key, Snapshot(0, update.leader_epoch, now, now, state))
            return
        new = known.snapshot.updated(update)
        raised = update.state_epoch > new.state.state_epoch
        if (
            raised
            or known.updates >= self._config.share_coordinator_snapshot_update_records_per_snapshot
        ):
            if raised:
                old = new.state
                state = ShareState(
                    update.state_epoch, old.start_offset, old.delivery_complete_count, old.batches
                )
                new = Snapshot(0, new.leader_epoch, new.created_ms, now, state)
            number = known.snapshot.snapshot_epoch + 1
            self._snapshot(
                states, key, Snapshot(number, new.leader_epoch, new.created_ms, now, new.state)
            )
            return
        self._write(states, update_record(key, new.snapshot_epoch, update))
        known.snapshot = new
        known.updates += 1

    def _snapshot(self, states: _StateLog, key: SharePartitionKey, snapshot: Snapshot) -> None:
        offset = self._write(states, snapshot_record(key, snapshot))
        states.states[key] = _Stored(snapshot, offset)

    def _forget(self, states: _StateLog, key: SharePartitionKey) -> None:
        self._write(states, state_tombstone(key))
        del states.states[key]

    def _write(self, states: _StateLog, record: Record) -> int:
        """Append a record, and return its offset."""
        with coordinator_errors():
            return states.log.append_records([record]).base_offset

    # -- pruning

    def _prune_later(self) -> None:
        seconds = self._config.share_coordinator_state_topic_prune_interval_ms / 1000
        self._timers.call_later(seconds, self._prune)

    def _prune(self) -> None:
        self._timers.in_turns(self._prune_log, self._numbers())
        self._prune_later()

    def _prune_log(self, number: int) -> None:
        """Delete the records of a partition that precede all current snapshots.

        A state that has not changed for a while gets a new snapshot first, so that it does not hold
        the records of others. The states of deleted topics are deleted.
        """
        states = self._load_existing(number)
        if states is None or states.log.end_offset == states.log.log_start_offset:
            return
        topics = self._cluster.topics_by_id
        before = (
            self._timers.now_ms()
            - self._config.share_coordinator_cold_partition_snapshot_interval_ms
        )
        stored = states.states
        try:
            for key in [key for key in stored if key[1] not in topics]:
                self._forget(states, key)
            cold = [key for key, each in stored.items() if each.snapshot.written_ms <= before]
            if len(cold) < len(stored):
                for key in cold:
                    old = stored[key].snapshot
                    now = self._timers.now_ms()
                    self._snapshot(
                        states,
                        key,
                        Snapshot(
                            old.snapshot_epoch + 1, old.leader_epoch, old.created_ms, now, old.state
                        ),
                    )
            first = min((each.offset for each in stored.values()), default=states.log.end_offset)
            if first > states.log.log_start_offset:
                states.log.retention.delete_records(first)
        except ApiError as error:
            log.warning(
                "%s-%d: records that are no longer needed could not be deleted: %s",
                SHARE_STATE_TOPIC,
                number,
                error,
            )


def coordinator_key(group: str, topic: UUID, partition: int) -> str:
    """Return the key of a share partition for FindCoordinator."""
    return f"{group}:{format_uuid(topic)}:{partition}"


def parse_coordinator_key(key: str) -> SharePartitionKey:
    """Parse a key of FindCoordinator; the group id can contain colons. Raises ValueError."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0]:
        raise ValueError(f"{key!r} is not a group id, a topic id and a partition, joined by colons")
    group, topic, partition = parts
    if not (partition.isascii() and partition.isdigit()):
        raise ValueError(f"{partition!r} is not a partition")
    return group, parse_uuid(topic), int(partition)
