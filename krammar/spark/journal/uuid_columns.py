"""The parts of UUIDs as columns: text, timestamp, flags, clock and producer.

They are computed for all rows of a batch at once. ``krammar.journal.uuids`` describes the bits.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import cached_property
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from krammar.journal.uuids import NODE_MASK, Flags

# The length of a UUID's text, its hyphens, and the digits of the hexadecimal number in between.
_LENGTH = 36
_DIGITS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
# Microseconds from 1582-10-15 to 1970-01-01.
_EPOCH = 0x01B21DD213814000 // 10


class UuidColumns:
    """The columns of some UUIDs.

    Args:
        data: the 16 bytes of each UUID.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        words = array("Q", data)
        if sys.byteorder == "little":
            words.byteswap()
        self.high, self.low = _numbers(words[::2]), _numbers(words[1::2])

    @classmethod
    def of(cls, uuids: Iterable[UUID]) -> UuidColumns:
        """Return the columns of UUIDs."""
        return cls(b"".join([uuid.int.to_bytes(16, "big") for uuid in uuids]))

    @cached_property
    def _is_version_1(self) -> pa.Array:
        return pc.and_(pc.equal(_bits(self.high, 12, 4), 1), pc.equal(_bits(self.low, 62, 2), 2))

    def texts(self) -> pa.Array:
        """Return the UUIDs as text."""
        count = len(self.high)
        digits = self._data.hex().encode()
        text = bytearray(b"-") * (_LENGTH * count)
        # Each assignment writes one character of all texts.
        for hyphens, (begin, end) in enumerate(_DIGITS):
            for digit in range(begin, end):
                text[digit + hyphens :: _LENGTH] = digits[digit::32]
        offsets = array("i", range(0, _LENGTH * count + 1, _LENGTH))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.string(), count, buffers)

    def timestamps(self) -> pa.Array:
        """Return the times in microseconds since 1970.

        A UUID of another version has none, nor one with clock 0, which ends its producer.
        """
        time = pc.bit_wise_or(
            pc.bit_wise_or(
                _bits(self.high, 32, 32), pc.shift_left(_bits(self.high, 16, 16), _number(32))
            ),
            pc.shift_left(_bits(self.high, 0, 12), _number(48)),
        )
        has_clock = pc.greater(pc.bit_wise_or(time, _bits(self.low, 58, 4)), 0)
        microseconds = pc.subtract(pc.divide(time, _number(10)).cast(pa.int64()), _EPOCH)
        return pc.if_else(pc.and_(self._is_version_1, has_clock), microseconds, None)

    def flags(self) -> pa.Array:
        """Return the flags; none for a UUID of another version."""
        return pc.if_else(self._is_version_1, _bits(self.low, 48, 10).cast(pa.int32()), None)

    @cached_property
    def continues(self) -> pa.Array:
        """Whether messages with these UUIDs begin or continue transactions."""
        return pc.and_(
            self._is_version_1, pc.equal(_bits(self.low, 48, 10), Flags.CONTINUE_TXN.value)
        )

    @cached_property
    def clocks(self) -> pa.Array:
        """The clocks of UUIDs of version 1."""
        parts = (
            pc.shift_left(_bits(self.high, 0, 12), _number(52)),
            pc.shift_left(_bits(self.high, 16, 16), _number(36)),
            pc.shift_left(_bits(self.high, 32, 32), _number(4)),
        )
        clocks = _bits(self.low, 58, 4)
        for part in parts:
            clocks = pc.bit_wise_or(clocks, part)
        return clocks

    @cached_property
    def nodes(self) -> pa.Array:
        """The producers of UUIDs of version 1."""
        return pc.bit_wise_and(self.low, _number(NODE_MASK))

    def take(self, indices: pa.Array) -> list[int]:
        """Return some of the UUIDs, as ``uuid.UUID.int``."""
        high, low = self.high.take(indices).to_pylist(), self.low.take(indices).to_pylist()
        return [upper << 64 | lower for upper, lower in zip(high, low, strict=True)]

    def filter(self, mask: pa.Array) -> UuidColumns:
        """Return the columns of some of the UUIDs."""
        values = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(self.high), [None, pa.py_buffer(self._data)]
        )
        return UuidColumns(fixed_bytes(values.filter(mask).cast(pa.binary()), 16))


def fixed_bytes(values: pa.Array, size: int) -> bytes:
    """Return the bytes of values that have ``size`` bytes each, one after the other."""
    offsets, data = values.buffers()[1:]
    if not len(values):
        return b""
    begin = memoryview(offsets).cast("i")[values.offset]
    return memoryview(data)[begin : begin + size * len(values)].tobytes()


def _numbers(words: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.uint64(), len(words), [None, pa.py_buffer(words)])


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def _bits(words: pa.Array, at: int, count: int) -> pa.Array:
    """Return some bits of each word; ``at`` is the lowest."""
    return pc.bit_wise_and(pc.shift_right(words, _number(at)), _number((1 << count) - 1))
