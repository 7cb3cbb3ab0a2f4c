"""Actions on connections, times and bytes, and the action that only observes."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass
from math import inf
from random import Random
from typing import Annotated, ClassVar, Literal, Self

from krammar.faults.action import Action, Occasion
from krammar.faults.declared import Check, minimum
from krammar.faults.targets import Target, Targets
from krammar.proxy.interface import SILENCE, Close
from krammar.wire.framing import PREFIX
from krammar.wire.kafka import FETCH, has_fetch_sessions

# Pieces of a second in which a limited bandwidth sends.
_PIECES = 50
_PART = Check(lambda at: 0 < at < inf, "at must be a number of bytes, or a share below 1")
_WRONG = Check(bool, "correlation_id must not be 0: the response would have the right one")


@dataclass(eq=False)
class Observe(Action):
    """Count the message, and add it to the history. Nothing is changed.

    In a fetch session (KIP-227), requests name only what has changed since the last one, and a rule about topics counts
    those requests, and the responses that have records of these topics.
    """

    key: ClassVar[str] = "observe"
    told: ClassVar[str] = "observed"

    def settle(self, targets: Targets) -> None:
        self._targets = targets

    def acts_on_request(self, target: Target) -> bool:
        if not self._targets.are_known_from_request(target):
            return False
        has_sessions = target.api_key == FETCH and has_fetch_sessions(target.schema.package)
        return not (has_sessions and target.selection)


@dataclass(eq=False)
class Drop(Action):
    """Close the connection.

    Args:
        when: ``before`` the request is handled; ``after`` it was handled, and before it is answered;
            in the ``middle`` of the response's bytes.
        at: for ``middle``, how many bytes of the response are sent; below 1, which share of them.
        reset: whether the client gets a reset (RST) instead of an end (FIN). Bytes that were not delivered are lost.
    """

    when: Literal["before", "after", "middle"] = "before"
    _: KW_ONLY
    at: Annotated[float, _PART] = 0.5
    reset: bool = False
    key: ClassVar[str] = "drop"

    def acts_on_request(self, target: Target) -> bool:
        return self.when == "before"

    def check(self, target: Target) -> None:
        if self.when != "before":
            _ = target.response

    def act(self, target: Target, occasion: Occasion) -> None:
        if self.when == "before":
            occasion.outcome = Close(reset=self.reset)
            return
        occasion.delivery.reset |= self.reset
        if self.when == "after":
            occasion.delivery.drop = True
        else:
            occasion.delivery.cut_at = self.at

    def describe(self, occasion: Occasion) -> str:
        what = {
            "before": "dropped the connection before the request was handled",
            "after": "dropped the connection instead of answering",
            "middle": "dropped the connection in the middle of the response",
        }[self.when]
        return what.replace("dropped", "reset") if self.reset else what


@dataclass(eq=False)
class Delay(Action):
    """Wait before the response is sent, or before the request is handled.

    Args:
        ms: milliseconds.
        of: the delayed message, ``response`` or ``request``.
        jitter: each delay is up to this many milliseconds shorter or longer.
        seed: the same seed gives the same jitter.
    """

    ms: Annotated[float, minimum(0)]
    _: KW_ONLY
    of: Literal["request", "response"] = "response"
    jitter: Annotated[float, minimum(0)] = 0
    seed: int = 0
    key: ClassVar[str] = "delay_ms"
    told: ClassVar[str] = "delayed the {of} by {ms:g} ms"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = Random(self.seed)

    def drawn(self) -> Self:
        one = copy(self)
        if self.jitter:
            one.ms = max(0, self.ms + self.random.uniform(-self.jitter, self.jitter))
        return one

    def acts_on_request(self, target: Target) -> bool:
        return self.of == "request"

    def act(self, target: Target, occasion: Occasion) -> None:
        delayed = occasion if self.of == "request" else occasion.delivery
        delayed.delay_ms += self.ms


@dataclass(eq=False)
class Trickle(Action):
    """Send the response in small pieces.

    Args:
        bytes: the bytes of a piece.
        every_ms: milliseconds between two pieces.
    """

    bytes: Annotated[int, minimum(1)]
    _: KW_ONLY
    every_ms: Annotated[float, minimum(0)]
    key: ClassVar[str] = "trickle"
    told: ClassVar[str] = "sent {bytes} bytes every {every_ms:g} ms"
    example: ClassVar[str] = "trickle = { bytes = 10, every_ms = 5 }"

    def act(self, target: Target, occasion: Occasion) -> None:
        occasion.delivery.trickle = (self.bytes, self.every_ms)


@dataclass(eq=False)
class Bandwidth(Action):
    """Send the response with a limited bandwidth.

    Args:
        bytes_per_second: the limit for each connection.
    """

    bytes_per_second: Annotated[int, minimum(1)]
    key: ClassVar[str] = "bandwidth"
    told: ClassVar[str] = "sent {bytes_per_second} bytes per second"

    def act(self, target: Target, occasion: Occasion) -> None:
        size = max(1, self.bytes_per_second // _PIECES)
        occasion.delivery.trickle = (size, 1000 * size / self.bytes_per_second)


@dataclass(eq=False)
class BlackHole(Action):
    """Stop handling and answering requests of the connection, from this one on."""

    key: ClassVar[str] = "black_hole"
    told: ClassVar[str] = "swallowed the connection's requests from here on"
    on_request: ClassVar[bool] = True

    def act(self, target: Target, occasion: Occasion) -> None:
        occasion.outcome = SILENCE


@dataclass(eq=False)
class Truncate(Action):
    """Cut bytes off the end of the response. The length of its frame is right.

    Args:
        bytes: their number.
    """

    bytes: Annotated[int, minimum(1)]
    key: ClassVar[str] = "truncate"
    told: ClassVar[str] = "cut {bytes} bytes off the response"

    def act(self, target: Target, occasion: Occasion) -> None:
        def cut(frame: bytes) -> bytes:
            body = frame[PREFIX : max(PREFIX, len(frame) - self.bytes)]
            return len(body).to_bytes(PREFIX, "big") + body

        occasion.delivery.transforms.append(cut)


@dataclass(eq=False)
class FlipBits(Action):
    """Flip bits of the response, after its correlation id.

    Args:
        count: their number.
        seed: the same seed selects the same bits.
    """

    count: Annotated[int, minimum(1)] = 1
    _: KW_ONLY
    seed: int = 0
    key: ClassVar[str] = "flip_bits"
    told: ClassVar[str] = "flipped {count} bits of the response"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = Random(self.seed)

    def act(self, target: Target, occasion: Occasion) -> None:
        def flip(frame: bytes) -> bytes:
            data, begin = bytearray(frame), 2 * PREFIX
            bits = (len(data) - begin) * 8
            for bit in self.random.sample(range(bits), min(self.count, bits)) if bits > 0 else ():
                data[begin + bit // 8] ^= 1 << bit % 8
            return bytes(data)

        occasion.delivery.transforms.append(flip)


@dataclass(eq=False)
class CorrelationId(Action):
    """Answer with a wrong correlation id.

    Args:
        by: the difference to the correct one.
    """

    by: Annotated[int, _WRONG] = 1
    key: ClassVar[str] = "correlation_id"
    told: ClassVar[str] = "set a correlation id that is wrong by {by}"

    def act(self, target: Target, occasion: Occasion) -> None:
        def shift(frame: bytes) -> bytes:
            number = int.from_bytes(frame[PREFIX : 2 * PREFIX], "big") + self.by
            return frame[:PREFIX] + (number & 0x7FFFFFFF).to_bytes(4, "big") + frame[2 * PREFIX :]

        occasion.delivery.transforms.append(shift)


@dataclass(eq=False)
class Reorder(Action):
    """Send the response after the connection's next one, or after a while without one.

    Args:
        ms: how long to wait for another response, in milliseconds.
    """

    ms: Annotated[float, minimum(0)] = 1000
    key: ClassVar[str] = "reorder"
    told: ClassVar[str] = "sent the response after the next one"
    written: ClassVar[tuple[type, ...]] = (bool, dict)

    def act(self, target: Target, occasion: Occasion) -> None:
        occasion.delivery.hold_ms = self.ms


@dataclass(eq=False)
class AdvanceClock(Action):
    """Set the broker's clock ahead before the request is handled, and run the timers that are due then.

    Args:
        ms: milliseconds.
        members: whether the sessions and rebalances of group members end too. Their clients send heartbeats
            in real time, so a clock far ahead expires the members of all groups.
        of: the clock of the whole ``cluster``, or of the ``node`` that the client talks to only.
    """

    ms: Annotated[int, minimum(0)]
    _: KW_ONLY
    members: bool = False
    of: Literal["cluster", "node"] = "cluster"
    key: ClassVar[str] = "advance_clock_ms"
    on_request: ClassVar[bool] = True
    needs: ClassVar[str] = "clock"

    def act(self, target: Target, occasion: Occasion) -> None:
        node = occasion.exchange.connection.node if self.of == "node" else None
        occasion.clocks.append((self.ms, self.members, node))

    def describe(self, occasion: Occasion) -> str:
        node = occasion.exchange.connection.node
        whose = "the broker's clock" if self.of == "cluster" else f"the clock of node {node}"
        return f"set {whose} ahead by {self.ms} ms"
