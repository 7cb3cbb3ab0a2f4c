"""The bytes of messages and fields, described in words, and the bytes of defaults."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from krammar.compiler import ir, layout
from krammar.compiler.layout_table import layout_table
from krammar.compiler.steps import (
    Prefix,
    Step,
    StructLayout,
    WireArray,
    WireFixed,
    WireSized,
    WireStruct,
    WireText,
    WireType,
    WireVarint,
    WireVersioned,
    innermost,
)

# Of a length or count: its form, the number that is null, and the bytes of null and of 0.
_LENGTHS = {
    Prefix.INT16: ("int16 {}", "-1", b"\xff\xff", b"\0\0"),
    Prefix.INT32: ("int32 {}", "-1", b"\xff\xff\xff\xff", b"\0\0\0\0"),
    Prefix.UVARINT: ("unsigned varint of {} + 1", "0", b"\0", b"\1"),
    Prefix.VARINT: ("zig-zag varint {}", "-1", b"\1", b"\0"),
    Prefix.UNSIGNED: ("unsigned varint {}", "", b"", b"\0"),
}

_FIELDS = "the fields"


def versions_text(versions: Sequence[int], *, open_ended: bool = False) -> str:
    """Write ascending versions as ranges: ``v0-v3, v5``."""
    ranges: list[list[int]] = []
    for version in versions:
        if ranges and version == ranges[-1][1] + 1:
            ranges[-1][1] = version
        else:
            ranges.append([version, version])
    texts = [f"v{low}" if low == high else f"v{low}-v{high}" for low, high in ranges]
    if open_ended and ranges:
        texts[-1] = f"v{ranges[-1][0]}+"
    return ", ".join(texts)


def form(wire: WireType) -> str:
    """Describe the bytes of a value."""
    match wire:
        case WireFixed(type_):
            return f"{type_.name}, {type_.width} byte{'s' * (type_.width != 1)}"
        case WireText(kind, prefix, nullable):
            content = "UTF-8" if kind == "string" else "the bytes"
            return f"{_length(prefix, 'length', nullable)}, then {content}"
        case WireVarint(name):
            kind = "unsigned" if name.startswith("u") else "zig-zag"
            return f"{kind} varint, at most {5 if name.endswith('varint') else 10} bytes"
        case WireArray(element, prefix, nullable):
            text = f"{_length(prefix, 'count', nullable)}, then the elements"
            return text if form(element) == _FIELDS else f"{text}: {form(element)}"
        case WireStruct(nullable=True) | WireVersioned(nullable=True):
            return f"1 byte ({wire.null} is null, 1 is present), then the fields"
        case WireStruct():
            return _FIELDS
        case WireVersioned(inner_struct):
            return f"int16 version, then the fields of {inner_struct.name}"
        case WireSized(length_field, minus):
            return f"the bytes, {length_field} - {minus}"


def _length(prefix: Prefix, what: str, nullable: bool) -> str:
    text, null, _, _ = _LENGTHS[prefix]
    return text.format(what) + (f" ({null} is null)" if nullable else "")


def default_message(shape: StructLayout) -> bytes:
    """Return the bytes of a struct in which every field has its default."""
    lengths = {
        step.wire.length_field: step.wire.minus
        for step in shape.fields
        if isinstance(step.wire, WireSized)
    }
    result = b""
    for step in shape.fields:
        value = step.field.default
        if step.field.python_name in lengths:
            value = lengths[step.field.python_name]
        result += default_bytes(step.wire, value)
    # Tagged fields with their defaults are not written.
    return result + (b"\0" if shape.tags is not None else b"")


def default_bytes(wire: WireType, value: ir.Default) -> bytes:
    """Return the bytes of a field's default."""
    match wire:
        case WireFixed(type_):
            packed = value.bytes if isinstance(value, uuid.UUID) else value
            return struct.pack(f">{type_.code}", packed)
        case WireText(prefix=prefix):
            return _text(value, prefix)
        case WireVarint(name):
            number = int(str(value))
            return _varint(number) if name.startswith("u") else _zig_zag(number)
        case WireArray(prefix=prefix):
            _, _, null, zero = _LENGTHS[prefix]
            return null if value is None else zero
        case WireStruct(shape, nullable) as inner:
            if nullable and value is None:
                return bytes([inner.null])
            return (b"\1" if nullable else b"") + default_message(shape)
        case WireVersioned(nullable=True) if value is None:
            return bytes([wire.null])
        case WireVersioned(inner_struct, nullable):
            first = inner_struct.fields[0].default if inner_struct.fields else 0
            version = int(str(first))
            return (b"\1" if nullable else b"") + default_message(
                layout.build_layout(inner_struct, version)
            )
        case WireSized():
            return b""


def _text(value: ir.Default, prefix: Prefix) -> bytes:
    _, _, null, zero = _LENGTHS[prefix]
    if value is None:
        return null
    data = value.encode("utf-8") if isinstance(value, str) else bytes(value)  # type: ignore[arg-type]
    match prefix:
        case Prefix.UVARINT:
            return _varint(len(data) + 1) + data
        case Prefix.UNSIGNED:
            return _varint(len(data)) + data
        case Prefix.VARINT:
            return _zig_zag(len(data)) + data
        case _:
            return len(data).to_bytes(len(zero), "big") + data


def _zig_zag(value: int) -> bytes:
    return _varint(value * 2 if value >= 0 else -value * 2 - 1)


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def hex_text(data: bytes, limit: int = 24) -> str:
    """Write bytes as pairs of hexadecimal digits."""
    return data[:limit].hex(" ") + (" …" if len(data) > limit else "")


@dataclass(frozen=True, slots=True)
class FieldForm:
    """The bytes of a field in some versions of its message. ``default`` are the bytes of its default."""

    versions: tuple[int, ...]
    open_ended: bool
    form: str
    default: str


def field_forms(outer: ir.Struct, chain: Sequence[ir.Field]) -> list[FieldForm]:
    """Return the forms of a field, by versions of the definition that contains it.

    Args:
        chain: the fields that contain the field, outermost first, and the field itself.
    """
    table = layout_table(outer)
    found: dict[tuple[str, str], tuple[list[int], bool]] = {}
    for group in table.layouts:
        step = _step(group.layout, chain)
        if step is None:
            continue
        default = hex_text(default_bytes(step.wire, step.field.default))
        if step.field.tag is not None:
            default = "not written"
        key = (form(step.wire), default)
        versions, last = found.get(key, ([], False))
        last |= table.open_ended and group is table.layouts[-1]
        found[key] = versions, last
        versions.extend(group.versions)
    return [
        FieldForm(tuple(sorted(versions)), last, text, default)
        for (text, default), (versions, last) in found.items()
    ]


def _step(shape: StructLayout, chain: Sequence[ir.Field]) -> Step | None:
    """The step of a field in a layout, or None if the version does not have it."""
    step = next((each for each in shape.all_fields if each.field == chain[0]), None)
    if step is None or len(chain) == 1:
        return step
    inner = innermost(step.wire)
    return _step(inner.layout, chain[1:]) if isinstance(inner, WireStruct) else None


def message_page(outer: ir.Struct, version: int) -> str:
    """Describe the bytes of a message at a version, as Markdown."""
    table = layout_table(outer)
    group = next((each for each in table.layouts if version in each.versions), table.layouts[-1])
    last = table.open_ended and group is table.layouts[-1]
    shape = group.layout
    lines = [
        f"# {outer.name} v{version}",
        "",
        f"Versions with this layout: {versions_text(group.versions, open_ended=last)}. "
        + ("The version is flexible." if shape.flexible else "The version is not flexible."),
        "A field has an offset if all fields before it have a fixed width.",
        "",
        "```",
    ]
    rows = list(_rows(shape, 0, 0))
    width = max([5, *(len(name) for _, name, _, _ in rows)])
    lines.append(f"{'offset':<8}{'field':<{width}}  bytes")
    for offset, name, text, default in rows:
        at = "" if offset is None else str(offset)
        lines.append(
            f"{at:<8}{name:<{width}}  {text}" + (f"; default {default}" if default else "")
        )
    lines += ["```", "", "All defaults:", "", "```"]
    data = default_message(shape)
    lines += [data[start : start + 16].hex(" ") for start in range(0, len(data), 16)] or [
        "(no bytes)"
    ]
    return "\n".join([*lines, "```", ""])


def _rows(
    shape: StructLayout, depth: int, start: int | None
) -> Iterator[tuple[int | None, str, str, str]]:
    """Offset, name, form and default of each field of a layout."""
    offset = start
    for step in shape.fields:
        default = hex_text(default_bytes(step.wire, step.field.default), 8)
        inner = innermost(step.wire)
        if isinstance(inner, WireStruct):
            yield offset, "  " * depth + step.field.name, form(step.wire), ""
            plain = inner is step.wire and not inner.nullable
            yield from _rows(inner.layout, depth + 1, offset if plain else None)
        else:
            yield offset, "  " * depth + step.field.name, form(step.wire), default
        offset = _after(offset, step.wire)
    if shape.tags is None:
        return
    yield offset, "  " * depth + "(tags)", "unsigned varint count, then the tagged fields", "00"
    for step in shape.tags.known:
        text = f"tag {step.field.tag}, size, then {form(step.wire)}"
        yield None, "  " * (depth + 1) + step.field.name, text, ""
        inner = innermost(step.wire)
        if isinstance(inner, WireStruct):
            yield from _rows(inner.layout, depth + 2, None)


def _after(offset: int | None, wire: WireType) -> int | None:
    """The offset after a value, or None if its width varies."""
    if offset is None:
        return None
    width = _fixed_width(wire)
    return None if width is None else offset + width


def _fixed_width(wire: WireType) -> int | None:
    match wire:
        case WireFixed(type_):
            return type_.width
        case WireStruct(shape, False) if shape.tags is None:
            total = 0
            for step in shape.fields:
                width = _fixed_width(step.wire)
                if width is None:
                    return None
                total += width
            return total
        case _:
            return None
