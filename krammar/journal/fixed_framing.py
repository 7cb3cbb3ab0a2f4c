"""Fixed framing: 4 bytes 66 33 93 36, the length of the payload as a little-endian uint32, and the payload.

The payload is the message in its own encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Format
from typing import Any

from krammar.journal.errors import DesyncDetectedError, FrameError, MessageError
from krammar.journal.frames import UNREADABLE, Framing, cannot_marshal
from krammar.wire.errors import WireError
from krammar.wire.versioned import VersionedCodec

FIXED_CONTENT_TYPE = "application/x-krammar-fixed"

MAGIC_WORD = b"\x66\x33\x93\x36"
FIXED_FRAME_HEADER_LENGTH = 8

_header = Format("<4sI")
_pack_header = _header.pack
_unpack_header = _header.unpack_from


class FixedFraming(Framing):
    """Magic word, length, and the message in its own encoding.

    Other classes than generated ones need the methods of protobuf's Python messages (``SerializeToString`` and the
    class method ``FromString``), or ``encode() -> bytes`` and a class method ``decode(bytes)``.

    Args:
        version: the version at which generated classes are encoded; the default is their highest one.
            Readers need the same version, so it is a parameter of the content type. Classes with a
            version field ignore it; such a field is preferable if a class may get new versions.
        max_length: longer payloads, in bytes, are neither written nor read. The length has no checksum;
            without a limit, a damaged length could hide all later frames.
        content_type: the content type of the journals, for example Gazette's.
    """

    def __init__(
        self,
        version: int | None = None,
        *,
        max_length: int = 1 << 28,
        content_type: str = FIXED_CONTENT_TYPE,
    ) -> None:
        if not 0 < max_length < 1 << 32:
            raise ValueError(f"max_length must be between 1 and {(1 << 32) - 1}, not {max_length}")
        self.version = version
        self._content_type = content_type
        self.max_length = max_length
        self._readers: dict[type[Any], Callable[[bytes], Any]] = {}
        self._encoders: dict[type[Any], Callable[[Any], bytes]] = {}

    @property
    def content_type(self) -> str:
        return self._content_type + ("" if self.version is None else f"; version={self.version}")

    def marshal(self, message: Any) -> bytes:
        cls = message.__class__
        try:
            encode = self._encoders[cls]
        except KeyError:
            encode = self._encoders[cls] = self._encoder(cls)
        try:
            payload = encode(message)
        except (WireError, AttributeError, TypeError) as error:
            raise cannot_marshal(message, error) from error
        if len(payload) > self.max_length:
            raise MessageError(
                f"{type(message).__name__}: {len(payload)} bytes exceed the limit of {self.max_length}"
            )
        return _pack_header(MAGIC_WORD, len(payload)) + payload

    def _encoder(self, cls: type[Any]) -> Callable[[Any], bytes]:
        """Return a function that encodes the payload of a message."""
        if not hasattr(cls, "_programs"):
            if hasattr(cls, "SerializeToString"):
                return _serialize
            return lambda message: message.encode()
        versioned = hasattr(cls, "_version_field")
        fixed = cls.max_version if self.version is None else self.version
        return cls.encode if versioned else lambda message: message.encode(fixed)

    def unpack(self, data: bytes | bytearray, begin: int = 0) -> int:
        size = len(data)
        if begin + 8 <= size:
            word, length = _unpack_header(data, begin)
            if word == MAGIC_WORD and length <= self.max_length:
                end = begin + 8 + length
                return end if end <= size else begin
        elif MAGIC_WORD.startswith(data[begin : begin + 4]):
            return begin
        return self._candidate(data, begin + 1)

    def _candidate(self, data: bytes | bytearray, begin: int) -> int:
        """Return the first position at or after ``begin`` at which a frame may begin."""
        size = len(data)
        at = data.find(MAGIC_WORD, begin)
        while at >= 0:
            if at + 8 > size or _unpack_header(data, at)[1] <= self.max_length:
                return at
            at = data.find(MAGIC_WORD, at + 1)
        # The last bytes may be the beginning of a magic word.
        for length in (3, 2, 1):
            if size - length >= begin and data.endswith(MAGIC_WORD[:length]):
                return size - length
        return size

    def unmarshal(self, frame: bytes, cls: type[Any]) -> Any:
        size = len(frame)
        if size < 8 or frame[:4] != MAGIC_WORD:
            raise DesyncDetectedError(f"{size} bytes without a magic word", size)
        if _unpack_header(frame)[1] != size - 8:
            raise DesyncDetectedError(
                f"a frame of {size} bytes has a header for {_unpack_header(frame)[1] + 8} bytes",
                size,
            )
        try:
            reader = self._readers[cls]
        except KeyError:
            reader = self._readers[cls] = self._reader(cls)
        try:
            return reader(frame)
        except FrameError:
            raise
        except UNREADABLE as error:
            raise FrameError(f"{cls.__name__}: {error}") from error

    def _reader(self, cls: type[Any]) -> Callable[[bytes], Any]:
        """Return a function that decodes the message of a complete frame."""
        if hasattr(cls, "_programs"):
            newest = cls.max_version if self.version is None else self.version
            decode_from = known = cls.decode_from
            versions: dict[bytes, int] = {}
            versioned = issubclass(cls, VersionedCodec)
            if versioned:
                # Reading the version here takes half as long as ``VersionedCodec.decode_from``.
                known = super(VersionedCodec, cls).decode_from  # type: ignore[misc]
                every = range(cls.min_version, cls.max_version + 1)
                versions = {version.to_bytes(2, "big", signed=True): version for version in every}

            def read(frame: bytes) -> Any:
                # Decode in place, without a copy of the payload.
                version = versions.get(frame[8:10]) if versioned else newest
                message, end = (
                    decode_from(frame, 8) if version is None else known(frame, 8, version)
                )
                if end != len(frame):
                    raise FrameError(f"{cls.__name__}: {len(frame) - end} bytes are left over")
                return message

            return read
        if hasattr(cls, "FromString"):
            return lambda frame: _parse(cls, frame[8:])
        decode = getattr(cls, "decode", None)
        if not callable(decode):
            raise MessageError(
                f"fixed framing cannot read {cls.__name__}: it has neither decode nor FromString"
            )
        return lambda frame: decode(frame[8:])

    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        # The magic word may also be part of a payload. It counts as the beginning of a frame if another frame, or
        # the end of the data, follows that frame.
        size = len(data)
        at = data.find(MAGIC_WORD, begin)
        while at >= 0:
            end = self.unpack(data, at)
            if end == at or end >= size or data[end : end + 4] == MAGIC_WORD[: size - end]:
                return at
            at = data.find(MAGIC_WORD, at + 1)
        return size

    def __repr__(self) -> str:
        parts = [] if self.version is None else [str(self.version)]
        if self._content_type != FIXED_CONTENT_TYPE:
            parts.append(f"content_type={self._content_type!r}")
        return f"FixedFraming({', '.join(parts)})"


def _serialize(message: Any) -> bytes:
    try:
        return bytes(message.SerializeToString())
    except Exception as error:  # protobuf's errors have their own base class
        raise cannot_marshal(message, error) from error


def _parse(cls: type[Any], data: bytes) -> Any:
    try:
        return cls.FromString(data)
    except Exception as error:
        raise FrameError(f"{cls.__name__}: {error}") from error
