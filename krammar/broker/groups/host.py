"""What the group protocols need of a broker: time, timers, storage, and another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.group import Key
from krammar.broker.groups.member import Member
from krammar.broker.groups.share_group import ShareGroup

T = TypeVar("T")

# A group whose members commit offsets.
OffsetGroup = ClassicGroup | ConsumerGroup
AnyGroup = OffsetGroup | ShareGroup

# The keys of a classic group's timers.
JOIN: Key = (0, "join")
SYNC: Key = (0, "sync")


def session_key(member_id: str) -> Key:
    """Return the key of a member's session timeout."""
    return (1, member_id)


def rebalance_key(member: Member) -> Key:
    """Return the key of the rebalance timeout of a consumer group's member."""
    return (2, member.member_id)


class Host(Protocol):
    """Provides time and storage for groups."""

    def now_ms(self) -> int: ...

    def schedule(self, group: AnyGroup, key: Key, delay: int, action: Callable[[], None]) -> None:
        """Run ``action`` in ``delay`` milliseconds; replaces the previous timer of the key."""

    def cancel(self, group: AnyGroup, key: Key) -> None: ...

    def store(self, group: AnyGroup) -> None:
        """Write the group with all members and assignments. Raises ApiError.

        A consumer or share group that cannot be written is replaced by its state in the log.
        """

    def in_thread(
        self, group: AnyGroup, function: Callable[[], T], then: Callable[[T], None]
    ) -> None:
        """Run a function in another thread, and ``then`` with its result if the group still exists."""


class TopicRights(NamedTuple):
    """The topics that a client may know. The version changes with the rights."""

    may_describe: Callable[[str], bool]
    version: int


class GroupClient(NamedTuple):
    """The client of a request, and the request's version. Without an authorizer, it has no rights."""

    client_id: str
    host: str
    version: int
    rights: TopicRights | None = None
