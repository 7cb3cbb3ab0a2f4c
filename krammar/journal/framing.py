"""How messages stand one behind the other in a journal.

A framing has two steps: ``unpack`` finds where a frame ends, ``unmarshal`` makes a message of it. What is
wrong with a frame is found by the second, so that it costs this frame alone.

``FixedFraming``    4 bytes 66 33 93 36, the payload's length as a little-endian uint32, the payload: the
                    message in its own encoding
``JSONFraming``     the message as JSON (``to_dict``) on a line of its own
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from struct import Struct as Format
from struct import error as FormatError
from typing import Any
from uuid import UUID

from krammar.journal.errors import (
    ContentTypeError,
    DesyncDetectedError,
    FrameError,
    MessageError,
)
from krammar.wire.errors import WireError
from krammar.wire.message import Codec, Struct, VersionedCodec
from krammar.wire.primitives import FAILURES

FIXED_CONTENT_TYPE = "application/x-krammar-fixed"
JSON_CONTENT_TYPE = "application/x-ndjson"

MAGIC_WORD = b"\x66\x33\x93\x36"
FIXED_FRAME_HEADER_LENGTH = 8

_header = Format("<4sI")
# What a class may raise on bytes or values that are none of its own.
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, EOFError, FormatError)

_pack_header = _header.pack
_unpack_header = _header.unpack_from


class Framing(ABC):
    """How messages are written and found in a journal. Framings have no state: share them freely."""

    @property
    @abstractmethod
    def content_type(self) -> str:
        """The content type that ``framing_by_content_type`` knows this framing by."""

    @abstractmethod
    def marshal(self, message: Any) -> bytes:
        """The whole frame of a message. Raises MessageError."""

    @abstractmethod
    def unpack(self, data: bytes | bytearray, begin: int = 0) -> int:
        """The position behind the frame that begins at ``begin``; ``begin`` itself if it goes on behind
        the end of ``data``.

        Where no frame begins, all up to where one may begin is taken for a frame, which ``unmarshal``
        refuses.
        """

    @abstractmethod
    def unmarshal(self, frame: bytes, cls: type[Any]) -> Any:
        """The message of class ``cls`` in a whole frame, as ``unpack`` delimits it.

        Raises DesyncDetectedError for what is no frame and FrameError for a frame that is no such
        message; MessageError if the framing cannot read ``cls`` at all.
        """

    @abstractmethod
    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        """The first position from ``begin`` on at which a frame begins; the length of ``data`` if there
        is none. For readers that begin somewhere inside of a journal; ``begin`` may be inside of a frame.
        """


class FixedFraming(Framing):
    """Magic word, length, and the message in its own encoding.

    Generated classes are encoded at ``version``, their highest one without, and those with a version
    field at the one that it says. Readers must ask for the same version, which is why it is a parameter of
    the content type; a class whose versions may grow is better given a version field.
    Other classes need ``encode() -> bytes`` and a class method ``decode(bytes)``.

    Payloads of more than ``max_length`` bytes are neither written nor read. The length has no checksum: a
    limit keeps one that was damaged from hiding all that comes behind it.
    """

    def __init__(self, version: int | None = None, *, max_length: int = 1 << 28) -> None:
        if not 0 < max_length < 1 << 32:
            raise ValueError(f"max_length is between 1 and {(1 << 32) - 1}, not {max_length}")
        self.version = version
        self.max_length = max_length
        self._readers: dict[type[Any], Callable[[bytes], Any]] = {}
        self._encoders: dict[type[Any], Callable[[Any], bytes]] = {}

    @property
    def content_type(self) -> str:
        return FIXED_CONTENT_TYPE + ("" if self.version is None else f"; version={self.version}")

    def marshal(self, message: Any) -> bytes:
        cls = message.__class__
        try:
            encode = self._encoders[cls]
        except KeyError:
            encode = self._encoders[cls] = self._encoder(cls)
        try:
            payload = encode(message)
        except (WireError, AttributeError, TypeError) as error:
            raise _cannot_marshal(message, error) from error
        if len(payload) > self.max_length:
            raise MessageError(
                f"{type(message).__name__}: {len(payload)} bytes are over the limit of {self.max_length}"
            )
        return _pack_header(MAGIC_WORD, len(payload)) + payload

    def _encoder(self, cls: type[Any]) -> Callable[[Any], bytes]:
        """What makes a payload of a message."""
        if not hasattr(cls, "_decoders"):
            return lambda message: message.encode()
        versioned = hasattr(cls, "_version_field")
        fixed = cls.max_version if self.version is None else self.version
        field = getattr(cls, "_version_field", "")
        table = cls._encoders
        if cls.encode is not (VersionedCodec if versioned else Codec).encode:  # it is compiled
            return cls.encode if versioned else lambda message: message.encode(fixed)

        def encode(message: Any) -> bytes:
            # By the codec itself: the methods around it take as long as it does (a message of five
            # fields: 0.5 µs instead of 0.8). They are asked for all that is out of the ordinary.
            try:
                parts: list[bytes] = []
                table[getattr(message, field) if versioned else fixed](message, parts)
                return b"".join(parts)
            except FAILURES:
                return message.encode() if versioned else message.encode(fixed)  # type: ignore[no-any-return]

        return encode

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
        """The first position from ``begin`` on at which a frame may begin, as far as is to be seen."""
        size = len(data)
        at = data.find(MAGIC_WORD, begin)
        while at >= 0:
            if at + 8 > size or _unpack_header(data, at)[1] <= self.max_length:
                return at
            at = data.find(MAGIC_WORD, at + 1)
        # The last bytes may be the first of a magic word.
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
                f"a frame of {size} bytes whose header says {_unpack_header(frame)[1] + 8}", size
            )
        try:
            reader = self._readers[cls]
        except KeyError:
            reader = self._readers[cls] = self._reader(cls)
        try:
            return reader(frame)
        except FrameError:
            raise
        except _UNREADABLE as error:
            raise FrameError(f"{cls.__name__}: {error}") from error

    def _reader(self, cls: type[Any]) -> Callable[[bytes], Any]:
        """What makes a message of a whole frame."""
        if hasattr(cls, "_decoders"):
            versioned = hasattr(cls, "_version_field")
            version = cls.max_version if self.version is None else self.version
            decoders = cls._decoders
            decode_from = cls.decode_from

            def read_carefully(frame: bytes) -> Any:
                # In place: a frame is not copied to get at its payload.
                message, end = (
                    decode_from(frame, 8) if versioned else decode_from(frame, 8, version)
                )
                if end != len(frame):
                    raise FrameError(f"{cls.__name__}: {len(frame) - end} bytes are left over")
                return message

            usual = (VersionedCodec if versioned else Codec).decode_from.__func__  # type: ignore[attr-defined]
            if getattr(decode_from, "__func__", None) is not usual:  # it is compiled
                return read_carefully

            def read(frame: bytes) -> Any:
                # By the codec itself, as in _encoder: 0.9 µs instead of 1.5.
                try:
                    at = frame[8] << 8 | frame[9] if versioned else version
                    message, end = decoders[at](frame, 8)
                    if end == len(frame):
                        return message
                except FAILURES:
                    pass
                return read_carefully(frame)

            return read
        decode = getattr(cls, "decode", None)
        if not callable(decode):
            raise MessageError(f"{cls.__name__} has no decode, which fixed framing needs")
        return lambda frame: decode(frame[8:])

    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        # The magic word may be part of a payload too. It is believed if the frame it begins is followed by
        # another one, or by the end of what is to be seen.
        size = len(data)
        at = data.find(MAGIC_WORD, begin)
        while at >= 0:
            end = self.unpack(data, at)
            if end == at or end >= size or data[end : end + 4] == MAGIC_WORD[: size - end]:
                return at
            at = data.find(MAGIC_WORD, at + 1)
        return size

    def __repr__(self) -> str:
        return f"FixedFraming({'' if self.version is None else self.version})"


class JSONFraming(Framing):
    """JSON on lines that end with a newline.

    Messages need ``to_dict``, and a class method ``from_dict``; generated classes have both. Empty lines
    are refused by ``unmarshal``, as all that is no JSON object.
    """

    @property
    def content_type(self) -> str:
        return JSON_CONTENT_TYPE

    def marshal(self, message: Any) -> bytes:
        try:
            return _to_json(_plain(message)).encode() + b"\n"
        except (WireError, AttributeError, TypeError, ValueError) as error:
            raise _cannot_marshal(message, error) from error

    def unpack(self, data: bytes | bytearray, begin: int = 0) -> int:
        return data.find(b"\n", begin) + 1 or begin

    def unmarshal(self, frame: bytes, cls: type[Any]) -> Any:
        try:
            values = _from_json(frame.decode())
        except RecursionError:
            raise DesyncDetectedError("JSON that is nested too deep", len(frame)) from None
        except ValueError as error:
            raise DesyncDetectedError(f"a line that is no JSON: {error}", len(frame)) from error
        if not isinstance(values, dict):
            raise FrameError(f"a line with a JSON {type(values).__name__}, not an object")
        try:
            read = cls.from_dict
        except AttributeError:
            raise MessageError(
                f"{cls.__name__} has no from_dict, which JSON framing needs"
            ) from None
        try:
            return read(values)
        except _UNREADABLE as error:
            raise FrameError(f"{cls.__name__}: {error}") from error

    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        if begin == 0 or data[begin - 1 : begin] == b"\n":
            return begin
        return data.find(b"\n", begin) + 1 or len(data)

    def __repr__(self) -> str:
        return "JSONFraming()"


def _plain(value: Any) -> Any:
    """What JSON is made of for a value that is none itself. Of a generated struct it is its fields, for which
    the encoder asks in turn where they are none: 3 µs for a message of five fields, 5.5 by way of
    to_dict, which looks at all of them."""
    cls = value.__class__
    if cls is UUID:
        return str(value)
    if cls is bytes or cls is bytearray or cls is memoryview:
        return b64encode(value).decode()
    if getattr(value, "_unknown_tags", value) is None:
        return {name: getattr(value, name) for name in cls._fields}
    return value.to_dict()


# Calling a prepared encoder or decoder spares what json.dumps and json.loads do about their options.
_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode
_from_json = json.JSONDecoder().decode

FIXED = FixedFraming()
JSON = JSONFraming()


@cache
def framing_by_content_type(content_type: str) -> Framing:
    """The framing of a content type: ``application/x-krammar-fixed``, that with ``; version=3`` (the version
    at which messages are encoded), or ``application/x-ndjson``. Raises ContentTypeError."""
    name, *parameters = (part.strip() for part in content_type.split(";"))
    match name.lower(), parameters:
        case "application/x-ndjson", []:
            return JSON
        case "application/x-krammar-fixed", []:
            return FIXED
        case "application/x-krammar-fixed", [parameter]:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "version" and value.isdecimal() and int(value) < 32768:
                return FixedFraming(int(value))
    raise ContentTypeError(f"no framing has the content type {content_type!r}")


def _cannot_marshal(message: Any, cause: Exception) -> MessageError:
    if isinstance(message, Struct) and not isinstance(cause, AttributeError):
        return MessageError(f"a message cannot be encoded: {cause}")
    return MessageError(f"{type(message).__name__} cannot be framed: {cause}")
