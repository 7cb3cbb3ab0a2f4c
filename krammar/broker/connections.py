"""The connections of a node: which are accepted, and the memory and time that they share."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from krammar.auth.guesses import Guesses
from krammar.broker.config.definitions import connections_by_ip
from krammar.broker.open_files import open_files, reserve
from krammar.broker.session import Session
from krammar.util.logs import Seldom
from krammar.util.turns import Budget, Slices

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig, Listener
    from krammar.broker.quotas.pace import ConnectionPace
    from krammar.broker.recent import RecentRequests
    from krammar.proxy.chain import Chain


log = logging.getLogger("krammar.broker")

# The size in bytes of the shared read buffer; large frames get buffers of their own.
RECEIVE_SIZE = 64 * 1024
# The limits of connections that are not set.
UNLIMITED = 2**31 - 1


class Admission:
    """Decides whether a new connection is accepted.

    The limits are max.connections, max.connections.per.ip, and the files in reserve. Connections are
    counted from accept to close, also while they have not finished a TLS handshake.

    Attributes:
        count: connections
        refused: connections so far
        open_files: returns how many files the process may open, if that is limited
        throttle: returns the seconds after which a new connection from an address is closed without
            service; 0 to serve it
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.open_files = open_files
        self.count = 0
        self._hosts: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._log = Seldom(log.warning)
        self.refused = 0
        self.throttle: Callable[[str], float] | None = None
        self._pace: ConnectionPace | None = None

    def held_seconds(self, host: str) -> float:
        """Return for how long a new connection is held, and then closed without service; 0 to serve it."""
        return 0.0 if self.throttle is None else self.throttle(host)

    def delay_seconds(self, listener: Listener, now_ms: Callable[[], int]) -> float:
        """Return for how long a new connection waits until it is served, by max.connection.creation.rate."""
        config = self._config
        if config.max_connection_creation_rate == UNLIMITED and (
            config.get(f"listener.name.{listener.name.lower()}.max.connection.creation.rate")
            is None
        ):
            return 0.0
        if self._pace is None:
            # Imported here because most brokers have no limit.
            from krammar.broker.quotas.pace import ConnectionPace

            self._pace = ConnectionPace(config)
        return self._pace.delay_ms(listener, now_ms()) / 1000

    def enter(self, listener: Listener, host: str, descriptor: int) -> bool:
        """Count a connection. Returns False if the connection must be closed; a log line gives the reason.

        Args:
            host: the client's address
            descriptor: the number of its socket; the system uses the lowest that is free
        """
        why = self._reason(listener, host, descriptor)
        if why is None:
            self.count += 1
            self._hosts[host] += 1
            self._listeners[listener.name] += 1
            return True
        self.refused += 1
        self._log(f"a connection from {host} is closed: {why}")
        return False

    def leave(self, listener: Listener, host: str) -> None:
        """Remove a connection that ``enter`` has counted."""
        self.count -= 1
        self._listeners[listener.name] -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _reason(self, listener: Listener, host: str, descriptor: int) -> str | None:
        config = self._config
        most = config.max_connections
        if self.count >= most:
            return f"{self.count} connections are open, and max.connections is {most}"
        own = config.get(f"listener.name.{listener.name.lower()}.max.connections")
        if own is not None and self._listeners[listener.name] >= int(own):
            return (
                f"{self._listeners[listener.name]} connections of listener {listener.name} are open, and its"
                f" max.connections is {own}"
            )
        most = connections_by_ip(config.max_connections_per_ip_overrides).get(
            host, config.max_connections_per_ip
        )
        if self._hosts[host] >= most:
            return (
                f"{self._hosts[host]} connections of this address are open, and max.connections.per.ip is"
                f" {most}"
            )
        files = self.open_files()
        if files is not None and descriptor >= files - reserve(files):
            return (
                f"the process may open {files} files, and the last {reserve(files)} are for logs; raise"
                " the limit (ulimit -n), or set max.connections"
            )
        return None


class OpenConnection(Protocol):
    """The interface of connections for the server."""

    session: Session
    number: int
    transport: asyncio.Transport
    task: asyncio.Future[Any] | None
    last_active: float

    @property
    def unread(self) -> int: ...
    def note_reading(self) -> None: ...
    def go_on(self) -> None: ...
    def cut_off(self, why: str) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Connections:
    """The open connections, and the memory of their requests and responses.

    Attributes:
        admission: counts and refuses connections
        guesses: slows down addresses with failed logins
        open: all connections
        blocked: connections whose clients do not read their responses
        unfinished: bytes of a large request so far, by connection
        numbers: gives each connection its number; nodes of one process share it
        accepted: the number of connections so far
        received: bytes of requests so far
        sent: bytes of responses so far
        holds: calls of ``hold`` so far
        scratch: the read buffer of all connections, until one of them takes it over
        slices: runs the long requests of all connections in turn
        budget: of the requests of all connections, for each turn of the event loop
        recent: the last requests of all clients, if a test wants them
        chains: the filters and the rules of faults, by protocol, as far as there are any
        max_unread: the bytes of all unread responses above which fetches return only one batch
        unread_seconds: above ``max_unread``, a client that has read nothing for so long is
            disconnected
        max_unfinished: the bytes of all requests that have arrived in part, above which the largest
            is refused; two always fit
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.admission = Admission(config)
        self.guesses = Guesses()
        self.open: set[OpenConnection] = set()
        self.blocked: set[OpenConnection] = set()
        self.unfinished: dict[OpenConnection, int] = {}
        self.numbers = count(1)
        self.accepted = 0
        self.received = 0
        self.sent = 0
        self.scratch = memoryview(bytearray(RECEIVE_SIZE))
        self.slices = Slices()
        self.budget = Budget()
        self.recent: RecentRequests | None = None
        self.chains: dict[ModuleType, Chain] = {}
        self.max_unread = 48 << 20
        self.unread_seconds = 10.0
        self.max_unfinished = 256 << 20
        # The sum of ``Session.building``.
        self._building = 0
        self.holds = 0
        self._drained = asyncio.Event()

    def share(self, other: Connections) -> None:
        """Take numbers, time, failed logins and filters from the connections of another node in the same process."""
        self.guesses, self.chains = other.guesses, other.chains
        self.numbers, self.slices, self.budget = other.numbers, other.slices, other.budget

    def remove(self, connection: OpenConnection) -> None:
        """Remove a closed connection."""
        self.open.discard(connection)
        self.blocked.discard(connection)
        self.unfinished.pop(connection, None)
        self.budget.forget(connection)
        if not self.open:
            self._drained.set()

    def abort(self) -> None:
        """Close all connections immediately."""
        for connection in list(self.open):
            connection.abort()

    async def drained(self) -> None:
        """Wait until all connections are closed."""
        if self.open:
            self._drained.clear()
            await self._drained.wait()

    def arrived(self, connection: OpenConnection, size: int, max_frame: int) -> None:
        """Count bytes of a large request. If all are too many, the largest request is refused."""
        self.unfinished[connection] = self.unfinished.get(connection, 0) + size
        if sum(self.unfinished.values()) > max(self.max_unfinished, 2 * max_frame):
            largest = max(self.unfinished, key=self.unfinished.__getitem__)
            held = self.unfinished.pop(largest) >> 20
            largest.cut_off(f"its unfinished request has {held} MB, the most of all clients")

    def room(self) -> int:
        """Return how many more bytes of unread responses are allowed.

        If none are, connections whose clients have not read for a while are closed.
        """
        unread = self._building + sum(connection.unread for connection in self.blocked)
        if unread >= self.max_unread:
            now = asyncio.get_running_loop().time()
            for connection in list(self.blocked):
                connection.note_reading()
                if now - connection.last_active > self.unread_seconds:
                    connection.cut_off(
                        f"the client has not read {connection.unread} bytes of responses"
                    )
        return max(0, self.max_unread - unread)

    def hold(self, session: Session, size: int) -> None:
        """Add the bytes of records that were read for a response."""
        self.holds += 1
        session.building += size
        self._building += size

    def release(self, session: Session) -> None:
        """Subtract the bytes of a response that was written or dropped."""
        self._building -= session.building
        session.building = 0
