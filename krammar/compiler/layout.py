"""Layouts: the list of operations that read or write the bytes of a struct at a version.

This module makes every decision about bytes: which fields exist, compact or classic lengths, nullability,
which fixed-width fields are read at once, and the order of tags. Templates only write the operations in a
language.

A layout is a list of steps. Neighbouring fixed-width fields form one ``Run``, together with the length or
count of the next step (or its first byte, if it is a varint), so that one call of ``struct`` reads them all.

Frequent messages have a codec for each layout. Others have one codec for all versions (``codecs``). Its layout
has the steps of all versions, with a ``Choice`` where they differ, and reads each length with a function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from krammar.compiler import ir
from krammar.compiler.steps import (
    AnyStep,
    Branch,
    Choice,
    Prefix,
    Run,
    Step,
    StructLayout,
    Tags,
    WireArray,
    WireFixed,
    WireSized,
    WireStruct,
    WireText,
    WireType,
    WireVarint,
    WireVersioned,
    fuse,
)


def build_layout(struct: ir.Struct, version: int) -> StructLayout:
    """Build the layout of ``struct`` at ``version``."""
    return _build(struct, _Plan((version,), version if struct.flexible(version) else None))


def build_shared(struct: ir.Struct, versions: tuple[int, ...]) -> StructLayout:
    """Build the layout of a codec that serves all of ``versions``, in ascending order."""
    return _build(struct, _Plan(versions, struct.flexible_from, True))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The versions of a layout, in ascending order, the first flexible one, and whether one codec serves all."""

    versions: tuple[int, ...]
    flexible_from: int | None
    shared: bool = False

    def flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    @property
    def compact(self) -> bool | None:
        """Whether all versions are flexible. None: only the later ones."""
        first, last = self.flexible(self.versions[0]), self.flexible(self.versions[-1])
        return last if first == last else None

    def prefix(self, classic: Prefix) -> Prefix:
        """Return the form of a length that is ``classic`` in versions that are not flexible."""
        if self.shared:
            return Prefix.SHARED_INT16 if classic is Prefix.INT16 else Prefix.SHARED_INT32
        return Prefix.UVARINT if self.compact else classic


def classic_form(item: ir.Field) -> WireType:
    """Return the classic form of a field, for one that no version has.

    Such a field keeps its default: a version before ``min version`` had it, or a message that shares the struct ends
    before it.
    """
    return _wire_of(item.type, _Plan((item.versions.min,), None))


# The forms of a field: each with the first version that has it, in ascending order. None is an absent field.
_Forms = tuple[tuple[int, Step | None], ...]


def _build(struct: ir.Struct, plan: _Plan) -> StructLayout:
    present: list[tuple[ir.Field, _Forms]] = []
    tagged: list[Step] = []
    absent: list[ir.Field] = []
    for item in struct.fields:
        forms = tuple(_forms(item, plan))
        if all(step is None for _, step in forms):
            absent.append(item)
        elif item.tag is None:
            present.append((item, forms))
        else:
            tagged += _gated(forms, plan)
    tags = None
    if plan.compact is not False:
        known = tuple(sorted(tagged, key=lambda step: step.field.tag or 0))
        tags = Tags(known, None if plan.compact else plan.flexible_from, plan.shared)
    return StructLayout(
        struct,
        tags is not None,
        tuple(_steps(present, tags)),
        tuple(step for _, forms in present for _, step in forms if step is not None),
        tags,
        tuple(absent),
        plan.versions[0],
        _key([forms for _, forms in present], tags),
    )


def _forms(item: ir.Field, plan: _Plan) -> Iterator[tuple[int, Step | None]]:
    """Yield the forms of a field. Versions with the same form share it."""
    versions = plan.versions
    known = [
        version in item.versions
        and (item.tag is None or plan.flexible(version))
        and _nulls(item.type, version)
        for version in versions
    ]
    begin = 0
    for end in range(1, len(versions) + 1):
        if end < len(versions) and known[end] == known[begin]:
            continue
        step = None
        if known[begin] is not False:
            flexible_from = plan.flexible_from if item.flexible else None
            wire = _wire_of(item.type, _Plan(versions[begin:end], flexible_from, plan.shared))
            if item.tag is not None and isinstance(wire, WireStruct | WireVersioned):
                wire = replace(wire, tagged=True)
            if isinstance(wire, WireText) and _holds_records(item, wire):
                wire = replace(wire, records=True)
            step = Step(item, wire)
        yield versions[begin], step
        begin = end


def _gated(forms: _Forms, plan: _Plan) -> Iterator[Step]:
    """Yield the form of a tagged field, with its versions if not all flexible versions have it."""
    firsts = [first for first, _ in forms]
    for (first, step), after in zip(forms, [*firsts[1:], None], strict=True):
        if step is None:
            continue
        since = None if first in (plan.versions[0], plan.flexible_from) else first
        yield replace(step, since=since, until=None if after is None else after - 1)


def _nulls(type_: ir.Type, version: int) -> tuple[bool, ...]:
    """Which parts of a type can be null at a version. Nothing else differs between versions of a codec."""
    found: list[bool] = []
    while isinstance(type_, ir.Array):
        found.append(type_.nullable is not None and version in type_.nullable)
        type_ = type_.element
    if isinstance(type_, ir.Text):
        found.append(type_.nullable is not None and version in type_.nullable)
    return tuple(found)


# Names of fields with record batches, in Kafka's schemas and in franz-go's definitions. The language has no
# type for them.
RECORDS = frozenset({"Records", "RecordBatches", "UnalignedRecords"})


def _holds_records(item: ir.Field, wire: WireText) -> bool:
    kafkas = isinstance(item.type, ir.Text) and not item.type.length
    return wire.kind == "bytes" and kafkas and item.name in RECORDS


_LENGTHS = {
    "int16": Prefix.INT16,
    "int32": Prefix.INT32,
    "varint": Prefix.VARINT,
    "uvarint": Prefix.UNSIGNED,
}


def _wire_of(type_: ir.Type, plan: _Plan) -> WireType:
    match type_:
        case ir.Primitive():
            return WireFixed(type_)
        case ir.EnumType(enum):
            return WireFixed(enum.type, enum)
        case ir.Varint(name):
            return WireVarint(name)
        case ir.Text(kind, nullable, length):
            null = nullable is not None and plan.versions[0] in nullable
            if length:
                return WireText(kind, _LENGTHS[length], null)
            prefix = plan.prefix(Prefix.INT16 if kind == "string" else Prefix.INT32)
            return WireText(kind, prefix, null, compact=plan.compact)
        case ir.Array(element, nullable, length):
            null = nullable is not None and plan.versions[0] in nullable
            prefix = _LENGTHS[length] if length else plan.prefix(Prefix.INT32)
            return WireArray(_wire_of(element, plan), prefix, null, plan.compact)
        case ir.StructType(struct, nullable, is_bool):
            if struct.version_field is not None:
                return WireVersioned(struct, nullable, is_bool)
            return WireStruct(_build(struct, plan), nullable, is_bool)
        case ir.LengthFieldMinus(length_field, minus):
            return WireSized(length_field, minus)


def _steps(present: Sequence[tuple[ir.Field, _Forms]], tags: Tags | None) -> Iterator[AnyStep]:
    """Yield the steps of a struct. Neighbours that change their form at the same versions share a choice."""
    lengths = {
        step.wire.length_field: (step.field.python_name, step.wire.minus)
        for _, forms in present
        for _, step in forms
        if step is not None and isinstance(step.wire, WireSized)
    }
    groups = [
        (changes, list(group))
        for changes, group in groupby(present, key=lambda part: [first for first, _ in part[1]])
    ]
    always = bool(groups) and len(groups[-1][0]) == 1
    for number, (changes, group) in enumerate(groups, 1):
        if len(changes) == 1:
            steps = [step for _, ((_, step),) in group if step is not None]
            yield from fuse(steps, tags if number == len(groups) else None, lengths)
            continue
        branches = []
        for index, first in enumerate(changes):
            forms = [(item, forms[index][1]) for item, forms in group]
            steps = [step for _, step in forms if step is not None]
            absent = tuple(item for item, step in forms if step is None)
            fused = [step for step in fuse(steps, None, lengths) if not isinstance(step, Tags)]
            branches.append(Branch(first, tuple(fused), absent))
        yield Choice(tuple(reversed(branches)))
    if not always:
        yield from fuse([], tags, lengths)


def _key(present: Sequence[_Forms], tags: Tags | None) -> str:
    fields = ",".join(
        ";".join(
            ("" if len(forms) == 1 else f"v{first}=")
            + ("" if step is None else f"{step.field.python_name}:{_wire_key(step.wire)}")
            for first, step in forms
        )
        for forms in present
    )
    known = ""
    if tags is not None:
        known = "|" + ",".join(
            f"{step.field.tag}={step.field.python_name}:{_wire_key(step.wire)}"
            + ("" if step.since is None else f" v{step.since}")
            for step in tags.known
        )
    return f"({fields}{known})"


def _wire_key(wire: WireType) -> str:
    match wire:
        case WireFixed(type_):
            return type_.name
        case WireText(kind, prefix, nullable):
            return f"{kind}/{prefix.label}{'?' * nullable}"
        case WireVarint(name):
            return name
        case WireArray(element, prefix, nullable):
            return f"[{_wire_key(element)}]/{prefix.label}{'?' * nullable}"
        case WireStruct(layout, nullable):
            return f"{layout.struct.name}{layout.key}{'?' * nullable}"
        case WireVersioned(struct):
            return f"versioned {struct.name}"
        case WireSized(length_field, minus):
            return f"{length_field}-{minus}"


def counted(of: StructLayout) -> dict[str, tuple[str, int]]:
    """Return the length fields of a layout: for each, the counted field, and what is added to its length."""
    return {
        item.field.python_name: (item.length_of, item.plus)
        for step in of.steps
        if isinstance(step, Run)
        for item in step.items
        if item.length_of is not None
    }
