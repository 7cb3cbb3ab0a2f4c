"""Reads messages and frames field by field, to show where each value is.

An error does not lose what was read before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from krammar.wire.errors import DecodeError, WireError
from krammar.wire.layout import Layout, Node
from krammar.wire.package import Package


class TracedPart(NamedTuple):
    """A message, or the header of a frame: its layout, its values as a tree, and the number of its bytes."""

    layout: Layout
    node: Node
    size: int


@dataclass(slots=True)
class Trace:
    """What was read.

    Attributes:
        parts: header and body of a frame, as far as they could be read, or a message. Offsets count from the begin
            of the frame.
        error: why reading ended before the end of the bytes, or None
    """

    parts: list[TracedPart] = field(default_factory=list)
    error: WireError | None = None

    @property
    def end(self) -> int:
        """The offset after the last byte that was read."""
        return self.parts[-1].node.end if self.parts else 0


def trace_message(layout: Layout, data: bytes, offset: int = 0) -> Trace:
    """Read a message, which begins at ``offset`` of a frame or a file."""
    trace = Trace()
    _add(trace, layout, data, offset, whole=True)
    return trace


def trace_frame(
    package: Package,
    data: bytes,
    api_key: int,
    version: int,
    *,
    is_request: bool,
    is_push: bool = False,
) -> Trace:
    """Read a frame without its length prefix."""
    trace = Trace()
    try:
        if is_push:
            header_version = package.push_header_version(api_key, version)
            header = package.layout(package.get("ResponseHeader"), header_version)
            body = package.layout(package.push_class(api_key), version)
        elif is_request:
            versions = package.header_versions(api_key, version)
            header = package.layout(package.get("RequestHeader"), versions.request)
            body = package.layout(package.request_class(api_key), version)
        else:
            versions = package.header_versions(api_key, version)
            header = package.layout(package.get("ResponseHeader"), versions.response)
            body = package.layout(package.response_class(api_key), version)
    except WireError as error:
        trace.error = error
        return trace
    _add(trace, header, data, 0, whole=False)
    if trace.error is None:
        _add(trace, body, data[trace.end :], trace.end, whole=True)
    return trace


def _add(trace: Trace, layout: Layout, data: bytes, shift: int, *, whole: bool) -> None:
    try:
        root = layout.trace(data, whole=whole)
    except DecodeError as error:
        trace.error = error
        root = error.node  # type: ignore[attr-defined]
    size = len(data) if whole else root.end
    for _, node in root.walk():
        node.offset += shift
        node.end += shift
    trace.parts.append(TracedPart(layout, root, size))
