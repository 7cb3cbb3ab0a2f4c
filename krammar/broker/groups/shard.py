"""One partition of `__consumer_offsets`: its groups and offsets, and the log they are kept in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_wire import GroupMetadataKey, OffsetCommitKey

from krammar.broker.groups import records
from krammar.broker.groups.group import Group, State
from krammar.broker.groups.offsets import Offsets
from krammar.wire.errors import WireError
from krammar.wire.records import ControlRecordType, Record, RecordBatch

if TYPE_CHECKING:
    from krammar.broker.groups.records import Committed, TopicPartition
    from krammar.broker.storage.log import PartitionLog

# Of a batch, and, at most, of a record without a value: the bytes besides the keys.
BATCH_HEADER = 61
RECORD_HEADER = 32


class Shard:
    """What is acknowledged is in the log first; memory follows it.

    Loading reads the log from its beginning. Records that are not of classic groups or their
    offsets, and such as cannot be read, are left alone; ``warn`` is told of the latter.
    """

    def __init__(self, log: PartitionLog, warn: Callable[[str], None]) -> None:
        self.log = log
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._warn = warn
        for batch in log.batches():
            self._replay_batch(batch)

    # -- reading

    def _replay_batch(self, batch: RecordBatch) -> None:
        if batch.is_control:
            for control in batch.control_records():
                if control.type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                    committed = control.type == ControlRecordType.COMMIT
                    self.end_transaction(batch.producer_id, committed)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in batch:
            try:
                self._replay(record, producer_id)
            except WireError as error:
                self._warn(f"{self.log.path.name}: offset {record.offset}: {error}")

    def _replay(self, record: Record, producer_id: int) -> None:
        if record.key is None or len(record.key) < 2:
            return
        version = int.from_bytes(record.key[:2], "big")
        if version in records.OFFSET_KEYS:
            # Both versions are laid out alike.
            key = OffsetCommitKey.decode(record.key)
            where = (key.topic, key.partition)
            if record.value is None:
                self.offsets.remove(key.group, where)
            else:
                committed = records.read_offset(record.value, record.offset)
                self._put(key.group, where, committed, producer_id)
        elif version == records.GROUP_KEY:
            group_id = GroupMetadataKey.decode(record.key).group
            if record.value is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = records.read_group(group_id, record.value)

    def _put(
        self, group_id: str, where: TopicPartition, committed: Committed, producer_id: int
    ) -> None:
        if group_id not in self.groups:
            # A group that only keeps offsets has no record of its own.
            self.groups[group_id] = Group(group_id, None)
        self.offsets.put(group_id, where, committed, producer_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    # -- writing; all of it raises ApiError if the log cannot be written

    def commit(
        self,
        group_id: str,
        offsets: Sequence[tuple[TopicPartition, Committed]],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Write offsets as one batch, of a producer's transaction if it has an id."""
        batch = [records.offset_record(group_id, where, offset) for where, offset in offsets]
        appended = self.log.append_records(
            batch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id >= 0,
        )
        for index, (where, offset) in enumerate(offsets):
            placed = offset._replace(position=appended.base_offset + index)
            self._put(group_id, where, placed, producer_id)

    def store(self, group: Group) -> None:
        self.log.append_records([records.group_record(group)])

    def store_new(self, group: Group) -> None:
        self.log.append_records([records.empty_group_record(group)])
        self.groups[group.group_id] = group

    def forget(
        self, offsets: Sequence[tuple[str, TopicPartition]], groups: Sequence[Group] = ()
    ) -> None:
        """Delete offsets, and groups, which are dead from then on. What does not fit into one batch is
        written in several: if one fails, what is in those before it is deleted."""
        for part in self._parts([records.offset_record(g, where, None) for g, where in offsets]):
            self.log.append_records(part)
            for group_id, where in offsets[: len(part)]:
                self.offsets.remove(group_id, where)
            offsets = offsets[len(part) :]
        for part in self._parts([records.group_tombstone(group.group_id) for group in groups]):
            self.log.append_records(part)
            for group in groups[: len(part)]:
                group.state = State.DEAD
                self.groups.pop(group.group_id, None)
            groups = groups[len(part) :]

    def _parts(self, batch: list[Record]) -> Iterator[list[Record]]:
        """Tombstones, by as many as fit into a batch."""
        limit = self.log.config.max_message_bytes - BATCH_HEADER
        begin = size = 0
        for index, record in enumerate(batch):
            needed = len(record.key or b"") + RECORD_HEADER
            if size + needed > limit and index > begin:
                yield batch[begin:index]
                begin, size = index, 0
            size += needed
        if begin < len(batch):
            yield batch[begin:]
