"""Offsets that groups commit, alone or with transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from krammar.client.errors import raise_code
from krammar.client.metadata import TopicPartition
from krammar.client.offsets import group_topics


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The group member that commits offsets; the defaults commit without a member."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offset: the next one that it will read. ``leader_epoch`` is -1 if unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def member_of(group: GroupMember | str) -> GroupMember:
    """Return the member that commits, which may be only the id of a group."""
    return GroupMember(group) if isinstance(group, str) else group


def committed_offsets(
    offsets: Mapping[TopicPartition, Committed | int] | Mapping[tuple[str, int], Committed | int],
) -> dict[TopicPartition, Committed]:
    """Return offsets that may be plain numbers, of partitions that may be plain pairs, in one form."""
    return {
        TopicPartition(*at): Committed(value) if isinstance(value, int) else value
        for at, value in offsets.items()
    }


def commit_topics(request: Any, offsets: Mapping[TopicPartition, Committed]) -> list[Any]:
    """Return the topics of a request that commits offsets: OffsetCommit or TxnOffsetCommit."""
    return [
        request.Topic(
            name=name,
            partitions=[
                request.Partition(
                    partition_index=at.partition,
                    committed_offset=offsets[at].offset,
                    committed_leader_epoch=offsets[at].leader_epoch,
                    committed_metadata=offsets[at].metadata,
                )
                for at in partitions
            ],
        )
        for name, partitions in group_topics(offsets).items()
    ]


def check_committed(group_id: str, response: Any) -> None:
    """Raise the first error of a partition in the response to such a request."""
    for topic in response.topics:
        for p in topic.partitions:
            raise_code(p.error_code, f"group {group_id}, {topic.name}-{p.partition_index}")
