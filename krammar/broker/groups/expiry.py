"""The expiry of committed offsets, and of groups without offsets (KIP-211)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krammar.broker.groups.group import Group, State

if TYPE_CHECKING:
    from krammar.broker.groups.records import Committed, TopicPartition
    from krammar.broker.groups.shard import Shard


def expired(
    shard: Shard, now: int, retention: int
) -> tuple[list[tuple[str, TopicPartition]], list[Group]]:
    """Find expired offsets, and groups that then have neither members nor offsets.

    Offsets that an open transaction may change do not expire.

    Args:
        shard: the groups and offsets
        now: milliseconds since 1970
        retention: milliseconds
    """
    offsets = []
    groups = []
    for group in shard.groups.values():
        committed = shard.offsets.of_group(group.group_id)
        over = [
            where
            for where, offset in committed.items()
            if not group.reads(where[0])
            and _is_over(group, offset, now, retention)
            and not shard.offsets.is_pending(group.group_id, where)
        ]
        offsets += [(group.group_id, where) for where in over]
        if (
            len(over) == len(committed)
            and group.state is State.EMPTY
            and not group.pending
            and not shard.offsets.has_pending(group.group_id)
        ):
            groups.append(group)
    return offsets, groups


def _is_over(group: Group, offset: Committed, now: int, retention: int) -> bool:
    base = group.expiry_base(offset.timestamp)
    if base is None:
        return False
    if offset.expires is not None:
        return now >= offset.expires
    return now - base >= retention
