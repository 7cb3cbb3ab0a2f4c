"""Frames: a length of four bytes, big-endian and signed, then that many bytes.

Everything that Kafka's clients and brokers say to each other stands in frames, one request or one
response in each.
"""

from __future__ import annotations

from krammar.wire.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview

# The largest frame that is accepted unless the caller says otherwise, in bytes: Kafka's default for
# ``socket.request.max.bytes``.
MAX_FRAME = 100 * 1024 * 1024

PREFIX = 4
_LARGEST = 0x7FFFFFFF


class FrameError(DecodeError):
    """A length that no frame can have: negative, or over the limit.

    What follows cannot be told apart into frames any more. ``size`` is the length that the prefix
    claims, in bytes, and ``limit`` the largest that is accepted.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message, offset=0)
        self.size = size
        self.limit = limit


def frame_size(prefix: Buffer, max_frame: int = MAX_FRAME) -> int:
    """The length in bytes that the first four bytes of a frame say. Raises FrameError."""
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
    """Two mistakes are common enough to be named: TLS spoken to a plain port, and HTTP."""
    if prefix[:2] in (b"\x16\x03", b"\x15\x03"):
        return " (it looks like TLS)"
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP"):
        return " (it looks like HTTP)"
    return ""


def join_frame(parts: list[bytes]) -> bytes:
    """The frame that the pieces make up, prefix included; each byte is copied once.

    Raises EncodeError where they are more than a length of four bytes can say.
    """
    size = sum(map(len, parts))
    if size > _LARGEST:
        raise EncodeError(f"a frame of {size} bytes: {_LARGEST} can be written at most")
    return b"".join((size.to_bytes(PREFIX, "big"), *parts))


class FrameReader:
    """Cuts a stream of bytes into frames. Frames above ``max_frame`` bytes are refused by their prefix.

    Each byte is copied twice, into the buffer and out of it, however small the pieces are in which it
    comes: a bytearray grows in proportion and drops its front without moving the rest.
    """

    __slots__ = ("_begin", "_buffer", "_error", "max_frame")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()
        self._begin = 0
        self._error: FrameError | None = None

    def feed(self, data: Buffer) -> None:
        """Append bytes as they came."""
        if self._begin:
            del self._buffer[: self._begin]
            self._begin = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole frame without its prefix, or None until there is one.

        Raises FrameError as soon as a prefix is there that cannot be one, and from then on always.
        """
        if self._error is not None:
            raise self._error
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
        """The first bytes that no frame was made of yet, prefix included; fewer where fewer came."""
        return bytes(self._buffer[self._begin : self._begin + size])

    @property
    def buffered(self) -> int:
        """The bytes, prefixes included, that no frame was made of yet."""
        return len(self._buffer) - self._begin

    @property
    def expected(self) -> int:
        """How many bytes, prefix included, the frame takes whose beginning is there: 4 as long as the
        prefix itself is not whole."""
        begin = self._begin
        if self.buffered < PREFIX:
            return PREFIX
        return PREFIX + int.from_bytes(self._buffer[begin : begin + PREFIX], "big", signed=True)
