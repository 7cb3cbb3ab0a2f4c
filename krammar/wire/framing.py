"""Frames: a length of four bytes, big-endian and signed, then that many bytes.

Kafka's clients and brokers send one request or one response per frame.
"""

from __future__ import annotations

from mmap import mmap
from typing import Any

from krammar.wire.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview

# The default limit of a frame in bytes, as Kafka's default for ``socket.request.max.bytes``.
MAX_FRAME = 100 * 1024 * 1024

PREFIX = 4
# The largest length that a prefix can express.
LARGEST_FRAME = 0x7FFFFFFF
# After this number of bytes of a frame, the rest is received into separate pieces of up to a megabyte.
_PIECE = 16 * 1024
_LARGEST_PIECE = 1 << 20
_NOTHING = memoryview(b"")


class FrameError(DecodeError):
    """The length of a frame is negative or exceeds the limit, so the stream cannot be cut into frames.

    ``size`` is the length in the prefix, and ``limit`` the largest accepted length, both in bytes.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message, offset=0)
        self.size = size
        self.limit = limit


def frame_size(prefix: Buffer, max_frame: int = MAX_FRAME) -> int:
    """Return the length, in bytes, in the first four bytes of a frame. Raises FrameError."""
    size = int.from_bytes(prefix[:PREFIX], "big", signed=True)
    if 0 <= size <= max_frame:
        return size
    message = (
        f"a frame of {size} bytes: {max_frame} are accepted at most"
        if size > 0
        else f"a negative frame length: {size}"
    )
    raise FrameError(message + _resemblance(bytes(prefix[:PREFIX])), size=size, limit=max_frame)


def _resemblance(prefix: bytes) -> str:
    """Name two common mistakes: TLS on a plain port, and HTTP."""
    if prefix[:2] in (b"\x16\x03", b"\x15\x03"):
        return " (it looks like TLS)"
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP"):
        return " (it looks like HTTP)"
    return ""


def join_frame(parts: list[bytes]) -> bytes:
    """Join pieces to a frame with its length prefix. Each byte is copied once.

    Raises:
        EncodeError: the frame is too long for a length of four bytes.
    """
    size = sum(map(len, parts))
    if size > LARGEST_FRAME:
        raise EncodeError(f"a frame of {size} bytes: {LARGEST_FRAME} can be written at most")
    return b"".join((size.to_bytes(PREFIX, "big"), *parts))


def message_frame(header: Any, header_version: int, body: Any, version: int) -> bytes:
    """Encode a header and a body to a frame with its length prefix.

    Raises:
        UnsupportedVersionError: the body does not have this version.
        EncodeError: a layout cannot represent a value, or the frame is too long.
    """
    parts: list[bytes] = []
    header._encode_parts(header_version, parts)
    body._encode_parts(version, parts)
    return join_frame(parts)


def body_frame(head: bytes, body: Any, version: int, rest: bytes = b"") -> bytes:
    """Encode a body between other bytes of its frame. Errors are as for ``message_frame``."""
    parts = [head]
    body._encode_parts(version, parts)
    parts.append(rest)
    return join_frame(parts)


class FrameReader:
    """Cuts a stream of bytes into frames. Frames of more than ``max_frame`` bytes are refused by their prefix.

    Each byte is copied twice, into the buffer and out of it, even if it arrives in small pieces: a bytearray
    grows in proportion and removes its front without moving the rest. A caller can save the first copy:

    - ``feed`` with ``lent=True`` reads bytes in place until ``give_back``.
    - ``get_buffer`` returns memory for the rest of a large frame.

    Attributes:
        mapped_frame: the pieces of frames above this size in bytes are mapped: the C library does
            not return freed memory in time, so they would still need memory while the frame is
            handled
    """

    mapped_frame = 32 << 20

    __slots__ = ("_begin", "_buffer", "_error", "_large", "_large_size", "_room", "max_frame")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._buffer: bytearray | memoryview = bytearray()  # a view of the lent buffer
        self._begin = 0
        self._error: FrameError | None = None
        # The pieces of a large frame, prefix included, and its size; empty while there is none.
        self._large: list[memoryview] = []
        self._large_size = 0
        self._room = _NOTHING  # the unfilled rest of the last piece

    def feed(self, data: Buffer, *, lent: bool = False) -> None:
        """Append received bytes.

        Args:
            lent: read the bytes in place if the buffer is empty. The caller must not change them before it
                calls ``give_back``.
        """
        if self._large:
            data = self._fill(memoryview(data))
        if lent and not self._buffer:
            self._buffer = memoryview(data)
            return
        buffer = self._buffer
        if isinstance(buffer, memoryview):
            buffer = self._buffer = bytearray(buffer[self._begin :])
        elif self._begin:
            del buffer[: self._begin]
        self._begin = 0
        buffer += data

    def give_back(self) -> bool:
        """Copy the unread rest of lent bytes.

        Returns:
            Whether the caller can reuse the memory. If at least half of it is unread, the reader keeps it.
        """
        buffer = self._buffer
        if not isinstance(buffer, memoryview):
            return True
        if 2 * (len(buffer) - self._begin) >= memoryview(buffer.obj).nbytes:
            return False
        self._buffer = bytearray(buffer[self._begin :])
        self._begin = 0
        return True

    def get_buffer(self) -> memoryview | None:
        """Return memory for the next bytes of a large frame, or None if they must be passed to ``feed``.

        Report the number of bytes with ``received``. The memory is at most as large as the part of the frame
        that has arrived.
        """
        if not self._large:
            size = self.expected
            held = self.buffered
            if held < _PIECE or held >= size or size > PREFIX + self.max_frame:
                return None
            self._large = [memoryview(self._buffer)[self._begin :]]
            self._large_size = size
            self._buffer = bytearray()
            self._begin = 0
        if not self._room:
            held = self._held
            size = min(self._large_size - held, held, _LARGEST_PIECE)
            if not size:
                return None
            mapped = self._large_size > self.mapped_frame
            self._room = memoryview(mmap(-1, size) if mapped else bytearray(size))
            self._large.append(self._room)
        return self._room

    def received(self, size: int) -> None:
        """Report that ``size`` bytes were written into the memory of ``get_buffer``."""
        self._room = self._room[size:]

    def _fill(self, data: memoryview) -> memoryview:
        """Copy bytes into a large frame. Returns the bytes after it."""
        while data and (room := self.get_buffer()) is not None:
            size = min(len(data), len(room))
            room[:size] = data[:size]
            self.received(size)
            data = data[size:]
        return data

    @property
    def _held(self) -> int:
        """The number of bytes of the large frame that have arrived."""
        return sum(map(len, self._large)) - len(self._room)

    def next_frame(self) -> bytes | None:
        """Return the next complete frame without its prefix, or None if it has not arrived.

        Raises:
            FrameError: the length prefix is invalid. All later calls raise it too.
        """
        if self._error is not None:
            raise self._error
        if self._large:
            if self._held < self._large_size:
                return None
            frame = b"".join((self._large[0][PREFIX:], *self._large[1:]))
            self._large = []
            return frame
        buffer, begin = self._buffer, self._begin + PREFIX
        if len(buffer) < begin:
            return None
        try:
            end = begin + frame_size(buffer[self._begin : begin], self.max_frame)
        except FrameError as error:
            self._error = error
            self._buffer = bytearray()
            self._begin = 0
            raise
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            frame = bytes(view[begin:end])
        if end == len(buffer):
            self._buffer = bytearray()
            self._begin = 0
        else:
            self._begin = end
        return frame

    def peek(self, size: int) -> bytes:
        """Return up to ``size`` bytes of the next frame, prefix included, without consuming them."""
        if self._large:
            return bytes(self._large[0][:size])
        return bytes(self._buffer[self._begin : self._begin + size])

    @property
    def buffered(self) -> int:
        """The number of bytes, prefixes included, that were not returned as frames."""
        held = self._held if self._large else 0
        return held + len(self._buffer) - self._begin

    @property
    def expected(self) -> int:
        """The size of the next frame in bytes, prefix included; 4 if the prefix is incomplete."""
        if self._large:
            return self._large_size
        begin = self._begin
        if self.buffered < PREFIX:
            return PREFIX
        return PREFIX + int.from_bytes(self._buffer[begin : begin + PREFIX], "big", signed=True)
