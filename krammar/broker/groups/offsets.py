"""Committed offsets, and those that open transactions would commit."""

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
        """Whether an open transaction may change the offset."""
        return any(where in groups.get(group_id, ()) for groups in self._pending.values())

    def has_pending(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self._pending.values())

    def put(
        self, group_id: str, where: TopicPartition, committed: Committed, producer_id: int = -1
    ) -> None:
        """Store an offset; with a producer's id it waits for the end of that one's transaction."""
        groups = self._committed if producer_id < 0 else self._pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {})[where] = committed

    def remove(self, group_id: str, where: TopicPartition) -> None:
        """Forget an offset, pending ones too."""
        _remove(self._committed, group_id, where)
        for groups in self._pending.values():
            _remove(groups, group_id, where)

    def end_transaction(self, producer_id: int, committed: bool) -> list[str]:
        """Let a producer's offsets count, or drop them. Returns the groups concerned.

        An offset that was committed after it without a transaction wins: so compaction of
        `__consumer_offsets`, which knows nothing of transactions, changes nothing.
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
        """Where the group has an offset, committed or pending."""
        found = dict.fromkeys(self.of_group(group_id))
        for groups in self._pending.values():
            found.update(dict.fromkeys(groups.get(group_id, ())))
        return list(found)

    def of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        """Groups and partitions of a topic that have an offset, committed or pending."""
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
