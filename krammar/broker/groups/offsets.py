"""Committed offsets and their records, and pending offsets of open transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kafka_wire import LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue

from krammar.wire.batches import Record
from krammar.wire.primitives import NULL_UUID

TopicPartition = tuple[str, int]

# The version that Kafka 4.4 writes, with the topic's id.
OFFSET_VALUE = 4


class CommittedOffset(NamedTuple):
    """A committed offset; times in milliseconds since 1970.

    Attributes:
        position: the offset of its record in `__consumer_offsets`; the larger one wins
        expires: the expiry that the client requested (OffsetCommit v2 to v4), or None
        topic_id: the null UUID in records written before Kafka 4.2
    """

    offset: int
    leader_epoch: int
    metadata: str
    timestamp: int
    expires: int | None = None
    topic_id: UUID = NULL_UUID
    position: int = -1


def offset_record(
    group_id: str, where: TopicPartition, committed: CommittedOffset | None
) -> Record:
    """Build the record of a committed offset, or its tombstone for None."""
    key = OffsetCommitKey(group=group_id, topic=where[0], partition=where[1]).encode()
    if committed is None:
        return Record(key=key)
    # Only version 1 has an expiry.
    version = OFFSET_VALUE if committed.expires is None else 1
    value = OffsetCommitValue(
        version=version,
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.timestamp,
        expire_timestamp=-1 if committed.expires is None else committed.expires,
        topic_id=NULL_UUID if version == 1 else committed.topic_id,
    )
    return Record(key=key, value=value.encode())


def read_offset(
    value: OffsetCommitValue | LegacyOffsetCommitValue, position: int
) -> CommittedOffset:
    """Convert the value of a record at offset ``position``."""
    time = value.commit_timestamp
    committed = CommittedOffset(value.offset, -1, value.metadata, time, position=position)
    if isinstance(value, LegacyOffsetCommitValue):
        return committed
    expires = None if value.expire_timestamp == -1 else value.expire_timestamp
    return committed._replace(
        leader_epoch=value.leader_epoch, expires=expires, topic_id=value.topic_id
    )


class Offsets:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        # By producer id, which is None for committed offsets, then by group.
        self._offsets: dict[int | None, dict[str, dict[TopicPartition, CommittedOffset]]] = {
            None: {}
        }

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return self._offsets[None].get(group_id, {})

    def pending(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions whose offsets an open transaction may change."""
        return {
            where
            for producer_id, groups in self._offsets.items()
            if producer_id is not None
            for where in groups.get(group_id, ())
        }

    def put(
        self,
        group_id: str,
        where: TopicPartition,
        committed: CommittedOffset,
        producer_id: int = -1,
    ) -> None:
        """Store an offset; with a producer id it is pending until the producer's transaction ends."""
        self.update(group_id, {where: committed}, producer_id)

    def update(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer_id: int = -1,
    ) -> None:
        """Store several offsets, as ``put`` does."""
        groups = self._offsets.setdefault(None if producer_id < 0 else producer_id, {})
        groups.setdefault(group_id, {}).update(offsets)

    def remove(self, group_id: str, where: TopicPartition) -> None:
        """Remove an offset, including pending ones."""
        for groups in self._offsets.values():
            offsets = groups.get(group_id, {})
            offsets.pop(where, None)
            if not offsets:
                groups.pop(group_id, None)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Commit or drop a producer's pending offsets.

        A later commit without a transaction wins over a pending offset. Otherwise compaction of
        `__consumer_offsets`, which ignores transactions, would change the result.
        """
        groups = self._offsets.pop(producer_id, {})
        for group_id, offsets in groups.items() if committed else ():
            for where, offset in offsets.items():
                current = self.of_group(group_id).get(where)
                if current is None or offset.position > current.position:
                    self.put(group_id, where, offset)

    def all_of(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which a group has an offset, committed or pending."""
        return list(
            dict.fromkeys(
                where for groups in self._offsets.values() for where in groups.get(group_id, ())
            )
        )

    def is_of(self, offset: tuple[str, TopicPartition], topic_id: UUID) -> bool:
        """Return whether a group's offset, committed or pending, can belong to the topic with this id."""
        group_id, where = offset
        return all(
            groups[group_id][where].topic_id in (topic_id, NULL_UUID)
            for groups in self._offsets.values()
            if where in groups.get(group_id, ())
        )

    def of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        """Return the groups and partitions of a topic with an offset, committed or pending."""
        return list(
            dict.fromkeys(
                (group_id, where)
                for groups in self._offsets.values()
                for group_id, offsets in groups.items()
                for where in offsets
                if where[0] == topic
            )
        )
