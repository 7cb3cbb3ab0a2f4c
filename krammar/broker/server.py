"""The listening sockets of a broker: accept connections, close idle ones, and close all at shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from functools import partial
from typing import TYPE_CHECKING

from krammar.auth.tls_acceptor import TlsAcceptor
from krammar.broker.connection import Connection
from krammar.util.listening import listening_sockets, start_listening

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig, Listener
    from krammar.broker.connections import Connections
    from krammar.broker.dispatch import Handlers
    from krammar.broker.security.users import Credentials
    from krammar.broker.timers import Timers

log = logging.getLogger("krammar.broker")

# How long a shutdown waits for clients to read their last responses.
DRAIN_SECONDS = 1.0


class Server:
    """The listening sockets of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        credentials: Credentials,
        handlers: Handlers,
        connections: Connections,
    ) -> None:
        self._config = config
        self._timers = timers
        self._connections = connections
        self._parts = config, timers, credentials, handlers, connections
        self._servers: list[asyncio.Server | TlsAcceptor] = []

    async def listen(
        self, listener: Listener, port: int, tls: ssl.SSLContext | None
    ) -> tuple[str, int]:
        """Open a listener on a port and return its bound address. Raises OSError."""
        kind = Connection
        if not listener.kafka:
            from krammar.broker.wafka import WafkaConnection

            kind = WafkaConnection
        if tls is None:
            server = await start_listening(
                lambda: kind(listener, *self._parts), listener.host or None, port
            )
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()[:2]
            return host, port
        sockets = await listening_sockets(listener.host or None, port)
        for each in sockets:
            self._servers.append(
                TlsAcceptor(
                    each,
                    lambda: tls,
                    lambda client: kind(listener, *self._parts, client),
                    enter=partial(self._connections.admission.enter, listener),
                    held_seconds=self._connections.admission.held_seconds,
                    leave=partial(self._connections.admission.leave, listener),
                    log=log,
                    name=listener.name,
                )
            )
        host, port = sockets[0].getsockname()[:2]
        return host, port

    def refuse(self) -> None:
        """Stop listening, so that new connections are refused. Open connections continue."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    @property
    def is_listening(self) -> bool:
        return bool(self._servers)

    def sweep_idle(self) -> None:
        """Close connections that were idle for connections.max.idle.ms, and repeat periodically."""
        limit = self._config.connections_max_idle_ms / 1000
        if limit <= 0:
            return
        for connection in list(self._connections.open):
            connection.note_reading()
            if self._timers.loop.time() - connection.last_active > limit:
                # A regular close would wait forever for the client to read.
                (connection.abort if connection.unread else connection.close)()
        self._timers.call_later(max(1.0, min(limit, 60.0)), self.sweep_idle)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        for server in self._servers:
            server.close()
        connections = list(self._connections.open)
        tasks = [each.task for each in connections if each.task is not None]
        for task in tasks:
            task.cancel()
        for connection in connections:
            connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Responses that were written are still sent, unless the client does not read them.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connections.drained(), DRAIN_SECONDS)
        self._connections.abort()
        self._connections.slices.worker.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
