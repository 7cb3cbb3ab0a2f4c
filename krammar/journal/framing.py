"""Finds the framing of a content type, and JSON framing: one message as JSON per line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, BinaryIO

from krammar.journal.csv_framing import CSV_CONTENT_TYPE, CSVFraming
from krammar.journal.errors import (
    ContentTypeError,
    DesyncDetectedError,
    FrameError,
    MessageError,
)
from krammar.journal.fixed_framing import FIXED_CONTENT_TYPE, FixedFraming
from krammar.journal.frames import UNREADABLE, Framing, cannot_marshal
from krammar.journal.plain import from_plain, to_plain
from krammar.wire.errors import WireError

JSON_CONTENT_TYPE = "application/x-ndjson"
# Gazette's content type for the same frames with protobuf messages.
PROTOBUF_CONTENT_TYPE = "application/x-protobuf-fixed"


class JSONFraming(Framing):
    """One JSON object per line; every line ends with a newline.

    Messages are mappings, dataclasses, or objects with ``to_dict`` and a class method ``from_dict``, which generated
    classes have. ``unmarshal`` refuses empty lines and everything else that is not a JSON object.

    Bytes are written as base64, UUIDs in their usual form. Fields of dataclasses that are annotated as bytes or UUID are
    converted back; values of mappings remain as JSON represents them.
    """

    @property
    def content_type(self) -> str:
        return JSON_CONTENT_TYPE

    def marshal(self, message: Any) -> bytes:
        try:
            plain = to_plain(message)
            if not isinstance(plain, dict):
                raise TypeError(f"a message is a JSON object, not {type(plain).__name__}")
            return _to_json(plain).encode() + b"\n"
        except (WireError, AttributeError, TypeError, ValueError) as error:
            raise cannot_marshal(message, error) from error

    def unpack(self, data: bytes | bytearray, begin: int = 0) -> int:
        return data.find(b"\n", begin) + 1 or begin

    def unmarshal(self, frame: bytes, cls: type[Any]) -> Any:
        try:
            values = _from_json(frame.decode())
        except RecursionError:
            raise DesyncDetectedError(
                "the JSON of a line is nested too deeply", len(frame)
            ) from None
        except ValueError as error:
            raise DesyncDetectedError(f"a line is not JSON: {error}", len(frame)) from error
        if not isinstance(values, dict):
            raise FrameError(f"a line contains a JSON {type(values).__name__} instead of an object")
        read = getattr(cls, "from_dict", None)
        if read is None and not is_dataclass(cls) and not issubclass(cls, Mapping):
            raise MessageError(
                f"JSON framing cannot read {cls.__name__}: it has no from_dict and is not a dataclass or mapping"
            )
        try:
            return from_plain(cls, values) if read is None else read(values)
        except MessageError:
            raise
        except UNREADABLE as error:
            raise FrameError(f"{cls.__name__}: {error}") from error

    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        if begin == 0 or data[begin - 1 : begin] == b"\n":
            return begin
        return data.find(b"\n", begin) + 1 or len(data)

    def __repr__(self) -> str:
        return "JSONFraming()"


# A prepared encoder and decoder skip the checks of options in json.dumps and json.loads.
_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_plain
).encode
_from_json = json.JSONDecoder().decode

FIXED = FixedFraming()
JSON = JSONFraming()
_framings: dict[str, Framing] = {}


def register_framing(framing: Framing) -> None:
    """Let ``framing_by_content_type`` find a framing by its content type.

    It replaces an earlier framing with the same content type. Register framings before journals are opened, in all
    processes that read or write such journals.
    """
    _framings[_normal(framing.content_type)] = framing


def _normal(content_type: str) -> str:
    """Return a content type in the form in which it is registered."""
    name, *parameters = (part.strip() for part in content_type.split(";"))
    return "; ".join((name.lower(), *parameters))


for _framing in (JSON, FIXED, FixedFraming(content_type=PROTOBUF_CONTENT_TYPE), CSVFraming()):
    register_framing(_framing)


def framing_by_content_type(content_type: str) -> Framing:
    """Return the framing of a content type.

    The content types are ``application/x-krammar-fixed``, the same with the version at which messages are encoded
    (``; version=3``), Gazette's ``application/x-protobuf-fixed``, ``application/x-ndjson`` and ``text/csv``, and those of
    ``register_framing``.

    Raises:
        ContentTypeError: no framing has the content type.
    """
    normal = _normal(content_type)
    found = _framings.get(content_type) or _framings.get(normal)
    if found is not None:
        return found
    if version := re.fullmatch(
        rf"{FIXED_CONTENT_TYPE}; (?i:version) *= *(\d{{1,5}})", normal, re.A
    ):
        number = int(version[1])
        if number < 32768:
            # The same object each time: it remembers how classes are encoded.
            return _framings.setdefault(content_type, FixedFraming(number))
    theirs = (
        " (a content type of Gazette that krammar does not support)"
        if normal == "application/x-gazette-recoverylog"
        else ""
    )
    raise ContentTypeError(
        f"no framing has the content type {content_type!r}{theirs}; use {JSON_CONTENT_TYPE}, {CSV_CONTENT_TYPE}, "
        f"{FIXED_CONTENT_TYPE} or {PROTOBUF_CONTENT_TYPE}, or register one with register_framing"
    )


def unpack_line(reader: BinaryIO) -> bytes:
    """Return the next line of a buffered reader, with its newline; empty at the end.

    Raises:
        EOFError: the last line has no newline.
    """
    line = reader.readline()
    if line and not line.endswith(b"\n"):
        raise EOFError(
            f"the last {len(line)} bytes are not a complete line: the newline is missing"
        )
    return line
