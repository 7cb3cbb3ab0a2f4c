"""The layouts in the HTML reference: the notation of Kafka's protocol guide, and the bytes of each field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from krammar.compiler.layout_table import LayoutTable
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


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of a field in a layout.

    ``offset`` begins with ``+`` if it counts from the begin of an element or of another struct without a fixed
    place. It is empty if it is not fixed.
    """

    depth: int
    path: str
    name: str
    offset: str
    size: str
    form: str


@dataclass(frozen=True, slots=True)
class DocumentedLayout:
    """A layout, with the versions that share it."""

    label: str
    versions: tuple[int, ...]
    flexible: bool
    notation: str
    places: tuple[ByteRange, ...]


def documented_layouts(table: LayoutTable) -> Iterator[DocumentedLayout]:
    for group in table.layouts:
        versions = [f"v{version}" for version in group.versions]
        label = versions[0] if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
        if table.open_ended and group is table.layouts[-1]:
            label = f"{versions[0]}+"
        name = table.struct.name
        notation = "\n".join(_notation(name, group.layout, 0))
        places = tuple(_places(group.layout, name, 0, "", 0))
        yield DocumentedLayout(label, group.versions, group.layout.flexible, notation, places)


def _places(
    shape: StructLayout, path: str, depth: int, sign: str, offset: int | None
) -> Iterator[ByteRange]:
    """The place of each field. ``offset`` is that of the struct; None if it is not fixed."""
    for step in shape.fields:
        name = step.field.python_name
        inside = f"{path}.{name}"
        shown = "" if offset is None else f"{sign}{offset}"
        yield ByteRange(depth, inside, name, shown, _size(step.wire), _form(step.wire))
        yield from _inner(step.wire, inside, depth + 1, sign, offset)
        width = _width(step.wire)
        offset = None if offset is None or width is None else offset + width
    if shape.tags is not None:
        shown = "" if offset is None else f"{sign}{offset}"
        yield ByteRange(depth, f"{path}.", "tagged fields", shown, "varint + fields", "TAG_BUFFER")
        for step in shape.tags.known:
            inside = f"{path}.{step.field.python_name}"
            name = f"{step.field.python_name} (tag {step.field.tag})"
            yield ByteRange(depth + 1, inside, name, "", _size(step.wire), _form(step.wire))
            yield from _inner(step.wire, inside, depth + 2, "+", None)


def _inner(
    wire: WireType, path: str, depth: int, sign: str, offset: int | None
) -> Iterator[ByteRange]:
    """The places in a struct, or in the elements of an array, which count from their own begin."""
    if not isinstance(wire, WireStruct) or wire.nullable:
        sign, offset = "+", 0
    wire = innermost(wire)
    if isinstance(wire, WireStruct):
        yield from _places(wire.layout, path, depth, sign, offset)


def _width(wire: WireType) -> int | None:
    """The number of bytes of every value, or None if it differs."""
    match wire:
        case WireFixed(type_):
            return type_.width
        case WireStruct(shape, nullable=False) if shape.tags is None:
            widths = [_width(step.wire) for step in shape.fields]
            return None if None in widths else sum(width or 0 for width in widths)
        case _:
            return None


def _size(wire: WireType) -> str:
    match wire:
        case WireFixed(type_):
            return str(type_.width)
        case WireVarint(name):
            return "1 to 5" if name.endswith("varint") else "1 to 10"
        case WireText(prefix=prefix):
            return f"{_prefix(prefix)} + n"
        case WireArray(element, prefix):
            width = _width(element)
            return f"{_prefix(prefix)} + " + ("elements" if width is None else f"{width}n")
        case WireStruct(nullable=nullable):
            width = _width(wire)
            return "1 + fields" if nullable else "fields" if width is None else str(width)
        case WireVersioned(nullable=nullable):
            return "1 + fields" if nullable else "fields"
        case WireSized(length_field, minus):
            return f"{length_field} - {minus}"


def _prefix(prefix: Prefix) -> str:
    """The size of a length or count."""
    return str(prefix.width) if prefix in (Prefix.INT16, Prefix.INT32) else "varint"


def _form(wire: WireType) -> str:
    match wire:
        case WireArray(WireStruct()):
            return _array(wire)
        case WireStruct(nullable=nullable):
            return "NULLABLE_STRUCT" if nullable else "STRUCT"
        case _:
            return _primitive(wire)


def _notation(name: str, shape: StructLayout, depth: int, before: str = "") -> Iterator[str]:
    """A layout in the notation of Kafka's protocol guide.

    The guide does not show which arrays of structs are nullable. ``before`` shows it, before the fields.
    """
    words = [before] if before else []
    words += [_word(step) for step in shape.fields]
    if shape.tags is not None:
        words.append("_tagged_fields")
    yield f"{'  ' * depth}{name} => {' '.join(words)}".rstrip()
    for step in shape.all_fields:
        wire = step.wire
        label = step.field.python_name
        if step.field.tag is not None:
            label = f"<tag {step.field.tag}> {label}"
        forms = []
        while isinstance(wire, WireArray):
            forms.append(f"{_array(wire)} of")
            wire = wire.element
        if isinstance(wire, WireStruct):
            if wire.nullable:
                forms.append("NULLABLE")
            if forms in (["ARRAY of"], ["COMPACT_ARRAY of"]):
                forms = []  # as in the guide, where brackets and tagged fields show it
            yield from _notation(label, wire.layout, depth + 1, " ".join(forms))
        else:
            yield f"{'  ' * (depth + 1)}{label} => {_primitive(step.wire)}"


def _word(step: Step) -> str:
    return (
        f"[{step.field.python_name}]"
        if isinstance(step.wire, WireArray)
        else step.field.python_name
    )


def _primitive(wire: WireType) -> str:
    match wire:
        case WireFixed(type_):
            return "BOOLEAN" if type_.name == "bool" else type_.name.upper()
        case WireVarint(name):
            return name.upper()
        case WireText(prefix=prefix, records=True):
            return f"{_compact(prefix)}RECORDS"
        case WireText(kind, prefix, nullable):
            form = _compact(prefix)
            if prefix is (Prefix.INT32 if kind == "string" else Prefix.INT16):
                form = f"{prefix.label.upper()}_"
            return form + ("NULLABLE_" if nullable else "") + kind.upper()
        case WireArray(element):
            return f"{_array(wire)} of {_primitive(element)}"
        case WireVersioned(struct):
            return struct.name
        case WireSized(length_field, minus):
            return f"bytes, {length_field} - {minus}"
        case WireStruct(shape):
            return shape.struct.name


def _array(wire: WireArray) -> str:
    form = "INT16_" if wire.prefix is Prefix.INT16 else _compact(wire.prefix)
    return f"{form}{'NULLABLE_' if wire.nullable else ''}ARRAY"


def _compact(prefix: Prefix) -> str:
    return _FORMS.get(prefix, "")


_FORMS = {Prefix.UVARINT: "COMPACT_", Prefix.VARINT: "VARINT_", Prefix.UNSIGNED: "UVARINT_"}
