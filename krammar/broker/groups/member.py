"""A member of a group, of either protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_wire import GroupMemberState

if TYPE_CHECKING:
    from kafka_wire import JoinGroupResponse, SyncGroupResponse

    JoinReply = Callable[[JoinGroupResponse], None]
    SyncReply = Callable[[SyncGroupResponse], None]

Protocols = Sequence[tuple[str, bytes]]
# A topic's id and a partition of it.
Place = tuple[UUID, int]

# The epoch of a static member that left and will return.
AWAY = -2


@dataclass(slots=True, eq=False)
class Member:
    """One member. Times are in milliseconds. The fields from ``rack_id`` on belong to consumer groups.

    ``instance_id``  the id of a static member (KIP-345); None for a dynamic member
    ``protocols``    the name and metadata of each supported protocol, in the order of preference; empty for a member
                     that speaks the consumer protocol
    ``assignment``   the assignment by the leader; empty before
    ``joining``      sends the response to the waiting JoinGroup
    ``syncing``      sends the response to the waiting SyncGroup
    ``is_new``       whether it has not completed a rebalance: while it waits in its first JoinGroup, the broker
                     cannot notice that its client is gone
    ``assigned``     the partitions that it may own, each with the epoch in which it got it
    ``revoking``     the partitions that it must give up
    ``target``       the partitions that the assignor chose for it
    ``is_due``       whether it speaks the classic protocol and has to join again
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    joining: JoinReply | None = field(default=None, repr=False)
    syncing: SyncReply | None = field(default=None, repr=False)
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: int = GroupMemberState.STABLE
    assigned: dict[Place, int] = field(default_factory=dict)
    revoking: dict[Place, int] = field(default_factory=dict)
    target: frozenset[Place] = frozenset()
    is_due: bool = False

    def metadata(self, protocol: str | None) -> bytes | None:
        """Return the member's metadata for a protocol; None if it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), None)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers. It must support at least one."""
        return next(name for name, _ in self.protocols if name in candidates)

    def is_waiting(self) -> bool:
        """Return whether it waits in a request, so that it sends no heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def is_reconciled(self, epoch: int) -> bool:
        """Return whether it has reached the target assignment of an epoch."""
        return self.state == GroupMemberState.STABLE and self.epoch == epoch

    def move_to(
        self, state: int, epoch: int, assigned: dict[Place, int], revoking: dict[Place, int]
    ) -> None:
        self.previous_epoch, self.epoch = self.epoch, epoch
        self.state, self.assigned, self.revoking = state, assigned, revoking


def by_topic(places: Iterable[Place]) -> dict[UUID, list[int]]:
    """Return the partitions by topic id, both in order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return found
