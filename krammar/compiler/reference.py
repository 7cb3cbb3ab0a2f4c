"""The HTML reference of a protocol: a page that lists its messages, and one for each definition file.

A message's page has its fields with types, versions and their documentation, and for each layout the
bytes in the notation of Kafka's protocol guide. The pages need no server and load nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from krammar.compiler import ir, layout
from krammar.compiler.checks import struct_of
from krammar.compiler.emitter import templates_folder
from krammar.compiler.source import HEADERS, replace_file


@dataclass(frozen=True, slots=True)
class Row:
    """A field in the table of its message; ``depth`` is that of the struct that holds it."""

    depth: int
    field: ir.Field
    type: str
    link: str
    default: str


@dataclass(frozen=True, slots=True)
class Section:
    """A struct with its fields, those of the structs inside it below them."""

    struct: ir.Struct
    request: ir.Request | None
    rows: tuple[Row, ...]
    layouts: tuple[tuple[str, str], ...]


def write_reference(protocols: Sequence[ir.Protocol], label: str, out: Path) -> list[Path]:
    """Write the pages of each protocol below ``out``; ``label`` names one without a package. Returns
    the pages that list a protocol."""
    environment = Environment(
        loader=FileSystemLoader(templates_folder().parent / "docs"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["doc"] = _doc
    pages = []
    for protocol in protocols:
        name = protocol.package.replace("/", ".") or label
        files = [file for file in protocol.files if file.path != HEADERS]
        places: dict[str, str] = {}
        for file in files:
            names = [each.name for each in file.structs] + [each.name for each in file.enums]
            places |= {each: f"{file.module}.html#{each}" for each in names}
        by_struct = {}
        for request in protocol.requests:
            by_struct[request.struct.name] = request
            if request.response is not None:
                by_struct[request.response.name] = request
        shared = {"name": name, "places": places, "protocol": protocol, "files": files}
        folder = out / protocol.package
        pages.append(folder / "index.html")
        _write(environment, "index.html.j2", pages[-1], shared)
        for file in files:
            sections = [
                _section(struct, by_struct.get(struct.name), places) for struct in file.structs
            ]
            context = shared | {"file": file, "sections": sections}
            _write(environment, "file.html.j2", folder / f"{file.module}.html", context)
    return pages


def _write(environment: Environment, template: str, page: Path, context: dict[str, Any]) -> None:
    replace_file(page, environment.get_template(template).render(context).encode())


def _section(struct: ir.Struct, request: ir.Request | None, places: dict[str, str]) -> Section:
    layouts = []
    if struct.encoding:
        table = layout.codec_table(struct)
        for codec in table.codecs:
            versions = [f"v{version}" for version in codec.versions]
            text = versions[0] if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
            if table.open_ended and codec is table.codecs[-1]:
                text = f"{versions[0]}+"
            layouts.append((text, "\n".join(_notation(struct.name, codec.layout, 0))))
    return Section(struct, request, tuple(_rows(struct, 0, places)), tuple(layouts))


def _rows(struct: ir.Struct, depth: int, places: dict[str, str]) -> Iterator[Row]:
    for member in struct.fields:
        inner = struct_of(member.type)
        named = inner.name if inner is not None and not inner.anonymous else ""
        if isinstance(member.type, ir.EnumType):
            named = member.type.enum.name
        yield Row(depth, member, _type(member.type), places.get(named, ""), _default(member))
        if inner is not None and inner.anonymous:
            yield from _rows(inner, depth + 1, places)


def _type(type_: ir.Type) -> str:
    """A type as definitions spell it."""
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
        return ""  # a struct of defaults
    if member.default is None:
        return "null"
    if isinstance(member.default, bool):
        return str(member.default).lower()
    return str(member.default) if member.default not in (0, "", b"", ()) else ""


def _notation(name: str, shape: layout.Layout, depth: int) -> Iterator[str]:
    """A layout as Kafka's protocol guide writes it."""
    words = [_word(step) for step in shape.fields]
    if shape.tags is not None:
        words.append("_tagged_fields")
    yield f"{'  ' * depth}{name} => {' '.join(words)}".rstrip()
    tagged = () if shape.tags is None else shape.tags.known
    for step in (*shape.fields, *tagged):
        wire = step.wire
        label = step.field.python_name
        if step.field.tag is not None:
            label = f"<tag {step.field.tag}> {label}"
        while isinstance(wire, layout.Array):
            wire = wire.element
        if isinstance(wire, layout.Nested):
            yield from _notation(label, wire.layout, depth + 1)
        else:
            yield f"{'  ' * (depth + 1)}{label} => {_primitive(step.wire)}"


def _word(step: layout.Step) -> str:
    return (
        f"[{step.field.python_name}]"
        if isinstance(step.wire, layout.Array)
        else step.field.python_name
    )


def _primitive(wire: layout.Wire) -> str:
    match wire:
        case layout.Fixed(type_):
            return type_.name.upper()
        case layout.VarInteger(name):
            return name.upper()
        case layout.Text(kind, prefix, nullable):
            return _compact(prefix) + ("NULLABLE_" if nullable else "") + kind.upper()
        case layout.Array(element, prefix, nullable):
            return (
                f"{_compact(prefix)}{'NULLABLE_' if nullable else ''}ARRAY of {_primitive(element)}"
            )
        case layout.Versioned(struct):
            return struct.name
        case layout.Sized(length_field, minus):
            return f"bytes, {length_field} - {minus}"
        case layout.Nested(shape):
            return shape.struct.name


def _compact(prefix: layout.Prefix) -> str:
    return {layout.Prefix.UVARINT: "COMPACT_", layout.Prefix.VARINT: "VARINT_"}.get(prefix, "")


def _doc(text: str) -> Markup:
    """Documentation: what stands between backquotes is code, an empty line ends a paragraph."""
    paragraphs = [
        re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(each)))
        for each in text.strip().split("\n\n")
        if each.strip()
    ]
    return Markup("".join(f"<p>{each}</p>" for each in paragraphs))  # escaped above
