"""Tables: the fields of a struct with their forms in all versions, for the modules of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from krammar.compiler import ir, layout
from krammar.compiler.layout_table import LayoutTable
from krammar.compiler.steps import StructLayout, WireArray, WireStruct, innermost


@dataclass(frozen=True, slots=True)
class Inner:
    """A struct in a form. ``variable`` is the name of its table."""

    variable: str
    nullable: bool
    tagged: bool


@dataclass(frozen=True, slots=True)
class TableField:
    """A field, and its ``forms``: types on the wire, each with the first version that has it, or None.

    ``counts`` is the field whose bytes a length field counts, and the number that is added.
    """

    field: ir.Field
    forms: tuple[tuple[int, Any], ...]
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
    """A struct in all versions."""

    struct: ir.Struct
    variable: str
    flexible_from: int | None
    fields: tuple[TableField, ...]


def tables(of: LayoutTable) -> list[Table]:
    """Return the tables of a struct and of the structs in it, inner structs first."""
    collected = _Collected(of.struct, {})
    for version, single in sorted((v, s.layout) for s in of.layouts for v in s.versions):
        collected.add(single, version, classic=False)
    found = {variable: collected.table(variable) for variable in collected.layouts}
    ordered: dict[str, Table] = {}

    def add(table: Table) -> None:
        for item in table.fields:
            for _, form in item.forms:
                while isinstance(form, WireArray):
                    form = form.element
                if isinstance(form, Inner) and form.variable not in ordered:
                    add(found[form.variable])
        ordered[table.variable] = table

    add(found[collected.variable(of.struct, False)])
    return list(ordered.values())


@dataclass(frozen=True, slots=True)
class _Collected:
    """The layouts of the structs in ``top``, by the variable of their table and by version."""

    top: ir.Struct
    layouts: dict[str, dict[int, StructLayout]]

    def add(self, of: StructLayout, version: int, *, classic: bool) -> None:
        for step in of.all_fields:
            wire = innermost(step.wire)
            if isinstance(wire, WireStruct):
                self.add(wire.layout, version, classic=classic or not step.field.flexible)
        self.layouts.setdefault(self.variable(of.struct, classic), {})[version] = of

    def variable(self, struct: ir.Struct, classic: bool) -> str:
        """The variable of a table, which the tables of the next message may use again."""
        other = struct.name == struct.class_name != self.top.name
        return f"_{struct.class_name}{'_shared' if other else ''}{'_classic' if classic else ''}"

    def table(self, variable: str) -> Table:
        layouts = self.layouts[variable]
        struct = next(iter(layouts.values())).struct
        classic = variable != self.variable(struct, False)
        flexible = [version for version, of in layouts.items() if of.flexible]
        fields = []
        for item in struct.fields:
            forms: list[tuple[int, Any]] = []
            counts = None
            for version, of in layouts.items():
                form = self.form(of, item, classic)
                if forms[-1][1] != form if forms else form is not None:
                    forms.append((version, form))
                counts = counts or layout.counted(of).get(item.python_name)
            fields.append(TableField(item, tuple(forms), counts))
        return Table(struct, variable, min(flexible, default=None), tuple(fields))

    def form(self, of: StructLayout, item: ir.Field, classic: bool) -> Any:
        """The form of a field in a layout, or None if the layout does not have it."""

        def spelled(wire: Any) -> Any:
            match wire:
                case WireArray(element):
                    return replace(wire, element=spelled(element))
                case WireStruct(inside, nullable, tagged):
                    variable = self.variable(inside.struct, classic or not item.flexible)
                    return Inner(variable, nullable, tagged)
                case _:
                    return wire

        return next((spelled(step.wire) for step in of.all_fields if step.field is item), None)
