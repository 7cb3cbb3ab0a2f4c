"""Decides whether a new connection is accepted: max.connections, max.connections.per.ip, and files in reserve."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from krammar.broker.config.definitions import connections_by_ip
from krammar.broker.open_files import open_files, reserve
from krammar.util.logs import Seldom

if TYPE_CHECKING:
    from krammar.broker.config import BrokerConfig, Listener

log = logging.getLogger("krammar.broker")


class Admission:
    """Counts the connections of one node, from accept to close, with those that have not finished a TLS handshake."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.count = 0  # of connections
        self._hosts: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._log = Seldom(log.warning)
        self.refused = 0

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
        files = open_files()
        if files is not None and descriptor >= files - reserve(files):
            return (
                f"the process may open {files} files, and the last {reserve(files)} are for logs; raise"
                " the limit (ulimit -n), or set max.connections"
            )
        return None
