"""Finds the bytes of each field of a frame, and the bytes that are secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from krammar.tap.frame import Frame, Status
from krammar.wire.layout import Node
from krammar.wire.package import Package
from krammar.wire.reflection import fields
from krammar.wire.skip import walk_of
from krammar.wire.tracing import trace_frame

# The entity of fields that hold secrets: passwords, proofs, and what a later login needs. Kafka's Envelope contains
# another message, which may have any of these.
SECRET = "secret"
_MASK = b"*"
_PREFIX = 4


@dataclass(slots=True)
class Fields:
    """The fields of a frame, with offsets in the frame's bytes.

    Attributes:
        parts: the trees of header and body, as far as they could be read
        end: the offset after the last byte that was read
        error: why reading ended before the end of the frame; empty if it did not
    """

    parts: list[Node] = field(default_factory=list)
    end: int = 0
    error: str = ""


def fields_of(package: Package, frame: Frame) -> Fields:
    """Read a frame again with its layouts. Fields that follow an error are absent."""
    found = Fields()
    if frame.raw or frame.status is Status.TOKEN or frame.api_key is None or frame.version is None:
        return found
    version = frame.version if frame.body_version < 0 else frame.body_version
    trace = trace_frame(
        package,
        frame.data,
        frame.api_key,
        version,
        is_request=frame.is_request,
        is_push=frame.is_push,
    )
    found.parts = [part.node for part in trace.parts]
    found.end = trace.end
    found.error = "" if trace.error is None else str(trace.error)
    return found


def masked(package: Package, frame: Frame) -> bytes:
    """Return the bytes of a frame, with ``*`` for each byte that is secret."""
    if frame.status is Status.TOKEN:
        return _MASK * len(frame.data)
    if frame.raw:
        return _mask_raw(package, frame)
    cls = _class_of(package, frame)
    if cls is None or not has_secrets(cls):
        return frame.data
    found = fields_of(package, frame)
    if len(found.parts) == 2 and not found.error and frame.status is Status.OK:
        walk = walk_of(cls, frame.body_version, (SECRET,))
        inside = walk(frame.data, found.parts[1].offset, len(frame.data))
        if inside is not None:
            data = frame.data
            for _, _, content, end in inside[1]:
                if content >= 0:
                    data = _mask(data, content, end)
            return data
    # Unparsed bytes may contain secrets.
    return _mask(frame.data, 8 if frame.is_request else 4, len(frame.data))


def _class_of(package: Package, frame: Frame) -> Any:
    """Return the class of a frame's message, or None."""
    key = -1 if frame.api_key is None else frame.api_key
    if frame.is_push:
        return package.push_class(key) if key in package.pushes else None
    if key not in package.requests:
        return None
    return package.request_class(key) if frame.is_request else package.response_class(key)


@cache
def has_secrets(cls: Any) -> bool:
    """Return whether a struct has a secret in any version."""
    known = fields(cls)
    structs: list[Any] = [info.struct for info in known if info.struct is not None]
    return any(info.entity == SECRET for info in known) or any(map(has_secrets, structs))


def _mask_raw(package: Package, frame: Frame) -> bytes:
    """Mask an incomplete frame, with its length prefix, unless its api is known to have no secrets."""
    if frame.is_request:
        key = int.from_bytes(frame.data[_PREFIX : _PREFIX + 2], "big", signed=True)
        if key not in package.requests or not has_secrets(package.request_class(key)):
            return frame.data
    return _mask(frame.data, _PREFIX + (8 if frame.is_request else 4), len(frame.data))


def _mask(data: bytes, begin: int, end: int) -> bytes:
    return data[:begin] + _MASK * max(0, end - begin) + data[end:]
