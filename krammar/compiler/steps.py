"""Steps of layouts: the operations that read or write fields, and the forms of types on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    # An unsigned varint of the number itself.
    UNSIGNED = ("unsigned", "B", 1)
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
    """A varint of 32 or 64 bits: zig-zag (``varint``, ``varlong``), or unsigned (``uvarint``, ``uvarlong``)."""

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
    """A struct whose fields are written in place.

    ``tagged`` is whether the byte before a nullable struct is 0 or 1: in a tagged field, or because it is a bool.
    """

    layout: StructLayout
    nullable: bool
    tagged: bool = False

    @property
    def null(self) -> int:
        """The byte that represents a null struct. The byte 1 precedes a struct that is not null."""
        return 0 if self.tagged else 255


@dataclass(frozen=True, slots=True)
class WireVersioned:
    """A nested struct with a version field, which selects its layout. The others are as for ``WireStruct``."""

    struct: ir.Struct
    nullable: bool = False
    tagged: bool = False

    @property
    def null(self) -> int:
        """As for ``WireStruct``."""
        return 0 if self.tagged else 255


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
        case WireVersioned(nullable=nullable):
            return 1 if nullable else 2
        case WireSized():
            return 0


@dataclass(frozen=True, slots=True)
class Step:
    """A field of variable width, with its form on the wire.

    ``since`` and ``until`` are the first and the last version of a tagged field, if the codec also serves others.
    """

    field: ir.Field
    wire: WireType
    since: int | None = None
    until: int | None = None

    @property
    def alone(self) -> tuple[Run | Step | Tags, ...]:
        """The steps of this field alone, as for the content of a tagged field."""
        return tuple(fuse([self], None, {}))


@dataclass(frozen=True, slots=True)
class Tags:
    """The tagged fields at the end of a struct in a flexible version, in ascending order (KIP-482).

    ``since`` is the first flexible version, if the codec also serves others. ``shared`` is whether the codec serves
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
    def tagged(self) -> tuple[Step, ...]:
        """The tagged fields, in the order of their tags."""
        return () if self.tags is None else self.tags.known

    @property
    def all_fields(self) -> tuple[Step, ...]:
        """All fields, tagged fields last."""
        return (*self.fields, *self.tagged)

    @property
    def min_size(self) -> int:
        """The minimum number of bytes. Versions that share a codec agree in whether it is 0."""
        return sum(min_size(step.wire) for step in self.fields) + (1 if self.tags else 0)


def innermost(wire: WireType) -> WireType:
    """Return the type of an array's elements, or another type itself."""
    while isinstance(wire, WireArray):
        wire = wire.element
    return wire


def fuse(
    present: list[Step], tags: Tags | None, lengths: Mapping[str, tuple[str, int]]
) -> Iterator[Run | Step | Tags]:
    """Yield runs, steps and tags.

    Args:
        lengths: for each length field, the counted field, and what is added to its length.
    """
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


def _prefix_of(wire: WireType) -> Prefix | None:
    """The prefix that the run before this step can read together with its own fields."""
    match wire:
        case WireText(prefix=prefix) | WireArray(prefix=prefix):
            return prefix if prefix.code else None
        case WireStruct(nullable=True, tagged=tagged) | WireVersioned(nullable=True, tagged=tagged):
            return Prefix.TAGGED_PRESENCE if tagged else Prefix.PRESENCE
        case _:
            return None
