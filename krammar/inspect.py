"""``krammar inspect``: bytes as a tree of fields, with offsets and hex, by a package's layouts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from krammar.wire.errors import DecodeError, WireError
from krammar.wire.layout import Layout, Node

_HEX_BYTES = 8


class InspectError(Exception):
    """A package, class or version that is not there."""


def show_layout(package: str, name: str, version: int | None) -> list[str]:
    """The layout of a class at a version (default: its highest), a field a line."""
    layout = _layout(package, name, version)
    return [f"{layout.name} v{layout.version}", *_fields(layout, 1)]


def inspect_bytes(
    package: str, name: str, version: int | None, data: bytes
) -> tuple[list[str], WireError | None]:
    """The lines of the tree, and the error at which reading ended, if it did not end well.

    ``name`` is a class, or ``request`` for a whole request frame without its length prefix.
    """
    if name == "request":
        return _inspect_request(_package(package), data)
    cls = _class(package, name)
    if version is None and getattr(cls, "_version_field", None):
        version = int.from_bytes(data[:2], "big", signed=True)
    return _trace(_layout(package, name, version), data, 0)


def _inspect_request(package: Any, data: bytes) -> tuple[list[str], WireError | None]:
    key = int.from_bytes(data[:2], "big", signed=True)
    version = int.from_bytes(data[2:4], "big", signed=True)
    try:
        headers = package.header_versions(key, version)
        header = package.layout(package.RequestHeader, headers.request)
        _, end = header.read_from(data, 0)
        lines, _ = _trace(header, data[:end], 0)
        body = package.layout(package.request_class(key), version)
        more, error = _trace(body, data[end:], end)
    except WireError as error:
        return [], error
    return lines + more, error


def _trace(layout: Layout, data: bytes, shift: int) -> tuple[list[str], WireError | None]:
    error = None
    try:
        root = layout.trace(data)
    except DecodeError as failed:
        error = failed
        root = failed.node  # type: ignore[attr-defined]
    lines = [f"{layout.name} v{layout.version}: {root.end} of {len(data)} bytes"]
    for depth, node in root.walk():
        if node is not root:
            lines.append(_line(depth, node, data, shift))
    return lines, error


def _line(depth: int, node: Node, data: bytes, shift: int) -> str:
    raw = data[node.offset : node.end]
    shown = raw[:_HEX_BYTES].hex(" ") + (" …" if len(raw) > _HEX_BYTES else "")
    label = f"{'  ' * (depth - 1)}{node.name}"
    value = "" if node.children else f" = {_value(node.value)}"
    return f"{node.offset + shift:6}  {shown:<26}  {label}{value}  {node.type}".rstrip()


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


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except Exception as error:  # importing a user's package can raise anything
        raise InspectError(f"package {name!r} cannot be imported: {error}") from error


def _class(package: str, name: str) -> Any:
    cls = getattr(_package(package), name, None)
    if not hasattr(cls, "_layout"):
        raise InspectError(f"{package} has no message {name!r} that can be read by itself")
    return cls


def _layout(package: str, name: str, version: int | None) -> Layout:
    cls = _class(package, name)
    try:
        layout: Layout = cls._layout(cls.max_version if version is None else version)
    except WireError as error:
        raise InspectError(str(error)) from error
    return layout
