"""Where frames go: the proxy and the replay of a capture call the same observers."""

from __future__ import annotations

from krammar.tap.inspector import Frame


class Observer:
    """Told of everything, in the order in which it happened. All methods do nothing here.

    An OSError that a method raises ends the proxy: what nobody can see or keep is not worth tapping.
    """

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        """A client has connected to the proxy, and the proxy to the broker."""

    def frame(self, frame: Frame) -> None:
        """A frame came, and what will be passed on is known."""

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        """A connection has ended."""

    def notice(self, text: str) -> None:
        """Something that is no frame: a port was opened, a broker cannot be reached."""

    def close(self) -> None:
        """Nothing follows."""
