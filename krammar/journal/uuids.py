"""UUIDs that put the messages of a producer in order.

A message's UUID is one of version 1 (RFC 4122, section 4.1), so that any tool reads time and node out
of it. Gazette's message package gives the bits that the RFC leaves to a clock sequence a meaning:

    bits 127-96  time_low   ┐
    bits  95-80  time_mid   │ 60 bits: intervals of 100 ns since 1582-10-15, and the version, 1
    bits  79-64  version,   │
                 time_hi    ┘
    bits  63-62  variant, binary 10
    bits  61-58  counter: extends the timestamp by 4 bits, so that a producer can make 160 million
                 UUIDs a second before it runs ahead of the time
    bits  57-48  flags, 10 bits
    bits  47-0   node: the producer's id

Clocks are plain integers of 64 bits: the timestamp, and in the lowest 4 bits the counter. They order all
UUIDs of a producer.
"""

from __future__ import annotations

import secrets
import threading
import time
from enum import IntFlag
from uuid import UUID, SafeUUID

from krammar.journal.errors import ClockError

NULL_UUID = UUID(int=0)

# Intervals of 100 ns from 1582-10-15, when UUIDs' time begins, to 1970-01-01 (RFC 4122, 4.1.4).
_EPOCH = 0x01B21DD213814000
_MAX_CLOCK = (1 << 64) - 1
_NODE = (1 << 48) - 1
# Version 1 and the variant of RFC 4122, where they stand in a UUID's number.
_FIXED = 1 << 76 | 1 << 63

_new = object.__new__
# UUID refuses attributes to be set, and its constructor takes 3 times as long as this way around it.
_set_int = UUID.int.__set__  # type: ignore[attr-defined,misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined,misc]
_unknown_safety = SafeUUID.unknown


class Flags(IntFlag):
    """What a message has to do with a transaction.

    ``OUTSIDE_TXN``   nothing: to be processed at once
    ``CONTINUE_TXN``  it begins or continues one: to be processed only after an ACK_TXN of the same
                      producer that has a larger clock
    ``ACK_TXN``       commits all CONTINUE_TXN before it that have smaller clocks, and rolls back those
                      that have not
    """

    OUTSIDE_TXN = 0x0
    CONTINUE_TXN = 0x1
    ACK_TXN = 0x2


class ProducerID(bytes):
    """The 6 bytes that tell producers apart: the node of a version 1 UUID.

    ``ProducerID.random()`` has 47 random bits, and the multicast bit set, as RFC 4122 (4.5) asks for of
    nodes that are no network address. It is meant to live as long as a process, not as a request.
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> ProducerID:
        """Raises ValueError unless there are 6 bytes."""
        if len(value) != 6:
            raise ValueError(f"a producer's id has 6 bytes, not {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def random(cls) -> ProducerID:
        """A new one, by a cryptographic generator."""
        return cls((secrets.randbits(48) | 1 << 40).to_bytes(6, "big"))

    @property
    def node(self) -> int:
        """The number that ``uuid.UUID.node`` gives."""
        return int.from_bytes(self, "big")

    def __str__(self) -> str:
        return self.hex(":")

    def __repr__(self) -> str:
        return f"ProducerID({bytes(self)!r})"


def clock_at(time_ns: int) -> int:
    """The clock, with counter 0, of a time in nanoseconds since 1970. Raises ClockError."""
    clock = (time_ns // 100 + _EPOCH) << 4
    if not 0 <= clock <= _MAX_CLOCK:
        raise ClockError(f"no UUID can carry the time {time_ns} ns")
    return clock


def time_of(clock: int) -> int:
    """The time of a clock in nanoseconds since 1970, negative before; it is a multiple of 100."""
    return ((clock >> 4) - _EPOCH) * 100


class Clock:
    """A clock that never goes back. All methods may be called by several threads at once.

    It begins at ``time_ns``, in nanoseconds since 1970, and now without.
    """

    __slots__ = ("_lock", "_value")

    def __init__(self, time_ns: int | None = None) -> None:
        self._lock = threading.Lock()
        self._value = clock_at(time.time_ns() if time_ns is None else time_ns)

    @property
    def value(self) -> int:
        """The clock as it is."""
        return self._value

    def tick(self) -> int:
        """Advance by one and return the result. Raises ClockError at the end of time."""
        with self._lock:
            value = self._value + 1
            if value > _MAX_CLOCK:
                raise ClockError("the clock has reached its last value")
            self._value = value
            return value

    def update(self, time_ns: int | None = None) -> None:
        """Advance to a time in nanoseconds since 1970, now unless given; an earlier one does nothing."""
        observed = clock_at(time.time_ns() if time_ns is None else time_ns)
        with self._lock:
            # Equal timestamps must not take the counter back, which is why the whole value is compared.
            if observed > self._value:
                self._value = observed

    def __repr__(self) -> str:
        return f"<Clock {self._value:#018x}>"


def build_uuid(producer: bytes, clock: int, flags: int) -> UUID:
    """The UUID of a producer's message. Raises ValueError for what does not fit its bits."""
    if not 0 <= clock <= _MAX_CLOCK:
        raise ValueError(f"a clock has 64 bits, which {clock:#x} does not fit")
    if not 0 <= flags < 1024:
        raise ValueError(f"flags have 10 bits, which {flags:#x} does not fit")
    if len(producer) != 6:
        raise ValueError(f"a producer's id has 6 bytes, not {len(producer)}")
    return uuid_of(int.from_bytes(producer, "big"), clock, flags)


def uuid_of(node: int, clock: int, flags: int) -> UUID:
    """``build_uuid`` without its checks, for numbers that are known to fit."""
    value = _new(UUID)
    _set_int(
        value,
        # The masks take time_low, time_mid, time_hi and the counter out of the clock where they stand.
        (clock & 0xFFFFFFFF0) << 92
        | (clock & 0xFFFF000000000) << 44
        | (clock & 0xFFF0000000000000) << 12
        | (clock & 0xF) << 58
        | flags << 48
        | node
        | _FIXED,
    )
    _set_is_safe(value, _unknown_safety)
    return value


def get_clock(uuid: UUID) -> int:
    """Timestamp and counter of a UUID as a clock."""
    number = uuid.int
    return (
        number >> 92 & 0xFFFFFFFF0
        | number >> 44 & 0xFFFF000000000
        | number >> 12 & 0xFFF0000000000000
        | number >> 58 & 0xF
    )


def get_flags(uuid: UUID) -> Flags:
    """The 10 lowest bits of a UUID's clock sequence."""
    return Flags(uuid.int >> 48 & 0x3FF)


def get_producer_id(uuid: UUID) -> ProducerID:
    """The node of a UUID as a producer's id."""
    return ProducerID((uuid.int & _NODE).to_bytes(6, "big"))
