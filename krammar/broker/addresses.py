"""The addresses that the broker listens on, and the addresses that clients connect to."""

from __future__ import annotations

from krammar.broker.config import Listener


class Addresses(dict[str, tuple[str, int]]):
    """The host and port that each listener is bound to, by the listener's name."""

    def advertised(self, listener: Listener) -> tuple[str, int]:
        """Return the host and port where clients reach a listener."""
        host, port = self[listener.name]
        if listener.advertised_host:
            host = listener.advertised_host
        elif host in ("0.0.0.0", "::"):
            host = "localhost"
        return host, listener.advertised_port or port
