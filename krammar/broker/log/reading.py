"""Reads one log: bytes by offset, offsets by timestamp, and aborted transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from kafka_wire import AbortedTxn

from krammar.broker.log.segment import LogSegment, segment_of
from krammar.broker.log.state import LogState
from krammar.logfiles.damage import DamageError
from krammar.logfiles.index import INT32_MAX
from krammar.wire.batches import RecordBatch, read_batches
from krammar.wire.batches.header import SIZE_END, header_at
from krammar.wire.errors import WireError

_CHUNK = 1 << 20
_REMEMBERED_POSITIONS = 64
# How many bytes are searched for a marker.
_MARKER_RANGE = 1 << 30


class PartitionReader:
    """Reads a log, and changes nothing."""

    __slots__ = ("_positions", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        # The positions of batches that are likely to be read next, by offset.
        self._positions: dict[int, tuple[LogSegment, int]] = {}

    def forget_positions(self) -> None:
        """Forget where batches are, after segments were removed or replaced."""
        self._positions.clear()

    def read(self, offset: int, max_bytes: int, end: int, *, first: int = INT32_MAX) -> bytes:
        """Read bytes of one segment, from the batch with ``offset`` on. The last batch may be incomplete.

        Args:
            end: batches at this offset or later are excluded
            first: return the first batch completely, even if it is larger than ``max_bytes``, up to
                this size in bytes; the result is empty if it is larger

        Raises:
            ApiError: the offset is out of range, or the log cannot be read.
        """
        state = self._state
        state.check_online()
        if not state.log_start_offset <= offset <= state.end_offset:
            raise state.out_of_range(offset)
        if offset >= end:
            return b""
        try:
            found = self._find(offset)
            if found is None:
                return b""
            segment, position = found
            left = self._bound(segment, end) - position
            if left <= 0:
                return b""
            size = min(max(max_bytes, SIZE_END), left)
            data = segment.read(position, size)
            size = int.from_bytes(data[8:SIZE_END], "big") + SIZE_END
            if size > max_bytes:
                if size > first:
                    return b""
                data = data[:size] if size <= len(data) else segment.read(position, size)
            self._remember(segment, position, data)
        except (OSError, DamageError) as error:
            raise state.failure(str(error)) from None
        return data

    def bytes_from(self, offset: int, end: int, limit: int) -> int:
        """Return the number of bytes that ``read`` would return from ``offset`` to ``end``, at most ``limit``."""
        state = self._state
        if offset >= end or not state.log_start_offset <= offset <= state.end_offset:
            return 0
        try:
            found = self._find(offset)
            if found is None:
                return 0
            segment, position = found
            total = -position
            for other in state.from_offset(segment.base_offset):
                if other.base_offset >= end:
                    break
                total += self._bound(other, end)
                if total >= limit:
                    return limit
        except (OSError, DamageError) as error:
            raise state.failure(str(error)) from None
        return max(total, 0)

    def _find(self, offset: int) -> tuple[LogSegment, int] | None:
        """Return segment and position of the first batch that ends at ``offset`` or later."""
        found = self._positions.get(offset)
        if found is not None and found[1] < found[0].size:
            return found
        for segment in self._state.from_offset(offset):
            position = segment.locate(offset)
            if position is not None:
                self._keep_position(offset, segment, position)
                return segment, position
        return None

    def _bound(self, segment: LogSegment, end: int) -> int:
        """Return the position in ``segment`` where the batches before ``end`` end."""
        if end >= self._state.end_offset or not segment.size:
            return segment.size
        found = self._find(end)
        if found is None or found[0].base_offset > segment.base_offset:
            return segment.size
        return found[1] if found[0] is segment else 0

    def _keep_position(self, offset: int, segment: LogSegment, position: int) -> None:
        positions = self._positions
        if len(positions) >= _REMEMBERED_POSITIONS:
            positions.clear()
        positions[offset] = segment, position

    def _remember(self, segment: LogSegment, position: int, data: bytes) -> None:
        """Remember where a reader of ``data`` continues, so that sequential reads scan no headers."""
        state = self._state
        end = position + len(data)
        if end >= segment.size:
            if segment is state.active:
                self._keep_position(state.end_offset, segment, end)
            return
        index = segment.indexes[0]
        entry = bisect_right(index.values, end - 1) - 1
        at = index.values[entry] - position if entry >= 0 else 0
        if at < 0:
            at = 0
        next_offset = -1
        size = len(data)
        while True:
            header = header_at(data, at, position + at) if at < size else None
            if header is None or at + header.size_in_bytes > size:
                break
            at += header.size_in_bytes
            next_offset = header.next_offset
        if next_offset >= 0:
            self._keep_position(next_offset, segment, position + at)

    def batches(self, begin: int | None = None) -> Iterator[RecordBatch]:
        """Yield all batches from the one with offset ``begin`` on.

        Raises ApiError. Reading the records of a batch may raise DecodeError.
        """
        state = self._state
        state.check_online()
        start = state.log_start_offset if begin is None else begin
        try:
            for segment in list(state.segments):
                position = segment.locate(start)
                while position is not None and position < segment.size:
                    used = 0
                    for batch in read_batches(segment.read(position, _CHUNK)):
                        used = batch.position + batch.size_in_bytes
                        yield batch
                    if not used:
                        used = next(segment.scan(position)).size_in_bytes
                        yield from read_batches(segment.read(position, used))
                    position += used
        except (OSError, WireError) as error:
            raise state.failure(str(error)) from None

    # Offsets by time, epoch and transaction.

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record at or after ``timestamp``.

        Timestamps are in milliseconds since 1970. Returns None if there is no such record. Raises
        ApiError.
        """
        state = self._state
        try:
            for segment in state.segments:
                if segment.size and segment.latest[0] >= timestamp:
                    found = segment.first_at(timestamp, state.log_start_offset)
                    if found is not None:
                        return found
        except (OSError, WireError) as error:
            raise state.failure(str(error)) from None
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return the latest timestamp and the offset of its first record. Raises ApiError."""
        state = self._state
        try:
            filled = [segment for segment in state.segments if segment.size]
            where = max(filled, key=lambda segment: segment.latest[0], default=None)
            if where is None or where.latest[0] < 0:
                return None
            return where.first_at(where.latest[0], 0) or where.latest
        except (OSError, WireError) as error:
            raise state.failure(str(error)) from None

    def aborted_transactions(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return producer id and first offset of the aborted transactions between two offsets.

        ``end`` is exclusive. Raises ApiError.
        """
        try:
            entries = self.aborted_entries(begin, end)
        except (OSError, DamageError) as error:
            raise self._state.failure(str(error)) from None
        return [(entry.producer_id, entry.first_offset) for entry in entries]

    def aborted_entries(self, begin: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions between two offsets. Raises OSError and DamageError."""
        found = []
        for segment in self._state.from_offset(begin):
            entries, complete = segment.aborted(begin, end)
            found += entries
            if complete:
                break
        return found

    def last_marker_ms(self, producer_id: int, epoch: int, before: int) -> int:
        """Return the time of a producer's last marker with this epoch before an offset, in milliseconds since 1970.

        Only the last GiB before the offset is read. Returns -1 if there is no marker. Raises
        ApiError.
        """
        state = self._state
        left = _MARKER_RANGE
        try:
            for segment in reversed(state.segments[: segment_of(state.segments, before) + 1]):
                found = -1
                for header in segment.scan(0):
                    if header.base_offset >= before:
                        break
                    if header.is_control and header.producer_id == producer_id:
                        found = header.max_timestamp if header.producer_epoch == epoch else -1
                left -= segment.size
                if found >= 0 or left <= 0:
                    return found
        except (OSError, DamageError) as error:
            raise state.failure(str(error)) from None
        return -1
