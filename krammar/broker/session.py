"""The state of one connection that handlers use, and what its client may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from krammar.authorization.operations import bits
from krammar.authorization.table import CLUSTER, GROUP, TOPIC

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from krammar.broker.config import Listener

ANONYMOUS = "User:ANONYMOUS"
# The software of clients that do not name theirs, as in Kafka.
UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Session:
    """One client's connection, from accept to close.

    Attributes:
        listener: the listener that accepted the connection
        host: the client's address without the port, as in group members and log lines
        port: the client's port
        connection_id: unique in the broker: local address, remote address and a number
        client_id: the client id of the current request
        software: the name and the version of the client's library, from its ApiVersions request
        principal: ``User:name`` after authentication, else ``User:ANONYMOUS``
        authenticated: whether requests other than the handshake are served
        sasl: the authentication on a SASL listener
        hurry: ends the wait of the current request, because the client is gone
        expires_at: when the client must log in again (KIP-368), in milliseconds since 1970; None
            for never
        building: the bytes of records in the response that is being built
        request_size: bytes of the current request
        throttle_ms: for how many milliseconds the connection is muted after the response (KIP-219)
        on_close: called when the connection is closed
        is_closed: whether the connection is closed
    """

    listener: Listener
    host: str
    port: int
    connection_id: str
    client_id: str | None = None
    software: tuple[str, str] = (UNKNOWN, UNKNOWN)
    principal: str = ANONYMOUS
    authenticated: bool = True
    sasl: Any = None
    hurry: Callable[[], None] | None = None
    expires_at: int | None = None
    building: int = 0
    request_size: int = 0
    throttle_ms: int = 0
    on_close: list[Callable[[], None]] = field(default_factory=list)
    is_closed: bool = False

    @classmethod
    def begin(cls, listener: Listener, transport: BaseTransport, number: int) -> Session:
        """Begin the session of the connection with this number, from 1."""
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        here = transport.get_extra_info("sockname") or ("unknown", 0)
        name = f"{here[0]}:{here[1]}-{peer[0]}:{peer[1]}-{number - 1}"
        return cls(listener, peer[0], peer[1], name)


# All operations (KIP-430). An authorizer leaves those that a client may do.
GROUP_OPERATIONS = bits(GROUP)
TOPIC_OPERATIONS = bits(TOPIC)
CLUSTER_OPERATIONS = bits(CLUSTER)
