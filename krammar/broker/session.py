"""What the broker knows of one connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krammar.broker.config import Listener

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True, eq=False)
class Session:
    """One client's connection, from accept to close.

    ``listener``       the listener that accepted it
    ``host``           the client's address, as group members and logs show it, without the port
    ``connection_id``  unique in the broker: local and remote address and a number
    ``client_id``      of the request that is being handled
    ``principal``      ``User:name`` behind authentication, else ``User:ANONYMOUS``
    ``authenticated``  whether anything but the handshake is served
    ``sasl``           the authentication under way on a SASL listener
    ``hurry``          of a request that waits for something to happen: ends the wait, because the client
                       has gone
    ``expires_at``     milliseconds since 1970 at which the login has to be renewed (KIP-368), or None
    """

    listener: Listener
    host: str
    connection_id: str
    client_id: str | None = None
    principal: str = ANONYMOUS
    authenticated: bool = True
    sasl: Any = None
    hurry: Callable[[], None] | None = None
    expires_at: int | None = None
