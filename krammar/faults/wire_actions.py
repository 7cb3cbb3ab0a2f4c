"""Actions on connections, times and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import ClassVar

from krammar.faults.action import Action, Target, checked
from krammar.faults.paths import TopicNames
from krammar.faults.steps import Delivery, Exchange, Fate, Verdict
from krammar.wire.framing import PREFIX

_MOMENTS = ("before", "after", "middle")
_SIDES = ("request", "response")
# Pieces of a second in which a limited bandwidth sends.
_PIECES = 50


@dataclass(eq=False)
class Drop(Action):
    """Close the connection.

    Args:
        when: ``before`` the request is handled; ``after`` it was handled, and before it is answered;
            in the ``middle`` of the response's bytes.
        at: for ``middle``, how many bytes of the response are sent; below 1, which share of them.
        reset: whether the client gets a reset (RST) instead of an end (FIN). Bytes that were not delivered are lost.
    """

    when: str = field(
        default="before",
        metadata=checked(
            lambda when: when in _MOMENTS,
            '"{}" is not a moment to drop a connection',
            'write "before" or "after" (the request is handled), or "middle" (of the response)',
        ),
    )
    at: float = field(
        default=0.5,
        kw_only=True,
        metadata=checked(
            lambda at: 0 < at < inf, "at must be a number of bytes, or a share below 1"
        ),
    )
    reset: bool = field(default=False, kw_only=True)
    key: ClassVar[str] = "drop"

    def acts_on_request(self, target: Target) -> bool:
        return self.when == "before"

    def check(self, target: Target) -> None:
        if self.when != "before":
            _ = target.response

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        if self.when == "before":
            verdict.fate, verdict.reset = Fate.DROP, self.reset

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        delivery.reset = delivery.reset or self.reset
        if self.when == "after":
            delivery.drop = True
        elif self.when == "middle":
            delivery.cut_at = self.at

    def describe(self, exchange: Exchange) -> str:
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
        of: what is delayed, ``response`` or ``request``.
        jitter: each delay differs by up to so many milliseconds, in both directions.
        seed: the same seed gives the same jitter.
    """

    ms: float = field(metadata=checked(lambda ms: ms >= 0, "a delay cannot be negative"))
    of: str = field(
        default="response",
        kw_only=True,
        metadata=checked(
            lambda of: of in _SIDES, '"{}" cannot be delayed', "write request or response"
        ),
    )
    jitter: float = field(
        default=0, kw_only=True, metadata=checked(lambda ms: ms >= 0, "jitter cannot be negative")
    )
    seed: int = field(default=0, kw_only=True)
    key: ClassVar[str] = "delay_ms"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = Random(self.seed)

    def fire(self, exchange: Exchange) -> None:
        jitter = self.random.uniform(-self.jitter, self.jitter) if self.jitter else 0
        exchange.chosen[self] = max(0, self.ms + jitter)

    def acts_on_request(self, target: Target) -> bool:
        return self.of == "request"

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        if self.of == "request":
            verdict.delay_ms += exchange.chosen[self]

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        if self.of == "response":
            delivery.delay_ms += exchange.chosen[self]

    def describe(self, exchange: Exchange) -> str:
        return f"delayed the {self.of} by {exchange.chosen[self]:g} ms"


@dataclass(eq=False)
class Trickle(Action):
    """Send the response in small pieces.

    Args:
        bytes: the bytes of a piece.
        every_ms: milliseconds between two pieces.
    """

    bytes: int = field(metadata=checked(lambda size: size >= 1, "bytes must be at least 1"))
    every_ms: float = field(
        kw_only=True,
        metadata=checked(lambda ms: ms >= 0, "the pause between pieces cannot be negative"),
    )
    key: ClassVar[str] = "trickle"
    example: ClassVar[str] = "trickle = { bytes = 10, every_ms = 5 }"

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        delivery.trickle = (self.bytes, self.every_ms)

    def describe(self, exchange: Exchange) -> str:
        return f"sent {self.bytes} bytes every {self.every_ms:g} ms"


@dataclass(eq=False)
class Bandwidth(Action):
    """Send the response with a limited bandwidth.

    Args:
        bytes_per_second: the limit for each connection.
    """

    bytes_per_second: int = field(
        metadata=checked(lambda size: size >= 1, "bandwidth must be at least 1 byte per second")
    )
    key: ClassVar[str] = "bandwidth"

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        size = max(1, self.bytes_per_second // _PIECES)
        delivery.trickle = (size, 1000 * size / self.bytes_per_second)

    def describe(self, exchange: Exchange) -> str:
        return f"sent {self.bytes_per_second} bytes per second"


@dataclass(eq=False)
class BlackHole(Action):
    """Neither handle nor answer the request, nor what follows it on the connection."""

    key: ClassVar[str] = "black_hole"
    on_request: ClassVar[bool] = True

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        verdict.fate = Fate.SWALLOW

    def describe(self, exchange: Exchange) -> str:
        return "swallowed the connection's requests from here on"


@dataclass(eq=False)
class Truncate(Action):
    """Cut bytes off the end of the response. The length of its frame is right.

    Args:
        bytes: their number.
    """

    bytes: int = field(metadata=checked(lambda size: size >= 1, "truncate must be at least 1 byte"))
    key: ClassVar[str] = "truncate"

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        def cut(frame: bytes) -> bytes:
            body = frame[PREFIX : max(PREFIX, len(frame) - self.bytes)]
            return len(body).to_bytes(PREFIX, "big") + body

        delivery.transforms.append(cut)

    def describe(self, exchange: Exchange) -> str:
        return f"cut {self.bytes} bytes off the response"


@dataclass(eq=False)
class FlipBits(Action):
    """Flip bits of the response, after its correlation id.

    Args:
        count: their number.
        seed: the same seed selects the same bits.
    """

    count: int = field(
        default=1, metadata=checked(lambda count: count >= 1, "flip_bits must be at least 1")
    )
    seed: int = field(default=0, kw_only=True)
    key: ClassVar[str] = "flip_bits"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = Random(self.seed)

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        def flip(frame: bytes) -> bytes:
            data, begin = bytearray(frame), 2 * PREFIX
            bits = (len(data) - begin) * 8
            for bit in self.random.sample(range(bits), min(self.count, bits)) if bits > 0 else ():
                data[begin + bit // 8] ^= 1 << bit % 8
            return bytes(data)

        delivery.transforms.append(flip)

    def describe(self, exchange: Exchange) -> str:
        return f"flipped {self.count} bits of the response"


@dataclass(eq=False)
class CorrelationId(Action):
    """Answer with a wrong correlation id.

    Args:
        by: how much too high it is.
    """

    by: int = field(
        default=1,
        metadata=checked(
            lambda by: by != 0,
            "correlation_id must not be 0: the response would have the right one",
        ),
    )
    key: ClassVar[str] = "correlation_id"

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        def shift(frame: bytes) -> bytes:
            number = int.from_bytes(frame[PREFIX : 2 * PREFIX], "big") + self.by
            return frame[:PREFIX] + (number & 0x7FFFFFFF).to_bytes(4, "big") + frame[2 * PREFIX :]

        delivery.transforms.append(shift)

    def describe(self, exchange: Exchange) -> str:
        return f"set a correlation id that is wrong by {self.by}"


@dataclass(eq=False)
class Reorder(Action):
    """Send the response after the connection's next one, or after a while without one.

    Args:
        ms: that while, in milliseconds.
    """

    ms: float = field(
        default=1000,
        metadata=checked(
            lambda ms: ms >= 0, "the time to wait for the next response cannot be negative"
        ),
    )
    key: ClassVar[str] = "reorder"
    written: ClassVar[tuple[type, ...]] = (bool, dict)

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        delivery.hold_ms = self.ms

    def describe(self, exchange: Exchange) -> str:
        return "sent the response after the next one"


@dataclass(eq=False)
class AdvanceClock(Action):
    """Set the broker's clock ahead before the request is handled, and run the timers that are due then.

    Args:
        ms: milliseconds.
        members: whether the sessions and rebalances of group members end too. Their clients send heartbeats
            in real time, so a clock far ahead expires the members of all groups.
        of: the clock of the whole ``cluster``, or of the ``node`` that the client talks to only.
    """

    ms: int = field(metadata=checked(lambda ms: ms >= 0, "the clock cannot be set back"))
    members: bool = field(default=False, kw_only=True)
    of: str = field(
        default="cluster",
        kw_only=True,
        metadata=checked(
            lambda of: of in ("cluster", "node"), '"{}" has no clock', "write cluster or node"
        ),
    )
    key: ClassVar[str] = "advance_clock_ms"
    on_request: ClassVar[bool] = True
    needs: ClassVar[str] = "clock"

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        node = exchange.node if self.of == "node" else None
        verdict.advance.append((self.ms, self.members, node))

    def describe(self, exchange: Exchange) -> str:
        whose = (
            "the broker's clock" if self.of == "cluster" else f"the clock of node {exchange.node}"
        )
        return f"set {whose} ahead by {self.ms} ms"
