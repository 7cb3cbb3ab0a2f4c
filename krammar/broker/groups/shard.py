"""One partition of `__consumer_offsets`: its groups and offsets, in memory and in its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from krammar.broker.cluster import OFFSETS_TOPIC
from krammar.broker.groups import records
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.group import GroupState
from krammar.broker.groups.host import AnyGroup
from krammar.broker.groups.offsets import CommittedOffset, Offsets, offset_record, read_offset
from krammar.broker.groups.records import check_group_record
from krammar.broker.groups.share_group import ShareGroup
from krammar.logfiles.internal_topics import decode_record
from krammar.util.logs import FewWarnings
from krammar.util.turns import Steps, finish
from krammar.wire.batches import ControlRecordType, Record
from krammar.wire.batches.header import HEADER_SIZE
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.groups.offsets import TopicPartition
    from krammar.broker.log.log import PartitionLog

# The maximum size in bytes of a record without a value, besides its key.
RECORD_HEADER = 32


class Shard:
    """The groups and offsets of one partition. Every change is written to the log first.

    Attributes:
        forgotten_at_once: the number of tombstones of a batch, at most
    """

    forgotten_at_once: ClassVar[int] = 1000

    def __init__(self, log: PartitionLog, warn: Callable[[str], None]) -> None:
        """Load the groups and offsets from a log.

        Records of other kinds, such as streams groups, are ignored. Corrupt and invalid records are
        skipped.

        Args:
            log: the log of the partition
            warn: receives a line of text about each corrupt record
        """
        self.log = log
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = Offsets()
        stored: dict[str, dict[records.RecordKey, Any]] = {}
        few = FewWarnings(warn)
        for batch in log.reader.batches():
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
                except (WireError, ValueError) as error:
                    few(
                        f"{log.file_of(record.offset)}: the record at offset {record.offset} is skipped: {error}"
                    )
        few.end(log.path)
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
        if value is not None:
            check_group_record(decoded.kind, key, value)
        if decoded.kind in ("OffsetCommit", "LegacyOffsetCommit"):
            where = (key.topic, key.partition)
            if value is None:
                self.offsets.remove(key.group, where)
            else:
                committed = read_offset(value, record.offset)
                self._put(key.group, where, committed, producer_id)
        elif (own := records.record_key(decoded.kind, key)) is not None:
            group_id = key.group if decoded.kind == records.CLASSIC else key.group_id
            values = stored.setdefault(group_id, {})
            if value is None:
                values.pop(own, None)
                if decoded.kind in records.ROOTS:
                    self.groups.pop(group_id, None)
            else:
                values[own] = value

    def _put(
        self, group_id: str, where: TopicPartition, committed: CommittedOffset, producer_id: int
    ) -> None:
        self._know(group_id)
        self.offsets.put(group_id, where, committed, producer_id)

    def _know(self, group_id: str) -> None:
        """Add a group that only has offsets, and no record of its own."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, None)

    # -- writing; all of these raise ApiError if the log cannot be written

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, tuple[int, CommittedOffset]],
        batch: bytes,
        producer_id: int = -1,
    ) -> None:
        """Write offsets as one batch of ``encode_records``, transactionally if ``producer_id`` is given.

        Args:
            offsets: the last offset of each partition, and the number of its record in the batch
        """
        base = self.log.append_encoded(batch).base_offset
        self._know(group_id)
        self.offsets.update(
            group_id,
            {
                # Faster than _replace. The position is the last field.
                where: CommittedOffset(*offset[:-1], base + index)
                for where, (index, offset) in offsets.items()
            },
            producer_id,
        )

    def store(self, group: AnyGroup) -> None:
        """Write what has changed of a group, and add it if it is new."""
        stored, changed = records.group_records(group)
        if changed:
            self.log.append_records(changed)
        group.stored = stored
        if not isinstance(group, ClassicGroup):
            group.touched.clear()
        self.groups[group.group_id] = group

    def restore(self, group: AnyGroup) -> AnyGroup:
        """Replace a group by its state in the log, and return that."""
        logged = records.read_group(group.group_id, group.stored)
        self.groups[group.group_id] = logged
        return logged

    def forget(
        self, offsets: Sequence[tuple[str, TopicPartition]], groups: Sequence[AnyGroup] = ()
    ) -> None:
        """Delete offsets and groups.

        Many tombstones are written as several batches. If one fails, the deletions of the batches
        before it remain.
        """
        finish(self.forgetting(offsets))
        for group in groups:
            for part in self._parts(records.tombstones(group)):
                self.log.append_records(part)
            self.groups.pop(group.group_id, None)

    def forgetting(self, offsets: Sequence[tuple[str, TopicPartition]]) -> Steps[None]:
        """Delete offsets in steps, as ``forget`` does."""
        for begin in range(0, len(offsets), self.forgotten_at_once):
            some = offsets[begin : begin + self.forgotten_at_once]
            for part in self._parts([offset_record(g, where, None) for g, where in some]):
                self.log.append_records(part)
                for group_id, where in some[: len(part)]:
                    self.offsets.remove(group_id, where)
                some = some[len(part) :]
            yield None

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
        self, group: AnyGroup, now: int, retention: int
    ) -> tuple[list[tuple[str, TopicPartition]], bool]:
        """Find the expired offsets of a group. Returns them, and whether it then has neither members nor offsets.

        Share groups do not expire.
        Offsets that an open transaction may change do not expire.

        Args:
            now: milliseconds since 1970
            retention: milliseconds
        """
        if isinstance(group, ShareGroup):
            return [], False
        committed = self.offsets.of_group(group.group_id)
        pending = self.offsets.pending(group.group_id)
        over = [
            (group.group_id, where)
            for where, offset in committed.items()
            if not group.reads(where[0])
            and where not in pending
            and (base := group.expiry_base(offset.timestamp)) is not None
            and now >= (base + retention if offset.expires is None else offset.expires)
        ]
        has_members = group.state is not GroupState.EMPTY
        if isinstance(group, ClassicGroup):
            has_members |= bool(group.pending)
        is_unused = not has_members and not pending
        return over, is_unused and len(over) == len(committed)
