"""The last requests of clients and their responses, as bytes: tests show them when they fail.

A broker records them only if ``Connections.recent`` is set. It copies the first bytes of each frame; nothing is decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from krammar.util.clock import time_ns
from krammar.wire.framing import PREFIX

# How many requests are remembered.
MOST = 100
# The most bytes of a frame that are remembered. Only whole frames can be decoded.
MOST_BYTES = 64 * 1024


@dataclass(slots=True, eq=False)
class RecordedFrame:
    """A frame without its length prefix.

    Attributes:
        data: its bytes; only the first ones if ``size``, in bytes, is larger
        time_ns: when it was received or sent, in nanoseconds since 1970
    """

    data: bytes
    size: int
    time_ns: int


@dataclass(slots=True, eq=False)
class RecordedExchange:
    """A request of a client.

    Attributes:
        connection: the number of the connection
        response: None before it is sent, and if none is sent
        notes: what filters and rules of faults have done
    """

    connection: int
    request: RecordedFrame
    response: RecordedFrame | None = None
    notes: Sequence[str] = ()

    def answered(self, frame: bytes) -> None:
        """Record the response, with its length prefix."""
        self.response = _recorded(memoryview(frame)[PREFIX:])


@dataclass(slots=True, eq=False)
class RecentRequests:
    """The last requests of all clients of a broker, oldest first. They are read from any thread."""

    exchanges: deque[RecordedExchange] = field(default_factory=lambda: deque(maxlen=MOST))

    def begin(self, connection: int, frame: bytes) -> RecordedExchange:
        """Record a request of a connection, without its length prefix."""
        exchange = RecordedExchange(connection, _recorded(memoryview(frame)))
        self.exchanges.append(exchange)
        return exchange


def _recorded(frame: memoryview) -> RecordedFrame:
    return RecordedFrame(bytes(frame[:MOST_BYTES]), len(frame), time_ns())
