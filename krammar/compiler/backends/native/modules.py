"""The native backend: renders the Python modules that mypyc compiles.

There is one module per definition file, with the attributes of its classes, and a reader and a writer for
each distinct layout. Layouts that several versions or structs share are generated once.
``krammar.compiler.backends.native.build`` compiles a module, and ``krammar.wire.native`` loads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krammar.compiler import ir, names
from krammar.compiler.backends import python
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.python_classes import StructItem
from krammar.compiler.backends.templates import TemplateBackend, templates_folder
from krammar.compiler.steps import (
    Prefix,
    Run,
    Step,
    StructLayout,
    WireArray,
    WireSized,
    WireText,
    WireType,
    WireVersioned,
    innermost,
    min_size,
)

_PREFIXES = {
    Prefix.INT16: 0,
    Prefix.INT32: 1,
    Prefix.UVARINT: 2,
    Prefix.VARINT: 3,
}
_FILES = {".py", ".j2", ".h", ".pyi"}


def records_text() -> str:
    """Return the source of the record batches' loops, which is not generated."""
    return (templates_folder("native") / "records.py").read_text(encoding="utf-8")


def compiler_digest() -> str:
    """Return a digest of the parts of krammar that compiled modules depend on."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    paths = [here.parents[1] / "ir.py", here.parents[1] / "layout.py"]
    paths += [here / "modules.py", here / "build.py"]
    paths += sorted(path for path in templates_folder("native").rglob("*") if path.suffix in _FILES)
    for path in paths:
        data = path.read_bytes()
        found.update(f"\n{path.name} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


@dataclass(slots=True)
class NativeContext:
    """Lookups for the macros: names of functions, and the numbers of prefixes and types."""

    layouts: dict[tuple[str, str], StructLayout] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    # The layouts of structs that can be encoded alone.
    tops: set[tuple[str, str]] = field(default_factory=set)

    def add(self, top: StructLayout) -> None:
        """Register a layout and all nested layouts, with a name for each new one."""
        self.tops.add((top.struct.name, top.key))
        for inner in python.nested_layouts(top):
            key = (inner.struct.name, inner.key)
            if key in self.layouts:
                continue
            stem = f"{self.function(inner.struct)}_v{inner.version}"
            name, number = stem, 1
            while name in self.names.values():
                number += 1
                name = f"{stem}_{number}"
            self.layouts[key] = inner
            self.names[key] = name

    def name(self, of: StructLayout) -> str:
        return self.names[of.struct.name, of.key]

    def cls(self, struct: ir.Struct) -> str:
        """Return the name of a class, which cannot be inside another one here."""
        return struct.name.replace(".", "__")

    def function(self, struct: ir.Struct) -> str:
        """Return the part of function names that identifies a struct."""
        return f"of_{names.function_name(struct.name)}"

    def dispatch(self, item: StructItem) -> list[tuple[int, str]]:
        """Return each version with the name of its layout, newest first, as new versions are used most."""
        assert item.table is not None
        return sorted(
            ((v, self.name(group.layout)) for group in item.table.layouts for v in group.versions),
            reverse=True,
        )

    def view(self, of: StructLayout, annotation: str = "") -> str:
        """Return the argument from which fields of bytes are sliced.

        It is empty if a nested struct has no such field, because passing it takes 2 ns.
        """
        needed = any(
            (inner.struct.name, inner.key) in self.tops or any(map(_has_bytes, python.wires(inner)))
            for inner in python.nested_layouts(of)
        )
        return f", view{annotation}" if needed else ""

    def needs_n(self, of: StructLayout) -> bool:
        """Return whether the reader uses the local variable for lengths, counts and presence."""
        return any(
            (isinstance(part, Run) and part.prefix is not None)
            or (isinstance(part, Step) and isinstance(part.wire, WireSized | WireArray))
            for part in of.steps
        )

    def prefix(self, prefix: Prefix) -> int:
        """Return the number of a prefix in krammar_ops.h."""
        return _PREFIXES[prefix]

    def code(self, type_: ir.Primitive) -> int:
        """Return the number of a type in krammar_ops.h: the character code of its ``struct`` letter."""
        return ord(type_.code)

    def min_size(self, wire: WireType) -> int:
        return min_size(wire)

    def is_integer(self, type_: ir.Type) -> bool:
        return isinstance(type_, ir.Varint | ir.EnumType) or (
            isinstance(type_, ir.Primitive) and type_.is_integer
        )


def _has_bytes(wire: WireType) -> bool:
    wire = innermost(wire)
    if isinstance(wire, WireText):
        return wire.kind == "bytes"
    return isinstance(wire, WireSized | WireVersioned)


class NativeBackend(TemplateBackend):
    """Writes modules for mypyc, for the definition files that can be compiled."""

    FOLDER = "native"

    def reasons(self, source: Source) -> dict[str, str]:
        """Return why each module cannot be compiled. The reason is empty if it can be compiled."""
        found = {}
        contexts = {
            file.module: python.module_context(source, file) for file in source.protocol.files
        }
        imports = {module: context["imports"] for module, context in contexts.items()}
        for file in source.protocol.files:
            if not file.structs:
                found[file.module] = "it contains no structs"
                continue
            pure = next(filter(None, map(_pure_form, file.structs)), "")
            if pure:
                found[file.module] = f"it contains {pure}"
                continue
            others = set(imports[file.module])
            others |= {name for name, used in imports.items() if file.module in used}
            found[file.module] = (
                f"it shares structs with {', '.join(sorted(others))}" if others else ""
            )
            # Only pure Python counts these.
            empty = [
                i.struct.name for i in contexts[file.module]["structs"] if i.has_empty_elements
            ]
            if empty and not others:
                found[file.module] = f"array elements of {empty[0]} can take no bytes"
        return found

    def files(self, source: Source) -> tuple[ir.DefinitionFile, ...]:
        reasons = self.reasons(source)
        return tuple(file for file in source.protocol.files if not reasons[file.module])

    def context(self, source: Source) -> dict[str, Any]:
        return python.shared_context(source)

    def module_context(
        self, source: Source, file: ir.DefinitionFile, shared: dict[str, Any]
    ) -> dict[str, Any]:
        context = NativeContext()
        module = python.module_context(source, file)
        items = [each for item in module["structs"] for each in (item, *item.inner)]
        for item in items:
            for group in item.table.layouts if item.table is not None else ():
                context.add(group.layout)
        return {
            **module,
            "structs": items,
            "context": context,
            "layouts": [(context.name(found), found) for found in context.layouts.values()],
            "defaults": sorted(_defaults(items), key=lambda struct: struct.name),
            "differing": _differing(context),
        }


# Types that only the pure codec reads and writes.
_COMPILED_COUNTS = ("", "varint")
_PURE = frozenset({"uint8", "uint64", "float32", "uvarint", "uvarlong"})


def _pure_form(struct: ir.Struct) -> str:
    """Return a form in a struct, or in a struct in it, that only the pure codec reads and writes. Empty if there is none."""
    if struct.reads_newer:
        return "a struct that reads newer versions"
    for item in struct.fields:
        type_ = item.type
        while isinstance(type_, ir.Array) and type_.length in _COMPILED_COUNTS:
            type_ = type_.element
        if isinstance(type_, ir.Array | ir.Text) and type_.length not in _COMPILED_COUNTS:
            kind = type_.kind if isinstance(type_, ir.Text) else ""
            return f"{type_.length}-{kind}" if kind else f"an array with a count of {type_.length}"
        if isinstance(type_, ir.EnumType):
            type_ = type_.enum.type
        if isinstance(type_, ir.Primitive | ir.Varint) and type_.name in _PURE:
            return type_.name
        if isinstance(type_, ir.StructType) and type_.presence_bool:
            return "nullable-bool"
        if isinstance(type_, ir.StructType) and type_.nullable and not type_.struct.anonymous:
            return f"nullable-{type_.struct.name}"
        if isinstance(type_, ir.StructType) and (inner := _pure_form(type_.struct)):
            return inner
    return ""


def _holds_struct(item: ir.Field) -> bool:
    return isinstance(item.type, ir.StructType) and (
        not item.type.nullable or item.default is not None
    )


def _defaults(items: Sequence[StructItem]) -> list[ir.Struct]:
    """The structs that occur as default values."""
    found: dict[str, ir.Struct] = {}
    for item in items:
        for inner in item.struct.fields:
            if _holds_struct(inner):
                assert isinstance(inner.type, ir.StructType)
                found[inner.type.struct.name] = inner.type.struct
    return list(found.values())


def _differing(context: NativeContext) -> list[ir.Struct]:
    """The structs that writers compare with their default values: those in tagged and in absent fields."""
    found: dict[str, ir.Struct] = {}

    def add(item: ir.Field) -> None:
        if not _holds_struct(item):
            return
        assert isinstance(item.type, ir.StructType)
        struct = item.type.struct
        if struct.version_field is None:
            found[struct.name] = struct
            for inner in struct.fields:
                add(inner)

    for known in context.layouts.values():
        for step in known.tagged:
            add(step.field)
        for item in known.absent:
            if not item.ignorable:
                add(item)
    return [found[name] for name in sorted(found)]
