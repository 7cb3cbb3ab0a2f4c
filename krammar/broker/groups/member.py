"""A member of a group, of either protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka_wire import (
    ErrorCode,
    GroupMemberState,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
)

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]
# A topic's id and a partition of it.
Place = tuple[UUID, int]

# The size in bytes of the objects of a protocol, besides its name and metadata.
PROTOCOL_SIZE = 200

# The states of a member of a consumer group.
STABLE = GroupMemberState.STABLE
UNREVOKED = GroupMemberState.UNREVOKED_PARTITIONS
UNRELEASED = GroupMemberState.UNRELEASED_PARTITIONS

# The epoch of a static member that left and will return.
AWAY = -2


@dataclass(slots=True, eq=False)
class Member:
    """One member. Times are in milliseconds. The fields from ``rack_id`` on belong to consumer groups.

    Attributes:
        instance_id: the id of a static member (KIP-345); None for a dynamic member
        protocols: the name and metadata of each supported protocol, in the order of preference;
            empty for a member that speaks the consumer protocol
        size: the approximate size of its protocols in memory, in bytes
        assignment: the assignment by the leader; empty before
        joining: sends the response to the waiting JoinGroup
        syncing: sends the response to the waiting SyncGroup
        is_new: whether it has not completed a rebalance: while it waits in its first
            JoinGroup, the broker cannot notice that its client is gone
        assigned: the partitions that it may own, each with the epoch in which it got it
        revoking: the partitions that it must give up
        target: the partitions that the assignor chose for it
        is_due: whether it speaks the classic protocol and has to join again
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = 0
    session_timeout: int = 0
    protocols: Sequence[tuple[str, bytes]] = ()
    size: int = 0
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
    state: int = STABLE
    assigned: dict[Place, int] = field(default_factory=dict)
    revoking: dict[Place, int] = field(default_factory=dict)
    target: frozenset[Place] = frozenset()
    is_due: bool = False

    def update(self, request: JoinGroupRequest) -> None:
        """Apply the protocols and timeouts of a request."""
        self.protocols = protocols_of(request)
        self.size = size_of(request.protocols)
        self.rebalance_timeout = request.rebalance_timeout_ms
        self.session_timeout = request.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def is_waiting(self) -> bool:
        """Return whether it waits in a request, so that it sends no heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Answer the waiting JoinGroup, if any."""
        reply, self.joining = self.joining, None
        if reply is not None:
            reply(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the waiting SyncGroup. Returns whether there was one."""
        reply, self.syncing = self.syncing, None
        if reply is not None:
            reply(response)
        return reply is not None

    def fail(self, code: ErrorCode, member_id: str) -> None:
        """Answer the waiting requests with an error; ``member_id`` is for the response to JoinGroup."""
        self.answer_join(join_error(code, member_id))
        self.answer_sync(SyncGroupResponse(error_code=code))

    def is_reconciled(self, epoch: int) -> bool:
        """Return whether it has reached the target assignment of an epoch."""
        return self.state == STABLE and self.epoch == epoch

    def move_to(
        self, state: int, epoch: int, assigned: dict[Place, int], revoking: dict[Place, int]
    ) -> None:
        self.previous_epoch, self.epoch = self.epoch, epoch
        self.state, self.assigned, self.revoking = state, assigned, revoking


def join_error(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def protocols_of(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, protocol.metadata) for protocol in request.protocols]


def size_of(protocols: Iterable[JoinGroupRequest.Protocol]) -> int:
    """Return the approximate size of protocols in memory, in bytes."""
    return sum(len(each.name) + len(each.metadata) + PROTOCOL_SIZE for each in protocols)


def places_of(topics: Iterable[Any]) -> set[Place]:
    """Return the partitions of objects with a topic's id and partitions."""
    return {(topic.topic_id, number) for topic in topics for number in topic.partitions}


def by_topic(places: Iterable[Place]) -> dict[UUID, list[int]]:
    """Return the partitions by topic id, both in order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return found
