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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import TypeVar

from krammar.compiler import ir


class Prefix(Enum):
    """The form of a length or count: its name, its letter in ``struct``, and its minimum number of bytes.

    For a varint, the letter is that of the first byte.
    """

    INT16 = ("int16", "h", 2)
    INT32 = ("int32", "i", 4)
    # An unsigned varint of the number plus one; 0 is null.
    UVARINT = ("uvarint", "B", 1)
    # A zig-zag varint; a negative number is null.
    VARINT = ("varint", "B", 1)
    # Before a nullable struct: null (255, an int8 of -1) or present (1).
    PRESENCE = ("presence", "B", 1)
    # Before a nullable struct in a tagged field, as in Kafka: null (0) or present (1).
    TAGGED_PRESENCE = ("tagged presence", "B", 1)
    # The number of tagged fields.
    TAGS = ("tags", "B", 1)
    # In a codec for all versions: an unsigned varint in flexible versions, and an int16 or int32 in others.
    SHARED_INT16 = ("shared int16", "", 1)
    SHARED_INT32 = ("shared int32", "", 1)

    @property
    def label(self) -> str:
        """The name."""
        return self.value[0]

    @property
    def code(self) -> str:
        """The letter in ``struct``."""
        return self.value[1]

    @property
    def width(self) -> int:
        """The minimum number of bytes."""
        return self.value[2]


@dataclass(frozen=True, slots=True)
class RunItem:
    """A fixed-width field in a run.

    If it is a length field, ``length_of`` is the counted attribute. Encoding writes the number of its bytes
    plus ``plus``, instead of the value.
    """

    field: ir.Field
    type: ir.Primitive
    enum: ir.Enum | None = None
    length_of: str | None = None
    plus: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Fixed-width fields that are read at once, together with the ``prefix`` of the next step."""

    items: tuple[RunItem, ...]
    prefix: Prefix | None = None

    @property
    def codes(self) -> str:
        """The letters of the complete run in Python's ``struct``."""
        return "".join(item.type.code for item in self.items) + (
            self.prefix.code if self.prefix else ""
        )

    @property
    def write_codes(self) -> str:
        """The letters of the part that is written at once. Varint prefixes and presence are written separately."""
        codes = "".join(item.type.code for item in self.items)
        return codes + self.prefix.code if self.classic_prefix and self.prefix else codes

    @property
    def classic_prefix(self) -> bool:
        """Whether the prefix has a fixed width (not compact, not a varint)."""
        return self.prefix in (Prefix.INT16, Prefix.INT32)

    @property
    def width(self) -> int:
        """The number of bytes of the run, with the first byte of a varint prefix."""
        return sum(item.type.width for item in self.items) + (
            self.prefix.width if self.prefix else 0
        )


@dataclass(frozen=True, slots=True)
class WireFixed:
    """A fixed-width element of an array. ``enum`` names its values."""

    type: ir.Primitive
    enum: ir.Enum | None = None


@dataclass(frozen=True, slots=True)
class WireText:
    """A string or bytes after a ``prefix``.

    ``records`` is whether the bytes contain record batches, which Kafka's protocol guide calls RECORDS.
    ``compact`` is whether a shared prefix is a varint, or None if that depends on the version.
    """

    kind: str
    prefix: Prefix
    nullable: bool
    records: bool = False
    compact: bool | None = None


@dataclass(frozen=True, slots=True)
class WireVarint:
    """A zig-zag varint of 32 or 64 bits."""

    name: str


@dataclass(frozen=True, slots=True)
class WireArray:
    """An array after the ``prefix`` with its count. ``compact`` is as for ``WireText``."""

    element: WireType
    prefix: Prefix
    nullable: bool
    compact: bool | None = None

    @property
    def zero_width(self) -> bool:
        """Whether elements can be empty. If so, the remaining bytes do not limit the count."""
        return min_size(self.element) == 0

    @property
    def lead(self) -> Run | None:
        """The run that reads the prefix of an element, or None."""
        prefix = _prefix_of(self.element)
        return None if prefix is None else Run((), prefix)


@dataclass(frozen=True, slots=True)
class WireStruct:
    """A struct whose fields are written in place."""

    layout: StructLayout
    nullable: bool
    tagged: bool = False

    @property
    def null(self) -> int:
        """The byte that represents a null struct. The byte 1 precedes a struct that is not null."""
        return 0 if self.tagged else 255


@dataclass(frozen=True, slots=True)
class WireVersioned:
    """A nested struct with a version field, which selects its layout."""

    struct: ir.Struct


@dataclass(frozen=True, slots=True)
class WireSized:
    """Raw bytes. Their number is the value of the attribute ``length_field``, minus ``minus``."""

    length_field: str
    minus: int


WireType = WireFixed | WireText | WireVarint | WireArray | WireStruct | WireVersioned | WireSized


def min_size(wire: WireType) -> int:
    """Return the minimum number of bytes of a value."""
    match wire:
        case WireFixed(type_):
            return type_.width
        case WireText(prefix=prefix) | WireArray(prefix=prefix):
            return prefix.width
        case WireVarint():
            return 1
        case WireStruct(layout, nullable):
            return 1 if nullable else layout.min_size
        case WireVersioned():
            return 2
        case WireSized():
            return 0


@dataclass(frozen=True, slots=True)
class Step:
    """A field of variable width, with its form on the wire.

    ``since`` and ``until`` are the first and the last version of a tagged field, where a codec has others too.
    """

    field: ir.Field
    wire: WireType
    since: int | None = None
    until: int | None = None

    @property
    def alone(self) -> tuple[Run | Step | Tags, ...]:
        """The steps of this field alone, as for the content of a tagged field."""
        return tuple(_fuse([self], None, {}))


@dataclass(frozen=True, slots=True)
class Packed:
    """Alternating runs and arrays of integers that are written with one call of ``struct``.

    The lengths of the arrays select the compiled format. Packing saves a fifth of the time to encode a
    Metadata response, whose partitions contain three such arrays. A single array would not be faster, so
    there are at least two.
    """

    steps: tuple[Run | Step, ...]

    @property
    def arrays(self) -> tuple[Step, ...]:
        """The arrays without the runs."""
        return tuple(step for step in self.steps if isinstance(step, Step))

    @property
    def segments(self) -> tuple[tuple[str, str, str], ...]:
        """For each array: the letters of the fields before it, of its count, and of its elements."""
        found = []
        for run, step in zip(self.steps[::2], self.steps[1::2], strict=False):
            assert isinstance(run, Run) and run.prefix is not None
            assert isinstance(step, Step) and isinstance(step.wire, WireArray)
            assert isinstance(step.wire.element, WireFixed)
            codes = "".join(item.type.code for item in run.items)
            found.append((codes, run.prefix.code, step.wire.element.type.code))
        return tuple(found)

    @property
    def name(self) -> str:
        """A distinct name for each list of segments."""
        return "_".join("".join(segment) for segment in self.segments).replace("?", "t")


@dataclass(frozen=True, slots=True)
class Tags:
    """The tagged fields at the end of a struct in a flexible version, in ascending order (KIP-482).

    ``since`` is the first flexible version, where a codec has others too. ``shared`` is whether the codec serves
    all versions.
    """

    known: tuple[Step, ...]
    since: int | None = None
    shared: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(step.field.tag or 0 for step in self.known)


@dataclass(frozen=True, slots=True)
class Branch:
    """The steps of fields from version ``first`` on. ``absent`` are those of the fields that do not exist there."""

    first: int
    steps: tuple[Run | Step, ...]
    absent: tuple[ir.Field, ...]

    @property
    def write_steps(self) -> tuple[Run | Step | Packed, ...]:
        """The steps for encoding, as for ``StructLayout``."""
        return tuple(_packed(self.steps))


@dataclass(frozen=True, slots=True)
class Choice:
    """Fields that do not have the same form in all versions of a codec: the newest versions come first."""

    branches: tuple[Branch, ...]


AnyStep = Run | Step | Choice | Tags


@dataclass(frozen=True, slots=True)
class StructLayout:
    """The bytes of ``struct`` at one version, or at several that share a codec.

    ``steps`` are the operations in order. ``fields`` are the untagged fields in order, each with its form on
    the wire; a field with several forms appears several times. ``absent`` are the fields that no version has.
    ``version`` is the first version. Two layouts of a struct with equal ``key`` have the same bytes.
    """

    struct: ir.Struct
    flexible: bool
    steps: tuple[AnyStep, ...]
    fields: tuple[Step, ...]
    tags: Tags | None
    absent: tuple[ir.Field, ...]
    version: int
    key: str = field(default="", compare=False)

    @property
    def write_steps(self) -> tuple[AnyStep | Packed, ...]:
        """The steps for writing, with runs and arrays packed where possible."""
        return tuple(_packed(self.steps))

    @property
    def min_size(self) -> int:
        """The minimum number of bytes. Versions that share a codec agree in whether it is 0."""
        return sum(min_size(step.wire) for step in self.fields) + (1 if self.tags else 0)


def build(struct: ir.Struct, version: int, flexible: bool | None = None) -> StructLayout:
    """Build the layout of ``struct`` at ``version``.

    Args:
        flexible: whether the outer struct is flexible, for a nested struct. None: the struct's own header
            decides.
    """
    if flexible is None:
        flexible = struct.flexible(version)
    return _build(struct, _Plan((version,), version if flexible else None))


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
            if item.tag is not None and isinstance(wire, WireStruct):
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
    return wire.kind == "bytes" and wire.prefix is not Prefix.VARINT and item.name in RECORDS


def _wire_of(type_: ir.Type, plan: _Plan) -> WireType:
    match type_:
        case ir.Primitive():
            return WireFixed(type_)
        case ir.EnumType(enum):
            return WireFixed(enum.type, enum)
        case ir.Varint(name):
            return WireVarint(name)
        case ir.Text(kind, nullable, varint):
            null = nullable is not None and plan.versions[0] in nullable
            if varint:
                return WireText(kind, Prefix.VARINT, null)
            prefix = plan.prefix(Prefix.INT16 if kind == "string" else Prefix.INT32)
            return WireText(kind, prefix, null, compact=plan.compact)
        case ir.Array(element, nullable, varint):
            null = nullable is not None and plan.versions[0] in nullable
            prefix = Prefix.VARINT if varint else plan.prefix(Prefix.INT32)
            return WireArray(_wire_of(element, plan), prefix, null, plan.compact)
        case ir.StructType(struct, nullable):
            if struct.version_field is not None:
                return WireVersioned(struct)
            return WireStruct(_build(struct, plan), nullable)
        case ir.LengthFieldMinus(length_field, minus):
            return WireSized(length_field, minus)


def _prefix_of(wire: WireType) -> Prefix | None:
    """The prefix that the run before this step can read together with its own fields."""
    match wire:
        case WireText(prefix=prefix) | WireArray(prefix=prefix):
            return prefix if prefix.code else None
        case WireStruct(nullable=True, tagged=tagged):
            return Prefix.TAGGED_PRESENCE if tagged else Prefix.PRESENCE
        case _:
            return None


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
            yield from _fuse(steps, tags if number == len(groups) else None, lengths)
            continue
        branches = []
        for index, first in enumerate(changes):
            forms = [(item, forms[index][1]) for item, forms in group]
            steps = [step for _, step in forms if step is not None]
            absent = tuple(item for item, step in forms if step is None)
            fused = [step for step in _fuse(steps, None, lengths) if not isinstance(step, Tags)]
            branches.append(Branch(first, tuple(fused), absent))
        yield Choice(tuple(reversed(branches)))
    if not always:
        yield from _fuse([], tags, lengths)


def _fuse(
    present: list[Step], tags: Tags | None, lengths: Mapping[str, tuple[str, int]]
) -> Iterator[Run | Step | Tags]:
    run: list[RunItem] = []
    for step in present:
        if isinstance(step.wire, WireFixed):
            length_of, plus = lengths.get(step.field.python_name, (None, 0))
            run.append(RunItem(step.field, step.wire.type, step.wire.enum, length_of, plus))
            continue
        prefix = _prefix_of(step.wire)
        if run or prefix is not None:
            yield Run(tuple(run), prefix)
            run = []
        yield step
    # The count of tagged fields. They rarely exist, so they are read separately.
    prefix = None if tags is None or tags.shared else Prefix.TAGS
    if run or prefix is not None:
        yield Run(tuple(run), prefix)
    if tags is not None:
        yield tags


def _is_packable(step: AnyStep) -> bool:
    """Whether a step is an array of integers that is never null."""
    return (
        isinstance(step, Step)
        and isinstance(step.wire, WireArray)
        and not step.wire.nullable
        and step.wire.prefix in (Prefix.UVARINT, Prefix.INT32)
        and isinstance(step.wire.element, WireFixed)
        and step.wire.element.type.is_integer
    )


_S = TypeVar("_S", bound=AnyStep)


def _packed(steps: Sequence[_S]) -> Iterator[_S | Packed]:
    index = 0
    while index < len(steps):
        end = index
        while end + 1 < len(steps) and isinstance(steps[end], Run) and _is_packable(steps[end + 1]):
            end += 2
        if end - index >= 4:
            yield Packed(tuple(s for s in steps[index:end] if isinstance(s, (Run, Step))))
            index = end
        else:
            yield steps[index]
            index += 1


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
            layout = build(struct, version)
            served = shared.setdefault(layout.key, (layout, []))[1]
        served.append(version)
    layouts = tuple(SharedLayout(layout, tuple(served)) for layout, served in shared.values())
    return LayoutTable(struct, layouts, struct.min_version, highest, struct.max_version is None)


def counted(of: StructLayout) -> dict[str, tuple[str, int]]:
    """Return the length fields of a layout: for each, the counted field, and what is added to its length."""
    return {
        item.field.python_name: (item.length_of, item.plus)
        for step in of.steps
        if isinstance(step, Run)
        for item in step.items
        if item.length_of is not None
    }


def codecs(table: LayoutTable) -> tuple[SharedLayout, ...]:
    """Return the layouts of the codecs that serve the versions of a struct.

    A frequent struct has a codec for each layout, any other struct one for all versions. Structs whose versions
    differ in more than which fields exist and which can be null have a codec for each layout too.
    """
    struct = table.struct
    if struct.frequent:
        return table.layouts
    versions = tuple(sorted(v for shared in table.layouts for v in shared.versions))
    traits: dict[str, str] = {}
    for shared in table.layouts:
        for place, trait in _traits(shared.layout, ""):
            if traits.setdefault(place, trait) != trait:
                return table.layouts
    return (SharedLayout(_build(struct, _Plan(versions, struct.flexible_from, True)), versions),)


def _traits(of: StructLayout, place: str) -> Iterator[tuple[str, str]]:
    """What all versions of a codec agree on: null in tagged fields, empty elements, counted bytes."""
    for step in of.tags.known if of.tags is not None else ():
        yield f"{place}.{step.field.name} null", str(getattr(step.wire, "nullable", False))
    for step in (*of.fields, *(of.tags.known if of.tags is not None else ())):
        inner = f"{place}.{step.field.name}"
        wire = step.wire
        while isinstance(wire, WireArray):
            yield f"{inner} empty", str(wire.zero_width)
            wire, inner = wire.element, f"{inner}[]"
        if isinstance(wire, WireStruct):
            yield from _traits(wire.layout, inner)
    yield f"{place} sized", str([s.field.name for s in of.fields if isinstance(s.wire, WireSized)])


def _changes(struct: ir.Struct) -> Iterator[int]:
    """The versions at which the layout of a struct can differ from the version before."""
    yield from own_changes(struct)
    for item in struct.fields:
        type_ = item.type
        while isinstance(type_, ir.Array):
            type_ = type_.element
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
        type_ = item.type
        while isinstance(type_, ir.Array):
            if type_.nullable is not None:
                yield type_.nullable.min
            type_ = type_.element
        if isinstance(type_, ir.Text) and type_.nullable is not None:
            yield type_.nullable.min


@dataclass(frozen=True, slots=True)
class HeaderVersions:
    """Pairs of a first version and the header version from it on, for a request and its response."""

    request: tuple[tuple[int, int], ...]
    response: tuple[tuple[int, int], ...]


def header_versions(
    request: ir.Request, request_header_max: int, response_header_max: int
) -> HeaderVersions:
    """Return the header versions of a request and its response.

    Flexible versions have request header 2 and response header 1, other versions 1 and 0 (KIP-482). There
    are two exceptions. The response to ApiVersions always has header 0, because the client does not yet
    know the versions of the broker (KIP-511). Version 0 of the ControlledShutdown request has header 0,
    without a client id.

    Args:
        request_header_max: the last version of the protocol's request header, which is never exceeded.
        response_header_max: the same for the response header.
    """
    struct = request.struct
    requests = [(struct.min_version, min(1, request_header_max))]
    responses = [(struct.min_version, 0)]
    if struct.name == "ControlledShutdownRequest" and struct.min_version == 0:
        requests = [(0, 0), (1, min(1, request_header_max))]
    if struct.flexible_from is not None:
        start = max(struct.min_version, struct.flexible_from)
        requests.append((start, min(2, request_header_max)))
        if struct.name != "ApiVersionsRequest":
            responses.append((start, min(1, response_header_max)))
    return HeaderVersions(tuple(requests), tuple(responses))
