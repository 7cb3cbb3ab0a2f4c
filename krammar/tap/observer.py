"""The interface of observers: the proxy and the replay of a capture report frames to them."""

from __future__ import annotations

from krammar.tap.frame import Frame


class Observer:
    """Receives all events in order. The methods of this class do nothing.

    An OSError of a method ends the proxy, because frames can no longer be shown or stored.
    """

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        """Handle a new connection of a client to the proxy, and of the proxy to the broker."""

    def frame(self, frame: Frame) -> None:
        """Handle a frame. ``frame.note`` describes how the proxy has changed it."""

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        """Handle the end of a connection."""

    def notice(self, text: str) -> None:
        """Handle another event, such as a new listening port or an unreachable broker."""

    def close(self) -> None:
        """Release resources after the last event."""
