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
from krammar.compiler.backends.docs_fields import FieldRow, field_rows
from krammar.compiler.backends.docs_layouts import DocumentedLayout, documented_layouts
from krammar.compiler.backends.interface import File, Source
from krammar.compiler.backends.templates import Filters, TemplateBackend
from krammar.compiler.header_versions import header_versions

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
