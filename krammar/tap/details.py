"""Frames for the page: the tree of their fields, with the bytes of each, as JSON-able values."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

from krammar.tap.fields import fields_of
from krammar.tap.frame import Frame
from krammar.util.printable import escape
from krammar.wire.errors import DecodeError, WireError
from krammar.wire.layout import Node
from krammar.wire.package import Package
from krammar.wire.tracing import trace_message

_MAX_TEXT = 400
_MAX_HEX = 24
_RECORDS = ("RECORDS", "COMPACT_RECORDS")
# The head of a record batch (v2): offset and length, then what the length counts.
_LENGTH, _COUNTED, _MAGIC = slice(8, 12), 12, 16
_CODECS = 7

Tree = list[Any]


def details(
    package: Package, frame: Frame | None, *, max_nodes: int = 20_000, max_bytes: int = 1 << 20
) -> dict[str, Any] | None:
    """Return what the page shows of a frame.

    ``tree`` has nodes ``[name, type, begin, end, value, children]``, with offsets in ``data``, which is base64.

    Args:
        max_nodes: of the tree. More would make the page slow, and nobody reads them.
        max_bytes: of the frame in ``data``.
    """
    if frame is None:
        return None
    found = fields_of(package, frame)
    nodes = _Nodes(package, frame.data, max_nodes)
    return {
        "time": frame.time_ns,
        "size": frame.size,
        "data": base64.b64encode(frame.data[:max_bytes]).decode("ascii"),
        "status": str(frame.status),
        "error": escape(frame.error),
        "path": escape(frame.path),
        "offset": frame.offset,
        "note": escape(frame.note),
        "tree": [nodes.tree(part) for part in found.parts],
        "end": found.end,
        "omitted": nodes.left < 0,
    }


class _Nodes:
    """Builds trees with a limited number of nodes."""

    def __init__(self, package: Package, data: bytes, left: int) -> None:
        self._package = package
        self._data = data
        self.left = left

    def tree(self, node: Node) -> Tree:
        self.left -= 1
        if node.type in _RECORDS and isinstance(node.value, bytes):
            node.children = self._batches(node.end - len(node.value), node.end)
        children = []
        for child in node.children:
            if self.left <= 0:
                self.left = -1
                break
            children.append(self.tree(child))
        return [node.name, node.type, node.offset, node.end, self._value(node), children]

    def _batches(self, begin: int, end: int) -> list[Node]:
        """Return the record batches in these bytes; those of older formats are not divided."""
        found: list[Node] = []
        try:
            layout = self._package.layout(self._package.get("RecordBatch"), 0)
        except (AttributeError, WireError):
            return found  # a protocol without Kafka's record batches
        while begin + _MAGIC < end and self._data[begin + _MAGIC] == 2 and len(found) < self.left:
            head = self._data[begin : begin + _COUNTED]
            stop = begin + _COUNTED + int.from_bytes(head[_LENGTH], "big", signed=True)
            if not begin < stop <= end:
                break
            batch = trace_message(layout, self._data[begin:stop], begin).parts[0].node
            batch.name = f"[{len(found)}]"
            found.append(batch)
            self._records(batch)
            begin = stop
        return found

    def _records(self, batch: Node) -> None:
        fields = {child.name: child for child in batch.children}
        records = fields.get("records")
        if records is None or fields["attributes"].value & _CODECS:
            return
        layout = self._package.layout(self._package.get("Record"), 0)
        position = records.offset
        while position < records.end and len(records.children) < self.left:
            try:
                _, stop = layout.read_from(self._data[position : records.end], 0)
            except DecodeError:
                return
            data = self._data[position : position + stop]
            record = trace_message(layout, data, position).parts[0].node
            record.name = f"[{len(records.children)}]"
            records.children.append(record)
            position += stop

    def _value(self, node: Node) -> str:
        value = node.value
        if node.children and not isinstance(value, (int, str)):
            count = len(node.children)
            if node.children[0].name == "[0]":
                return f"{count:,} element{'' if count == 1 else 's'}"
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return f"{value}{self._member(node, value)}"
        if isinstance(value, str):
            text = value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…"
            return escape(json.dumps(text, ensure_ascii=False))
        if isinstance(value, bytes):
            return _bytes(value)
        if isinstance(value, list):
            return "empty" if not value else f"{len(value):,} elements"
        if isinstance(value, dict):
            return ""
        if value is None:
            return "null"
        return str(value) if isinstance(value, (UUID, float)) else escape(str(value))

    def _member(self, node: Node, value: int) -> str:
        if node.name == "request_api_key" and value in self._package.requests:
            return f" {self._package.requests[value].api_name}"
        if not node.enum:
            return ""
        try:
            return f" {self._package.get(node.enum)(value).name}"
        except (AttributeError, ValueError):
            return ""


def _bytes(value: bytes) -> str:
    shown = value[:_MAX_HEX].hex(" ") + (" …" if len(value) > _MAX_HEX else "")
    text = value[:_MAX_TEXT].decode("utf-8", "replace")
    if value and text.isprintable() and "\ufffd" not in text:
        shown = json.dumps(text, ensure_ascii=False) + ("…" if len(value) > _MAX_TEXT else "")
    return f"{len(value):,} byte{'' if len(value) == 1 else 's'} {shown}".rstrip()
