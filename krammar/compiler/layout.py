"""Layouts: for one struct and one version, the flat list of operations that read or write its bytes.

Every decision about bytes is made here: which fields exist, compact or classic lengths, what is
nullable, which fixed-width neighbours are read at once, in which order tags stand. Templates only
spell the operations in a language.

A layout is a list of steps. Fixed-width fields that follow each other are fused into one ``Run``,
together with the length or count (its first byte, where that is a varint) of the step behind them:
one call of ``struct`` reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from krammar.compiler import ir


class Prefix(Enum):
    """How a length or count is written: its name, its letter in ``struct`` (for a varint: that of
    its first byte), and the least number of bytes it takes."""

    INT16 = ("int16", "h", 2)
    INT32 = ("int32", "i", 4)
    # Unsigned varint of the number plus one; 0 is null.
    UVARINT = ("uvarint", "B", 1)
    # Zig-zag varint; negative is null.
    VARINT = ("varint", "B", 1)
    # Null (255, an int8 of -1) or present (1), before a nullable struct.
    PRESENCE = ("presence", "B", 1)
    # The same inside a tagged field: null (0) or present (1), as Kafka writes it.
    TAGGED_PRESENCE = ("tagged presence", "B", 1)
    # The number of tagged fields.
    TAGS = ("tags", "B", 1)

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def code(self) -> str:
        return self.value[1]

    @property
    def width(self) -> int:
        return self.value[2]


@dataclass(frozen=True, slots=True)
class RunItem:
    """A fixed-width field in a run. ``length_of`` is the attribute whose length in bytes, plus
    ``plus``, this field says; encoding takes the value from there."""

    field: ir.Field
    type: ir.Primitive
    enum: ir.Enum | None = None
    length_of: str | None = None
    plus: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Fixed-width fields read at once; ``prefix`` is that of the next step, read with them."""

    items: tuple[RunItem, ...]
    prefix: Prefix | None = None

    @property
    def codes(self) -> str:
        """The letters of the whole run in Python's ``struct``."""
        return "".join(item.type.code for item in self.items) + (
            self.prefix.code if self.prefix else ""
        )

    @property
    def write_codes(self) -> str:
        """The letters of what is written at once: varint prefixes and presence are written apart."""
        codes = "".join(item.type.code for item in self.items)
        return codes + self.prefix.code if self.classic_prefix and self.prefix else codes

    @property
    def classic_prefix(self) -> bool:
        return self.prefix in (Prefix.INT16, Prefix.INT32)

    @property
    def width(self) -> int:
        return sum(item.type.width for item in self.items) + (
            self.prefix.width if self.prefix else 0
        )


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-width element of an array. ``enum`` names its values."""

    type: ir.Primitive
    enum: ir.Enum | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A string or bytes behind ``prefix``."""

    kind: str
    prefix: Prefix
    nullable: bool


@dataclass(frozen=True, slots=True)
class VarInteger:
    """A zig-zag varint of 32 or 64 bits."""

    name: str


@dataclass(frozen=True, slots=True)
class Array:
    element: Wire
    prefix: Prefix
    nullable: bool

    @property
    def zero_width(self) -> bool:
        """Whether elements may take no bytes, so that no count can be checked against what is left."""
        return min_size(self.element) == 0

    @property
    def lead(self) -> Run | None:
        """What reads an element's prefix, where it has one."""
        prefix = _prefix_of(self.element)
        return None if prefix is None else Run((), prefix)


@dataclass(frozen=True, slots=True)
class Nested:
    """A struct laid out in place."""

    layout: Layout
    nullable: bool
    tagged: bool = False

    @property
    def null(self) -> int:
        """The byte before a null struct; 1 is before one that is there."""
        return 0 if self.tagged else 255


@dataclass(frozen=True, slots=True)
class Versioned:
    """A struct with a version field, inside another one: its own first field chooses its layout."""

    struct: ir.Struct


@dataclass(frozen=True, slots=True)
class Sized:
    """Raw bytes, as many as the attribute ``length_field`` says, minus ``minus``."""

    length_field: str
    minus: int


Wire = Fixed | Text | VarInteger | Array | Nested | Versioned | Sized


def min_size(wire: Wire) -> int:
    """The least number of bytes that a value takes."""
    match wire:
        case Fixed(type_):
            return type_.width
        case Text(prefix=prefix) | Array(prefix=prefix):
            return prefix.width
        case VarInteger():
            return 1
        case Nested(layout, nullable):
            return 1 if nullable else layout.min_size
        case Versioned():
            return 2
        case Sized():
            return 0


@dataclass(frozen=True, slots=True)
class Step:
    """A field of variable width, laid out as ``wire`` says."""

    field: ir.Field
    wire: Wire

    @property
    def alone(self) -> tuple[Run | Step | Tags, ...]:
        """The steps of this field by itself: how a tagged field is laid out inside its size."""
        return tuple(_fuse([self], None))


@dataclass(frozen=True, slots=True)
class Packed:
    """Runs and arrays of integers between them, written with one call of ``struct``: the compiled
    format is looked up by the arrays' lengths. ``steps`` alternate runs and arrays.

    It takes a fifth off the time to encode a Metadata response, whose partitions hold three such
    arrays; arrays that stand alone gain nothing, so two is the least.
    """

    steps: tuple[Run | Step, ...]

    @property
    def arrays(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if isinstance(step, Step))

    @property
    def segments(self) -> tuple[tuple[str, str, str], ...]:
        """Of each array: the codes of the fields before it, of its count, and of its elements."""
        found = []
        for run, step in zip(self.steps[::2], self.steps[1::2], strict=False):
            assert isinstance(run, Run) and run.prefix is not None
            assert isinstance(step, Step) and isinstance(step.wire, Array)
            assert isinstance(step.wire.element, Fixed)
            codes = "".join(item.type.code for item in run.items)
            found.append((codes, run.prefix.code, step.wire.element.type.code))
        return tuple(found)

    @property
    def name(self) -> str:
        """A name of its own for each distinct list of segments."""
        return "_".join("".join(segment) for segment in self.segments).replace("?", "t")


@dataclass(frozen=True, slots=True)
class Tags:
    """The tagged fields at the end of a struct in a flexible version, in ascending order of tags."""

    known: tuple[Step, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(step.field.tag or 0 for step in self.known)


@dataclass(frozen=True, slots=True)
class Layout:
    """The bytes of ``struct`` at one version.

    ``steps`` are the operations in order; ``fields`` the untagged fields in order, each with what it
    puts on the wire; ``absent`` the fields that this version does not have. ``key`` tells layouts of
    one struct apart: equal keys, equal bytes.
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
        """The steps as they are written, with what can be packed at once taken together."""
        return tuple(_packed(self.steps))

    @property
    def min_size(self) -> int:
        return sum(min_size(step.wire) for step in self.fields) + (1 if self.tags else 0)


def build(struct: ir.Struct, version: int, flexible: bool | None = None) -> Layout:
    """The layout of ``struct`` at ``version``.

    ``flexible`` is the holder's where the struct stands inside another one; None takes the struct's own.
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
        if item.tag is not None and isinstance(wire, Nested):
            wire = replace(wire, tagged=True)
        step = Step(item, wire)
        (present if item.tag is None else tagged).append(step)
    tags = None
    if flexible:
        tags = Tags(tuple(sorted(tagged, key=lambda step: step.field.tag or 0)))
    steps = tuple(_fuse(present, tags))
    layout = Layout(struct, flexible, steps, tuple(present), tags, tuple(absent), version)
    return replace(layout, key=_key(layout))


def _wire_of(type_: ir.Type, version: int, flexible: bool) -> Wire:
    match type_:
        case ir.Primitive():
            return Fixed(type_)
        case ir.EnumType(enum):
            return Fixed(enum.type, enum)
        case ir.Varint(name):
            return VarInteger(name)
        case ir.Text(kind, nullable, varint):
            prefix = Prefix.INT16 if kind == "string" else Prefix.INT32
            if varint:
                prefix = Prefix.VARINT
            elif flexible:
                prefix = Prefix.UVARINT
            return Text(kind, prefix, nullable is not None and version in nullable)
        case ir.Array(element, nullable, varint):
            prefix = Prefix.INT32
            if varint:
                prefix = Prefix.VARINT
            elif flexible:
                prefix = Prefix.UVARINT
            return Array(
                _wire_of(element, version, flexible),
                prefix,
                nullable is not None and version in nullable,
            )
        case ir.StructType(struct, nullable):
            if struct.version_field is not None:
                return Versioned(struct)
            return Nested(build(struct, version, flexible), nullable)
        case ir.LengthFieldMinus(length_field, minus):
            return Sized(length_field, minus)


def _prefix_of(wire: Wire) -> Prefix | None:
    """The prefix that a run before this step can read along with its own fields."""
    match wire:
        case Text(prefix=prefix) | Array(prefix=prefix):
            return prefix
        case Nested(nullable=True, tagged=tagged):
            return Prefix.TAGGED_PRESENCE if tagged else Prefix.PRESENCE
        case _:
            return None


def _fuse(present: list[Step], tags: Tags | None) -> Iterator[Run | Step | Tags]:
    lengths = {
        step.wire.length_field: (step.field.python_name, step.wire.minus)
        for step in present
        if isinstance(step.wire, Sized)
    }
    run: list[RunItem] = []
    for step in present:
        if isinstance(step.wire, Fixed):
            length_of, plus = lengths.get(step.field.python_name, (None, 0))
            run.append(RunItem(step.field, step.wire.type, step.wire.enum, length_of, plus))
            continue
        prefix = _prefix_of(step.wire)
        if run or prefix is not None:
            yield Run(tuple(run), prefix)
            run = []
        yield step
    if run or tags is not None:
        # The count of tagged fields; what follows it is read apart, since there rarely is any.
        yield Run(tuple(run), Prefix.TAGS if tags is not None else None)
    if tags is not None:
        yield tags


def _is_packable(step: Run | Step | Tags) -> bool:
    """Whether a step is an array of integers that is never null."""
    return (
        isinstance(step, Step)
        and isinstance(step.wire, Array)
        and not step.wire.nullable
        and step.wire.prefix in (Prefix.UVARINT, Prefix.INT32)
        and isinstance(step.wire.element, Fixed)
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


def _key(layout: Layout) -> str:
    fields = ",".join(f"{step.field.python_name}:{_wire_key(step.wire)}" for step in layout.fields)
    tags = ""
    if layout.tags is not None:
        known = layout.tags.known
        tags = "|" + ",".join(
            f"{step.field.tag}={step.field.python_name}:{_wire_key(step.wire)}" for step in known
        )
    return f"({fields}{tags})"


def _wire_key(wire: Wire) -> str:
    match wire:
        case Fixed(type_):
            return type_.name
        case Text(kind, prefix, nullable):
            return f"{kind}/{prefix.label}{'?' * nullable}"
        case VarInteger(name):
            return name
        case Array(element, prefix, nullable):
            return f"[{_wire_key(element)}]/{prefix.label}{'?' * nullable}"
        case Nested(layout, nullable):
            return f"{layout.struct.name}{layout.key}{'?' * nullable}"
        case Versioned(struct):
            return f"versioned {struct.name}"
        case Sized(length_field, minus):
            return f"{length_field}-{minus}"


@dataclass(frozen=True, slots=True)
class Codec:
    """One layout of a struct and the versions that share it; ``first`` names its functions."""

    layout: Layout
    versions: tuple[int, ...]

    @property
    def first(self) -> int:
        return self.versions[0]


@dataclass(frozen=True, slots=True)
class CodecTable:
    """All layouts of a struct that can be encoded alone. ``open_ended`` means that versions above
    ``max_version`` exist and are laid out like it."""

    struct: ir.Struct
    codecs: tuple[Codec, ...]
    min_version: int
    max_version: int
    open_ended: bool


def codec_table(struct: ir.Struct) -> CodecTable:
    """The layouts of ``struct`` at each of its versions; versions with the same layout share one."""
    changes = set(_changes(struct))
    highest = struct.max_version
    if highest is None:
        highest = max([struct.min_version, *changes])
    shared: dict[str, tuple[Layout, list[int]]] = {}
    served: list[int] = []
    for version in range(struct.min_version, highest + 1):
        if version == struct.min_version or version in changes:
            layout = build(struct, version)
            served = shared.setdefault(layout.key, (layout, []))[1]
        served.append(version)
    codecs = tuple(Codec(layout, tuple(served)) for layout, served in shared.values())
    return CodecTable(struct, codecs, struct.min_version, highest, struct.max_version is None)


def _changes(struct: ir.Struct) -> Iterator[int]:
    """The versions at which the layout of a struct can differ from that of the version before."""
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
        if isinstance(type_, ir.StructType) and type_.struct.version_field is None:
            yield from _changes(type_.struct)


@dataclass(frozen=True, slots=True)
class HeaderVersions:
    """Which header version goes with a request's version: ``classic`` below ``flexible_from``."""

    request: tuple[tuple[int, int], ...]
    response: tuple[tuple[int, int], ...]


def header_versions(
    request: ir.Request, request_header_max: int, response_header_max: int
) -> HeaderVersions:
    """Pairs (from version, header version) for a request and its response.

    Kafka's rule (KIP-482): request header 2 and response header 1 in flexible versions, 1 and 0
    before. Two exceptions: a response to ApiVersions always has header 0, since the client does not
    know yet what the broker speaks (KIP-511), and a ControlledShutdown request of version 0 has
    header 0, without a client id. Headers that a protocol does not have are not asked for.
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
