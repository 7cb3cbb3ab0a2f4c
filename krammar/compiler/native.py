"""The native backend: from layouts to the Python that mypyc compiles.

One text a definition file, with the classes' attributes and a reader and a writer of each distinct layout;
layouts that versions or structs have in common are emitted once. What it is compiled with stands in
``krammar.compiler.native_build``, how it gets into a package at run time in ``krammar.wire.native``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from krammar.compiler import emitter, ir, layout, names

_PREFIXES = {
    layout.Prefix.INT16: 0,
    layout.Prefix.INT32: 1,
    layout.Prefix.UVARINT: 2,
    layout.Prefix.VARINT: 3,
}
_FILES = {".py", ".j2", ".h", ".pyi"}


def templates_folder() -> Path:
    """The templates of this backend, with the operations that they use."""
    return emitter.templates_folder().parent / "native"


def records_text() -> str:
    """The loops of record batches, which are written by hand."""
    return (templates_folder() / "records.py").read_text(encoding="utf-8")


def pure_digest(source: emitter.Emitter, protocol: ir.Protocol, module: str) -> str:
    """The digest of what the pure backend renders for a definition file: the one that the stamp of its
    generated module says, if that is what these definitions and templates make."""
    shared = emitter._shared_context(protocol, source.label)
    file = next(file for file in protocol.files if file.module == module)
    context = shared | emitter._module_context(file, protocol, shared)
    place = "/".join(part for part in (source.label, protocol.package, file.path.name) if part)
    context["generated"] = emitter.generated_line(place)
    context["stamp"] = emitter._BLANK_STAMP
    return emitter._digest(source.environment.get_template("{module}.py.j2").render(context))


def digest() -> str:
    """A digest of all of krammar that what is compiled depends on, beside the definitions."""
    found = hashlib.sha256()
    compiler = Path(__file__).parent
    paths = [compiler / name for name in ("ir.py", "layout.py", "native.py", "native_build.py")]
    paths += sorted(path for path in templates_folder().rglob("*") if path.suffix in _FILES)
    for path in paths:
        data = path.read_bytes()
        found.update(f"\n{path.name} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


@dataclass(slots=True)
class Context:
    """What the macros ask for: names of functions, and numbers that stand for forms of the bytes."""

    layouts: dict[tuple[str, str], layout.Layout] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, top: layout.Layout) -> None:
        """Note a layout and all below it, and name each that is new."""
        for inner in emitter._nested_layouts(top):
            key = (inner.struct.name, inner.key)
            if key in self.layouts:
                continue
            stem = f"{names.snake_case(inner.struct.name)}_v{inner.version}"
            name, number = stem, 1
            while name in self.names.values():
                number += 1
                name = f"{stem}_{number}"
            self.layouts[key] = inner
            self.names[key] = name

    def name(self, of: layout.Layout) -> str:
        return self.names[of.struct.name, of.key]

    def function(self, struct: ir.Struct) -> str:
        return names.snake_case(struct.name)

    def dispatch(self, item: emitter.StructItem) -> list[tuple[int, str]]:
        """Each version and the name of its layout, newest first: those are the ones in use."""
        assert item.table is not None
        return sorted(
            ((v, self.name(codec.layout)) for codec in item.table.codecs for v in codec.versions),
            reverse=True,
        )

    def needs_n(self, of: layout.Layout) -> bool:
        """Whether reading it uses the local for lengths, counts and presence."""
        return any(
            (isinstance(part, layout.Run) and part.prefix is not None)
            or (
                isinstance(part, layout.Step) and isinstance(part.wire, layout.Sized | layout.Array)
            )
            for part in of.steps
        )

    def prefix(self, prefix: layout.Prefix) -> int:
        return _PREFIXES[prefix]

    def code(self, type_: ir.Primitive) -> int:
        return ord(type_.code)

    def min_size(self, wire: layout.Wire) -> int:
        return layout.min_size(wire)

    def is_integer(self, wire: layout.Wire) -> bool:
        return isinstance(wire, layout.VarInteger) or (
            isinstance(wire, layout.Fixed) and wire.type.is_integer
        )


class NativeEmitter:
    """Renders the modules of one protocol for mypyc. ``label`` is the source's name, as in the headers
    of the generated package."""

    def __init__(self, protocol: ir.Protocol, label: str) -> None:
        self.protocol = protocol
        self.label = label
        self._shared = emitter._shared_context(protocol, label)
        self._environment = Environment(
            loader=FileSystemLoader(templates_folder()),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
        )
        self._environment.filters |= {
            "kind": lambda value: type(value).__name__,
            "pprint": repr,
            "block": emitter._block,
        }

    def modules(self) -> dict[str, str]:
        """Each definition file that can be compiled, and why not where one cannot: empty, or a reason."""
        found = {}
        imports = {
            file.module: emitter._module_context(file, self.protocol, self._shared)["imports"]
            for file in self.protocol.files
        }
        for file in self.protocol.files:
            if not file.structs:
                found[file.module] = "it has no structs"
                continue
            others = set(imports[file.module])
            others |= {name for name, used in imports.items() if file.module in used}
            found[file.module] = (
                f"it has structs in common with {', '.join(sorted(others))}" if others else ""
            )
        return found

    def defines(self, module: str) -> set[str]:
        """The names that a definition file defines."""
        return set(self._shared["modules"][module])

    def render(self, module: str) -> str:
        """The text of one definition file."""
        file = next(file for file in self.protocol.files if file.module == module)
        shared = emitter._module_context(file, self.protocol, self._shared)
        context = Context()
        items: list[emitter.StructItem] = shared["structs"]
        for item in items:
            for codec in item.table.codecs if item.table is not None else ():
                context.add(codec.layout)
        place = "/".join(
            part for part in (self.label, self.protocol.package, file.path.name) if part
        )
        differing = dict(_differing(context))
        variables: dict[str, Any] = {
            **shared,
            "generated": f"{emitter.GENERATED} {place}. Compiled by `krammar compile`.",
            "context": context,
            "layouts": [(context.name(found), found) for found in context.layouts.values()],
            "defaults": sorted(_defaults(items), key=lambda struct: struct.name),
            "differing": [(context.name(found), found) for found in differing.values()],
            "held": sorted(
                {found.struct.name: found.struct for found in differing.values()}.values(),
                key=lambda struct: struct.name,
            ),
            "tagged": any(f.tags is not None and f.tags.known for f in context.layouts.values()),
        }
        return self._environment.get_template("module.py.j2").render(variables)


def _holds_struct(item: ir.Field) -> bool:
    return isinstance(item.type, ir.StructType) and (
        not item.type.nullable or item.default is not None
    )


def _defaults(items: list[emitter.StructItem]) -> list[ir.Struct]:
    """The structs of which one with defaults is made."""
    found: dict[str, ir.Struct] = {}
    for item in items:
        for inner in item.struct.fields:
            if _holds_struct(inner):
                assert isinstance(inner.type, ir.StructType)
                found[inner.type.struct.name] = inner.type.struct
    return list(found.values())


def _differing(context: Context) -> Iterator[tuple[tuple[str, str], layout.Layout]]:
    """The layouts of structs in tagged fields, which are compared with their defaults."""

    def below(step: layout.Step) -> Iterator[tuple[tuple[str, str], layout.Layout]]:
        wire = step.wire
        if isinstance(wire, layout.Nested) and (
            not wire.nullable or step.field.default is not None
        ):
            inner = wire.layout
            yield (inner.struct.name, inner.key), inner
            for other in (*inner.fields, *(inner.tags.known if inner.tags is not None else ())):
                yield from below(other)

    for found in context.layouts.values():
        for step in found.tags.known if found.tags is not None else ():
            yield from below(step)
