"""``krammar inspect PACKAGE NAME``: the bytes of a message as a tree of fields, with offsets and hex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from krammar.wire.classes import NotFound, generated_class, import_package
from krammar.wire.errors import WireError
from krammar.wire.layout import Layout, Node
from krammar.wire.package import package_of
from krammar.wire.tracing import Trace, trace_frame, trace_message

_HEX_BYTES = 8


def show_layout(package: str, name: str, version: int | None) -> list[str]:
    """Describe the layout of a class at a version (default: its highest), one field per line.

    Raises:
        NotFound: the package or the class does not exist.
        UnsupportedVersionError: the class has no such version.
    """
    if name == "request":
        raise NotFound("request needs bytes (give FILE or --hex)")
    layout = _layout(package, name, version)
    return [f"{layout.name} v{layout.version}", *_fields(layout, 1)]


def inspect_bytes(
    package: str, name: str, version: int | None, data: bytes
) -> tuple[list[str], WireError | None]:
    """Return the lines of the tree, and the error at which reading ended, if there was one.

    Args:
        name: a class, or ``request`` for a whole request frame without its length prefix.
        version: default: the version field of the data, or else the highest version of the class.

    Raises:
        NotFound: the package or the class does not exist.
        UnsupportedVersionError: the class has no such version.
    """
    if name == "request":
        return _inspect_request(import_package(package), data)
    cls = generated_class(import_package(package), name)
    if version is None and getattr(cls, "_version_field", None):
        version = int.from_bytes(data[:2], "big", signed=True)
    return _lines(trace_message(_layout(package, name, version), data), data)


def _inspect_request(package: Any, data: bytes) -> tuple[list[str], WireError | None]:
    if not hasattr(package, "RequestHeader"):
        raise NotFound(
            f"{package.__name__} has no requests, so it cannot read one (give the name of a class)"
        )
    places = package_of(package).request_head[:2]
    key, version = ((place and place.read(data)) or 0 for place in places)
    return _lines(trace_frame(package_of(package), data, key, version, is_request=True), data)


def _lines(trace: Trace, data: bytes) -> tuple[list[str], WireError | None]:
    lines = []
    for layout, root, size in trace.parts:
        lines.append(f"{layout.name} v{layout.version}: {root.end - root.offset} of {size} bytes")
        lines += [_line(depth, node, data) for depth, node in root.walk() if node is not root]
    return lines, trace.error


def _line(depth: int, node: Node, data: bytes) -> str:
    raw = data[node.offset : node.end]
    shown = raw[:_HEX_BYTES].hex(" ") + (" …" if len(raw) > _HEX_BYTES else "")
    label = f"{'  ' * (depth - 1)}{node.name}"
    value = "" if node.children else f" = {_value(node.value)}"
    return f"{node.offset:6}  {shown:<26}  {label}{value}  {node.type}".rstrip()


def _value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields(layout: Layout, depth: int) -> Iterator[str]:
    for field in (*layout.fields, *layout.tags):
        tag = "" if field.tag is None else f"  tag {field.tag}"
        yield f"{'  ' * depth}{field.name}: {field.type}  {field.versions}{tag}"
        inner: Any = field.type
        while hasattr(inner, "element"):
            inner = inner.element
        if hasattr(inner, "layout"):
            yield from _fields(inner.layout, depth + 1)


def _layout(package: str, name: str, version: int | None) -> Layout:
    cls = generated_class(import_package(package), name)
    layout: Layout = cls._layout(cls.max_version if version is None else version)
    return layout
