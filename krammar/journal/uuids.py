"""UUIDs that order the messages of a producer.

A message's UUID has version 1 (RFC 4122, section 4.1), so any tool can read its time and node. Gazette's message
package defines the bits that the RFC calls clock sequence:

    bits 127-96  time_low   ┐
    bits  95-80  time_mid   │ 60 bits: intervals of 100 ns since 1582-10-15, and the version, 1
    bits  79-64  version,   │
                 time_hi    ┘
    bits  63-62  variant, binary 10
    bits  61-58  counter: extends the timestamp by 4 bits, so that a producer can create 160 million
                 UUIDs per second before its clock runs ahead of the time
    bits  57-48  flags, 10 bits
    bits  47-0   node: the producer's id

A clock is an integer of 64 bits: the timestamp, and the counter in the lowest 4 bits. Clocks order all UUIDs of a
producer.
"""

from __future__ import annotations

import secrets
import threading
import time
from enum import IntFlag
from uuid import UUID, SafeUUID

from krammar.journal.errors import ClockError

NULL_UUID = UUID(int=0)

# Intervals of 100 ns between 1582-10-15, the epoch of UUIDs, and 1970-01-01 (RFC 4122, 4.1.4).
_EPOCH = 0x01B21DD213814000
_MAX_CLOCK = (1 << 64) - 1
# The bits of the node in a UUID's number.
NODE_MASK = (1 << 48) - 1
# Version 1 and the variant of RFC 4122 in a UUID's number, and the mask of their bits.
VERSION_1 = 1 << 76 | 1 << 63
VERSION_MASK = 0xF << 76 | 0b11 << 62

_new = object.__new__
# UUID's attributes are read-only. Setting them this way is three times as fast as the constructor.
_set_int = UUID.int.__set__  # type: ignore[attr-defined,misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined,misc]
_unknown_safety = SafeUUID.unknown


class Flags(IntFlag):
    """The relation of a message to transactions.

    Attributes:
        OUTSIDE_TXN: the message belongs to no transaction and is processed immediately
        CONTINUE_TXN: the message begins or continues a transaction, and is processed after an ACK_TXN of the
            same producer with a larger clock
        ACK_TXN: commits the earlier CONTINUE_TXN messages with smaller clocks, and rolls back the others
    """

    OUTSIDE_TXN = 0x0
    CONTINUE_TXN = 0x1
    ACK_TXN = 0x2


class ProducerID(bytes):
    """The 6 bytes that identify a producer: the node of a version 1 UUID.

    ``ProducerID.random()`` has 47 random bits, and the multicast bit set, which RFC 4122 (4.5) requires for nodes that
    are not network addresses. Use one per process, not one per request.
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> ProducerID:
        """Raise ValueError unless the value has 6 bytes."""
        if len(value) != 6:
            raise ValueError(f"a producer's id has 6 bytes, not {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def random(cls) -> ProducerID:
        """Return a new id from a cryptographic generator."""
        return cls((secrets.randbits(48) | 1 << 40).to_bytes(6, "big"))

    @property
    def node(self) -> int:
        """The id as an integer, like ``uuid.UUID.node``."""
        return int.from_bytes(self, "big")

    def __str__(self) -> str:
        return self.hex(":")

    def __repr__(self) -> str:
        return f"ProducerID({bytes(self)!r})"


def clock_at(time_ns: int) -> int:
    """Return the clock of a time in nanoseconds since 1970, with counter 0.

    Raises:
        ClockError: UUIDs cannot contain the time.
    """
    clock = (time_ns // 100 + _EPOCH) << 4
    if not 0 <= clock <= _MAX_CLOCK:
        raise ClockError(
            f"a UUID cannot contain the time {time_ns} ns: it is before 1582 or after 5236"
        )
    return clock


def time_of(clock: int) -> int:
    """Return the time of a clock in nanoseconds since 1970, a multiple of 100; negative before 1970."""
    return ((clock >> 4) - _EPOCH) * 100


class Clock:
    """A clock that never goes back. It is thread-safe.

    Args:
        time_ns: the first value, in nanoseconds since 1970; the default is the current time.
    """

    __slots__ = ("_lock", "_value")

    def __init__(self, time_ns: int | None = None) -> None:
        self._lock = threading.Lock()
        self._value = clock_at(time.time_ns() if time_ns is None else time_ns)

    @property
    def value(self) -> int:
        """The current value; it does not advance the clock."""
        return self._value

    def tick(self) -> int:
        """Advance by one and return the new value. Raises ClockError after the last value."""
        with self._lock:
            value = self._value + 1
            if value > _MAX_CLOCK:
                raise ClockError("the clock has reached its last value")
            self._value = value
            return value

    def update(self, time_ns: int | None = None) -> None:
        """Advance to a time; an earlier time has no effect.

        Args:
            time_ns: in nanoseconds since 1970; the default is the current time.
        """
        observed = clock_at(time.time_ns() if time_ns is None else time_ns)
        with self._lock:
            # Compare the whole value: an equal timestamp must not reset the counter.
            if observed > self._value:
                self._value = observed

    def __repr__(self) -> str:
        return f"<Clock {self._value:#018x}>"


def build_uuid(producer: bytes, clock: int, flags: int) -> UUID:
    """Return the UUID of a producer's message. Raises ValueError if an argument has too many bits."""
    if not 0 <= clock <= _MAX_CLOCK:
        raise ValueError(f"clock {clock:#x} does not fit into 64 bits")
    if not 0 <= flags < 1024:
        raise ValueError(f"flags {flags:#x} do not fit into 10 bits")
    if len(producer) != 6:
        raise ValueError(f"a producer's id has 6 bytes, not {len(producer)}")
    return uuid_of(int.from_bytes(producer, "big"), clock, flags)


def uuid_of(node: int, clock: int, flags: int) -> UUID:
    """Build a UUID without the checks of ``build_uuid``, from numbers that are known to fit."""
    value = _new(UUID)
    _set_int(
        value,
        # The masks select time_low, time_mid, time_hi and the counter from the clock.
        (clock & 0xFFFFFFFF0) << 92
        | (clock & 0xFFFF000000000) << 44
        | (clock & 0xFFF0000000000000) << 12
        | (clock & 0xF) << 58
        | flags << 48
        | node
        | VERSION_1,
    )
    _set_is_safe(value, _unknown_safety)
    return value


def get_clock(uuid: UUID) -> int:
    """Return timestamp and counter of a UUID as a clock."""
    number = uuid.int
    return (
        number >> 92 & 0xFFFFFFFF0
        | number >> 44 & 0xFFFF000000000
        | number >> 12 & 0xFFF0000000000000
        | number >> 58 & 0xF
    )


def get_flags(uuid: UUID) -> Flags:
    """Return the flags: the lowest 10 bits of a UUID's clock sequence."""
    return Flags(uuid.int >> 48 & 0x3FF)


def get_producer_id(uuid: UUID) -> ProducerID:
    """Return the node of a UUID as a producer's id."""
    return ProducerID((uuid.int & NODE_MASK).to_bytes(6, "big"))
