"""Cuts a stream of bytes into frames. The bytes of large frames are limited over all connections."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from krammar.proxy.partial_frames import SMALL_FRAME, LargeFrames
from krammar.wire.framing import PREFIX

# The most bytes of larger frames, over all connections, unless ``--max-frame`` needs more.
MAX_LARGE_FRAMES = 64 << 20
# The bytes that captures contain of a frame that is not decoded.
HEAD = 64


class Piece(Enum):
    """What was cut."""

    FRAME = auto()
    UNREAD = auto()  # a frame that is too large; ``data`` are its first bytes
    RAW = auto()  # bytes that are no frame, with their length prefix


@dataclass(slots=True, eq=False)
class Cut:
    """A piece of a stream.

    Attributes:
        time_ns: when it was complete, in nanoseconds since 1970
        data: its bytes without the length prefix
        size: the length of the frame
        held: the bytes that count as held until it was inspected
    """

    kind: Piece
    is_request: bool
    time_ns: int
    data: bytes
    size: int
    held: int = 0


class Cutter:
    """Cuts the bytes of one direction of a connection; frames over ``max_frame`` bytes are not collected."""

    def __init__(self, is_request: bool, max_frame: int, large: LargeFrames) -> None:
        self._is_request = is_request
        self._max_frame = max_frame
        self._large = large
        self._begin = bytearray()  # of a frame, with its length prefix
        self._held = 0
        self._skipped = 0  # bytes of a frame that are not collected and have not arrived

    def cut(self, data: memoryview, now: int) -> Iterator[Cut]:
        """Yield what bytes complete; ``now`` is in nanoseconds since 1970."""
        position, end = 0, len(data)
        while position < end:
            if self._skipped:
                taken = min(self._skipped, end - position)
                self._skipped -= taken
                position += taken
                continue
            begin = self._begin
            if not begin and end - position >= PREFIX:
                size = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
                stop = position + PREFIX + size
                if 0 <= size <= self._max_frame and stop <= end:
                    yield self._cut(Piece.FRAME, now, bytes(data[position + PREFIX : stop]), size)
                    position = stop
                    continue
            taken = min(self._missing(), end - position)
            begin += data[position : position + taken]
            position += taken
            if len(begin) > SMALL_FRAME:
                self._held += taken
                self._large.held += taken
            found = self._complete(now)
            if found is not None:
                yield found

    def end(self, now: int) -> Cut | None:
        """Return the beginning of a frame that has not arrived as a whole."""
        if not self._begin:
            return None
        data = self._take()
        return self._cut(Piece.RAW, now, data, len(data))

    def _missing(self) -> int:
        """Return the bytes that a frame lacks, or its prefix, or its head if it is too large."""
        begin = self._begin
        if len(begin) < PREFIX:
            return PREFIX - len(begin)
        size = int.from_bytes(begin[:PREFIX], "big", signed=True)
        return PREFIX + (size if size <= self._max_frame else min(HEAD, size)) - len(begin)

    def _complete(self, now: int) -> Cut | None:
        """Return what was collected, if it is complete or too large."""
        begin = self._begin
        if len(begin) < PREFIX:
            return None
        size = int.from_bytes(begin[:PREFIX], "big", signed=True)
        if size < 0:  # nothing can be cut after it
            self._skipped = sys.maxsize
            return self._cut(Piece.RAW, now, self._take(), PREFIX)
        if self._large.held > self._large.limit and self._held:
            self._skipped = size + PREFIX - len(begin)
        elif self._missing():
            return None
        elif size <= self._max_frame:
            return self._cut(Piece.FRAME, now, self._take()[PREFIX:], size)
        else:
            self._skipped = size + PREFIX - len(begin)
        head = self._take()[PREFIX : PREFIX + HEAD]
        return self._cut(Piece.UNREAD, now, head, size)

    def _take(self) -> bytes:
        taken, self._begin = bytes(self._begin), bytearray()
        return taken

    def _cut(self, kind: Piece, now: int, data: bytes, size: int) -> Cut:
        held, self._held = self._held, 0
        if kind is Piece.UNREAD:
            self._large.held -= held
            held = 0
        return Cut(kind, self._is_request, now, data, size, held)
