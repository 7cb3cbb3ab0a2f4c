"""How the bytes of a response reach a client. ``krammar.proxy.delivery`` carries out the steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes to the client."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """Send nothing now: the next response of the connection goes first. After ``seconds`` without one,
    send what ``release`` returns."""

    seconds: float
    release: Callable[[], list[bytes]] = field(default=list, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Disconnect the connection, after what was sent before, or with a reset."""

    reset: bool = False


StepTo = Wait | Send | Hold | Disconnect


@dataclass(slots=True)
class ResponseDelivery:
    """How a response reaches the client, as rules have decided. ``held`` are frames of the connection that wait
    for its next response, oldest first."""

    held: list[bytes]
    delay_ms: float = 0
    transforms: list[Callable[[bytes], bytes]] = field(default_factory=list)
    trickle: tuple[int, float] | None = None  # bytes of a piece, milliseconds between pieces
    cut_at: float | None = None  # bytes to send before the connection is closed; below 1: a share
    drop: bool = False
    reset: bool = False
    hold_ms: float | None = None

    def steps(self, frame: bytes) -> list[StepTo]:
        """Return how a frame, length prefix included, reaches the client."""
        for transform in self.transforms:
            frame = transform(frame)
        steps: list[StepTo] = [Wait(self.delay_ms / 1000)] if self.delay_ms else []
        if self.drop:
            return [*steps, Disconnect(self.reset)]
        if self.cut_at is not None:
            size = self.cut_at if self.cut_at >= 1 else len(frame) * self.cut_at
            frame = frame[: max(1, min(int(size), len(frame) - 1))]
        if self.hold_ms is not None:
            self.held.append(frame)
            return [*steps, Hold(self.hold_ms / 1000, self._release)]
        size, pause = self.trickle or (len(frame), 0.0)
        for begin in range(0, len(frame), size):
            if begin and pause:
                steps.append(Wait(pause / 1000))
            steps.append(Send(frame[begin : begin + size]))
        if self.cut_at is not None:
            return [*steps, Disconnect(self.reset)]
        return [*steps, *map(Send, self._release())]

    def _release(self) -> list[bytes]:
        released = self.held[:]
        self.held.clear()
        return released
