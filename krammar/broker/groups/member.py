"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_wire import JoinGroupResponse, SyncGroupResponse

    JoinReply = Callable[[JoinGroupResponse], None]
    SyncReply = Callable[[SyncGroupResponse], None]

Protocols = Sequence[tuple[str, bytes]]


@dataclass(slots=True, eq=False)
class Member:
    """One member. Times are in milliseconds.

    ``instance_id``  the id of a static member (KIP-345); None for a dynamic member
    ``protocols``    the name and metadata of each supported protocol, in the order of preference
    ``assignment``   the assignment by the leader; empty before
    ``joining``      sends the response to the waiting JoinGroup
    ``syncing``      sends the response to the waiting SyncGroup
    ``is_new``       whether it has not completed a rebalance: while it waits in its first JoinGroup, the broker
                     cannot notice that its client is gone
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

    def metadata(self, protocol: str | None) -> bytes | None:
        """Return the member's metadata for a protocol; None if it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), None)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers. It must support at least one."""
        return next(name for name, _ in self.protocols if name in candidates)

    def is_waiting(self) -> bool:
        """Return whether it waits in a request, so that it sends no heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)
