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
    """One member, known by its id.

    ``instance_id``  of a static member (KIP-345), None for a dynamic one
    ``protocols``    name and metadata of each protocol that it offers, the one it prefers first
    ``assignment``   what the leader gave it, empty before that
    ``joining``, ``syncing``  where its JoinGroup or SyncGroup that is held back gets its answer
    ``is_new``       it has not been through a rebalance yet: while it waits in its first JoinGroup
                     nobody knows whether its client is still there
    Times are in milliseconds.
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
        """What the member sent for a protocol; None if it does not offer it."""
        return next((data for name, data in self.protocols if name == protocol), None)

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that the member likes best of some, of which it offers at least one."""
        return next(name for name, _ in self.protocols if name in candidates)

    def is_waiting(self) -> bool:
        """Whether it has a request here, so that no heartbeat is to be expected of it."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)
