"""The backend of the HTML reference: a page that lists all messages, and a page for each definition file.

A page shows the fields of messages with types, versions and documentation, and the bytes of each layout in
the notation of Kafka's protocol guide. The pages need no server and load no other resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from markupsafe import Markup, escape

from krammar.compiler import ir, layout
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.templates import Filters, TemplateBackend
from krammar.compiler.front.source import HEADERS


@dataclass(frozen=True, slots=True)
class Row:
    """A field in the table of a message.

    ``depth`` is the nesting level of its struct. ``versions`` are the versions in which the field and its
    struct exist.
    """

    depth: int
    field: ir.Field
    versions: ir.VersionRange
    type: str
    link: str
    default: str


@dataclass(frozen=True, slots=True)
class Section:
    """A struct, with a row for each field and for each field of nested structs."""

    struct: ir.Struct
    request: ir.Request | None
    rows: tuple[Row, ...]
    layouts: tuple[tuple[str, str], ...]


def _section(struct: ir.Struct, request: ir.Request | None, places: dict[str, str]) -> Section:
    layouts = []
    if struct.encoding:
        table = layout.layout_table(struct)
        for group in table.layouts:
            versions = [f"v{version}" for version in group.versions]
            text = versions[0] if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
            if table.open_ended and group is table.layouts[-1]:
                text = f"{versions[0]}+"
            layouts.append((text, "\n".join(_notation(struct.name, group.layout, 0))))
    return Section(
        struct, request, tuple(_rows(struct, ir.ALL_VERSIONS, 0, places)), tuple(layouts)
    )


def _rows(
    struct: ir.Struct, held: ir.VersionRange, depth: int, places: dict[str, str]
) -> Iterator[Row]:
    for member in struct.fields:
        versions = member.versions.intersect(held) or member.versions
        inner = ir.struct_of(member.type)
        named = inner.name if inner is not None and not inner.anonymous else ""
        if isinstance(member.type, ir.EnumType):
            named = member.type.enum.name
        link = places.get(named, "")
        yield Row(depth, member, versions, _type(member.type), link, _default(member))
        if inner is not None and inner.anonymous:
            yield from _rows(inner, versions, depth + 1, places)


def _type(type_: ir.Type) -> str:
    """A type as in definition files."""
    match type_:
        case ir.Primitive(name=name) | ir.Varint(name=name):
            return name
        case ir.Text(kind, nullable, varint):
            word = f"varint-{kind}" if varint else kind
            return word if nullable is None or varint else f"nullable-{word}{_from(nullable)}"
        case ir.Array(element, nullable, varint):
            before = "varint" if varint else ""
            if nullable is not None and not varint:
                before = f"nullable{_from(nullable)}"
            return f"{before}[{_type(element)}]"
        case ir.StructType(struct, nullable):
            return ("nullable " if nullable else "") + (
                "struct" if struct.anonymous else struct.name
            )
        case ir.EnumType(enum):
            return f"{enum.name} ({enum.type.name})"
        case ir.LengthFieldMinus(length_field, minus):
            return f"{length_field} - {minus} bytes"


def _from(nullable: ir.VersionRange) -> str:
    return f"-v{nullable.min}+" if nullable.min else ""


def _default(member: ir.Field) -> str:
    if isinstance(member.type, ir.StructType) and not member.type.nullable:
        return ""  # a struct with default values
    if member.default is None:
        return "null"
    if isinstance(member.default, bool):
        return str(member.default).lower()
    return str(member.default) if member.default not in (0, "", b"", ()) else ""


def _notation(name: str, shape: layout.StructLayout, depth: int, before: str = "") -> Iterator[str]:
    """A layout in the notation of Kafka's protocol guide.

    The guide does not show which arrays of structs are nullable. ``before`` shows it, before the fields.
    """
    words = [before] if before else []
    words += [_word(step) for step in shape.fields]
    if shape.tags is not None:
        words.append("_tagged_fields")
    yield f"{'  ' * depth}{name} => {' '.join(words)}".rstrip()
    tagged = () if shape.tags is None else shape.tags.known
    for step in (*shape.fields, *tagged):
        wire = step.wire
        label = step.field.python_name
        if step.field.tag is not None:
            label = f"<tag {step.field.tag}> {label}"
        forms = []
        while isinstance(wire, layout.WireArray):
            forms.append(f"{_array(wire)} of")
            wire = wire.element
        if isinstance(wire, layout.WireStruct):
            if wire.nullable:
                forms.append("NULLABLE")
            if forms in (["ARRAY of"], ["COMPACT_ARRAY of"]):
                forms = []  # as in the guide, where brackets and tagged fields show it
            yield from _notation(label, wire.layout, depth + 1, " ".join(forms))
        else:
            yield f"{'  ' * (depth + 1)}{label} => {_primitive(step.wire)}"


def _word(step: layout.Step) -> str:
    return (
        f"[{step.field.python_name}]"
        if isinstance(step.wire, layout.WireArray)
        else step.field.python_name
    )


def _primitive(wire: layout.WireType) -> str:
    match wire:
        case layout.WireFixed(type_):
            return "BOOLEAN" if type_.name == "bool" else type_.name.upper()
        case layout.WireVarint(name):
            return name.upper()
        case layout.WireText(prefix=prefix, records=True):
            return f"{_compact(prefix)}RECORDS"
        case layout.WireText(kind, prefix, nullable):
            return _compact(prefix) + ("NULLABLE_" if nullable else "") + kind.upper()
        case layout.WireArray(element):
            return f"{_array(wire)} of {_primitive(element)}"
        case layout.WireVersioned(struct):
            return struct.name
        case layout.WireSized(length_field, minus):
            return f"bytes, {length_field} - {minus}"
        case layout.WireStruct(shape):
            return shape.struct.name


def _array(wire: layout.WireArray) -> str:
    return f"{_compact(wire.prefix)}{'NULLABLE_' if wire.nullable else ''}ARRAY"


def _compact(prefix: layout.Prefix) -> str:
    return {layout.Prefix.UVARINT: "COMPACT_", layout.Prefix.VARINT: "VARINT_"}.get(prefix, "")


def _doc(text: str) -> Markup:
    """Render documentation. Backquotes enclose code, and an empty line ends a paragraph."""
    paragraphs = [
        re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(each)))
        for each in text.strip().split("\n\n")
        if each.strip()
    ]
    return Markup("".join(f"<p>{each}</p>" for each in paragraphs))  # escaped above


class DocsBackend(TemplateBackend):
    """Writes HTML pages."""

    FOLDER = "docs"
    HTML = True
    FILTERS: ClassVar[Filters] = {"doc": _doc}

    def files(self, source: Source) -> tuple[ir.DefinitionFile, ...]:
        return tuple(file for file in source.protocol.files if file.path != HEADERS)

    def context(self, source: Source) -> dict[str, Any]:
        files = self.files(source)
        places: dict[str, str] = {}
        for file in files:
            names = [each.name for each in file.structs] + [each.name for each in file.enums]
            places |= {each: f"{file.module}.html#{each}" for each in names}
        return {
            "name": source.title.replace("/", "."),
            "places": places,
            "protocol": source.protocol,
            "files": files,
        }

    def module_context(
        self, source: Source, file: ir.DefinitionFile, shared: dict[str, Any]
    ) -> dict[str, Any]:
        sections = [
            _section(struct, source.requests.get(struct.name), shared["places"])
            for struct in file.structs
        ]
        return {"file": file, "sections": sections}
