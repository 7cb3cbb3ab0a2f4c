"""One partition of `__consumer_offsets`: its groups and offsets, in memory and in its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from krammar.broker.cluster import OFFSETS_TOPIC
from krammar.broker.groups import records
from krammar.broker.groups.group import Group, State
from krammar.broker.groups.offsets import Offsets
from krammar.logfiles.internal_topics import decode_record
from krammar.wire.batches import ControlRecordType, Record
from krammar.wire.batches.header import HEADER_SIZE
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.groups.records import Committed, TopicPartition
    from krammar.broker.log.log import PartitionLog

# The maximum size in bytes of a record without a value, besides its key.
RECORD_HEADER = 32


class Shard:
    """The groups and offsets of one partition. Every change is written to the log first."""

    def __init__(self, log: PartitionLog, warn: Callable[[str], None]) -> None:
        """Load the groups and offsets from a log.

        Records of other kinds, such as share groups, are ignored. Corrupt records are skipped.

        Args:
            log: the log of the partition
            warn: receives a line of text about each corrupt record
        """
        self.log = log
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        stored: dict[str, dict[records.RecordKey, Any]] = {}
        for batch in log.batches():
            if batch.is_control:
                for control in batch.control_records():
                    if control.type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                        committed = control.type == ControlRecordType.COMMIT
                        self.offsets.end_transaction(batch.producer_id, committed)
                continue
            producer_id = batch.producer_id if batch.is_transactional else -1
            for record in batch:
                try:
                    self._replay(record, producer_id, stored)
                except WireError as error:
                    warn(f"{log.path.name}: offset {record.offset}: {error}")
        for group_id, values in stored.items():
            if values:
                self.groups[group_id] = records.read_group(group_id, values)

    def _replay(
        self,
        record: Record,
        producer_id: int,
        stored: dict[str, dict[records.RecordKey, Any]],
    ) -> None:
        decoded = decode_record(OFFSETS_TOPIC, record.key, record.value)
        if decoded is None:
            return
        key: Any = decoded.key
        value: Any = decoded.value
        if decoded.kind in ("OffsetCommit", "LegacyOffsetCommit"):
            where = (key.topic, key.partition)
            if value is None:
                self.offsets.remove(key.group, where)
            else:
                committed = records.read_offset(value, record.offset)
                self._put(key.group, where, committed, producer_id)
        elif (own := records.record_key(decoded.kind, key)) is not None:
            group_id = key.group if decoded.kind == records.CLASSIC else key.group_id
            values = stored.setdefault(group_id, {})
            if value is None:
                values.pop(own, None)
                if decoded.kind in (records.CLASSIC, records.GROUP):
                    self.groups.pop(group_id, None)
            else:
                values[own] = value

    def _put(
        self, group_id: str, where: TopicPartition, committed: Committed, producer_id: int
    ) -> None:
        if group_id not in self.groups:
            # A group that only has offsets has no record of its own.
            self.groups[group_id] = Group(group_id, None)
        self.offsets.put(group_id, where, committed, producer_id)

    # -- writing; all of these raise ApiError if the log cannot be written

    def commit(
        self,
        group_id: str,
        offsets: Sequence[tuple[TopicPartition, Committed]],
        batch: Sequence[Record],
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Write offsets as one batch of these records, transactionally if ``producer_id`` is given."""
        appended = self.log.append_records(
            batch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id >= 0,
        )
        # Of a partition that is named several times, the last offset counts.
        latest = {where: (index, offset) for index, (where, offset) in enumerate(offsets)}
        for where, (index, offset) in latest.items():
            placed = offset._replace(position=appended.base_offset + index)
            self._put(group_id, where, placed, producer_id)

    def store(self, group: Group) -> None:
        """Write what has changed of a group, and add it if it is new."""
        stored, changed = records.group_records(group)
        if changed:
            self.log.append_records(changed)
        group.stored = stored
        group.touched.clear()
        self.groups[group.group_id] = group

    def restore(self, group: Group) -> None:
        """Return a group, in place, to its state in the log."""
        if group.stored:
            logged = records.read_group(group.group_id, group.stored)
            logged.timers = group.timers
            vars(group).update(vars(logged))

    def forget(
        self, offsets: Sequence[tuple[str, TopicPartition]], groups: Sequence[Group] = ()
    ) -> None:
        """Delete offsets and groups.

        Many tombstones are written as several batches. If one fails, the deletions of the batches before it remain.
        """
        for part in self._parts([records.offset_record(g, where, None) for g, where in offsets]):
            self.log.append_records(part)
            for group_id, where in offsets[: len(part)]:
                self.offsets.remove(group_id, where)
            offsets = offsets[len(part) :]
        for group in groups:
            for part in self._parts(records.tombstones(group)):
                self.log.append_records(part)
            self.groups.pop(group.group_id, None)

    def _parts(self, batch: list[Record]) -> Iterator[list[Record]]:
        """Split tombstones into parts that fit into a batch each."""
        limit = self.log.config.max_message_bytes - HEADER_SIZE
        begin = size = 0
        for index, record in enumerate(batch):
            needed = len(record.key or b"") + RECORD_HEADER
            if size + needed > limit and index > begin:
                yield batch[begin:index]
                begin, size = index, 0
            size += needed
        if begin < len(batch):
            yield batch[begin:]

    # -- expiry (KIP-211)

    def expired(
        self, now: int, retention: int
    ) -> tuple[list[tuple[str, TopicPartition]], list[Group]]:
        """Find expired offsets, and groups that then have neither members nor offsets.

        Offsets that an open transaction may change do not expire.

        Args:
            now: milliseconds since 1970
            retention: milliseconds
        """
        offsets = []
        groups = []
        for group in self.groups.values():
            committed = self.offsets.of_group(group.group_id)
            pending = self.offsets.pending(group.group_id)
            over = [
                where
                for where, offset in committed.items()
                if not group.reads(where[0])
                and where not in pending
                and (base := group.expiry_base(offset.timestamp)) is not None
                and now >= (base + retention if offset.expires is None else offset.expires)
            ]
            offsets += [(group.group_id, where) for where in over]
            is_unused = group.state is State.EMPTY and not group.pending and not pending
            if is_unused and len(over) == len(committed):
                groups.append(group)
        return offsets, groups
