"""Reads frames into memory that all connections share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

# Frames up to this size are always read whole: stream readers store as many bytes in any case.
SMALL_FRAME = 65_536
# The most bytes of larger frames, over all connections, unless ``--max-frame`` needs more.
MAX_LARGE_FRAMES = 64 << 20
# The bytes that captures contain of a frame that is not decoded.
HEAD = 64


@dataclass(slots=True)
class LargeFrames:
    """The bytes of the large frames of all connections that have arrived, but not left: the limit and the sum."""

    limit: int
    held: int = 0


class Intake:
    """Reads the frames of one direction of a connection; ``max_frame`` is the largest that is read whole, in bytes."""

    def __init__(self, large: LargeFrames, max_frame: int) -> None:
        self._large = large
        self._max_frame = max_frame
        self._begin = bytearray()
        self._held = 0

    async def read(self, reader: asyncio.StreamReader, size: int) -> bytes | None:
        """Read a frame of ``size`` bytes, which counts as held until ``release``.

        Returns:
            The frame; None if it is too large or no memory is left. Then ``take`` returns its first bytes.

        Raises:
            asyncio.IncompleteReadError: the stream has ended before; ``take`` returns what else has arrived.
        """
        if size > self._max_frame:
            self._begin += await reader.readexactly(min(HEAD, size))
            return None
        if size <= SMALL_FRAME:
            return await reader.readexactly(size)
        begin = self._begin
        while len(begin) < size:
            # Not a list of pieces: a client decides how small they are.
            piece = await reader.read(min(SMALL_FRAME, size - len(begin)))
            if not piece:
                raise asyncio.IncompleteReadError(b"", size)
            begin += piece
            self._held += len(piece)
            self._large.held += len(piece)
            if self._large.held > self._large.limit:
                return None
        return self.take()

    def take(self) -> bytes:
        """Return the bytes that were read of a frame, once. They count as held until ``release``."""
        taken = bytes(self._begin)
        self._begin = bytearray()
        return taken

    def release(self) -> None:
        """Count nothing as held any more, because all of it was passed on."""
        self._large.held -= self._held
        self._held = 0
