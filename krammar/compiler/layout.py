"""Layouts: the list of operations that read or write the bytes of a struct at a version.

This module makes every decision about bytes: which fields exist, compact or classic lengths, nullability,
which fixed-width fields are read at once, and the order of tags. Templates only write the operations in a
language.

A layout is a list of steps. Neighbouring fixed-width fields form one ``Run``, together with the length or
count of the next step (or its first byte, if it is a varint), so that one call of ``struct`` reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

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
    """

    kind: str
    prefix: Prefix
    nullable: bool
    records: bool = False


@dataclass(frozen=True, slots=True)
class WireVarint:
    """A zig-zag varint of 32 or 64 bits."""

    name: str


@dataclass(frozen=True, slots=True)
class WireArray:
    """An array after the ``prefix`` with its count."""

    element: WireType
    prefix: Prefix
    nullable: bool

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
    """A field of variable width, with its form on the wire."""

    field: ir.Field
    wire: WireType

    @property
    def alone(self) -> tuple[Run | Step | Tags, ...]:
        """The steps of this field alone, as for the content of a tagged field."""
        return tuple(_fuse([self], None))


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
    """The tagged fields at the end of a struct in a flexible version, in ascending order (KIP-482)."""

    known: tuple[Step, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(step.field.tag or 0 for step in self.known)


@dataclass(frozen=True, slots=True)
class StructLayout:
    """The bytes of ``struct`` at one version.

    ``steps`` are the operations in order. ``fields`` are the untagged fields in order, each with its form on
    the wire. ``absent`` are the fields that this version does not have. Two layouts of a struct with equal
    ``key`` have the same bytes.
    """

    struct: ir.Struct
    flexible: bool
    steps: tuple[Run | Step | Tags, ...]
    fields: tuple[Step, ...]
    tags: Tags | None
    absent: tuple[ir.Field, ...]
    version: int
    key: str = field(default="", compare=False)

    @property
    def write_steps(self) -> tuple[Run | Step | Tags | Packed, ...]:
        """The steps for writing, with runs and arrays packed where possible."""
        return tuple(_packed(self.steps))

    @property
    def min_size(self) -> int:
        """The minimum number of bytes."""
        return sum(min_size(step.wire) for step in self.fields) + (1 if self.tags else 0)


def build(struct: ir.Struct, version: int, flexible: bool | None = None) -> StructLayout:
    """Build the layout of ``struct`` at ``version``.

    Args:
        flexible: whether the outer struct is flexible, for a nested struct. None: the struct's own header
            decides.
    """
    if flexible is None:
        flexible = struct.flexible(version)
    present: list[Step] = []
    tagged: list[Step] = []
    absent: list[ir.Field] = []
    for item in struct.fields:
        if version not in item.versions or (item.tag is not None and not flexible):
            absent.append(item)
            continue
        wire = _wire_of(item.type, version, flexible and item.flexible)
        if item.tag is not None and isinstance(wire, WireStruct):
            wire = replace(wire, tagged=True)
        if isinstance(wire, WireText) and _holds_records(item, wire):
            wire = replace(wire, records=True)
        step = Step(item, wire)
        (present if item.tag is None else tagged).append(step)
    tags = None
    if flexible:
        tags = Tags(tuple(sorted(tagged, key=lambda step: step.field.tag or 0)))
    steps = tuple(_fuse(present, tags))
    layout = StructLayout(struct, flexible, steps, tuple(present), tags, tuple(absent), version)
    return replace(layout, key=_key(layout))


# Names of fields with record batches, in Kafka's schemas and in franz-go's definitions. The language has no
# type for them.
RECORDS = frozenset({"Records", "RecordBatches", "UnalignedRecords"})


def _holds_records(item: ir.Field, wire: WireText) -> bool:
    return wire.kind == "bytes" and wire.prefix is not Prefix.VARINT and item.name in RECORDS


def _wire_of(type_: ir.Type, version: int, flexible: bool) -> WireType:
    match type_:
        case ir.Primitive():
            return WireFixed(type_)
        case ir.EnumType(enum):
            return WireFixed(enum.type, enum)
        case ir.Varint(name):
            return WireVarint(name)
        case ir.Text(kind, nullable, varint):
            prefix = Prefix.INT16 if kind == "string" else Prefix.INT32
            if varint:
                prefix = Prefix.VARINT
            elif flexible:
                prefix = Prefix.UVARINT
            return WireText(kind, prefix, nullable is not None and version in nullable)
        case ir.Array(element, nullable, varint):
            prefix = Prefix.INT32
            if varint:
                prefix = Prefix.VARINT
            elif flexible:
                prefix = Prefix.UVARINT
            return WireArray(
                _wire_of(element, version, flexible),
                prefix,
                nullable is not None and version in nullable,
            )
        case ir.StructType(struct, nullable):
            if struct.version_field is not None:
                return WireVersioned(struct)
            return WireStruct(build(struct, version, flexible), nullable)
        case ir.LengthFieldMinus(length_field, minus):
            return WireSized(length_field, minus)


def _prefix_of(wire: WireType) -> Prefix | None:
    """The prefix that the run before this step can read together with its own fields."""
    match wire:
        case WireText(prefix=prefix) | WireArray(prefix=prefix):
            return prefix
        case WireStruct(nullable=True, tagged=tagged):
            return Prefix.TAGGED_PRESENCE if tagged else Prefix.PRESENCE
        case _:
            return None


def _fuse(present: list[Step], tags: Tags | None) -> Iterator[Run | Step | Tags]:
    lengths = {
        step.wire.length_field: (step.field.python_name, step.wire.minus)
        for step in present
        if isinstance(step.wire, WireSized)
    }
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
    if run or tags is not None:
        # The count of tagged fields. They rarely exist, so they are read separately.
        yield Run(tuple(run), Prefix.TAGS if tags is not None else None)
    if tags is not None:
        yield tags


def _is_packable(step: Run | Step | Tags) -> bool:
    """Whether a step is an array of integers that is never null."""
    return (
        isinstance(step, Step)
        and isinstance(step.wire, WireArray)
        and not step.wire.nullable
        and step.wire.prefix in (Prefix.UVARINT, Prefix.INT32)
        and isinstance(step.wire.element, WireFixed)
        and step.wire.element.type.is_integer
    )


def _packed(steps: tuple[Run | Step | Tags, ...]) -> Iterator[Run | Step | Tags | Packed]:
    index = 0
    while index < len(steps):
        end = index
        while end + 1 < len(steps) and isinstance(steps[end], Run) and _is_packable(steps[end + 1]):
            end += 2
        if end - index >= 4:
            yield Packed(tuple(s for s in steps[index:end] if not isinstance(s, Tags)))
            index = end
        else:
            yield steps[index]
            index += 1


def _key(layout: StructLayout) -> str:
    fields = ",".join(f"{step.field.python_name}:{_wire_key(step.wire)}" for step in layout.fields)
    tags = ""
    if layout.tags is not None:
        known = layout.tags.known
        tags = "|" + ",".join(
            f"{step.field.tag}={step.field.python_name}:{_wire_key(step.wire)}" for step in known
        )
    return f"({fields}{tags})"


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
