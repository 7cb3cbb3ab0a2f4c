"""Rows (``journal_wire.Row``) in fixed frames as columns, decoded for all frames of a batch at once.

    magic word, length: 8 bytes    version: int16, 0    uuid: 16 bytes
    key, value: int32 length, -1 for null, and the bytes    headers: int32 count

A frame of another form, or with headers, is left to the framing, which decodes messages one by one and raises precise
errors.
"""

from __future__ import annotations

import sys
from array import array
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from krammar.journal.fixed_framing import FIXED_FRAME_HEADER_LENGTH, MAGIC_WORD
from krammar.spark.journal.uuid_columns import UuidColumns, fixed_bytes
from krammar.wire.batches.arrow_columns import USABLE, slices

_VERSION = b"\0\0"
_UUID_AT = FIXED_FRAME_HEADER_LENGTH + len(_VERSION)
_KEY_AT = _UUID_AT + 16
# A row without key, value and headers.
_LEAST = _KEY_AT + 3 * 4


class RowColumns:
    """Some rows: where their keys and values are in ``data``, and their UUIDs."""

    def __init__(self, data: pa.Buffer, uuids: UuidColumns, keys: Chunks, values: Chunks) -> None:
        self.uuids = uuids
        self._data = data
        self._keys = keys
        self._values = values

    @classmethod
    def of(cls, frames: pa.Array) -> RowColumns | None:
        """Return the rows of frames, at least one; None if the framing must decode a frame."""
        offsets, data = frames.buffers()[1:]
        places = pa.Array.from_buffers(
            pa.int32(), len(frames) + 1, [None, offsets], offset=frames.offset
        ).cast(pa.int64())
        begin, end = places[:-1], places[1:]
        sizes = pc.subtract(end, begin)
        if not USABLE or pc.min(sizes).as_py() < _LEAST:
            return None
        lengths = _numbers(pc.binary_slice(frames, 4, 8), "little")
        if not (
            _are_all(pc.equal(pc.binary_slice(frames, 0, 4), MAGIC_WORD))
            and _are_all(pc.equal(pc.binary_slice(frames, 8, _UUID_AT), _VERSION))
            and _are_all(pc.equal(pc.add(lengths, FIXED_FRAME_HEADER_LENGTH), sizes))
        ):
            return None
        keys = Chunks.read(data, pc.add(begin, _KEY_AT), end, 8)
        values = None if keys is None else Chunks.read(data, keys.end, end, 4)
        if keys is None or values is None or not _are_all(pc.equal(pc.add(values.end, 4), end)):
            return None
        headers = pc.binary_slice(frames, -4, None)
        if not _are_all(pc.equal(headers, bytes(4))):
            return None
        uuids = fixed_bytes(pc.binary_slice(frames, _UUID_AT, _KEY_AT), 16)
        return cls(data, UuidColumns(uuids), keys, values)

    def filter(self, mask: pa.Array) -> RowColumns:
        """Return some of the rows."""
        return RowColumns(
            self._data, self.uuids.filter(mask), self._keys.filter(mask), self._values.filter(mask)
        )

    def keys(self) -> pa.Array:
        """Return the keys of the rows, at least one."""
        return self._keys.bytes(self._data)

    def values(self) -> pa.Array:
        """Return the values of the rows, at least one."""
        return self._values.bytes(self._data)


class Chunks:
    """Where bytes begin and end; an ``end`` less than ``begin`` is not possible. ``absent`` ones are null."""

    def __init__(self, begin: pa.Array, end: pa.Array, absent: pa.Array) -> None:
        self.begin = begin
        self.end = end
        self.absent = absent

    @classmethod
    def read(cls, data: pa.Buffer, at: pa.Array, limit: pa.Array, rest: int) -> Chunks | None:
        """Read the lengths at positions of frames that end at ``limit``.

        Returns None if a length is invalid, or if fewer than ``rest`` bytes of a frame follow.
        """
        begin = pc.add(at, 4)
        sizes = _numbers(slices(data, at, begin), "big")
        end = pc.add(begin, pc.max_element_wise(sizes, pa.scalar(0, pa.int64())))
        if pc.min(sizes).as_py() < -1 or not _are_all(pc.less_equal(pc.add(end, rest), limit)):
            return None
        return cls(begin, end, pc.less(sizes, 0))

    def filter(self, mask: pa.Array) -> Chunks:
        return Chunks(*(each.filter(mask) for each in (self.begin, self.end, self.absent)))

    def bytes(self, data: pa.Buffer) -> pa.Array:
        return slices(data, self.begin, self.end, self.absent)


def _numbers(values: pa.Array, order: Literal["big", "little"]) -> pa.Array:
    """Return numbers of 32 bits as numbers of 64 bits; unsigned ones above 2**31 are negative."""
    numbers = array("i", fixed_bytes(values, 4))
    if order != sys.byteorder:
        numbers.byteswap()
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(numbers)]).cast(
        pa.int64()
    )


def _are_all(conditions: pa.Array) -> bool:
    return bool(pc.all(conditions).as_py())
