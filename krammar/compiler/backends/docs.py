"""The backend of the HTML reference: an index of all messages, and a page for each definition file.

A page shows the fields of messages with types, versions and documentation. For each layout it shows the notation
of Kafka's protocol guide, and the offset and size of each field. A script shows one version at a time, and what
changed since another one. The pages need no server and load no resources of other hosts.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from markupsafe import Markup, escape

from krammar.compiler import ir, stamps
from krammar.compiler.backends.interface import File, Source
from krammar.compiler.backends.templates import Filters, TemplateBackend
from krammar.compiler.header_versions import header_versions
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

# Fields, with their types in the words of definitions.


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field in the table of a message.

    ``depth`` is the nesting level of its struct, ``path`` the attributes that lead to it. ``versions`` are the
    versions in which the field and its struct exist.
    """

    depth: int
    path: str
    field: ir.Field
    versions: ir.VersionRange
    type: str
    named: str
    default: str


def field_rows(struct: ir.Struct) -> Iterator[FieldRow]:
    """Yield the rows of all fields that a version of the struct has."""
    for row in _rows(struct, ir.ALL_VERSIONS, 0, struct.name):
        if row.versions.intersect(struct.versions) is not None:
            yield row


def _rows(struct: ir.Struct, held: ir.VersionRange, depth: int, path: str) -> Iterator[FieldRow]:
    for member in struct.fields:
        versions = member.versions.intersect(held)
        if versions is None:
            continue
        inner = ir.struct_of(member.type)
        inside = f"{path}.{member.python_name}"
        yield FieldRow(
            depth,
            inside,
            member,
            versions,
            _type(member.type),
            _named(member.type),
            _default(member),
        )
        if inner is not None and inner.anonymous:
            yield from _rows(inner, versions, depth + 1, inside)


def _named(type_: ir.Type) -> str:
    """The struct or the enum with a name of its own in a type, or an empty text."""
    match ir.innermost_type(type_):
        case ir.EnumType(enum):
            return enum.name
        case ir.StructType(struct) if not struct.anonymous:
            return struct.name
        case _:
            return ""


def _type(type_: ir.Type) -> str:
    """A type as in definition files."""
    match type_:
        case ir.Primitive(name=name) | ir.Varint(name=name):
            return name
        case ir.Text(kind, nullable, length):
            words: list[str] = [word for word in (length, kind) if word]
            if nullable is None or length == "varint":
                return "-".join(words)
            return "-".join(["nullable", *words]) + ir.spelled_nulls(nullable)
        case ir.Array(element, nullable, length):
            words = [word for word in ("nullable" if nullable else "", length) if word]
            nulls = ir.spelled_nulls(nullable) if nullable is not None else ""
            return f"{'-'.join(words)}{nulls}[{_type(element)}]"
        case ir.StructType(struct, nullable, is_bool):
            null = "" if not nullable else "nullable-bool" if is_bool else "nullable"
            if struct.anonymous:
                return f"{null} struct".lstrip()
            return f"{null}-{struct.name}".lstrip("-")
        case ir.EnumType(enum):
            return f"{enum.name} ({enum.type.name})"
        case ir.LengthFieldMinus(length_field, minus):
            return f"{length_field} - {minus} bytes"


def _default(member: ir.Field) -> str:
    if isinstance(member.type, ir.StructType) and not member.type.nullable:
        return ""  # a struct with default values
    if member.default is None:
        return "null"
    if isinstance(member.default, bool):
        return str(member.default).lower()
    return str(member.default) if member.default not in (0, "", b"", ()) else ""


# Layouts: the notation of Kafka's protocol guide, and the bytes of each field.


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


# Pages.

_KIP = re.compile(r"KIP-\d+")


@dataclass(frozen=True, slots=True)
class Section:
    """A struct, with a row for each field and for each field of nested structs.

    ``headers`` are the first versions of the request with each version of the header. ``reserved`` are the structs
    in it that reserve tags, each with its path and the tags.
    """

    struct: ir.Struct
    request: ir.Request | None
    header: str
    headers: tuple[tuple[int, int], ...]
    rows: tuple[FieldRow, ...]
    layouts: tuple[DocumentedLayout, ...]
    reserved: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the search index: a name, what it is, and its address below the package."""

    name: str
    kind: str
    place: str
    url: str


def _section(struct: ir.Struct, source: Source) -> Section:
    request = source.requests.get(struct.name)
    header, headers = _headers(struct, request, source)
    return Section(
        struct,
        request,
        header,
        headers,
        tuple(field_rows(struct)),
        tuple(documented_layouts(source.layouts[struct.name])) if struct.encoding else (),
        tuple(_reserved(struct, struct.name)),
    )


def _reserved(struct: ir.Struct, path: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    if struct.reserved_tags:
        yield path, tuple(sorted(each.tag for each in struct.reserved_tags))
    for member in struct.fields:
        inner = ir.struct_of(member.type)
        if inner is not None and inner.anonymous:
            yield from _reserved(inner, f"{path}.{member.python_name}")


def _headers(
    struct: ir.Struct, request: ir.Request | None, source: Source
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The header's name, and pairs of a first version and the header version from it on."""
    last = [source.layouts.get(name) for name in ("RequestHeader", "ResponseHeader")]
    if request is None or last[0] is None or last[1] is None:
        return "", ()
    found = header_versions(request, last[0].max_version, last[1].max_version)
    if struct is request.struct and not request.push:
        return "RequestHeader", found.request
    return "ResponseHeader", found.response


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
    FILTERS: ClassVar[Filters] = {"doc": _doc, "json": lambda value: Markup(json.dumps(value))}
    OPTIONS = MappingProxyType(
        {
            **TemplateBackend.OPTIONS,
            "home": "The address of an index above the packages, from the output folder.",
        }
    )

    def context(self, source: Source) -> dict[str, Any]:
        files = sorted(source.protocol.files, key=_order(source))
        places: dict[str, str] = {}
        used: dict[str, list[str]] = defaultdict(list)
        for file in files:
            names = [each.name for each in file.structs] + [each.name for each in file.enums]
            places |= {each: f"{file.module}.html#{each}" for each in names}
        rows = {struct.name: tuple(field_rows(struct)) for file in files for struct in file.structs}
        for row in (row for each in rows.values() for row in each if row.named):
            used[row.named].append(row.path)
        up = "../" * len(Path(source.protocol.package).parts)
        return {
            "name": source.title.replace("/", "."),
            "places": places,
            "used": used,
            "protocol": source.protocol,
            "files": files,
            "home": f"{up}{self.options['home']}" if "home" in self.options else "",
            "entries": [
                (entry.name, entry.kind, entry.place, entry.url)
                for file in files
                for entry in _entries(file, source, rows)
            ],
        }

    def module_context(
        self, source: Source, file: ir.DefinitionFile, shared: dict[str, Any]
    ) -> dict[str, Any]:
        files: Sequence[ir.DefinitionFile] = shared["files"]
        index = files.index(file)
        return {
            "file": file,
            "sections": [_section(struct, source) for struct in file.structs],
            "before": files[index - 1] if index else None,
            "after": files[index + 1] if index + 1 < len(files) else None,
        }

    def is_rendered(self, template: str, source: Source) -> bool:
        return template != _OVERVIEW and super().is_rendered(template, source)

    def overview(self, sources: Sequence[Source]) -> Iterator[File]:
        """Yield the index above several packages, and the files that it loads."""
        header = stamps.header(sources[0].label)
        packages = [
            {
                "name": source.title.replace("/", "."),
                "folder": source.protocol.package,
                "requests": len(source.protocol.requests),
                "structs": sum(len(file.structs) for file in source.protocol.files),
                "enums": sum(len(file.enums) for file in source.protocol.files),
            }
            for source in sources
        ]
        context = {"packages": packages, "name": sources[0].label, "home": "", **header}
        yield File(Path("index.html"), self.text(_OVERVIEW, context))
        for name in ("style.css", "page.js"):
            yield File(Path(name), self.text(f"{name}.j2", context))


_OVERVIEW = "overview.html.j2"


def _order(source: Source) -> Callable[[ir.DefinitionFile], tuple[int, str]]:
    """The order of pages: by the lowest api key, then those without requests by name."""
    keys = {request.struct.name: request.key for request in source.protocol.requests}

    def order(file: ir.DefinitionFile) -> tuple[int, str]:
        found = [keys[struct.name] for struct in file.structs if struct.name in keys]
        return min(found, default=1 << 16), file.module

    return order


def _entries(
    file: ir.DefinitionFile, source: Source, rows: Mapping[str, tuple[FieldRow, ...]]
) -> Iterator[Entry]:
    """What the search finds: definitions, fields, members of enums, API keys and KIPs."""
    page = f"{file.module}.html"
    for struct in file.structs:
        url = f"{page}#{struct.name}"
        request = source.requests.get(struct.name)
        kind = "struct" if request is None else f"key {request.key}"
        yield Entry(struct.name, kind, "", url)
        yield from _kips(struct.doc, struct.name, url)
        for row in rows[struct.name]:
            url = f"{page}#{row.path}"
            place = row.path.rpartition(".")[0]
            yield Entry(row.field.python_name, "field", place, url)
            yield from _kips(row.field.doc, row.path, url)
    for enum in file.enums:
        url = f"{page}#{enum.name}"
        yield Entry(enum.name, "enum", "", url)
        yield from _kips(enum.doc, enum.name, url)
        for member in enum.members:
            url = f"{page}#{enum.name}.{member.name}"
            yield Entry(member.name, str(member.value), enum.name, url)
            yield from _kips(member.doc, f"{enum.name}.{member.name}", url)


def _kips(doc: str, place: str, url: str) -> Iterator[Entry]:
    for kip in dict.fromkeys(_KIP.findall(doc)):
        yield Entry(kip, "KIP", place, url)
