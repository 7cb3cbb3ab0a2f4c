"""Layouts of a struct at all of its versions, its codecs, and its table for the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from krammar.compiler import ir, layout
from krammar.compiler.layout import build_layout, build_shared
from krammar.compiler.steps import (
    StructLayout,
    WireArray,
    WireSized,
    WireStruct,
    WireType,
    WireVersioned,
    innermost,
)


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """One layout of a struct, and the versions that share it."""

    layout: StructLayout
    versions: tuple[int, ...]

    @property
    def first(self) -> int:
        """The lowest of the versions. Generated functions have it in their names."""
        return self.versions[0]


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """All layouts of a struct that can be encoded alone.

    ``open_ended`` is whether versions above ``max_version`` exist; they share the layout of ``max_version``.
    """

    struct: ir.Struct
    layouts: tuple[SharedLayout, ...]
    min_version: int
    max_version: int
    open_ended: bool


def layout_table(struct: ir.Struct) -> LayoutTable:
    """Build the layouts of ``struct`` at all of its versions. Versions with the same layout share one."""
    changes = set(_changes(struct))
    highest = struct.max_version
    if highest is None:
        highest = max([struct.min_version, *changes])
    shared: dict[str, tuple[StructLayout, list[int]]] = {}
    served: list[int] = []
    for version in range(struct.min_version, highest + 1):
        if version == struct.min_version or version in changes:
            layout = build_layout(struct, version)
            served = shared.setdefault(layout.key, (layout, []))[1]
        served.append(version)
    layouts = tuple(SharedLayout(layout, tuple(served)) for layout, served in shared.values())
    return LayoutTable(struct, layouts, struct.min_version, highest, struct.max_version is None)


def codecs(table: LayoutTable) -> tuple[SharedLayout, ...]:
    """Return the layouts of the codecs that serve the versions of a struct.

    Usually that is one for all versions. Structs whose versions differ in more than which fields exist and which can
    be null have a codec for each layout.
    """
    versions = tuple(sorted(v for shared in table.layouts for v in shared.versions))
    traits: dict[str, str] = {}
    for shared in table.layouts:
        for place, trait in _traits(shared.layout, ""):
            if traits.setdefault(place, trait) != trait:
                return table.layouts
    return (SharedLayout(build_shared(table.struct, versions), versions),)


def _traits(of: StructLayout, place: str) -> Iterator[tuple[str, str]]:
    """What all versions of a codec agree on: null in tagged fields, and counted bytes."""
    for step in of.tagged:
        nulls = []
        wire = step.wire
        while isinstance(wire, WireArray):
            nulls.append(wire.nullable)
            wire = wire.element
        yield f"{place}.{step.field.name} null", f"{nulls} {getattr(wire, 'nullable', False)}"
    for step in of.all_fields:
        inner = f"{place}.{step.field.name}"
        wire = step.wire
        while isinstance(wire, WireArray):
            wire, inner = wire.element, f"{inner}[]"
        if isinstance(wire, WireStruct):
            yield from _traits(wire.layout, inner)
    yield f"{place} sized", str([s.field.name for s in of.fields if isinstance(s.wire, WireSized)])


def has_empty_elements(table: LayoutTable) -> bool:
    """Return whether a version of a struct has arrays, at any depth, whose elements can take no bytes."""

    def inside(of: StructLayout) -> bool:
        return any(found(step.wire) for step in of.all_fields)

    def found(wire: WireType) -> bool:
        match wire:
            case WireArray(element):
                return wire.zero_width or found(element)
            case WireStruct(layout):
                return inside(layout)
            case WireVersioned(struct):
                return has_empty_elements(layout_table(struct))
            case _:
                return False

    return any(inside(shared.layout) for shared in table.layouts)


def _changes(struct: ir.Struct) -> Iterator[int]:
    """The versions at which the layout of a struct can differ from the version before."""
    yield from own_changes(struct)
    for item in struct.fields:
        type_ = ir.innermost_type(item.type)
        if isinstance(type_, ir.StructType) and type_.struct.version_field is None:
            yield from _changes(type_.struct)


def own_changes(struct: ir.Struct) -> Iterator[int]:
    """Yield the versions at which the struct's own fields change, without those of nested structs."""
    if struct.flexible_from is not None:
        yield struct.flexible_from
    for item in struct.fields:
        yield item.versions.min
        if item.versions.max is not None:
            yield item.versions.max + 1
        type_: ir.Type | None = item.type
        while isinstance(type_, ir.Array | ir.Text):
            if type_.nullable is not None:
                yield type_.nullable.min
                if type_.nullable.max is not None:
                    yield type_.nullable.max + 1
            type_ = type_.element if isinstance(type_, ir.Array) else None


# Tables: the fields of a struct with their forms in all versions, for the generated modules of tables.

# What modules of tables import, with a name that a struct's table could have.
_TAKEN = frozenset({"_UUID"})


@dataclass(frozen=True, slots=True)
class Inner:
    """A struct in a form. ``variable`` is the name of its table; ``classic`` is as for ``Table``."""

    variable: str
    nullable: bool
    tagged: bool
    struct: ir.Struct
    classic: bool


@dataclass(frozen=True, slots=True)
class TableField:
    """A field, and its ``forms``: types on the wire, each with the first version that has it, or None.

    If no version has the field, ``forms`` is empty, and ``unused`` is its type; otherwise that is None.
    ``counts`` is the field whose bytes a length field counts, and the number that is added.
    """

    field: ir.Field
    forms: tuple[tuple[int, Any], ...]
    unused: Any
    counts: tuple[str, int] | None

    @property
    def struct_default(self) -> bool:
        """Whether the default is a struct with default values."""
        type_ = self.field.type
        return isinstance(type_, ir.StructType) and (
            not type_.nullable or self.field.default is not None
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A struct in all versions.

    ``own`` is whether the table describes the class of the struct. Other messages with the struct have tables of their
    own for it, because it has other versions there. ``classic`` is whether no version is flexible.
    """

    struct: ir.Struct
    variable: str
    flexible_from: int | None
    fields: tuple[TableField, ...]
    classic: bool
    own: bool = False


def module_tables(structs: Sequence[ir.Struct]) -> list[Table]:
    """Return the tables of the named structs of a module, inner structs first. Each class has one of its own."""
    groups = [tables(layout_table(struct)) for struct in structs if struct.encoding]
    groups += [
        _shared_tables(struct)
        for struct in structs
        if not struct.encoding and struct.owner == struct.name
    ]
    described = {table.struct.name for group in groups for table in group}
    # Structs of messages that no field of the message contains.
    groups += [_shared_tables(struct) for struct in structs if struct.name not in described]
    inside = {inner.name for struct in structs for inner in ir.walk(struct)}
    # A class is described in all of its versions, so the table at the end of a group comes first.
    tops = [group[-1] for group in groups]
    others = sorted((t for group in groups for t in group[:-1]), key=lambda table: table.classic)
    own: dict[str, Table] = {}
    for table in (*tops, *others):
        if table.struct.name in inside:
            own.setdefault(table.struct.name, table)
    return [
        replace(table, own=own.get(table.struct.name) is table)
        for group in groups
        for table in group
    ]


def _shared_tables(struct: ir.Struct) -> list[Table]:
    """Return the tables of a struct that is only encoded inside messages, in any version of theirs."""
    return tables(layout_table(replace(struct, flexible_from=0)))


def tables(of: LayoutTable) -> list[Table]:
    """Return the tables of a struct and of the structs in it, inner structs first."""
    collected = _Collected(of.struct, {}, {})
    for version, single in sorted((v, s.layout) for s in of.layouts for v in s.versions):
        collected.add(single, version, classic=False)
    ordered: dict[str, Table] = {}

    def add(struct: ir.Struct, classic: bool) -> None:
        variable = collected.variable(struct, classic)
        if variable in ordered:
            return
        table = collected.table(struct, classic)
        for item in table.fields:
            for form in (*(form for _, form in item.forms), item.unused):
                inner = innermost(form)
                if isinstance(inner, Inner):
                    add(inner.struct, inner.classic)
        ordered[variable] = table

    add(of.struct, classic=False)
    return list(ordered.values())


@dataclass(frozen=True, slots=True)
class _Collected:
    """The layouts of the structs in ``top``, by the variable of their table and by version.

    ``variables`` are those of structs, classic or not.
    """

    top: ir.Struct
    layouts: dict[str, dict[int, StructLayout]]
    variables: dict[tuple[str, bool], str]

    def add(self, of: StructLayout, version: int, *, classic: bool) -> None:
        for step in of.all_fields:
            wire = innermost(step.wire)
            if isinstance(wire, WireStruct):
                self.add(wire.layout, version, classic=classic or not step.field.flexible)
        self.layouts.setdefault(self.variable(of.struct, classic), {})[version] = of

    def variable(self, struct: ir.Struct, classic: bool) -> str:
        """The variable of a table, which the tables of the next message may use again."""
        found = self.variables.get((struct.name, classic))
        if found is None:
            other = struct.name == struct.class_name != self.top.name
            stem = (
                f"_{struct.class_name}{'_shared' if other else ''}{'_classic' if classic else ''}"
            )
            # Structs of two shared structs can have the same name.
            others = (stem if n == 1 else f"{stem}_{n}" for n in count(1))
            taken = {*self.variables.values(), *_TAKEN}
            found = next(name for name in others if name not in taken)
            self.variables[struct.name, classic] = found
        return found

    def table(self, struct: ir.Struct, classic: bool) -> Table:
        # A struct in a field that no version has is in no layout.
        variable = self.variable(struct, classic)
        layouts = self.layouts.get(variable, {})
        flexible = [version for version, of in layouts.items() if of.flexible]
        fields = []
        for item in struct.fields:
            forms: list[tuple[int, Any]] = []
            counts = None
            for version, of in layouts.items():
                step = next((step for step in of.all_fields if step.field is item), None)
                form = None if step is None else self.form(step.wire, item, classic)
                if forms[-1][1] != form if forms else form is not None:
                    forms.append((version, form))
                counts = counts or layout.counted(of).get(item.python_name)
            unused = None if forms else self.form(layout.classic_form(item), item, classic)
            fields.append(TableField(item, tuple(forms), unused, counts))
        return Table(struct, variable, min(flexible, default=None), tuple(fields), classic)

    def form(self, wire: Any, item: ir.Field, classic: bool) -> Any:
        """A type on the wire of a field, in which structs are replaced by their tables."""
        match wire:
            case WireArray(element):
                return replace(wire, element=self.form(element, item, classic))
            case WireStruct(inside, nullable, tagged):
                inner_classic = classic or not item.flexible
                variable = self.variable(inside.struct, inner_classic)
                return Inner(variable, nullable, tagged, inside.struct, inner_classic)
            case _:
                return wire
