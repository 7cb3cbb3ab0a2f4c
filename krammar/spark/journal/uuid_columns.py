"""The columns that come from the UUIDs of messages: text, timestamp and flags.

They are computed for all rows of a batch at once, by Arrow. ``krammar.journal.uuids`` describes the bits.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

# The parts of a UUID's text, as digits of its hexadecimal number.
_DIGITS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
# Microseconds from 1582-10-15 to 1970-01-01.
_EPOCH = 0x01B21DD213814000 // 10


class UuidColumns:
    """The columns of some UUIDs."""

    def __init__(self, uuids: Iterable[UUID]) -> None:
        self._data = b"".join([uuid.int.to_bytes(16, "big") for uuid in uuids])
        words = array("Q", self._data)
        if sys.byteorder == "little":
            words.byteswap()
        self._high, self._low = _numbers(words[::2]), _numbers(words[1::2])
        self._is_version_1 = pc.and_(
            pc.equal(_bits(self._high, 12, 4), 1), pc.equal(_bits(self._low, 62, 2), 2)
        )

    def texts(self) -> pa.Array:
        """Return the UUIDs as text."""
        count = len(self._high)
        digits = pa.py_buffer(self._data.hex().encode())
        numbers = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), count, [None, digits])
        text = numbers.cast(pa.binary()).cast(pa.string())
        parts = [pc.utf8_slice_codeunits(text, begin, end) for begin, end in _DIGITS]
        return pc.binary_join_element_wise(*parts, "-")

    def timestamps(self) -> pa.Array:
        """Return the times in microseconds since 1970.

        A UUID of another version has none, nor one with clock 0, which ends its producer.
        """
        time = pc.bit_wise_or(
            pc.bit_wise_or(
                _bits(self._high, 32, 32), pc.shift_left(_bits(self._high, 16, 16), _number(32))
            ),
            pc.shift_left(_bits(self._high, 0, 12), _number(48)),
        )
        has_clock = pc.greater(pc.bit_wise_or(time, _bits(self._low, 58, 4)), 0)
        microseconds = pc.subtract(pc.divide(time, _number(10)).cast(pa.int64()), _EPOCH)
        return pc.if_else(pc.and_(self._is_version_1, has_clock), microseconds, None)

    def flags(self) -> pa.Array:
        """Return the flags; none for a UUID of another version."""
        return pc.if_else(self._is_version_1, _bits(self._low, 48, 10).cast(pa.int32()), None)


def _numbers(words: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.uint64(), len(words), [None, pa.py_buffer(words)])


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def _bits(words: pa.Array, at: int, count: int) -> pa.Array:
    """Return some bits of each word; ``at`` is the lowest."""
    return pc.bit_wise_and(pc.shift_right(words, _number(at)), _number((1 << count) - 1))
