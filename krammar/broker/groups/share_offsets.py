"""The start offsets of share groups, as administrators change and delete them (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.shards import Shards
from krammar.broker.groups.share_group import InitializedTopic, ShareGroup
from krammar.broker.share.state import ShareStates
from krammar.util.turns import Steps

if TYPE_CHECKING:
    from krammar.broker.cluster import Topic


class ShareOffsets:
    """Finds share groups, and initializes and deletes the states of their partitions. Methods raise ApiError."""

    def __init__(self, shards: Shards, states: ShareStates) -> None:
        self._shards = shards
        self._states = states

    def named(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises ApiError(GROUP_ID_NOT_FOUND)."""
        if not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        group = self._shards.find(group_id)
        if group is None:
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise not_a(group_id, "share")
        return group

    def resetting(
        self, group_id: str, offsets: Iterable[tuple[Topic, int, int]]
    ) -> Steps[list[ApiError | None]]:
        """Let a group without members begin at offsets, in steps. A missing group is created, if there are offsets.

        Args:
            offsets: a topic, a partition and its new start offset

        Returns the error of each partition.
        """
        group = self._empty(group_id, create=True)
        results: list[ApiError | None] = []
        for topic, number, offset in offsets:
            try:
                self._states.initialize(group_id, topic.topic_id, number, group.group_epoch, offset)
            except ApiError as error:
                results.append(error)
            else:
                results.append(None)
                own = group.initialized.setdefault(topic.topic_id, InitializedTopic(topic.name))
                own.partitions.add(number)
            yield None
        # A member may have joined, or the group may have been deleted between the steps. Then its
        # next heartbeat initializes what is missing.
        if results and self._empty(group_id, create=True).stored == group.stored:
            self._shards.store(group)
        return results

    def forgetting(self, group_id: str, topics: Iterable[Topic]) -> Steps[list[Topic]]:
        """Delete the states of topics of a group without members, in steps. Returns those that had a state."""
        group = self._empty(group_id)
        found = []
        for topic in topics:
            own = group.initialized.get(topic.topic_id)
            if own is None:
                continue
            found.append(topic)
            yield from self._deleting(group, topic.topic_id)
        if self._empty(group_id) is group:
            self._shards.store(group)
        return found

    def deleting_states(self, group: ShareGroup) -> Steps[None]:
        """Delete all states of a group, in steps."""
        for topic_id in list(group.initialized):
            yield from self._deleting(group, topic_id)

    def _deleting(self, group: ShareGroup, topic_id: UUID) -> Steps[None]:
        """Delete the states of a topic. A member that joins meanwhile needs new ones."""
        own = group.initialized.get(topic_id) or InitializedTopic("")
        group.topics_seen = -1
        for number in sorted(own.partitions):
            self._states.delete(group.group_id, topic_id, number)
            own.partitions.discard(number)
            yield None
        group.initialized.pop(topic_id, None)

    def _empty(self, group_id: str, create: bool = False) -> ShareGroup:
        """Return a share group without members."""
        if create and not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        if create and group_id not in self._shards.of(group_id).groups:
            return ShareGroup(group_id)
        group = self.named(group_id)
        group.check_empty()
        return group


def not_a(group_id: str, kind: str) -> ApiError:
    """Return the error for a group that is not of a kind."""
    return ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
