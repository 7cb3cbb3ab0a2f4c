"""Changes names in the bytes of a frame without decoding it, for messages that are frequent: Produce and Fetch.

The compiled functions find names by the layout of a version. A frame with anything else that concerns a tenant, such as
error messages, tagged fields or ids of others, and an invalid frame, is left to the method for decoded messages.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from types import CodeType
from typing import Any

import kafka_wire

from krammar.proxy.filters.tenant_fields import ENTITIES, PATTERNS, TEXTS, TOPIC_ID
from krammar.proxy.filters.tenant_names import Tenant
from krammar.proxy.interface import Connection, Patch
from krammar.wire.layout import Array, Layout, Nested, Scalar, Text
from krammar.wire.package import package_of
from krammar.wire.primitives import UVARINT, Malformed, uvarint

# Numbers that are checked: a function decides whether the frame can be passed on.
CHECKED = ("replica_id", "session_id")

_PACKAGE = package_of(kafka_wire)
# The first versions of headers with tagged fields.
_FLEXIBLE_REQUEST, _FLEXIBLE_RESPONSE = 2, 1
# Copying so many bytes takes no longer than creating a view of them.
_SMALL = 4096
# Of the statements inside of ``try``.
_INDENT = 8 * " "
_SKIP = re.compile(r"pos \+= (\d+)")


def patch_of(
    cls: Any,
    version: int,
    find: Callable[[Connection], Tenant],
    owned: Callable[[Tenant, bytes], bool],
    allowed: Callable[[Tenant, Connection, str, int], bool],
) -> Patch:
    """Return the function for a class of messages: it adds the prefix in requests, and removes it in responses.

    Args:
        find: returns the tenant of a connection.
        owned: returns whether a topic id is the tenant's.
        allowed: returns whether a number of ``CHECKED`` can be passed on.
    """
    scope: dict[str, Any] = {
        "find": find,
        "owned": owned,
        "allowed": allowed,
        "invalid": (IndexError, struct.error, Malformed),
        "UVARINT": UVARINT,
        "uvarint": uvarint,
        "pack_int16": struct.Struct(">h").pack,
        **{f"read_{code}": struct.Struct(f">{code}").unpack_from for code in "hi"},
    }
    exec(_code(cls, version), scope)
    patch: Patch = scope["patch"]
    return patch


@cache
def _code(cls: Any, version: int) -> CodeType:
    adds = hasattr(cls, "response_class")
    source = _Source(adds)
    headers = _PACKAGE.header_versions(cls.api_key, version)
    if adds:
        source.request_header(headers.request >= _FLEXIBLE_REQUEST)
    else:
        source.response_header(headers.response >= _FLEXIBLE_RESPONSE)
    source.struct(kafka_wire.layout(cls, version), _INDENT)
    code = "\n".join(
        [
            "def patch(buf, begin, end, connection):",
            "    tenant = find(connection)",
            "    prefix = tenant.prefix_bytes",
            "    size, start, grown, out = len(prefix), begin + 4, 0, [b'']",
            "    try:",
            *source.lines,
            "    except invalid:",
            "        return None",  # decoding says what is wrong
            "    if pos != end: return None",
            f"    view = end - start > {_SMALL}",
            "    out.append(memoryview(buf)[start:end] if view else buf[start:end])",
            "    out[0] = (end - begin - 4 + grown).to_bytes(4, 'big')",
            "    return out",
        ]
    )
    return compile(code, f"<patch of {cls.__qualname__} v{version}>", "exec")


class _Source:
    """The statements of a function. ``adds`` is whether it adds the prefix; otherwise it removes it."""

    def __init__(self, adds: bool) -> None:
        self.lines: list[str] = []
        self._adds = adds
        self._numbers: Iterator[int] = count()

    def request_header(self, flexible: bool) -> None:
        """Skip the fields until the body. A request with tagged fields in its header is decoded."""
        self._line(_INDENT, "pos = begin + 12")
        self._text("int16", True, _INDENT)
        if flexible:
            self._no_tags(_INDENT)

    def response_header(self, flexible: bool) -> None:
        """Skip the fields until the body. A response with tagged fields in its header is decoded."""
        self._line(_INDENT, "pos = begin + 8")
        if flexible:
            self._no_tags(_INDENT)

    def struct(self, layout: Layout, indent: str) -> None:
        """Walk through the fields of a struct."""
        for item in layout.fields:
            self._field(item, indent)
        if layout.flexible:
            self._no_tags(indent)

    def _line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)

    def _skip(self, width: int, indent: str) -> None:
        last = self.lines[-1]
        if last.startswith(indent) and (before := _SKIP.fullmatch(last, len(indent))):
            self.lines.pop()
            width += int(before[1])
        self._line(indent, f"pos += {width}")

    def _no_tags(self, indent: str) -> None:
        self._line(indent, "if buf[pos]: return None")
        self._skip(1, indent)

    def _field(self, item: Any, indent: str) -> None:
        type_ = item.type
        if isinstance(type_, Scalar):
            if item.name == TOPIC_ID:
                self._line(indent, "if not owned(tenant, bytes(buf[pos:pos + 16])): return None")
            elif item.name in CHECKED:
                number = f"{item.name!r}, read_i(buf, pos)[0]"
                self._line(indent, f"if not allowed(tenant, connection, {number}): return None")
            self._skip(type_.width, indent)
        elif isinstance(type_, Text):
            if item.entity in ENTITIES:
                self._length(type_.prefix, type_.nullable, indent)
                self._name(type_.prefix, type_.nullable, indent)
            elif item.name in TEXTS or item.name in PATTERNS:
                self._length(type_.prefix, type_.nullable, indent)
                self._line(indent, "if length >= 0: return None")
                self._line(indent, "pos = after")
            else:
                self._text(type_.prefix, type_.nullable, indent)
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

    def _text(self, prefix: str, nullable: bool, indent: str) -> None:
        """Skip a text, or records."""
        self._length(prefix, nullable, indent)
        self._after(nullable, indent)

    def _after(self, nullable: bool, indent: str) -> None:
        value = "after + length if length > 0 else after" if nullable else "after + length"
        self._line(indent, f"pos = {value}")

    def _name(self, prefix: str, nullable: bool, indent: str) -> None:
        """Add the prefix to a name, or remove it."""
        inside = indent
        if nullable:
            self._line(indent, "if length >= 0:")
            inside = f"{indent}    "
        sign = "+" if self._adds else "-"
        if self._adds:
            self._line(inside, "rest = after")
        else:
            self._line(inside, "rest = after + size")
            self._line(inside, "if length < size or buf[after:rest] != prefix: return None")
        new = f"length {sign} size"
        packed = f"UVARINT[{new} + 1]" if prefix == "uvarint" else f"pack_int16({new})"
        self._line(inside, f"written = {packed}")
        self._line(inside, "out += (buf[start:pos], written" + (", prefix)" if self._adds else ")"))
        self._line(inside, f"grown += len(written) - (after - pos) {sign} size")
        self._line(inside, "start = rest")
        self._after(nullable, indent)

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
