"""Frames that arrive in pieces, and the limit for the bytes of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from krammar.proxy.errors import Refused

# Longer frames count for ``LargeFrames``.
SMALL_FRAME = 65_536
# Smaller pieces are joined: a list of single bytes would take forty times their memory.
_SMALL_PIECE = 16 * 1024


@dataclass(slots=True)
class LargeFrames:
    """The bytes of large frames of all connections that are collected: the limit, the sum, and those of each frame."""

    limit: int
    held: int = 0
    by_frame: dict[PartialFrame, int] = field(default_factory=dict)

    @property
    def largest(self) -> PartialFrame:
        """The largest of the frames."""
        return max(self.by_frame, key=self.by_frame.__getitem__)


class PartialFrame:
    """The current frame of one side: bytes that are collected until it is complete, or that pass unread.

    Not ``FrameReader`` of krammar.wire, which copies each frame: the scanner reads frames in the
    memory of a read, and only those that are read and not complete come here.

    Attributes:
        left: bytes of it that have not arrived, and pass unread
        need: bytes of it that have not arrived, and are collected

    Args:
        large: counts the frame if it is large.
        fail: closes the connection because of an error.
    """

    __slots__ = ("_fail", "_held", "_large", "_pieces", "left", "need")

    def __init__(self, large: LargeFrames, fail: Callable[[BaseException], None]) -> None:
        self._large = large
        self._fail = fail
        self._pieces: list[bytearray] = []
        self._held = 0
        self.left = 0
        self.need = 0

    def begin(self, data: memoryview, need: int) -> None:
        """Collect a frame that begins with ``data`` and lacks ``need`` bytes."""
        self._pieces.append(bytearray(data))
        self._held, self.need = len(data), need

    def add(self, data: memoryview) -> int:
        """Add the bytes that the frame needs of those that have arrived. Returns their number."""
        taken = min(self.need, len(data))
        if taken < _SMALL_PIECE:
            self._pieces[-1] += data[:taken]
        else:
            self._pieces.append(bytearray(data[:taken]))
        self._held += taken
        self.need -= taken
        if self.need and self._held > SMALL_FRAME:
            self._count(self._held)
        return taken

    @property
    def is_one_too_many(self) -> bool:
        """Whether the frame is large, and all large frames have too many bytes."""
        return self._held > SMALL_FRAME and self._large.held > self._large.limit

    def take(self) -> bytes:
        """Return what was collected. The rest of the frame, if it has not arrived, passes unread."""
        frame = b"".join(self._pieces)
        self._pieces.clear()
        self.left, self.need = self.need, 0
        self._count(0)
        return frame

    def forget(self) -> None:
        """Count its bytes no longer, because the connection has ended."""
        self._count(0)

    def refuse_largest(self) -> None:
        """Close the connection of the largest frame."""
        self._large.largest.refuse()

    def refuse(self) -> None:
        """Close the connection, because large frames of all connections take too much memory."""
        large = self._large
        reason = (
            f"the largest of those that wait for their end, which have {large.held} bytes together"
        )
        size = large.by_frame[self] + self.need
        self._count(0)
        self._fail(Refused(f"a frame of {size} bytes is {reason} ({large.limit} at most)"))

    def _count(self, size: int) -> None:
        """Count the bytes of a large frame."""
        large = self._large
        large.held += size - large.by_frame.pop(self, 0)
        if size:
            large.by_frame[self] = size
