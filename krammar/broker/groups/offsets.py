"""Committed offsets, and pending offsets of open transactions."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from krammar.broker.groups.records import CommittedOffset, TopicPartition
from krammar.wire.primitives import NULL_UUID


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
        """Return whether a group's offset, committed or pending, belongs to no other topic than the one with this id."""
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
