"""Committed offsets, and pending offsets of open transactions."""

from __future__ import annotations

from krammar.broker.groups.records import Committed, TopicPartition


class Offsets:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        # By producer id, then by group.
        self._pending: dict[int, dict[str, dict[TopicPartition, Committed]]] = {}

    def of_group(self, group_id: str) -> dict[TopicPartition, Committed]:
        return self._committed.get(group_id, {})

    def get(self, group_id: str, where: TopicPartition) -> Committed | None:
        return self.of_group(group_id).get(where)

    def is_pending(self, group_id: str, where: TopicPartition) -> bool:
        """Return whether an open transaction may change the offset."""
        return any(where in groups.get(group_id, ()) for groups in self._pending.values())

    def has_pending(self, group_id: str) -> bool:
        """Return whether an open transaction may change any offset of a group."""
        return any(group_id in groups for groups in self._pending.values())

    def put(
        self, group_id: str, where: TopicPartition, committed: Committed, producer_id: int = -1
    ) -> None:
        """Store an offset; with a producer id it is pending until the producer's transaction ends."""
        groups = self._committed if producer_id < 0 else self._pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {})[where] = committed

    def remove(self, group_id: str, where: TopicPartition) -> None:
        """Remove an offset, including pending ones."""
        _remove(self._committed, group_id, where)
        for groups in self._pending.values():
            _remove(groups, group_id, where)

    def end_transaction(self, producer_id: int, committed: bool) -> list[str]:
        """Commit or drop a producer's pending offsets. Returns the affected groups.

        A later commit without a transaction wins over a pending offset. Otherwise compaction of
        `__consumer_offsets`, which ignores transactions, would change the result.
        """
        groups = self._pending.pop(producer_id, {})
        if committed:
            for group_id, offsets in groups.items():
                for where, offset in offsets.items():
                    current = self.get(group_id, where)
                    if current is None or offset.position > current.position:
                        self.put(group_id, where, offset)
        return list(groups)

    def all_of(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which a group has an offset, committed or pending."""
        found = dict.fromkeys(self.of_group(group_id))
        for groups in self._pending.values():
            found.update(dict.fromkeys(groups.get(group_id, ())))
        return list(found)

    def of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        """Return the groups and partitions of a topic with an offset, committed or pending."""
        found = {
            (group_id, where): None
            for groups in (self._committed, *self._pending.values())
            for group_id, offsets in groups.items()
            for where in offsets
            if where[0] == topic
        }
        return list(found)


def _remove(
    groups: dict[str, dict[TopicPartition, Committed]], group_id: str, where: TopicPartition
) -> None:
    offsets = groups.get(group_id)
    if offsets is not None:
        offsets.pop(where, None)
        if not offsets:
            del groups[group_id]
