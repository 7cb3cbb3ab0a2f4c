"""Changes names in the bytes of a frame without decoding it, for messages that are frequent: Produce and Fetch.

The compiled functions find names by the layout of a version. A frame with anything else that concerns a tenant, such as
error messages, tagged fields or ids of others, and an invalid frame, is left to the method for decoded messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import kafka_wire

from krammar.proxy.filters.tenant_fields import ENTITIES, PATTERNS, TEXTS, TOPIC_ID
from krammar.wire.framing import PREFIX
from krammar.wire.layout import Array, Layout, Nested, Scalar, Text
from krammar.wire.primitives import UVARINT, Malformed, uvarint

# Numbers that are checked: a function decides whether the frame can be passed on.
CHECKED = ("replica_id", "session_id")

# Arguments: a frame, the offset of its body, the prefix; functions that return whether a topic id is the tenant's,
# and whether a number of ``CHECKED`` can be passed on. Returns the changed frame; None if it must be decoded.
Change = Callable[
    [bytes, int, bytes, Callable[[bytes], bool], Callable[[str, int], bool]], bytes | None
]


@cache
def change_of(cls: Any, version: int) -> Change:
    """Return the function for a class of messages: it adds the prefix in requests, and removes it in responses."""
    source = _Source(adds=hasattr(cls, "response_class"))
    source.struct(kafka_wire.layout(cls, version), "    ")
    code = "\n".join(
        [
            "def change(buf, pos, prefix, owned, allowed):",
            "    size, start, grown, out = len(prefix), 4, 0, [b'']",
            *source.lines,
            "    if pos != len(buf): return None",
            "    if start == 4: return buf",
            "    out.append(buf[start:])",
            "    out[0] = (len(buf) - 4 + grown).to_bytes(4, 'big')",
            "    return b''.join(out)",
        ]
    )
    scope: dict[str, Any] = {
        "UVARINT": UVARINT,
        "uvarint": uvarint,
        "pack_int16": struct.Struct(">h").pack,
        **{f"read_{code}": struct.Struct(f">{code}").unpack_from for code in "hi"},
    }
    exec(compile(code, f"<change of {cls.__qualname__} v{version}>", "exec"), scope)
    change: Change = scope["change"]

    def checked(
        buf: bytes,
        pos: int,
        prefix: bytes,
        owned: Callable[[bytes], bool],
        allowed: Callable[[str, int], bool],
    ) -> bytes | None:
        try:
            return change(buf, pos, prefix, owned, allowed)
        except (IndexError, struct.error, Malformed):
            return None  # decoding reports the error

    return checked


class _Source:
    """The statements of a function. ``adds`` is whether it adds the prefix; otherwise it removes it."""

    def __init__(self, adds: bool) -> None:
        self.lines: list[str] = []
        self._adds = adds
        self._numbers: Iterator[int] = count()

    def struct(self, layout: Layout, indent: str) -> None:
        for item in layout.fields:
            self._field(item, indent)
        if layout.flexible:
            self._line(indent, "if buf[pos]: return None")
            self._line(indent, "pos += 1")

    def _line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)

    def _field(self, item: Any, indent: str) -> None:
        type_ = item.type
        if isinstance(type_, Scalar):
            if item.name == TOPIC_ID:
                self._line(indent, "if not owned(buf[pos:pos + 16]): return None")
            elif item.name in CHECKED:
                self._line(
                    indent, f"if not allowed({item.name!r}, read_i(buf, pos)[0]): return None"
                )
            self._line(indent, f"pos += {type_.width}")
        elif isinstance(type_, Text):
            self._length(type_.prefix, type_.nullable, indent)
            if item.entity in ENTITIES:
                self._name(type_.prefix, indent)
            elif item.name in TEXTS or item.name in PATTERNS:
                self._line(indent, "if length >= 0: return None")
                self._line(indent, "pos = after")
            else:
                self._line(indent, "pos = after + max(length, 0)")
        elif isinstance(type_, Array):
            self._array(type_, indent)
        else:
            raise TypeError(f"{item.name}: {type_} is not supported")

    def _length(self, prefix: str, nullable: bool, indent: str) -> None:
        """Read a length, and the offset after it."""
        if prefix == "uvarint":
            self._line(indent, "length, after = buf[pos] - 1, pos + 1")
            self._line(indent, "if length > 126:")
            self._line(indent, "    length, after = uvarint(buf, after, length + 1)")
            self._line(indent, "    length -= 1")
        else:
            code, width = {"int16": ("h", 2), "int32": ("i", 4)}[prefix]
            self._line(indent, f"length, after = read_{code}(buf, pos)[0], pos + {width}")
        self._line(indent, f"if length < {-1 if nullable else 0}: return None")

    def _name(self, prefix: str, indent: str) -> None:
        self._line(indent, "if length >= 0:")
        inside = f"{indent}    "
        sign = "+" if self._adds else "-"
        if self._adds:
            self._line(inside, "begin = after")
        else:
            self._line(inside, "begin = after + size")
            self._line(inside, "if length < size or buf[after:begin] != prefix: return None")
        new = f"length {sign} size"
        packed = f"UVARINT[{new} + 1]" if prefix == "uvarint" else f"pack_int16({new})"
        self._line(inside, f"written = {packed}")
        self._line(inside, "out += (buf[start:pos], written" + (", prefix)" if self._adds else ")"))
        self._line(inside, f"grown += len(written) - (after - pos) {sign} size")
        self._line(inside, "start = begin")
        self._line(indent, "pos = after + max(length, 0)")

    def _array(self, type_: Array, indent: str) -> None:
        self._length(type_.prefix, type_.nullable, indent)
        self._line(indent, "pos = after")
        width = _width(type_.element)
        if (
            width
        ):  # no loop: a count of two billion would take long before the end of the frame is noticed
            self._line(indent, f"pos += {width} * max(length, 0)")
            return
        assert isinstance(type_.element, Nested)
        number = next(self._numbers)
        self._line(indent, f"for _{number} in range(length):")
        self.struct(type_.element.layout, f"{indent}    ")


def _width(type_: Any) -> int:
    """Return the bytes of an element of fixed size without anything to check; 0 for others."""
    if isinstance(type_, Scalar):
        return type_.width
    if not isinstance(type_, Nested) or type_.layout.flexible:
        return 0
    widths = [
        0 if item.name == TOPIC_ID or item.name in CHECKED else _width(item.type)
        for item in type_.layout.fields
    ]
    return sum(widths) if all(widths) else 0


def body_of_request(frame: bytes, flexible: bool) -> int:
    """Return the offset of the body of a request; 0 if its header must be decoded."""
    length = int.from_bytes(frame[12:14], "big", signed=True)
    position = PREFIX + 10 + max(length, 0)
    if not flexible:
        return position
    return position + 1 if frame[position : position + 1] == b"\0" else 0


def body_of_response(frame: bytes, flexible: bool) -> int:
    """Return the offset of the body of a response; 0 if its header must be decoded."""
    if not flexible:
        return PREFIX + 4
    return PREFIX + 5 if frame[PREFIX + 4 : PREFIX + 5] == b"\0" else 0
