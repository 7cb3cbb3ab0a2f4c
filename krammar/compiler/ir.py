"""The intermediate representation (IR) of definitions, with all names resolved.

All objects are immutable. A struct contains the types of its fields, so the IR of definitions without errors
has no cycles and no names to look up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from krammar.util.diagnostics import Position


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions ``min`` to ``max``, both included. If ``max`` is None, the range has no end."""

    min: int = 0
    max: int | None = None

    def __contains__(self, version: int) -> bool:
        return version >= self.min and (self.max is None or version <= self.max)

    def __str__(self) -> str:
        return f"v{self.min}+" if self.max is None else f"v{self.min}-v{self.max}"

    def intersect(self, other: VersionRange) -> VersionRange | None:
        """Return the versions of both ranges, or None if they have none in common."""
        low = max(self.min, other.min)
        ends = [end for end in (self.max, other.max) if end is not None]
        high = min(ends) if ends else None
        return None if high is not None and high < low else VersionRange(low, high)

    def covers(self, other: VersionRange) -> bool:
        """Return whether this range contains all versions of the other."""
        return self.intersect(other) == other


ALL_VERSIONS = VersionRange()
# Where a definition can say that a request is sent.
ROUTINGS = ("admin", "group coordinator", "txn coordinator", "share coordinator")


def version_ranges(versions: Sequence[int]) -> str:
    """Format ascending versions as ``v1, v3-v5``."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return ", ".join(
        f"v{part[0]}" if len(part) == 1 else f"v{part[0]}-v{part[-1]}" for part in parts
    )


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type with a fixed width in bytes. ``code`` is its letter in Python's ``struct`` module."""

    name: str
    code: str
    width: int

    @property
    def is_integer(self) -> bool:
        return self.code in "bhiqBHIQ"

    @property
    def is_float(self) -> bool:
        return self.code in "fd"

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest value of an integer type."""
        bits = self.width * 8
        return (
            (0, 2**bits - 1) if self.code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )


PRIMITIVES = {
    primitive.name: primitive
    for primitive in (
        Primitive("bool", "?", 1),
        Primitive("int8", "b", 1),
        Primitive("int16", "h", 2),
        Primitive("int32", "i", 4),
        Primitive("int64", "q", 8),
        Primitive("uint8", "B", 1),
        Primitive("uint16", "H", 2),
        Primitive("uint32", "I", 4),
        Primitive("uint64", "Q", 8),
        Primitive("float32", "f", 4),
        Primitive("float64", "d", 8),
        Primitive("uuid", "16s", 16),
    )
}


@dataclass(frozen=True, slots=True)
class Varint:
    """A base-128 integer of 32 or 64 bits: ``varint`` and ``varlong`` (zig-zag), ``uvarint`` and ``uvarlong``."""

    name: str
    bits: int

    @property
    def is_signed(self) -> bool:
        return not self.name.startswith("u")

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest value."""
        if not self.is_signed:
            return (0, 2**self.bits - 1)
        return (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)


VARINTS = {
    varint.name: varint
    for varint in (
        Varint("varint", 32),
        Varint("varlong", 64),
        Varint("uvarint", 32),
        Varint("uvarlong", 64),
    )
}


# The form of a length or count, in all versions. Empty for Kafka's, which is compact in flexible versions.
LengthForm = Literal["", "int16", "int32", "varint", "uvarint"]


@dataclass(frozen=True, slots=True)
class Text:
    """``string`` or ``bytes``, in all forms.

    ``nullable`` are the versions in which null is allowed, or None. ``length`` is the form of the length.
    """

    kind: Literal["string", "bytes"]
    nullable: VersionRange | None = None
    length: LengthForm = ""


@dataclass(frozen=True, slots=True)
class Array:
    """An array. ``nullable`` and ``length`` are as for ``Text``, for its count."""

    element: Type
    nullable: VersionRange | None = None
    length: LengthForm = ""


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct in place. A byte precedes a nullable one: a bool if ``presence_bool``, or an int8 of -1 or 1."""

    struct: Struct
    nullable: bool = False
    presence_bool: bool = False


@dataclass(frozen=True, slots=True)
class EnumType:
    enum: Enum


@dataclass(frozen=True, slots=True)
class LengthFieldMinus:
    """Raw bytes. Their number is the value of the field ``length_field``, minus ``minus``."""

    length_field: str
    minus: int
    position: Position | None = field(default=None, compare=False)


Type = Primitive | Varint | Text | Array | StructType | EnumType | LengthFieldMinus

# A default: a scalar, None for null, or () for an empty array. For a nullable struct, () is a struct with
# default values. Other structs always have that default; their value here is not used.
Default = bool | int | float | str | bytes | uuid.UUID | tuple[()] | None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    ``versions`` are the versions of the struct in which the field exists. ``tag`` is None for an untagged
    field. ``flexible`` is False for a field with classic encoding in flexible versions. ``throttle_from`` is
    the version from which a broker throttles after the response (KIP-219). ``ignorable`` is whether encoding
    a version without the field may drop its value. ``entity`` is what its value names, such as ``topicName``.
    ``tag_position`` is where the definition gives the tag.
    """

    name: str
    python_name: str
    type: Type
    versions: VersionRange
    tag: int | None
    flexible: bool
    default: Default
    doc: str
    position: Position
    throttle_from: int | None = None
    ignorable: bool = False
    entity: str = ""
    tag_position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ReservedTag:
    """A tag that no field may have, because a removed field had it.

    ``position`` is the position of the tag's number.
    """

    tag: int
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: a message, a named struct, or a struct of a message, such as ``FetchRequest.FetchTopic``.

    Names are unique in a package. ``anonymous`` is whether the struct is defined in a field. ``max_version`` is
    None if the versions have no end. ``version_field`` is the attribute of the leading version field, or None.
    ``encoding`` is whether the struct can be encoded alone. ``reads_newer`` is whether versions above the last one are
    decoded like it. ``reserved_tags`` are those of removed fields.
    """

    name: str
    fields: tuple[Field, ...]
    doc: str
    position: Position
    anonymous: bool = False
    encoding: bool = True
    version_field: str | None = None
    min_version: int = 0
    max_version: int | None = None
    flexible_from: int | None = None
    reads_newer: bool = False
    reserved_tags: tuple[ReservedTag, ...] = ()

    @property
    def owner(self) -> str:
        """The message that a struct belongs to, or the name of a struct that belongs to none."""
        return self.name.partition(".")[0]

    @property
    def class_name(self) -> str:
        """The name of the class, without the message that it belongs to."""
        return self.name.rpartition(".")[2]

    @property
    def versions(self) -> VersionRange:
        return VersionRange(self.min_version, self.max_version)

    def flexible(self, version: int) -> bool:
        """Return whether a version is flexible (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member of an enum. ``remarks`` are the words after it, such as ``retriable``."""

    value: int
    name: str
    remarks: tuple[str, ...]
    doc: str
    position: Position


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum. ``camelcase`` is whether the definition writes its members in camel case."""

    name: str
    type: Primitive
    camelcase: bool
    members: tuple[EnumMember, ...]
    doc: str
    position: Position


@dataclass(frozen=True, slots=True)
class Request:
    """A request, or a message that the server sends by itself.

    ``routing`` is the kind of broker that it is sent to; empty for any broker. ``response`` is None for a request
    without a response, and for a ``push``. ``response_key`` is the key in the header of the response, or None for the
    request's own. ``headers`` and ``response_headers`` are pairs of a first version, and of the header version from it
    on, where the definition gives them. The header of a push is a response header. ``cluster_action`` is whether only
    members of the cluster send the request.
    """

    struct: Struct
    key: int
    routing: str
    response: Struct | None
    push: bool = False
    response_key: int | None = None
    headers: tuple[tuple[int, int], ...] = ()
    response_headers: tuple[tuple[int, int], ...] = ()
    cluster_action: bool = False


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """A definition file. ``structs`` are its named structs in order; they contain the anonymous ones.

    ``own`` is False for Kafka's headers, and for the definitions that are used from another package; ``path``
    is the folder of that package.
    """

    path: Path
    module: str
    structs: tuple[Struct, ...]
    enums: tuple[Enum, ...]
    own: bool = True


@dataclass(frozen=True, slots=True)
class Protocol:
    """The definition files of a folder.

    ``package`` is the path of the folder below the source, with ``/`` as separator; empty for the source.
    ``used`` are the files of the packages whose definitions it uses. ``pushes`` are the messages that the server
    sends by itself.
    """

    package: str
    files: tuple[DefinitionFile, ...]
    requests: tuple[Request, ...]
    used: tuple[Path, ...] = ()
    pushes: tuple[Request, ...] = ()


def spelled_nulls(nullable: VersionRange) -> str:
    """Return what follows ``nullable``: empty, ``-v3+`` or ``-v0-v3``."""
    return "" if nullable == ALL_VERSIONS else f"-{nullable}"


def walk(struct: Struct) -> Iterator[Struct]:
    """Yield a struct and the anonymous structs in it, outer structs first."""
    yield struct
    for member in struct.fields:
        inner = struct_of(member.type)
        if inner is not None and inner.anonymous:
            yield from walk(inner)


def innermost_type(type_: Type) -> Type:
    """Return the type of an array's elements, or another type itself."""
    while isinstance(type_, Array):
        type_ = type_.element
    return type_


def struct_of(type_: Type) -> Struct | None:
    """Return the struct of a type or of an array's elements, or None."""
    type_ = innermost_type(type_)
    return type_.struct if isinstance(type_, StructType) else None
