"""Layouts of a struct at all of its versions, and its codecs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from krammar.compiler import ir
from krammar.compiler.layout import build_layout, build_shared
from krammar.compiler.steps import (
    StructLayout,
    WireArray,
    WireSized,
    WireStruct,
    WireType,
    WireVersioned,
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
