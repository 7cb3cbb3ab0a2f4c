"""The backend of dissectors for Wireshark: a Lua script for each protocol with requests.

The script contains a generic reader and tables: a table for each layout of each message, and the fields that
Wireshark shows and filters by. The reader decides nothing; the tables are the layouts, spelled in Lua.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from krammar.compiler import ir, names
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.templates import Filters, TemplateBackend
from krammar.compiler.front.source import SHIPPED, Folder, SourceError, compile_folder
from krammar.compiler.header_places import has_kafkas_heads, heads
from krammar.compiler.header_versions import header_versions
from krammar.compiler.layout_table import LayoutTable, layout_table
from krammar.compiler.steps import (
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
)
from krammar.util.diagnostics import Diagnostics

# Names of protocols that Wireshark accepts.
# Wireshark refuses names of one character.
_NAME = re.compile(r"(?=..)[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_PORT = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")
# The definitions of record batches and message sets.
_BATCHES = SHIPPED / "kafka_wire" / "misc.krm"


@dataclass(frozen=True, slots=True)
class FilterField:
    """A field of Wireshark. ``filter`` is its name in display filters, without the protocol's."""

    filter: str
    name: str
    type: str
    doc: str
    enum: ir.Enum | None = None


@dataclass(frozen=True, slots=True)
class FieldStep:
    """A step of a layout, with the number of its field: of its values, of its count, and of null."""

    wire: WireType
    value: int
    count: int | None
    null: int | None
    inner: FieldStep | None = None
    struct: int | None = None
    table: str = ""


@dataclass(frozen=True, slots=True)
class StepTable:
    """A layout: the name and the step of each field in order, and of each tagged field by tag."""

    name: str
    fields: tuple[tuple[str, FieldStep], ...]
    tags: tuple[tuple[int, str, FieldStep], ...] | None


@dataclass(frozen=True, slots=True)
class Versions:
    """The number of the layout of each version of a struct."""

    name: str
    layouts: dict[int, int]
    last: int
    open_ended: bool


@dataclass
class _Tables:
    """Collects the layouts of structs and the fields in them, each once."""

    source: Source
    items: list[FilterField] = field(default_factory=list)
    tables: list[StepTable] = field(default_factory=list)
    versions: dict[str, Versions] = field(default_factory=dict)
    _items: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _tables: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, table: LayoutTable, before: str = "") -> None:
        """Add all layouts of a struct that can be encoded alone.

        Args:
            before: precedes the struct's name, if it is not a struct of the protocol.
        """
        name = before + table.struct.name
        if name in self.versions:
            return
        path = before + names.snake_case(table.struct.name)
        found: dict[int, int] = {}
        self.versions[name] = Versions(name, found, table.max_version, table.open_ended)
        for group in table.layouts:
            number = self._table(group.layout, path)
            found |= dict.fromkeys(group.versions, number)

    def _table(self, shape: StructLayout, path: str) -> int:
        key = (path, shape.key)
        if key not in self._tables:
            tags = None
            fields = tuple(self._step(step, path) for step in shape.fields)
            if shape.tags is not None:
                tags = tuple(
                    (step.field.tag or 0, *self._step(step, path)) for step in shape.tags.known
                )
            self.tables.append(StepTable(shape.struct.name, fields, tags))
            self._tables[key] = len(self.tables)
        return self._tables[key]

    def _step(self, step: Step, path: str) -> tuple[str, FieldStep]:
        name = step.field.python_name
        return name, self._place(step.wire, f"{path}.{name}", step.field)

    def _place(self, wire: WireType, path: str, of: ir.Field) -> FieldStep:
        count = inner = struct = null = None
        table = ""
        match wire:
            case WireArray(element):
                inner = self._place(element, path, of)
                value = inner.value
                count = self._item(path, "elements", of, "INT32")
            case WireStruct(shape):
                value = self._item(path, "", of, "NONE")
                struct = self._table(shape, path)
            case WireVersioned(versioned):
                value = self._item(path, "", of, "NONE")
                table = versioned.name
                self.add(self.source.layouts[table])
            case WireFixed(type_, enum):
                value = self._item(path, "", of, _type(type_.name), enum)
            case WireVarint(kind) | WireText(kind):
                value = self._item(path, "", of, _type(kind))
            case WireSized():
                value = self._item(path, "", of, "BYTES")
        if getattr(wire, "nullable", False):
            null = self._item(path, "is_null", of, "BOOLEAN")
        return FieldStep(wire, value, count, null, inner, struct, table)

    def _item(
        self, path: str, part: str, of: ir.Field, type_: str, enum: ir.Enum | None = None
    ) -> int:
        """Return the number of the field for a path, which starts at 1 as in Lua.

        Filters have only lower case, and a count can have the path of a field in the elements.
        """
        wanted = (path, part, type_)
        if wanted not in self._items:
            plain = f"{path}.{part}".rstrip(".").lower()
            filter_, number = plain, 1
            while filter_ in self._taken:
                number += 1
                filter_ = f"{plain}_{number}"
            self._taken.add(filter_)
            doc = " ".join(of.doc.partition("\n\n")[0].split())
            self.items.append(FilterField(filter_, of.python_name, type_, doc, enum))
            self._items[wanted] = len(self.items)
        return self._items[wanted]

    @property
    def enums(self) -> list[ir.Enum]:
        """The enums of all fields, by name."""
        found = {item.enum.name: item.enum for item in self.items if item.enum is not None}
        return [found[name] for name in sorted(found)]


# Wireshark's names of types that are not the type in upper case.
_TYPES = {
    "bool": "BOOLEAN",
    "varint": "INT32",
    "varlong": "INT64",
    "uvarint": "UINT32",
    "uvarlong": "UINT64",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "uuid": "GUID",
}


def _type(name: str) -> str:
    return _TYPES.get(name, name.upper())


def _lua_string(text: str) -> str:
    """A string literal of Lua."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class WiresharkBackend(TemplateBackend):
    """Writes ``NAME.lua``, a dissector for the requests and responses of a protocol."""

    FOLDER = "wireshark"
    FILTERS: ClassVar[Filters] = {"lua": _lua_string}
    OPTIONS = MappingProxyType(
        {
            **TemplateBackend.OPTIONS,
            "name": "The protocol's name in display filters, instead of the package's.",
            "ports": "The TCP ports of servers, such as 9092 or 9092-9094,19092 (default: 9092).",
        }
    )

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__(options)
        name, ports = self.options.get("name"), self.options.get("ports", "9092")
        if name is not None and not _NAME.fullmatch(name):
            raise SourceError(
                f"option name={name}: not a name of a protocol in Wireshark (use two or more lower-case "
                "letters, digits and `_`)"
            )
        if not _PORT.fullmatch(ports) or any(int(n) > 65535 for n in re.findall(r"\d+", ports)):
            raise SourceError(
                f"option ports={ports}: not a list of ports (write 9092 or 9092-9094,19092)"
            )
        self.ports = ports

    def inputs(self) -> list[Path]:
        return [*super().inputs(), _BATCHES]

    def name(self, source: Source) -> str:
        name = names.snake_case(self.options.get("name") or source.title.replace("/", "_"))
        return name if _NAME.fullmatch(name) else f"{name}_protocol"

    def context(self, source: Source) -> dict[str, Any]:
        tables = _Tables(source)
        for table in source.layouts.values():
            tables.add(table)
        for table in _batches():
            tables.add(table, "records.")
        headers = [source.layouts.get(name) for name in ("RequestHeader", "ResponseHeader")]
        last = [table.max_version for table in headers if table is not None]
        # Frames cannot be read without both headers.
        protocol = source.protocol
        requests, pushes = (
            (protocol.requests, protocol.pushes) if len(last) == len(headers) else ((), ())
        )
        return {
            "name": self.name(source),
            "title": source.title,
            "ports": self.ports,
            "tables": tables,
            "requests": [(request, header_versions(request, *last)) for request in requests],
            "pushes": [(push, header_versions(push, *last)) for push in pushes],
            "heads": heads(protocol),
            "has_kafkas_heads": has_kafkas_heads(protocol),
        }


@cache
def _batches() -> tuple[LayoutTable, ...]:
    """The layouts of record batches and of their content."""
    protocol = compile_folder(Folder("kafka_wire", (_BATCHES,)), Diagnostics())
    return tuple(layout_table(struct) for file in protocol.files for struct in file.structs)
